"""Full size is made to fit into the GPU's memory, a lack of memory is one clear error, and a run says what it used."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

import hpml_lab
from hpml_lab.core.experiment import Fits, Result, experiment, registry
from hpml_lab.core.experiment.fits import is_out_of_memory
from hpml_lab.core.system import machine
from hpml_lab.core.system.device import Device
from hpml_lab.core.system.errors import LabError

BATCH = Fits(lambda p: 1e8 * p.batch, "batch", least=16)
SIZES = Fits(lambda p: 4 * max(p.sizes) ** 2, "sizes", least=2)


@pytest.mark.parametrize(
    "free, batch, label",
    [
        (80e9, 128, ""),
        (16e9, 128, ""),
        (12e9, 64, "scaled to a half"),
        (6.9e9, 32, "scaled to a quarter"),
        (2e9, 16, "scaled to an eighth"),
    ],
)
def test_the_parameter_is_halved_until_it_fits(free, batch, label):
    params = SimpleNamespace(batch=128)
    found, note = BATCH.to(params, free)
    assert (params.batch, found) == (batch, label)
    assert not note if not label else f"batch 128 → {batch}" in note and f"{free / 1e9:.1f} GB are free" in note


def test_the_largest_entries_of_a_tuple_are_left_out():
    params = SimpleNamespace(sizes=(1024, 4096, 16384, 32768))
    label, note = SIZES.to(params, 2e9)
    assert params.sizes == (1024, 4096, 16384) and label == "scaled to 3 of 4 sizes" and "5.4 GB" in note


@pytest.mark.parametrize("fits, params, free", [(BATCH, {"batch": 128}, 1e9), (SIZES, {"sizes": (4096, 8192)}, 1e8)])
def test_below_the_least_size_the_error_gives_both_figures(fits, params, free):
    with pytest.raises(LabError, match=rf"needs at least .* GB of GPU memory, and {free / 1e9:.1f} GB are free") as caught:
        fits.to(SimpleNamespace(**params), free)
    assert "--size quick" in caught.value.fix


@pytest.fixture
def on_gpu(monkeypatch):
    """A registry of its own, in which experiments run on a GPU that is not there: (free bytes, allocations) can be set."""
    seen = SimpleNamespace(free=7e9, allocations=0, entered=[], launches=0)

    @contextlib.contextmanager
    def current(gpu):
        seen.entered.append(gpu)
        yield

    device = Device(torch.device("cuda", 1), "", torch.bfloat16, "")
    here = machine.describe() | {"gpus": 2, "gpu": "Some GPU"}
    monkeypatch.setattr(registry, "_REGISTRY", {})
    monkeypatch.setattr(registry, "choose_device", lambda requested: device)
    monkeypatch.setattr(registry, "free_bytes", lambda gpu: seen.free)
    monkeypatch.setattr(registry, "allocations", lambda gpu: seen.allocations)
    monkeypatch.setattr(registry, "current_device", current)
    monkeypatch.setattr("hpml_lab.core.timing.clock.launch_seconds", lambda gpu: 13.8e-6)
    monkeypatch.setattr(machine, "describe", lambda index=0: here)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1e8, 8e9))
    return seen


def made(seen, allocations=1, **options):
    @experiment("sample", lecture="L9", notebook="99_test", quick={"batch": 128}, full={"batch": 128}, **options)
    def sample(params):
        """It uses the GPU."""
        assert seen.entered == [torch.device("cuda", 1)], "what names no GPU means the chosen one"
        seen.allocations += allocations
        return Result(notes=[f"batch {params.batch}"])

    return sample


def test_full_size_is_scaled_on_a_small_gpu_and_says_so_and_quick_never_is(on_gpu):
    sample = made(on_gpu, fits=BATCH)
    result = sample("full")
    assert result.size == "full, scaled to a quarter" and result.notes[1] == "batch 32"
    assert result.notes[0].startswith("Scaled to a quarter (batch 128 → 32)") and "7.0 GB are free" in result.notes[0]
    assert "full, scaled to a quarter on cuda:1, 2 × Some GPU" in result.where
    on_gpu.entered.clear()
    assert sample("quick").notes == ["batch 128"]


def test_a_result_says_what_it_used_and_what_a_launch_costs_there(on_gpu):
    result = made(on_gpu)("full")
    assert result.device == "cuda:1" and result.machine["launch_us"] == 13.8
    assert "2 × Some GPU" in result.ran_on and "a launch takes 13.8 µs" in result.where


def test_a_result_that_used_no_gpu_is_labeled_with_the_processor(on_gpu):
    result = made(on_gpu, allocations=0)("full")
    assert result.device == "cpu" and "Some GPU" not in result.where and result.machine["launch_us"] is None


def test_an_experiment_whose_own_processes_used_the_gpu_says_so(on_gpu):
    @experiment("sample", lecture="L9", notebook="99_test", quick={}, full={})
    def sample(params):
        """Its children use the GPU."""
        return Result(device=str(params.device))

    result = sample("quick")
    assert result.device == "cuda:1" and result.machine["launch_us"] == 13.8


@pytest.mark.parametrize("count, device", [(1, "cpu"), (2, "cuda:1")])
def test_ranks_use_the_gpus_in_processes_of_their_own(on_gpu, monkeypatch, count, device):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert made(on_gpu, allocations=0, uses=("two-gpus",))("full").device == device


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when …")]
)
def test_a_gpu_that_another_process_fills_is_one_clear_error(on_gpu, error):
    @experiment("full-up", lecture="L9", notebook="99_test")
    def full_up(params):
        """It runs out of memory."""
        raise error

    with pytest.raises(LabError, match="The memory of cuda:1 is full: 0.1 GB of 8.0 GB are free") as caught:
        full_up("quick")
    assert "nvidia-smi" in caught.value.fix and caught.value.__cause__ is error


def test_another_error_stays_what_it_is(on_gpu):
    @experiment("wrong", lecture="L9", notebook="99_test")
    def wrong(params):
        """It is wrong."""
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        wrong("quick")
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))


def test_a_label_counts_gpus_and_old_records_have_one():
    here = dict(machine.describe()) | {"gpu": "A", "torch": "2.15"}
    assert [machine.label(here | {"gpus": count}) for count in (None, 1, 4)] == [
        "A (torch 2.15)",
        "A (torch 2.15)",
        "4 × A (torch 2.15)",
    ]
    assert machine.label(here | {"cpu": "B", "cores": 8}, "cpu") == "B, 8 cores (torch 2.15)"


def test_nvidia_smi_is_asked_for_the_driver_and_the_clocks_of_one_gpu(monkeypatch):
    asked = []

    def run(command, **options):
        asked.append(command)
        return SimpleNamespace(stdout="580.65.06, 1980 MHz, 2619 MHz\n")

    monkeypatch.setattr(machine.subprocess, "run", run)
    assert machine.driver_and_clocks("abc") == ("580.65.06", "1980 MHz SM, 2619 MHz memory")
    assert "--id=GPU-abc" in asked[0]
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="No devices were found\n"))
    assert machine.driver_and_clocks("abc") == (None, None), "a slice of a GPU has no such id"


def test_the_commit_is_that_of_the_checkout_or_what_the_wheel_was_built_from(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(machine, "SHIPPED", tmp_path)
    for built, commit, version in (
        (None, None, "(commit unknown)"),
        ("", None, "(commit unknown)"),
        ("abc", "abc", "(commit abc)"),
        ("abc+", "abc+", "(commit abc, changed since)"),
    ):
        machine.commit.cache_clear()
        if built is not None:
            (tmp_path / "commit").write_text(built)
        assert machine.commit() == commit and machine.version() == f"{hpml_lab.__version__} {version}"
    for changed, mark in (("", ""), (" M hpml_lab/cli.py", "+"), (None, "+")):  # None: git did not answer in time
        machine.commit.cache_clear()
        monkeypatch.setattr(machine, "git", lambda *words, changed=changed: "abc" if words[0] == "rev-parse" else changed)
        assert machine.commit() == f"abc{mark}"
    machine.commit.cache_clear()


@pytest.mark.cuda
def test_memory_that_a_process_may_not_use_is_not_free():
    from hpml_lab.core.experiment.fits import free_bytes

    device = torch.device("cuda", 0)
    torch.cuda.set_per_process_memory_fraction(0.1, device)
    try:
        assert free_bytes(device) <= 0.1 * torch.cuda.mem_get_info(device)[1]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
