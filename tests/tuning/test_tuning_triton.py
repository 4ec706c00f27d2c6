"""The kernels in Triton: arithmetic in the interpreter, compared with torch's. What only a GPU shows is marked."""

import copy
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.optim import LAMB

pytest.importorskip("triton", reason="Triton has no wheel for this system")
from hpml_lab.tuning.lessons import triton_adam, triton_gelu  # noqa: E402
from hpml_lab.tuning.lessons.triton_adam import TritonAdam  # noqa: E402
from hpml_lab.tuning.tools import (
    triton_kernel,
    triton_lamb,  # noqa: E402
)

CPU = torch.device("cpu")
DEVICES = [CPU, pytest.param(torch.device("cuda"), marks=pytest.mark.cuda)]


def padded(values):
    """Zeros appended up to a multiple of 16 elements, because torch's CPU kernel computes what does not fill a vector register
    in double precision, and so does not agree with itself."""
    return torch.cat([values.flatten(), values.new_zeros(-values.numel() % 16)])


def spacings(a, b, largest):
    gap = torch.nextafter(largest, torch.full_like(largest, torch.inf)) - largest
    return ((a - b).abs() / gap).max().item()


def largest_differences(shapes, device, steps, seed, **options):
    """The largest difference of p, m and v from torch's fused Adam, in spacings at the largest size so far.

    The size is that of the summands: where λ p and g nearly cancel, the rounding of either is all that their sum holds.
    """
    generator = torch.Generator().manual_seed(seed)
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    ours = [values.clone().to(device).requires_grad_() for values in start]
    theirs = [padded(values).to(device).requires_grad_() for values in start]
    own, torchs = TritonAdam(ours, **options), torch.optim.Adam(theirs, fused=True, **options)
    largest = [[torch.zeros_like(p) for p in ours] for _ in range(3)]
    worst = [0.0, 0.0, 0.0]
    for _ in range(steps):
        for a, b in zip(ours, theirs, strict=True):
            size = 10 ** (9 * torch.rand(a.shape, generator=generator) - 6)  # 1e-6 … 1e3
            grad = torch.randn(a.shape, generator=generator) * size
            a.grad, b.grad = grad.to(device), padded(grad).to(device)
        for i, a in enumerate(ours):
            summands = a.grad.abs() + options.get("weight_decay", 0) * a.detach().abs()
            beta1, beta2 = options.get("betas", (0.9, 0.999))
            largest[1][i] = torch.maximum(largest[1][i], (1 - beta1) * summands)
            largest[2][i] = torch.maximum(largest[2][i], (1 - beta2) * summands.square())
        own.step()
        torchs.step()
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            names = ("exp_avg", "exp_avg_sq")
            found = (a.detach(), *(own.state[a][name] for name in names))
            truth = (b.detach(), *(torchs.state[b][name] for name in names))
            for k, (x, y) in enumerate(zip(found, truth, strict=True)):
                y = y[: x.numel()].view_as(x)
                largest[k][i] = torch.maximum(largest[k][i], y.abs())
                worst[k] = max(worst[k], spacings(x, y, largest[k][i]))
    return worst


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_adam_is_torchs_fused_adam_within_4_spacings_on_a_gpu_and_one_a_step_on_a_cpu(device, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b, c, d = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
    options = dict(
        lr=10 ** (-4 + 3 * a),
        betas=(0.999 * b, 1 - 10 ** (-4 * c)),
        eps=10 ** (-10 + 4 * d),
        weight_decay=(0, 0.1 * a)[seed % 2],
    )
    shapes = [(1040,), (7,), (), (3, 5)] if device == CPU else [(100_003,), (1040,), (7,), (), (33, 65)]
    steps = 25 if device == CPU else 300
    # A CPU without fused multiply-add rounds once more, so each step may round p to a neighbor of what the other has. On a GPU
    # torch multiplies by λ in double, and the kernel by λ rounded to float32.
    bound = steps if device == CPU else 8 if options["weight_decay"] else 4
    assert max(largest_differences(shapes, device, steps, seed, maximize=seed == 3, **options)) <= bound


def test_a_wrong_adam_is_noticed(monkeypatch):
    right = triton_adam.bias_corrected
    monkeypatch.setattr(triton_adam, "bias_corrected", lambda *given: (right(*given)[0] * (1 + 1e-5), right(*given)[1]))
    assert max(largest_differences([(16,)], CPU, 10, 0, lr=0.1)) > 10


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_views_unaligned_and_transposed_tensors_are_updated(device):
    buffer, gradients = torch.randn(2100, device=device), torch.zeros(2 * 2100, device=device)
    plain = [buffer[1:1200].clone(), *(torch.randn(shape, device=device) for shape in ((4, 6), (2, 3, 4, 4), (2100,)))]
    odd = [
        buffer[1:1200],
        plain[1].t().contiguous().t(),
        plain[2].to(memory_format=torch.channels_last),
        plain[3].clone(),  # aligned, but its gradients will not be
    ]
    ends = []
    for tensors in (plain, odd):
        params = [tensor.detach().requires_grad_() for tensor in tensors]
        optimizer = TritonAdam(params, lr=0.1)
        for step in range(2):
            for p in params:
                p.grad = torch.sin(torch.arange(p.numel(), dtype=torch.float32) + step).view(p.shape).to(device)
            if tensors is odd:
                params[3].grad = gradients[1 + step : 2101 + step].copy_(params[3].grad)
            optimizer.step()
        ends.append([p.detach() for p in params])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))
    assert odd[0].data_ptr() % 16 and params[3].grad.data_ptr() % 16
    assert buffer[1200:].isfinite().all()  # neighbors in memory are unchanged


