"""Kernels that a reader writes: memory guarded in the interpreter, and their speed on a GPU."""

import sys
import types

import pytest
import torch
import torch.nn.functional as F

from hpml_lab.core.judge.exercises import check
from hpml_lab.core.system.device import Device
from hpml_lab.core.timing.clock import Timing
from hpml_lab.tuning.exercises.attention_kernel import attention_kernel
from hpml_lab.tuning.exercises.fused_bias_gelu import bias_gelu_kernel
from hpml_lab.tuning.exercises.softmax_kernel import softmax_kernel
from hpml_lab.tuning.tools import written_kernels
from hpml_lab.tuning.tools.written_kernels import attention_rows, bias_gelu, kernel_speed, row_softmax

triton = pytest.importorskip("triton", reason="Triton has no wheel for this system")
import triton.language as tl  # noqa: E402

from hpml_lab.tuning.tools.guarded_memory import MemoryFault, guarded_launch, own_copy  # noqa: E402

CPU = torch.device("cpu")
DEVICES = [CPU, pytest.param(torch.device("cuda"), marks=pytest.mark.cuda)]


def plus_one(x_start, y_start, n, shift, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_start + index + shift, mask=index < n)
    tl.store(y_start + index, x + 1.0, mask=index < n)


def launched(kernel, x, *, programs=3, shift=0):
    y = torch.zeros_like(x)
    guarded_launch(kernel, (programs,), x, y, x.numel(), shift, BLOCK=4)
    return y


@pytest.mark.parametrize("kernel", [plus_one, triton.jit(plus_one)], ids=["function", "jit"])
def test_a_right_kernel_runs_and_nothing_of_the_caller_changes(kernel):
    before = set(globals())
    x = torch.arange(10.0)
    assert torch.equal(launched(kernel, x), x + 1) and torch.equal(x, torch.arange(10.0))
    wide = torch.zeros(10, 3)
    guarded_launch(kernel, (3,), x, wide[:, 1], 1, 0, BLOCK=4)  # a view: its first element alone
    assert wide.nonzero().tolist() == [[0, 1]]
    assert set(globals()) == before, "the interpreter adds its own names to a kernel's globals"
    from triton.runtime import interpreter

    assert not {"create_masked_load", "create_masked_store"} & set(vars(interpreter.interpreter_builder))


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated at the def before Python 3.14")
def test_a_kernel_of_a_cell_that_does_not_import_triton_needs_no_quotation_marks():
    names, annotate = {}, plus_one.__annotate__
    kernel = types.FunctionType(plus_one.__code__, names, "plus_one")
    kernel.__annotate__ = types.FunctionType(annotate.__code__, names)
    with pytest.raises(NameError):
        kernel.__annotations__  # noqa: B018
    assert torch.equal(launched(kernel, torch.arange(10.0)), torch.arange(10.0) + 1)


@pytest.mark.parametrize(
    ("shift", "n", "says"),
    [
        (0, 12, "program 2 loads at x_start + 10 to x_start + 11; the last element is at + 9"),
        (-1, 10, "program 0 loads at x_start + -1; the last element is at + 9"),
        (1, 10, "program 2 loads at x_start + 10; the last element is at + 9"),
        (100_000, 10, "program 0 loads at x_start + 100000 to x_start + 100003"),
    ],
)
def test_a_load_outside_is_stopped_and_says_where(shift, n, says):
    with pytest.raises(MemoryFault) as fault:
        guarded_launch(plus_one, (3,), torch.zeros(10), torch.zeros(10), n, shift, BLOCK=4)
    assert str(fault.value).startswith(says) and fault.value.kind == "loads-outside"


def test_a_store_outside_and_one_that_two_programs_make_are_stopped():
    def everywhere(x_start, y_start, n, shift, BLOCK: tl.constexpr):
        tl.store(y_start + tl.arange(0, BLOCK) + shift * tl.program_id(0), 1.0)

    with pytest.raises(MemoryFault, match=r"programs 0 and 1 both store at y_start \+ 3") as fault:
        launched(everywhere, torch.zeros(10), shift=3)
    assert fault.value.kind == "stores-twice"
    with pytest.raises(MemoryFault, match=r"program 2 stores at y_start \+ 10 to y_start \+ 11") as fault:
        launched(everywhere, torch.zeros(10), shift=4)
    assert fault.value.kind == "stores-outside"


def test_a_second_load_of_an_element_is_a_fault_where_each_is_to_be_loaded_once():
    def squared(x_start, y_start, n, shift, BLOCK: tl.constexpr):
        lane = tl.arange(0, BLOCK)
        first, second = tl.load(x_start + lane), tl.load(x_start + (lane + shift) % 4)
        tl.store(y_start + lane, first * second)

    y = torch.zeros(4)
    guarded_launch(squared, (1,), torch.arange(4.0), y, 4, 0, BLOCK=4)
    assert y.tolist() == [0, 1, 4, 9]
    with pytest.raises(MemoryFault, match=r"program 0 loads twice at x_start \+ 0 to x_start \+ 3") as fault:
        guarded_launch(squared, (1,), torch.arange(4.0), y, 4, 0, BLOCK=4, loads_once=True)
    assert fault.value.kind == "loads-twice"


