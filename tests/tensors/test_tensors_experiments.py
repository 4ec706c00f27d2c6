"""The experiments of notebook 01 hold what they claim, and their kernels count rightly."""

import pytest
import torch

from hpml_lab.tensors import experiments, kernels
from hpml_lab.tensors.memory import shares_memory, visits

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def small_cpu_vs_gpu():
    """The experiment with parameters of a second or so."""
    from dataclasses import replace

    tiny = {"copy_kib": (64, 4096), "matmul": (8, 64), "batches": (1, 2), "elements": 4096, "matvec": 64, "transfer_mib": 1}
    return replace(experiments.cpu_vs_gpu, quick=tiny)("quick", device="cpu")


def test_tensor_basics_holds_all_its_claims():
    result = experiments.tensor_basics("quick")
    assert len(result.claims) == 7 and all(claim.holds and claim.exact for claim in result.claims)
    memory = {row["expression"]: row["memory"] for row in result.rows}
    assert memory["x[:, 1]"] == memory["x.T"] == "shared with x"
    assert memory["x[[0, 2]]"] == memory["x.T.reshape(2, 6)"] == "its own"


def test_cpu_vs_gpu_measures_every_kernel_and_marks_what_is_missing(small_cpu_vs_gpu):
    result = small_cpu_vs_gpu
    assert result
    parts = {row["part"] for row in result.rows}
    assert parts == {"copy", "matmul", "roofline", "inference", "training"}
    assert all(row["median, µs"] > 0 for row in result.rows)
    assert {row["device"] for row in result.rows} == {"cpu"}
    assert experiments.INFERENCE not in result.quantities, "no GPU, no figure"
    assert any("GPU half is not measured" in note for note in result.notes)


def test_both_rows_are_sound(small_cpu_vs_gpu, sound):
    sound(small_cpu_vs_gpu)
    sound(experiments.tensor_basics("quick"))


@pytest.mark.parametrize(
    "make, flops, size",
    [
        (kernels.copy, 0, 2 * 4 * 100),
        (kernels.add, 100, 3 * 4 * 100),
        (kernels.matvec, 2 * 100**2, 4 * (100**2 + 200)),
        (kernels.matmul, 2 * 100**3, 3 * 4 * 100**2),
    ],
)
def test_kernels_count_flops_and_bytes(make, flops, size):
    kernel = make(100, CPU)
    assert (kernel.flops, kernel.bytes) == (flops, size)
    kernel.work()


def test_convolution_flops_are_those_that_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    kernel = kernels.conv(2, 8, 16, CPU)
    with FlopCounterMode(display=False) as counter:
        kernel.work()
    assert counter.get_total_flops() == kernel.flops


def test_the_crossover_and_the_speedups_are_read_from_the_rows():
    def row(part, device, size, **more):
        return {"part": part, "device": device, "size": size, **more}

    rows = [row("matmul", "cpu", n, **{"median, µs": float(n)}) for n in (32, 64, 128)]
    rows += [row("matmul", "cuda:0", n, **{"median, µs": 50.0}) for n in (32, 64, 128)]
    for part in ("inference", "training"):
        rows += [row(part, "cpu", b, **{"images/s": 10.0 * b}) for b in (1, 2)]
        rows += [row(part, "cuda:0", b, **{"images/s": 100.0 * b}) for b in (1, 2)]
    found = experiments._speedups(rows, "cuda:0")
    assert found[experiments.CROSSOVER] == 64
    assert found[experiments.INFERENCE] == found[experiments.TRAINING] == 10.0


def test_training_changes_the_net_and_inference_does_not_track_gradients():
    step = kernels.cnn_training(4, CPU)
    net = step.__closure__[[name for name in step.__code__.co_freevars].index("net")].cell_contents
    before = net.classifier.weight.detach().clone()
    step()
    assert not torch.equal(before, net.classifier.weight)
    assert not kernels.cnn_inference(4, CPU)().requires_grad


def test_places_of_a_view_are_offset_plus_index_times_stride():
    x = torch.arange(24).reshape(2, 3, 4)
    for view in (x, x[1], x[:, 1], x.transpose(0, 2), x[..., ::2], x[1, 2, 3]):
        assert shares_memory(view, x)
        assert torch.equal(x.flatten()[visits(view)], view.flatten())


@pytest.mark.cuda
def test_on_a_gpu_both_halves_and_the_transfers_are_measured():
    from dataclasses import replace

    tiny = {"copy_kib": (64, 4096), "matmul": (8, 64), "batches": (1, 2), "elements": 4096, "matvec": 64, "transfer_mib": 8}
    result = replace(experiments.cpu_vs_gpu, quick=tiny)("quick", device="cuda")
    assert result
    assert {row["device"] for row in result.rows} == {"cpu", "cuda:0"}
    assert result.quantities[experiments.PCIE] > 0 and result.quantities[experiments.INFERENCE] > 0
    assert result.figure() is not None