def test_new_gradients_leave_the_table_where_it_is_and_send_only_their_addresses():
    p = torch.zeros(5, requires_grad=True)
    optimizer, seen, tables, sent = TritonAdam([p], lr=0.1), [], [], []
    for step in range(4):
        if step != 2:
            seen.append(torch.full((5,), float(step + 1)))  # all are kept, so that each has an address of its own
        p.grad = seen[-1]
        optimizer.step()
        [table] = optimizer._tables.values()
        tables.append(table.rows)
        sent.append(table.gradients([p.grad]))
    assert all(rows is tables[0] for rows in tables)
    assert [addresses.item() for addresses in sent] == [seen[i].data_ptr() for i in (0, 1, 1, 2)]
    assert sent[1] is sent[2], "nothing is sent where nothing has moved"
    twin = torch.zeros(5, requires_grad=True)
    torchs = torch.optim.Adam([twin], lr=0.1)
    for i in (0, 1, 1, 2):
        twin.grad = seen[i]
        torchs.step()
    torch.testing.assert_close(p, twin)


@pytest.mark.cuda
def test_on_a_gpu_a_step_with_new_gradients_does_not_wait():
    params = [torch.randn(n, device="cuda").requires_grad_() for n in (5, 4096)]
    optimizer, held = TritonAdam(params), []
    for step in range(3):
        for p in params:
            p.grad = torch.randn_like(p)
        held.append([p.grad for p in params])
        torch.cuda.set_sync_debug_mode("error" if step else "default")  # the first step builds the table and may wait
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len(optimizer._tables) == 1


def test_groups_missing_gradients_copies_and_saved_states():
    p, q, empty = (torch.randn(n).requires_grad_() for n in (5, 3, 0))
    groups = [{"params": [p, empty]}, {"params": [q], "lr": 0.5}]
    own = TritonAdam(groups, lr=0.1)
    twins = [tensor.detach().clone().requires_grad_() for tensor in (p, empty, q)]
    torchs = torch.optim.Adam([{"params": twins[:2]}, {"params": twins[2:], "lr": 0.5}], lr=0.1)
    for step in range(4):
        for tensor, twin in zip((p, empty, q), twins, strict=True):
            tensor.grad = twin.grad = None if (tensor is q and step == 1) else torch.full_like(tensor, step - 1.5)
        if step == 2:
            fresh = TritonAdam([{"params": [p, empty]}, {"params": [q], "lr": 0.5}], lr=0.1)
            fresh.load_state_dict(copy.deepcopy(own.state_dict()))
            own = fresh
        own.step()
        torchs.step()
    for tensor, twin in zip((p, q), (twins[0], twins[2]), strict=True):
        torch.testing.assert_close(tensor, twin)
    assert own.state[q]["step"] == 3 and own.state[p]["step"] == 4
    assert copy.deepcopy(own)._tables == {}


@pytest.mark.parametrize("options", [{"amsgrad": True}, {"decoupled_weight_decay": True, "weight_decay": 0.1}])
def test_the_state_of_an_adam_with_another_rule_is_refused(options):
    p = torch.ones(3).requires_grad_()
    saved = torch.optim.Adam([p], lr=0.5, **options).state_dict()
    optimizer = TritonAdam([p])
    with pytest.raises(LabError, match="amsgrad or decoupled weight decay"):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 1e-3, "nothing was changed"


def parted_from_lamb(device, steps=4):
    """How far p, m and v of the LAMB in Triton are from those of the workbook's, relative to the largest of each tensor."""
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in ((1500,), (3, 5), (), (4, 6))] + [torch.zeros(7)]
    ours, theirs = ([tensor.clone().to(device).requires_grad_() for tensor in start] for _ in range(2))
    ours[3] = ours[3].detach().t().contiguous().t().requires_grad_()  # columns first in memory
    groups = [[{"params": params[:2], "lr": 0.1}, {"params": params[2:], "weight_decay": 0.0}] for params in (ours, theirs)]
    own, plain = triton_lamb.TritonLAMB(groups[0], lr=0.01), LAMB(groups[1], lr=0.01)
    for step in range(steps):
        for a, b in zip(ours, theirs, strict=True):
            gradient = torch.randn(a.shape, generator=generator).to(device)
            a.grad, b.grad = (None, None) if step == 1 and a is ours[1] else (gradient, gradient)
        own.step()
        plain.step()
    pairs = list(zip(ours, theirs, strict=True))
    pairs += [(own.state[a][name], plain.state[b][name]) for a, b in pairs for name in ("exp_avg", "exp_avg_sq")]
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_lamb_is_the_workbooks_lamb(device):
    assert parted_from_lamb(device) < 1e-6


