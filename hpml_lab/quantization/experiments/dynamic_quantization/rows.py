"""The rows of dynamic-quantization, and how each is measured."""

import itertools
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.experiment.fits import is_out_of_memory
from hpml_lab.core.system.attempt import error_message_of
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.clock import Timing, interleaved
from hpml_lab.core.timing.counting import operators
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.quantization.tools.quantizers import BF16, FP16, FP32, converted, legacy_dynamic, quantized_modules
from hpml_lab.quantization.tools.sizes import sizes
from hpml_lab.quantization.tools.torchao_parts import torchao

DTYPES = {FP32: torch.float32, FP16: torch.float16, BF16: torch.bfloat16}
LAYERS = (nn.Linear, nn.Conv2d)


@dataclass
class ChangedModel(Row):
    """What a tool changes of a model, and how large the model is then."""

    model: str = column("model")
    format: str = column("format")
    linear: int = column("Linear layers")
    convolutions: int = column("convolutions")
    changed: int = column("changed")
    first: str = column("first of them")
    file_mb: float = column("file", "MB")
    difference: float = column("difference", "%")
    needed_mb: float = column("values need", "MB")
    before: int = 0  # bytes of tensors, and how many of them stay as they were
    after: int = 0
    stayed: int = 0


@dataclass
class LayerCost(Row):
    """One Linear layer without bias in a format: bits per weight, scales included, and what a call of it does."""

    format: str = column("format")
    stored: float = column("stored", "bits per weight")
    needed: float = column("values need", "bits per weight")
    operators: int = column("operators per call")
    copies: int = column("float copies of the weight per call")
    error: float = column("relative error of the output")


@dataclass(eq=False)
class TimedForward(Row):
    """A forward pass in a format, timed in turns with the unquantized one."""

    model: str = column("model")
    batch: int = column("batch")
    format: str = column("format")
    ms: float = column("time", "ms")
    gain: float | None = column("speed-up", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)
    error: float | None = column("relative error", "", None)
    width: int = 0
    low: float = 1.0
    high: float = 1.0
    noise: float = 0.0
    where: str = ""

    @property
    def speed_up(self) -> SpeedUp:
        """How fast it is compared with the base, which is 1 compared with itself."""
        return SpeedUp(self.gain or 1.0, self.low, self.high, self.noise)


@dataclass
class LeNetAccuracy(Row):
    """The lecture's LeNet, trained in float32, in a format."""

    format: str = column("format")
    changed: int = column("layers changed")
    accuracy: float = column("test accuracy", "%")
    same: int = column("same predictions")
    images: int = column("of")
    file_kb: float = column("file", "kB")


@dataclass
class RefusedModel(Row):
    """What does not run here, and what it says."""

    what: str = column("what")
    outcome: str = column("outcome")


@dataclass
class SeenWarning(Row):
    """A warning that the lecture's lines cause today."""

    package: str = column("package")
    category: str = column("category")
    text: str = column("first sentence")


def changed_model(label: str, name: str, model: nn.Module, small: nn.Module) -> ChangedModel:
    """Compare a model with what a tool made of it."""
    before, after, paths = sizes(model), sizes(small), list(quantized_modules(small))
    kinds = [next((kind for kind in LAYERS if isinstance(module, kind)), None) for module in model.modules()]
    reached = sum(sizes(model.get_submodule(path)).tensor_bytes for path in paths)
    return ChangedModel(
        label,
        name,
        kinds.count(nn.Linear),
        kinds.count(nn.Conv2d),
        len(paths),
        ", ".join(paths[:2]) + (", …" if len(paths) > 2 else ""),
        after.file_bytes / 1e6,
        100 * (after.file_bytes / before.file_bytes - 1),
        after.value_bits / 8e6,
        before.tensor_bytes,
        after.tensor_bytes,
        before.tensor_bytes - reached,
    )


@torch.no_grad()
def layer_cost(name: str, width: int) -> LayerCost:
    """Count what one Linear layer of width → width takes in a format, and what one call of it does."""
    layer, x = nn.Sequential(nn.Linear(width, width, bias=False)), torch.randn(4, width)
    small = layer if name == FP32 else converted(layer, name)
    right, x, found = layer(x), cast(x, name), sizes(small)
    called = operators(lambda: small(x))
    copies = sum(operator.written >= 2 * width * width for operator in called)  # in any type of 16 bits or more
    weights = width * width
    return LayerCost(
        name, 8 * found.tensor_bytes / weights, found.value_bits / weights, len(called), copies, distance(small(x), right)
    )