def test_what_a_mask_turns_off_is_no_number_and_errors_are_the_kernels_own():
    def summed(x_start, y_start, n, shift, BLOCK: tl.constexpr):
        lane = tl.arange(0, BLOCK)
        tl.store(y_start + tl.program_id(0), tl.sum(tl.load(x_start + lane, mask=lane < n), 0))

    assert launched(summed, torch.ones(3), programs=1)[0].isnan()
    assert launched(summed, torch.ones(4), programs=1)[0] == 4

    def odd(x_start, y_start, n, shift, BLOCK: tl.constexpr):
        tl.arange(0, 3)

    with pytest.raises(ValueError, match="power of 2"):
        launched(odd, torch.ones(3))
    with pytest.raises(TypeError, match=r"odd\(\): missing a required argument"):
        guarded_launch(odd, (1,), torch.ones(1))
    with pytest.raises(TypeError, match=r"plus_one\(\) has no argument for a tensor"):
        guarded_launch(plus_one, (1,), 1, 2, 3, 4, BLOCK=4)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_the_right_answers_compute_what_torch_computes(device):
    x, bias = torch.randn(3, 100, device=device), torch.randn(100, device=device)
    torch.testing.assert_close(bias_gelu(bias_gelu_kernel, x, bias, block=64), F.gelu(x + bias))
    for given in (x, 30 * x[:, :7], x.half()):
        torch.testing.assert_close(row_softmax(softmax_kernel, given, gap=2), torch.softmax(given.float(), -1))


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize(("queries", "keys", "width", "block"), [(5, 70, 16, 16), (40, 33, 64, 32)])
def test_the_kernel_of_attention_computes_what_torch_computes(device, queries, keys, width, block):
    q, k, v = (torch.randn(rows, width, device=device) for rows in (queries, keys, keys))
    for given in ((q, k, v), (20 * q, k, v), (q.half(), k.half(), v.half())):
        truth = F.scaled_dot_product_attention(*(each[None].double() for each in given))[0].float()
        torch.testing.assert_close(attention_rows(attention_kernel, *given, block=block), truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [bias_gelu_kernel, softmax_kernel, attention_kernel])
def test_a_gpu_is_given_a_kernel_that_knows_the_language(kernel):
    assert "tl" not in kernel.__globals__, "as in a notebook, which imports no Triton"
    assert triton.jit(own_copy(kernel)).fn.__globals__["tl"] is tl


def test_without_triton_a_check_says_that_it_cannot_be_made(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    kernels = {"fused-bias-gelu": bias_gelu_kernel, "softmax-kernel": softmax_kernel, "attention-kernel": attention_kernel}
    for name, kernel in kernels.items():
        verdict = check(name, kernel)
        assert verdict.state == "not yet" and "cannot be checked here" in verdict.message and "macOS" in verdict.message


def test_the_speed_of_a_kernel(monkeypatch):
    def stub(x_start, y_start, x_stride, y_stride, columns, BLOCK): ...

    assert "no kernel yet" in repr(kernel_speed("softmax-kernel", stub))
    assert "no CUDA GPU here" in kernel_speed("softmax-kernel", softmax_kernel).message


def test_on_a_gpu_the_speed_is_a_share_of_a_copys(monkeypatch):
    """No GPU is needed: the times are known, and a copy moves 100 GB/s."""
    gpu = Device(torch.device("cuda"), "", torch.float32, "")
    monkeypatch.setattr(written_kernels, "choose_device", lambda: gpu)
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, device: randn(*shape[-1:]).expand(shape))
    times = {"yours": Timing((4e-3,), 1), "torch's": Timing((3e-3,), 1)}
    monkeypatch.setattr(written_kernels, "interleaved", lambda works, gpu: times)
    monkeypatch.setattr(written_kernels, "copy_bandwidth", lambda _: Timing((1.0,), 1, bytes=100e9))
    monkeypatch.setattr(written_kernels, "check", lambda name, kernel: True)
    said = kernel_speed("fused-bias-gelu", bias_gelu_kernel)
    assert said and said.message == "Of the speed of a large copy reach yours 67%, torch's 89%."


@pytest.mark.cuda
@pytest.mark.parametrize(("name", "kernel"), [("fused-bias-gelu", bias_gelu_kernel), ("softmax-kernel", softmax_kernel)])
def test_on_a_gpu_the_right_answers_are_timed(name, kernel):
    assert "speed of a large copy" in kernel_speed(name, kernel).message