def test_a_wrong_lamb_is_noticed(monkeypatch):
    monkeypatch.setattr(triton_lamb, "trust_ratio", lambda p, u: torch.ones_like(p))
    assert parted_from_lamb(CPU) > 1e-3


def test_unsupported_tensors_are_refused():
    half = torch.zeros(3, dtype=torch.float16, requires_grad=True)
    half.grad = torch.zeros_like(half)
    with pytest.raises(LabError, match="float32"):
        TritonAdam([half]).step()
    holes = torch.zeros(4, 6)[:, ::2].requires_grad_()
    holes.grad = torch.zeros(4, 3)
    with pytest.raises(LabError, match="holes"):
        TritonAdam([holes]).step()
    with pytest.raises(ValueError, match="betas"):
        TritonAdam([torch.zeros(1)], betas=(1.0, 0.9))
    with pytest.raises(ValueError, match="two betas"):
        TritonAdam([torch.zeros(1)], betas=(0.9,))
    with pytest.raises(LabError, match="float32"):
        triton_gelu.triton_gelu(torch.zeros(4, dtype=torch.float64))
    with pytest.raises(LabError, match=r"contiguous float32, not torch.float32 at \(1, 3\)"):
        triton_gelu.triton_gelu(torch.zeros(2, 3).t())


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 1023, 1024, 1025, 5000])
def test_gelu_is_gelu(device, n):
    x = 4 * torch.randn(n, generator=torch.Generator().manual_seed(n)).to(device)
    got, truth = triton_gelu.triton_gelu(x), F.gelu(x.double())
    gap = torch.nextafter(x.abs(), torch.full_like(x, torch.inf)) - x.abs()  # of x, for 1 + erf cancels left of 0
    assert ((got - truth).abs() <= 4 * gap).all()


def test_a_gpu_on_which_triton_cannot_launch_is_reported(monkeypatch):
    class NoCompiler:
        @property
        def utils(self):
            raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")

    import triton

    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=NoCompiler()))
    triton_kernel.require_triton(CPU)
    with pytest.raises(LabError, match="apt-get install gcc"):
        triton_kernel.require_triton(torch.device("cuda"))


def test_without_triton_the_import_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "hpml_lab.tuning.lessons.triton_gelu")
    with pytest.raises(LabError, match="macOS"):
        import hpml_lab.tuning.lessons.triton_gelu  # noqa: F401


def generated(kernel, pointers, constants):
    """The PTX that Triton generates for a GPU of compute capability 9.0; no GPU is needed."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = kernel.on(torch.device("cuda"))
    names = function.arg_names
    kinds = {name: "constexpr" if name in constants else pointers.get(name, "fp32") for name in names}
    fixed = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    target, options = GPUTarget("cuda", 90, 32), {"num_warps": triton_adam.WARPS, "enable_fp_fusion": False}
    return triton.compile(ASTSource(function, kinds, fixed, aligned), target=target, options=options).asm["ptx"]


def test_the_generated_adam_loads_and_stores_four_numbers_at_once_and_shares_nothing():
    try:
        ptx = generated(
            triton_adam.adam_kernel,
            {name: "*i64" for name in ("table", "gradients", "block_tensor", "block_start")},
            dict(DECAY=True, MAXIMIZE=False, GPU=True, COLUMNS=triton_adam.COLUMNS, BLOCK=triton_adam.BLOCK),
        )
    except (RuntimeError, FileNotFoundError, AttributeError) as error:
        pytest.skip(f"this Triton generates no code for another machine: {error}")
    each = triton_adam.BLOCK // (32 * triton_adam.WARPS)  # elements a thread
    assert ptx.count("ld.global.v4.b32") == 4 * each // 4 and ptx.count("st.global.v4.b32") == 3 * each // 4
    assert ptx.count("fma.rn.f32") == 5 * each and ptx.count("sqrt.rn.f32") == each and ptx.count("div.rn.f32") == 2 * each
    assert "bar.sync" not in ptx and ".shared" not in ptx


def test_the_interpreters_fma_rounds_once():
    pytest.importorskip("triton.runtime.interpreter")
    from triton.runtime import interpreter

    triton_kernel.round_fma_once(interpreter)
    import numpy as np
    import triton.language as tl

    a = interpreter.TensorHandle(np.array([1 + 2**-12], np.float32), tl.float32)
    c = interpreter.TensorHandle(np.array([-1 - 2**-11], np.float32), tl.float32)
    assert interpreter.interpreter_builder.create_fma(a, a, c).data[0] == 2.0**-24


@pytest.mark.cuda
def test_on_a_gpu_a_whole_model_takes_one_launch():
    from hpml_lab.core.timing.counting import kernels

    params = [torch.randn(n, device="cuda").requires_grad_() for n in (5, 4096, 100_003)]
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer = TritonAdam(params)
    ran = kernels(optimizer.step, params[0].device)
    assert [(kernel.name, kernel.calls) for kernel in ran] == [("adam_kernel", 1)]
