"""The experiments of notebook 01 hold what they claim, and their kernels count rightly."""

from dataclasses import replace

import pytest
import torch

from hpml_lab import tensors
from hpml_lab.core.findings import Table
from hpml_lab.core.result import Result
from hpml_lab.tensors import positions, shares_memory, workloads
from hpml_lab.tensors.experiments.cpu_vs_gpu import Copy, Images, Measured, Product, Roofline, Transfer, speedups
from hpml_lab.tensors.experiments.tensor_basics import Arithmetic, Expression

CPU = torch.device("cpu")


TINY = {"copy_kib": (64, 4096), "matmul": (8, 64), "batches": (1, 2), "elements": 4096, "matvec": 64, "transfer_mib": 8}


@pytest.fixture(scope="module")
def small_cpu_vs_gpu():
    """The experiment with parameters of a second or so."""
    return replace(tensors.cpu_vs_gpu, quick=TINY)("quick", device="cpu")


def test_tensor_basics_holds_all_its_claims():
    result = tensors.tensor_basics("quick")
    assert len(result.claims) == 7 and all(claim.holds and claim.exact for claim in result.claims)
    memory = {row.text: row.memory for row in result.rows(Expression)}
    assert memory["x[:, 1]"] == memory["x.T"] == "shared with x"
    assert memory["x[[0, 2]]"] == memory["x.T.reshape(2, 6)"] == "its own"
    values = {row.text: row.values for row in result.rows(Arithmetic)}
    assert values["a * b"] == "[4.0, 10.0, 18.0]" and values["a / b"] == "[0.25, 0.4, 0.5]"


def test_cpu_vs_gpu_measures_every_kernel_and_marks_what_is_missing(small_cpu_vs_gpu):
    result = small_cpu_vs_gpu
    assert result
    assert all(len(result.rows(kind)) >= 2 for kind in (Copy, Product, Roofline, Images)) and not result.rows(Transfer)
    assert all(row.microseconds > 0 and row.device == "cpu" for row in result.rows(Measured))
    assert result.here("small CNN, inference: GPU over CPU") is None, "no GPU, no figure"
    assert result.here("CPU memory bandwidth") > 0
    assert any("GPU half is not measured" in note for note in result.notes)


def test_both_experiments_are_sound(small_cpu_vs_gpu, sound):
    sound(small_cpu_vs_gpu)
    sound(tensors.tensor_basics("quick"))


@pytest.mark.parametrize(
    "make, flops, size",
    [
        (workloads.copy, 0, 2 * 4 * 100),
        (workloads.add, 100, 3 * 4 * 100),
        (workloads.matvec, 2 * 100**2, 4 * (100**2 + 200)),
        (workloads.matmul, 2 * 100**3, 3 * 4 * 100**2),
    ],
)
def test_kernels_count_flops_and_bytes(make, flops, size):
    workload = make(100, CPU)
    assert (workload.flops, workload.bytes) == (flops, size)
    workload.work()


def test_convolution_flops_are_those_that_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    workload = workloads.conv(2, 8, 16, CPU)
    with FlopCounterMode(display=False) as counter:
        workload.work()
    assert counter.get_total_flops() == workload.flops


def test_the_crossover_and_the_speedups_are_read_from_the_rows():
    sizes, batches = (32, 64, 128), (1, 2)
    products = [Product("cpu", float(n), 0.0, n, 1.0, 1.0) for n in sizes]
    products += [Product("cuda:0", 50.0, 0.0, n, 1.0, 1.0) for n in sizes]
    images = [
        Images(device, 1.0, 0.0, work, batch, rate * batch)
        for work in ("inference", "training")
        for device, rate in (("cpu", 10.0), ("cuda:0", 100.0))
        for batch in batches
    ]
    assert speedups(Result([Table("", products), Table("", images)]), "cuda:0") == (10.0, 10.0, 64)


def test_training_changes_the_net_and_inference_does_not_track_gradients():
    step = workloads.cnn_training(4, CPU)
    net = step.__closure__[[name for name in step.__code__.co_freevars].index("net")].cell_contents
    before = net.classifier.weight.detach().clone()
    step()
    assert not torch.equal(before, net.classifier.weight)
    assert not workloads.cnn_inference(4, CPU)().requires_grad


def test_places_of_a_view_are_offset_plus_index_times_stride():
    x = torch.arange(24).reshape(2, 3, 4)
    for view in (x, x[1], x[:, 1], x.transpose(0, 2), x[..., ::2], x[1, 2, 3]):
        assert shares_memory(view, x)
        assert torch.equal(x.flatten()[positions(view)], view.flatten())


@pytest.mark.cuda
def test_on_a_gpu_both_halves_and_the_transfers_are_measured():
    result = replace(tensors.cpu_vs_gpu, quick=TINY)("quick", device="cuda")
    assert result
    assert {row.device for row in result.rows(Product)} == {"cpu", "cuda:0"}
    assert result.here("host to GPU, pinned") > 0 and result.here("small CNN, inference: GPU over CPU") > 0
    assert result.figure() is not None
