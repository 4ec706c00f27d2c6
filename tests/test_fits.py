"""What the large experiments need of a GPU's memory at full size, and what they become on smaller ones."""

from types import SimpleNamespace

import pytest
import torch

from hpml_lab.core.experiment import Params
from hpml_lab.core.experiment.registry import all_experiments, find
from hpml_lab.core.system.device import choose_device
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import PLACEBO, Timing
from hpml_lab.core.timing.counting import peak_bytes
from hpml_lab.tuning.experiments import all_switches, checkpointing, fused_layernorm, fused_optimizers
from hpml_lab.tuning.experiments.all_switches.in_process import peak_of_step
from hpml_lab.tuning.lessons.switches import GuideSwitches, SwitchedRun

CPU = torch.device("cpu")
FREE = {8: 7.0e9, 16: 14.8e9}  # of a card with so many GB, next to the context of a process and a desktop
SMALLER = [
    ("all-switches", "batch", 64, 256),
    ("checkpointing", "gpu_batch", 1 << 15, 1 << 16),
    ("offload", "gpu_batch", 1 << 15, 1 << 15),
    ("fused-optimizers", "large", 50_000_000, 100_000_000),
    ("fused-layernorm", "rows", 16384, 16384),
    ("gemm-tensor-cores", "gpu_sizes", (512, 1024, 2048, 4096), (512, 1024, 2048, 4096, 8192)),
    ("sparse-formats", "gpu_sizes", (4096,), (4096, 8192)),
]


@pytest.mark.parametrize("slug, name, on_8, on_16", SMALLER)
def test_full_size_fits_8_gb_and_16_gb(slug, name, on_8, on_16):
    experiment = find(slug)
    for memory, left in ((8, on_8), (16, on_16), (80, experiment.full[name])):
        params, free = SimpleNamespace(**experiment.full), FREE.get(memory, 79e9)
        scaled, note = experiment.fits.to(params, free)
        assert getattr(params, name) == left and bool(scaled) == bool(note) == (left != experiment.full[name])
        assert experiment.fits.bytes(params) <= 0.8 * free
    with pytest.raises(LabError, match="needs at least"):
        experiment.fits.to(SimpleNamespace(**experiment.full), 0.2e9)


def peak_of(module, experiment, monkeypatch, **parameters):
    """Bytes at the peak of a whole experiment on the CPU, each piece of work called once."""

    def once(works, *, placebo=None, **_):
        for work in works.values():
            work()
        return {name: Timing((1e-3,) * 5, 1) for name in [*works, placebo and PLACEBO]}

    monkeypatch.setattr(module, "interleaved", once)
    monkeypatch.setattr(module, "copy_bandwidth", lambda _: Timing((1e-3,), 1, bytes=1e6))
    params = Params(device=choose_device("cpu"), **parameters)
    return peak_bytes(lambda: experiment.function(params), CPU), experiment.fits.bytes(params)


def test_fused_optimizers_takes_what_it_says(monkeypatch):
    small = dict(tensors=4, side=8, large=1 << 20, steps=1, checked=(16,), samples=5)
    found, said = peak_of(fused_optimizers, fused_optimizers.fused_optimizers, monkeypatch, **small)
    assert found + 16 * small["large"] == pytest.approx(said, rel=0.25), "a GPU has the Triton kernel's optimizer, too"


def test_fused_layernorm_takes_what_it_says(monkeypatch):
    def absent(*_):
        raise LabError("There is no compiler.", "Install one.")

    monkeypatch.setattr(fused_layernorm, "compiled", absent)
    found, said = peak_of(fused_layernorm, fused_layernorm.fused_layernorm, monkeypatch, rows=1024, features=1024, samples=5)
    assert found == pytest.approx(said, rel=0.25)


def test_checkpointing_takes_what_its_recorded_run_took():
    recorded = find("checkpointing").reference().here("peak memory, none") * 1e6
    full = SimpleNamespace(**checkpointing.FULL)
    assert recorded + 4 * full.gpu_batch * full.width == pytest.approx(checkpointing.gpu_bytes(full), rel=0.05)


def test_all_switches_takes_what_it_says():
    images, labels = torch.randn(8, 1, 28, 28), torch.randint(10, (8,))
    sizes, rest = dict(channels=16, blocks=6), all_switches.gpu_bytes(SimpleNamespace(channels=0, blocks=0, batch=0))
    on = all_switches.compared_switches(has_cudnn=True)[all_switches.LARGE_BATCH]
    for switches, batch, factor in ((GuideSwitches(), 4, 1), (on, 8, all_switches.FACTOR)):
        found = peak_of_step(SwitchedRun(switches, images, labels, batch=batch, **sizes))
        said = all_switches.gpu_bytes(SimpleNamespace(batch=batch / factor, **sizes)) - rest
        assert found == pytest.approx(said, rel=0.25)


ON_GPUS = [experiment for experiment in all_experiments() if "cuda" in experiment.uses]


@pytest.mark.nightly("full size on a GPU")
@pytest.mark.cuda(seconds=3600)
@pytest.mark.parametrize("experiment", ON_GPUS, ids=lambda experiment: experiment.slug)
def test_every_experiment_runs_at_full_size_in_15_gb(experiment):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(min(1.0, 15e9 / total), 0)
    try:
        assert experiment("full", device="cuda:0")
    except LabError as error:
        assert "memory" not in error.problem, error  # a program, a package or data may be missing
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
