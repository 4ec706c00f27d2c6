"""changed-layers: which layers of a model have quantized weights, whichever tool quantized them."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import UNKNOWN, Rubric
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.quantization.tools.quantizers import by_torch, by_torchao, legacy_dynamic
from hpml_lab.quantization.tools.torchao_parts import torchao

Names = Callable[[nn.Module], Iterable[str]]


class _Net(nn.Module):
    """Layers of several kinds, at two depths."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.words = nn.Embedding(10, 8)
        self.rows = nn.LSTM(8, 8)
        self.steps = nn.GRU(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)))
        self.head = nn.Linear(8, 2)


def _by_torchao(config: str, wanted: Callable[[nn.Module, str], bool], **options: Any) -> nn.Module:
    ao, net = torchao(), _Net()
    ao.quantize_(net, getattr(ao, config)(**options), filter_fn=wanted)
    return net


def _four_bits() -> nn.Module:
    ao = torchao()
    options = {"weight_dtype": torch.int4, "granularity": ao.PerAxis(0)}
    return _by_torchao("IntxWeightOnlyConfig", lambda module, path: path in ("words", "head"), **options)


def _fake() -> nn.Module:
    """Prepared for quantization-aware training: the weights are floats that are rounded on the way."""
    net = _Net()
    net.head = torch.ao.nn.qat.Linear(8, 2, qconfig=torch.ao.quantization.get_default_qat_qconfig("fbgemm"))
    return net


class QuantizedInputs(nn.Linear):
    """Rounds what comes in, and has weights of floats: only its name says Quantized."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.mul(16).round() / 16)


def _rounding() -> nn.Module:
    net = _Net()
    net.head = QuantizedInputs(8, 2)
    return net


def _static() -> nn.Module:
    net = _Net()
    net.conv = torch.ao.nn.quantized.Conv2d(1, 4, 3)
    net.inputs, net.sum = (
        torch.ao.nn.quantized.Quantize(0.1, 0, torch.quint8),
        torch.ao.nn.quantized.QFunctional(),
    )  # no weights
    return net


def _by_both() -> nn.Module:
    net = _by_torchao("Int8WeightOnlyConfig", lambda module, path: path == "head")
    net.body[2] = legacy_dynamic(net.body[2])
    return net


_BY_TORCH = {
    "a model that is not quantized": _Net,
    "a model whose Linear layers torch has quantized": lambda: legacy_dynamic(_Net()),
    "a model of which torch has quantized one Linear layer": lambda: legacy_dynamic(_Net(), {"body.2.0"}),
    "a model whose LSTM torch has quantized": lambda: legacy_dynamic(_Net(), {nn.LSTM}),
    "a model whose GRU torch has quantized": lambda: legacy_dynamic(_Net(), {nn.GRU}),
    "a model whose convolution torch has quantized statically": _static,
    "a model prepared for quantization-aware training": _fake,
    "a model with a layer that rounds only its inputs": _rounding,
    "a model in bfloat16": lambda: _Net().bfloat16(),
}
_BY_TORCHAO = {
    "a model whose Linear layers torchao has quantized": lambda: _by_torchao(
        "Int8DynamicActivationInt8WeightConfig", lambda module, path: isinstance(module, nn.Linear), set_inductor_config=False
    ),
    "a model of which torchao has quantized one Linear layer": lambda: _by_torchao(
        "Int8WeightOnlyConfig", lambda module, path: path == "body.0", set_inductor_config=False
    ),
    "a model of which torchao has quantized the embedding and the head to 4 bits": _four_bits,
    "a model of which torchao has quantized the head to floats of 8 bits": lambda: _by_torchao(
        "Float8WeightOnlyConfig", lambda module, path: path == "head", set_inductor_config=False
    ),
    "a model with one layer quantized by torch and another by torchao": _by_both,
}


# ---- known mistakes --------------------------------------------------------------------------------------------------


def own(module: nn.Module) -> list[torch.Tensor]:
    return list(module.parameters(recurse=False))


def right(model: nn.Module) -> list[str]:
    return [path for path, module in model.named_modules() if by_torch(module) or by_torchao(module)]


def dtype_of_weight(module: nn.Module) -> torch.dtype:
    return getattr(getattr(module, "weight", None), "dtype", torch.float32)


def _built(build: Callable[[], nn.Module]) -> nn.Module:
    with collect_warnings():
        return build().eval()


_kept = functools.cache(_built)  # ours; an answer gets models of its own


def _names_of(names: Names) -> Callable[[Callable[[], nn.Module]], list[str]]:
    return lambda build: sorted(names(_kept(build)))


_NO_TORCH = "You miss the layers that torch itself quantized. It puts a module of another class in the place of the layer."
_NO_TORCHAO = "torchao quantizes a layer and leaves its module the same nn.Linear as before: look at its weight's type."
_FLOATS = "You list layers of float weights. That a layer could be quantized does not mean that it is."
_KINDS = "You miss some kinds of layers. An Embedding, a convolution and an LSTM (which has no weight) can be quantized, too."
_LAST = "Give the whole path, such as body.2.0: several layers can have the same last part."
RUBRIC = Rubric(
    right,
    """
model.named_modules()
    not-nested :: model.named_children() :: The model's own children are not all: layers can be nested in them.
    last-part-of-the-name :: [(path.rpartition(".")[2], module) for path, module in model.named_modules()] :: $LAST
