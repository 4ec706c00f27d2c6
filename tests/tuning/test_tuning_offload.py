"""Activations in another memory: what is sent, that nothing else changes, and the allocator's history over time."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.autograd.graph import save_on_cpu

from hpml_lab.core.system.errors import LabError
from hpml_lab.tuning.experiments import batch_size, offload
from hpml_lab.tuning.experiments.batch_size import BatchStep
from hpml_lab.tuning.experiments.offload import ALL, KEEP, POLICY, TORCH, RoomierStep
from hpml_lab.tuning.lessons.offloading import Offload, bring_back, mapped_file, pinned_memory, send
from hpml_lab.tuning.tools.memory_history import in_use, memory_history

CPU = torch.device("cpu")
SMALL = dict(batch=64, gpu_batch=64, width=32, rows=64, depths=(4, 4096), samples=2)


@pytest.mark.parametrize(
    "tensor",
    [torch.randn(6, 4), torch.randn(6, 4).t(), torch.randn(6, 8)[:, ::2], torch.tensor(3), torch.randn(2, 3, 4).bfloat16()],
    ids=["rows", "columns", "every second", "scalar", "bfloat16"],
)
def test_a_tensor_comes_back_bitwise_and_with_its_strides(tensor):
    there = send(tensor, mapped_file)
    back = bring_back(there, CPU)
    assert torch.equal(back, tensor) and back.dtype == tensor.dtype
    assert back.stride() == there.stride() == torch.empty_like(tensor).stride()
    assert back.data_ptr() != there.data_ptr() != tensor.data_ptr()


def products(hooks, *factors):
    with hooks:
        out = factors[0]
        for factor in factors[1:]:
            out = out * factor
    return out


def test_what_exists_anyway_or_is_small_stays_and_all_else_is_sent():
    """Each product saves both factors: a, b, then a·b and c."""
    a, b, c = (torch.randn(100, requires_grad=True) for _ in range(3))
    for hooks, sent in (
        (Offload(mapped_file), 4),
        (Offload(mapped_file, stays=[a, b, c]), 1),
        (Offload(mapped_file, least=401), 0),
    ):
        found = torch.autograd.grad(products(hooks, a, b, c).sum(), (a, b, c))
        assert hooks.sent == sent * 400
        assert all(torch.equal(x, y) for x, y in zip(found, (b * c, a * c, a * b), strict=True))


def test_an_empty_tensor_is_not_sent():
    empty = torch.empty(0, requires_grad=True)
    products(hooks := Offload(mapped_file), empty, empty).sum().backward()
    assert hooks.sent == 0 and empty.grad.numel() == 0


def test_nothing_is_left_of_a_file_and_it_is_as_large_as_its_tensor(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    room = mapped_file(5, torch.float64)
    assert list(tmp_path.iterdir()) == [] and room.tolist() == [0.0] * 5 and room.untyped_storage().nbytes() == 40


def test_it_sends_what_torchs_own_hooks_send():
    """save_on_cpu(pin_memory=True) makes a copy on a CPU, too."""
    a, b = (torch.randn(100, requires_grad=True) for _ in range(2))
    counted = Offload(mapped_file)
    products(counted, a, b)
    with save_on_cpu(pin_memory=True):
        node = (a * b).grad_fn
    assert counted.sent == node._saved_self.nbytes + node._saved_other.nbytes
    assert node._saved_self.data_ptr() != a.data_ptr()


@pytest.mark.parametrize("deepest_ms, crosses", [(512, True), (1, False)])
def test_offload(sound, known_times, deepest_ms, crosses):
    """Copies of 8192 bytes take 2 ms: L = 8.192 MB/s. A depth of 4096 in 512 ms makes R = 32.768 MFLOP/s, so 4 R / L = 16."""
    again_ms = {4: 1, 4096: deepest_ms}

    def seconds(name, work):
        if name == "again":
            return 1e-3 * (again_ms[work.args[0].shape[1]] if hasattr(work, "args") else 3)
        return {"copies": 2e-3, KEEP: 0.2, POLICY: 0.3}.get(name, 1.0)

    known_times(offload, seconds)
    result = replace(offload.offload, quick=SMALL)("quick", device="cpu")
    sound(result)
    steps = {row.way: row for row in result.rows(RoomierStep)}
    activation, weight = 64 * 32 * 4, 32 * 32 * 4
    assert (steps[ALL].sent, steps[POLICY].sent) == (48 * activation + 31 * weight, 47 * activation)
    assert steps[KEEP].sent is steps[TORCH].sent is None
    assert 2 * steps[POLICY].peak_mb < steps[KEEP].peak_mb, "files are not in the allocator's memory"
    assert (steps[POLICY].extra_ms, steps[POLICY].link_ms) == (pytest.approx(100), pytest.approx(47 * 2))
    assert result.here("memory and mapped files, each way") == pytest.approx(8.192e-3)
    assert result.here("depth of a product from which copies are faster, 4 R / L") == pytest.approx(16 * 512 / deepest_ms)
    assert [claim.holds for claim in result.claims if not claim.exact] == [True, True, False, crosses], (
        "peak, link, GELU, depth"
    )


def test_a_full_disk_is_an_error_before_anything_is_written_to_a_mapped_file(monkeypatch):
    """Writing beyond what the disk holds would end the process by SIGBUS."""
    activation, weights = 64 * 32 * 4, 31 * 32 * 32 * 4
    monkeypatch.setattr(offload.shutil, "disk_usage", lambda _: SimpleNamespace(free=48 * activation + weights))
    with pytest.raises(LabError, match="Mapped files take 1 MB in .*TMPDIR"):
        replace(offload.offload, quick=SMALL)("quick", device="cpu")


@pytest.mark.cuda
def test_on_a_gpu_pinned_memory_takes_what_is_sent():
    a, b, c = (torch.randn(1 << 20, device="cuda", requires_grad=True) for _ in range(3))
    product = products(hooks := Offload(pinned_memory, stays=[a, b, c]), a, b, c)
    assert hooks.sent == 4 << 20 and product.grad_fn._saved_self.is_cuda, "what is read comes back to the GPU"
    assert torch.equal(torch.autograd.grad(product.sum(), c)[0], a * b)
    result = replace(offload.offload, quick=SMALL)("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []


# ---- the allocator's history -------------------------------------------------------------------------------------------------

# Typed by hand, in the form of torch.cuda.memory._snapshot()["device_traces"][0] of torch 2.11 to 2.15.
TRACE = [
    {"action": "free_completed", "addr": 9, "size": 4096, "time_us": 90, "stream": 0},  # of before the history
    {"action": "segment_alloc", "addr": 1, "size": 2 << 20, "time_us": 99, "stream": 0},
    {"action": "alloc", "addr": 1, "size": 4096, "time_us": 100, "stream": 0},
    {"action": "alloc", "addr": 2, "size": 100, "time_us": 300, "stream": 0},
    {"action": "free_requested", "addr": 1, "size": 4096, "time_us": 400, "stream": 0},
    {"action": "free_completed", "addr": 1, "size": 4096, "time_us": 500, "stream": 0},
    {"action": "alloc", "addr": 1, "size": 256, "time_us": 1100, "stream": 0},  # the same address again
    {"action": "snapshot", "addr": 0, "size": 0, "time_us": 1200, "stream": 0},
]


def test_a_history_becomes_memory_over_time_by_kind():
    times, found = in_use(TRACE, {4096: "activations", 256: "gradients"})
    assert times == pytest.approx([0, 0.2, 0.4, 1.0])
    assert found == {"activations": [4096, 4096, 0, 0], "gradients": [0, 0, 0, 256], "other": [0, 100, 100, 100]}
    assert in_use([], {}) == ([], {"other": []})


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_the_history_is_that_of_the_named_or_the_current_gpu(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **_: None)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [[], TRACE]})
    with memory_history(torch.device(name)) as events:
        pass
    assert events == TRACE


def test_the_history_of_a_step_is_drawn_below_the_curves(monkeypatch):
    monkeypatch.setattr(batch_size, "memory_history", lambda _: nullcontext(TRACE))
    history = batch_size.step_history(BatchStep(1, 8, CPU, torch.bfloat16), 128)
    assert history["mb"]["activations"] == [0.004096, 0.004096, 0, 0] and history["mb"]["gradients of weights"][-1] == 256e-6
    result = batch_size.batch_size.reference()
    result.arrays["history"] = history
    *_, drawn = result.figure().axes
    assert (drawn.get_xlabel(), drawn.get_ylabel()) == ("ms since the step began, on the host", "MB in use")
    assert [text.get_text() for text in drawn.get_legend().get_texts()] == list(history["mb"])


@pytest.mark.cuda
def test_on_a_gpu_the_historys_peak_is_that_of_the_allocator():
    device = torch.device("cuda:0")
    run = BatchStep(2, 64, device, torch.bfloat16)
    run(256)
    run.clear()
    with memory_history(device) as events:
        run(256)
    _, found = in_use(events, {4 * 256 * 64: "activations"})
    peak = max(map(sum, zip(*found.values(), strict=True)))
    assert 0.9 * run.peak(256) <= peak <= run.peak(256), "the allocator rounds each size up"
