"""Ready-made quantization of a whole model, and which of its modules it reached.

    small = quantized(net, INT8)        # a copy; LabError where a layer that should be quantized is not
    quantized_modules(small)            # {"fc1": "…", …}: what really changed

Neither torch nor torchao raises anything where it cannot quantize a layer: that layer stays as it was. So look what changed.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from hpml_lab.core.experiment.fits import is_out_of_memory
from hpml_lab.core.system.attempt import error_message_of
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.net_copies import copy_of, require_own_weights
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.quantization.tools.torchao_parts import torchao

CONVOLUTIONS = "legacy int8 dynamic, convolutions too"
LEGACY, INT8, WEIGHT_ONLY, INT4 = "legacy int8 dynamic", "torchao int8 dynamic", "torchao int8 weight-only", "torchao 4-bit"
FLOAT8, INT4_PACKED, FLOAT8_DYNAMIC = "torchao float8 weight-only", "torchao int4 packed", "torchao float8 dynamic"
FP32, FP16, BF16 = "float32", "float16", "bfloat16"
GROUP = 32  # weights that share a scale, in the 4-bit formats


def legacy_dynamic(model: nn.Module, kinds: Iterable[type[nn.Module]] = (nn.Linear,), convolutions: bool = False) -> nn.Module:
    """The lecture's call: a copy of `model` with int8 weights, for the layers of these `kinds` that its mapping names.

    convolutions  add torch's dynamic convolution to the mapping, which the default leaves out
    """
    try:
        import torch.ao.nn.quantized.dynamic as dynamic
        from torch.ao.quantization import quantize_dynamic
        from torch.ao.quantization.quantization_mappings import get_default_dynamic_quant_module_mappings
    except ImportError as error:
        raise LabError(f"torch {torch.__version__} has no torch.ao.quantization any more.", f"Use {INT8!r}.") from error
    mapping = get_default_dynamic_quant_module_mappings() | ({nn.Conv2d: dynamic.Conv2d} if convolutions else {})
    kinds = set(kinds)
    layers = _layers_of(model, kinds)
    require_own_weights(layers)
    first = {layer: path for path, layer in layers.items()}
    everywhere = [(path, first[layer]) for path, layer in model.named_modules(remove_duplicate=False) if layer in first]
    small = quantize_dynamic(copy_of(model), kinds, dtype=torch.qint8, mapping=mapping, inplace=True)
    for path, origin in everywhere:  # a layer that is used twice stays one; torch replaces its first place, or makes two
        if path != origin:
            small.set_submodule(path, small.get_submodule(origin))
    return small


def _layers_of(model: nn.Module, kinds: Collection[Any]) -> dict[str, nn.Module]:
    """The layers of these kinds (types or paths) by path, without that within nn.MultiheadAttention, which stays in float."""
    types = tuple(kind for kind in kinds if isinstance(kind, type))
    layers = {path: layer for path, layer in model.named_modules() if path in kinds or isinstance(layer, types)}
    return {path: layer for path, layer in layers.items() if not isinstance(layer, NonDynamicallyQuantizableLinear)}


def _torchao(config: str, model: nn.Module, **options: Any) -> nn.Module:
    """A copy of `model` that torchao has quantized by the configuration of this name."""
    ao = torchao()
    make = getattr(ao, config)
    if "Intx" in config:
        options = {"weight_dtype": torch.int4, "granularity": ao.PerGroup(GROUP)}
    else:
        options["set_inductor_config"] = False  # True would change inductor's settings for the whole process, for good
    require_own_weights(_layers_of(model, (nn.Linear,)))
    model = copy_of(model)
    ao.quantize_(model, make(**options))
    return model


def _bfloat16(model: nn.Module) -> nn.Module:
    return copy_of(model).bfloat16()


FORMATS: dict[str, Callable[[nn.Module], nn.Module]] = {
    LEGACY: legacy_dynamic,
    INT8: partial(_torchao, "Int8DynamicActivationInt8WeightConfig"),
    WEIGHT_ONLY: partial(_torchao, "Int8WeightOnlyConfig"),
    INT4: partial(_torchao, "IntxWeightOnlyConfig"),
    FLOAT8: partial(_torchao, "Float8WeightOnlyConfig"),
    INT4_PACKED: partial(_torchao, "Int4WeightOnlyConfig", group_size=GROUP),
    FLOAT8_DYNAMIC: partial(_torchao, "Float8DynamicActivationFloat8WeightConfig"),
    BF16: _bfloat16,
}


def converted(model: nn.Module, name: str, **options: Any) -> nn.Module:
    """A copy of `model` in the format `name`, whatever of it the tool reached; LabError where the tool refuses.

    options  of the format's function in FORMATS
    """
    if name not in FORMATS:
        raise LabError(f"{name!r} is not a known format.", f"Take one of {', '.join(FORMATS)}.")
    try:
        with collect_warnings():
            return FORMATS[name](model, **options)
    except (AssertionError, ImportError, NotImplementedError, RuntimeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise LabError(f"{name} refuses this model: {error_message_of(error)}", "Choose another format.") from error


def quantized(model: nn.Module, name: str, kinds: Iterable[type[nn.Module]] = (nn.Linear,)) -> nn.Module:
    """A copy of `model` in which every layer of these `kinds` is quantized in the format `name`.

    Raises LabError for an unknown format, for a tool that is missing or refuses, and where it left such a layer as it was, or
    found none. The layer within nn.MultiheadAttention, which torch keeps in float on purpose, is none.
    """
    kinds = set(kinds)
    small = converted(model, name, **({"kinds": kinds} if name == LEGACY else {}))
    reached = quantized_modules(small)
    left = [(path, type(layer).__name__) for path, layer in _layers_of(small, kinds).items() if path not in reached]
    if not reached and not left and name != BF16:
        names = " or ".join(sorted(kind.__name__ for kind in kinds))
        raise LabError(f"{name} quantized nothing: this {type(model).__name__} has no {names} of its own.", "Name its `kinds`.")
    if left and name != BF16:
        path, kind = left[0]
        fix = f"By default it quantizes no {kind}: leave that kind out of `kinds`, or quantize it statically."
        if not path:
            fix = "It replaces the layers within a model: give it nn.Sequential(layer)."
        more = f", and {len(left) - 1} more layers" if len(left) > 1 else ""
        raise LabError(f"{name} left {path or 'the model itself'}, a {kind}, as it was{more}.", fix)
    return small


def quantized_modules(model: nn.Module) -> dict[str, str]:
    """{path: what is quantized there}, for each module of the model whose weights are quantized."""
    return {path: what for path, module in model.named_modules() if (what := by_torch(module) or by_torchao(module))}


def by_torch(module: nn.Module) -> str:
    """The class of a module with quantized weights, or "". torch replaces the module: in the new one, weight is a method."""
    where, has_weights = type(module).__module__, callable(getattr(module, "weight", None)) or hasattr(module, "get_weight")
    return f"{where}.{type(module).__qualname__}" if has_weights and "quantized" in where.split(".") else ""


def by_torchao(module: nn.Module) -> str:
    """The class of its quantized weight, or "". torchao keeps the module; the weight's dtype is still that of the floats."""
    kinds = [type(x) for x in module.parameters(recurse=False)]
    return next((kind.__name__ for kind in kinds if kind.__module__.startswith("torchao.")), "")