def cast(x: torch.Tensor, name: str) -> torch.Tensor:
    """`x` as a model in this format takes it."""
    return x.to(DTYPES.get(name, x.dtype))


def distance(got: torch.Tensor, right: torch.Tensor) -> float:
    """‖got − right‖ / ‖right‖."""
    return ((got.float() - right.float()).norm() / right.float().norm()).item()


def outcome_of(work: Callable[[], object]) -> str:
    """The type and the first line of what `work()` raises, or "runs". A lack of memory is raised: it says nothing of a tool."""
    try:
        work()
    except LabError as error:
        return error_message_of(error.__cause__ or error)
    except Exception as error:  # each tool has its own: AssertionError, ImportError, NotImplementedError, …
        if is_out_of_memory(error):
            raise
        return error_message_of(error)
    return "runs"


@torch.no_grad()
def runs_on(device: torch.device, dtype: torch.dtype, names: Iterable[str]) -> tuple[list[str], list[RefusedModel]]:
    """Which formats run on a device, tried on one small layer, and what the others say."""
    layer = nn.Sequential(nn.Linear(256, 256)).to(device, dtype)
    x = torch.randn(32, 256, device=device, dtype=dtype)
    said = {name: outcome_of(lambda name=name: converted(layer, name)(cast(x, name))) for name in names}
    refused = [RefusedModel(f"{name} on {device.type}", outcome) for name, outcome in said.items() if outcome != "runs"]
    return [name for name, outcome in said.items() if outcome == "runs"], refused


@torch.no_grad()
def timed_forwards(
    label: str, nets: dict[str, nn.Module], x: torch.Tensor, samples: int, width: int = 0, where: str = "on the CPU"
) -> tuple[list[TimedForward], dict[str, Timing]]:
    """Time a forward pass of each of `nets`, {format: model}; the first is the base. `x` has the base's dtype."""
    base, *others = nets
    gpu = x.device if x.device.type == "cuda" else None
    inputs = {name: cast(x, name) for name in nets}
    works = {name: partial(net, inputs[name]) for name, net in nets.items()}
    times = interleaved(works, samples=samples, placebo=base, gpu=gpu)
    right = works[base]()
    rows = [TimedForward(label, len(x), base, times[base].seconds * 1e3, width=width, where=where)]
    for name in others:
        gain: SpeedUp = speed_up(times, base, name)
        ms, error = times[name].seconds * 1e3, distance(works[name](), right)
        ends = {"low": gain.low, "high": gain.high, "noise": gain.noise, "where": where}
        rows.append(TimedForward(label, len(x), name, ms, **gain.columns, error=error, width=width, **ends))
    return rows, times


# ---- the lecture's lines ---------------------------------------------------------------------------------------------


@contextmanager
def every_warning():
    """Collect the warnings of a block, also those that torch shows only once per process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with collect_warnings() as caught:
            yield caught
    finally:
        torch.set_warn_always(before)


def lectures_lines() -> tuple[nn.Module, nn.Module, list[SeenWarning]]:
    """ResNet-18, what the lecture's call makes of it, and the warnings on the way; random weights, so nothing is fetched."""
    import torchvision  # here, because it takes seconds

    with every_warning() as of_model:
        model = torchvision.models.resnet18(pretrained=False).eval()
    with every_warning() as of_call:
        small = legacy_dynamic(model, {nn.Conv2d, nn.Linear})
    packages = (f"torchvision {torchvision.__version__}", of_model), (f"torch {torch.__version__}", of_call)
    seen = [(package, w.category.__name__, first_sentence(str(w.message))) for package, found in packages for w in found]
    return model, small, list(itertools.starmap(SeenWarning, dict.fromkeys(seen)))


def first_sentence(text: str) -> str:
    return text.split("\n")[0].split(". ")[0].strip(" .")


def has_torchao() -> str:
    """ "" if torchao is installed, else what to do."""
    try:
        torchao()
    except LabError as error:
        return str(error)
    return ""


def encoder_in_evaluation(model: nn.Module, name: str, width: int) -> RefusedModel:
    """Run a quantized nn.TransformerEncoder as one would: in evaluation mode and without gradients."""
    with torch.no_grad():
        outcome = outcome_of(lambda: converted(model, name)(torch.randn(1, 8, width)))
    return RefusedModel(f"{name}: nn.TransformerEncoder in evaluation mode", outcome)