by_torchao(module)
    misses-torchao :: False :: $NO_TORCHAO
    floats-listed :: isinstance(module, nn.Linear) :: $FLOATS
    floats-listed :: own(module) :: $FLOATS
    floats-listed :: hasattr(module, "weight") :: $FLOATS
    bfloat16-listed :: by_torchao(module) or any(x.dtype != torch.float32 for x in own(module)) :: $BFLOAT
    bfloat16-listed :: by_torchao(module) or dtype_of_weight(module) != torch.float32 :: $BFLOAT
    only-some-kinds :: isinstance(module, nn.Linear) and by_torchao(module) :: $KINDS
by_torch(module)
    parts-listed :: "quantized" in type(module).__module__.split(".") :: A part of a quantized layer, such as its
        _packed_params, is not a layer.
    only-some-kinds :: by_torch(module).endswith(".Linear") :: $KINDS
    only-some-kinds :: "dynamic" in by_torch(module) :: $KINDS
    only-some-kinds :: callable(getattr(module, "weight", None)) :: $KINDS
    fake-quantized-listed :: by_torch(module) or hasattr(module, "weight_fake_quant") :: $FAKE
""",
    wrap=_names_of,
    LAST=_LAST,
    NO_TORCHAO=_NO_TORCHAO,
    FLOATS=_FLOATS,
    BFLOAT="bfloat16 is a smaller float; nothing is quantized there.",
    KINDS=_KINDS,
    FAKE="Before and during quantization-aware training the weights are floats; such a layer is not quantized yet.",
)


@exercise("changed-layers", notebook="16_quantization", takes="model", returns={str})
def judge_changed_layers(answer: Callable) -> None:
    """The paths of all modules whose weights are quantized, in any order."""
    cases = _BY_TORCH | (_BY_TORCHAO if _torchao_is_here() else {})
    found: dict[Callable, list[str]] = {}

    def listed(build: Callable[[], nn.Module]) -> list[str]:
        found[build] = _listed(answer(_built(build)), _kept(build))
        return found[build]

    try:
        expect_function(listed, _names_of(right), {case: (build,) for case, build in cases.items()}, mistakes=RUBRIC)
    except Mistake as mistake:
        if mistake.name in UNKNOWN:
            _explain({case: (found.get(build) or [], _kept(build)) for case, build in cases.items()})
        raise


def _explain(found: dict[str, tuple[list[str], nn.Module]]) -> None:
    """Raise the Mistake that says of what kind the first name is that should not be there, or is missing."""
    for case, (names, model) in found.items():
        wanted, modules = set(right(model)), dict(model.named_modules())
        for name in sorted(set(names) - wanted):
            mistake, why = _why_not(name, wanted, modules)
            raise Mistake(mistake, f"For {case} you list {repr(name) if name else 'the model itself'}: {why}")
        if missing := sorted(wanted - set(names)):
            module, kinds = modules[missing[0]], sorted({type(modules[name]).__name__ for name in missing})
            tool, mistake, hint = (
                (by_torch, "misses-torch", _NO_TORCH) if by_torch(module) else (by_torchao, "misses-torchao", _NO_TORCHAO)
            )
            if {type(modules[name]) for name in names} & {type(modules[name]) for name in missing}:
                mistake, hint = "misses-some", "Others of the same class you do list."
            elif any(path in some and tool(x) for some, net in found.values() for path, x in net.named_modules()):
                mistake, hint = "only-some-kinds", _KINDS
                if kinds == ["Linear"]:
                    mistake, hint = "misses-some", "In other models you do list layers that the same tool has quantized."
            raise Mistake(mistake, f"For {case} you miss {missing[0]!r} ({', '.join(kinds)}). {hint}")


def _why_not(name: str, wanted: set[str], modules: dict[str, nn.Module]) -> tuple[str, str]:
    """The mistake, and why this name is none of a layer with quantized weights."""
    if name not in modules:
        layer, _, last = name.rpartition(".")
        if layer in modules and hasattr(modules[layer], last):
            return "parameters-listed", "that is a parameter. Return the name of the layer that has it."
        return "not-a-layer", f"named_modules has no such name. {_LAST}"
    module, inside = modules[name], f"{name}." if name else ""
    if any(path != name and path.startswith(inside) for path in wanted):
        return "containers-listed", "it contains a quantized layer and is none itself."
    if any(name.startswith(f"{path}.") for path in wanted):
        return "parts-listed", "that is a part of a quantized layer."
    if own(module):
        return "floats-listed", f"its weights are floats. {_FLOATS}"
    return "without-weights-listed", f"a {type(module).__name__} has no weights. Only layers whose weights are quantized count."


def _torchao_is_here() -> bool:
    found = []

    def load() -> None:
        with contextlib.suppress(LabError):
            found.append(torchao())

    thread = threading.Thread(target=load)  # so that the seconds of the import do not count as the answer's
    thread.start()
    thread.join()
    return bool(found)


def _listed(names: Iterable[str], model: nn.Module) -> list[str]:
    names, paths = sorted(map(str, names)), {path for path, _ in model.named_modules()}
    if twice := [path for path in names if names.count(path) > 1 and path in paths]:
        raise Mistake("named-twice", f"You name {twice[0]!r} more than once.")
    return names
