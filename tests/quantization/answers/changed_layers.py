"""Answers to `changed-layers`: names of the layers whose weights are quantized, by torch or by torchao."""

import numpy as np
import torch
from torch import nn


def has_weights(module):
    """False for the parts of a layer, and for what quantizes activations."""
    return hasattr(module, "weight") or hasattr(module, "get_weight")


def solution(model):
    names = []
    for name, module in model.named_modules():
        replaced = "quantized" in type(module).__module__.split(".")
        has_weights = hasattr(module, "weight") or hasattr(module, "get_weight")  # what quantizes activations has none
        own = any(type(p) is not nn.Parameter for p in module.parameters(recurse=False))
        if replaced and has_weights or own:
            names.append(name)
    return names


def by_module_name_of_the_type(model):
    found = set()
    for name, module in model.named_modules():
        if type(module).__module__.startswith(("torch.ao.nn.quantized", "torch.nn.quantized")) and has_weights(module):
            found.add(name)
        if any("torchao" in type(p).__module__ for p in module._parameters.values() if p is not None):
            found.add(name)
    return {name for name in found if not any(name != other and name.startswith(other + ".") for other in found)}


def by_recursion(model, prefix=""):
    names = []
    for child_name, child in model.named_children():
        path = f"{prefix}.{child_name}" if prefix else child_name
        if "nn.quantized" in type(child).__module__:
            names += [path] if has_weights(child) else []
            continue
        if any(hasattr(p, "qdata") for p in child.parameters(recurse=False)):
            names.append(path)
        names.extend(by_recursion(child, path))
    return names


def by_the_state(model):
    """Owners of quantized tensors, of packed parameters and of subclasses of tensors in the state."""
    names = {}
    for key, value in model.state_dict().items():
        if "_packed_params" in key and key.endswith("_packed_params"):
            names[key.split("._packed_params")[0]] = True
        elif "_all_weight_values" in key:
            names[key.split("._all_weight_values")[0]] = True
        elif isinstance(value, torch.Tensor) and (value.is_quantized or type(value) is not torch.Tensor):
            names[key.rpartition(".")[0]] = True
    return tuple(names)


def as_a_dictionary(model):
    return {name: type(model.get_submodule(name)).__name__ for name in solution(model)}


def as_an_array(model):
    return np.array(solution(model), dtype=object)


def lazily(model):
    yield from reversed(solution(model))


def by_the_base_class(model):
    from torchao.utils import TorchAOBaseTensor

    def quantized(module):
        if any(isinstance(p, TorchAOBaseTensor) for p in module.parameters(recurse=False)):
            return True
        return type(module).__module__.startswith("torch.ao.nn.quantized") and has_weights(module)

    return [name for name, module in model.named_modules() if quantized(module)]


ALSO_RIGHT = [by_module_name_of_the_type, by_recursion, by_the_state, as_a_dictionary, as_an_array, lazily, by_the_base_class]


def every_linear(model):
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def every_linear_of_both(model):
    kinds = (nn.Linear, torch.ao.nn.quantized.dynamic.Linear)
    return [name for name, module in model.named_modules() if isinstance(module, kinds)]


def only_what_torch_replaced(model):
    return [
        name
        for name, module in model.named_modules()
        if callable(getattr(module, "weight", None)) or hasattr(module, "get_weight")
    ]


def the_namespace_alone(model):
    return [name for name, module in model.named_modules() if "quantized" in type(module).__module__]


def parts_and_torchao(model):
    return [
        name
        for name, module in model.named_modules()
        if "quantized" in type(module).__module__ or any(type(p) is not nn.Parameter for p in module.parameters(recurse=False))
    ]


def only_torchao(model):
    return [
        name for name, module in model.named_modules() if any(hasattr(p, "qdata") for p in module.parameters(recurse=False))
    ]


def by_dtype(model):
    return [
        name
        for name, module in model.named_modules()
        if any(p.dtype in (torch.int8, torch.qint8) for p in module.parameters(recurse=False))
    ]


def by_any_dtype(model):
    names = []
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if callable(weight) or isinstance(weight, torch.Tensor) and (weight.dtype != torch.float32 or hasattr(weight, "qdata")):
            names.append(name)
    return names


def own_children_only(model):
    return [name for name in solution(model) if "." not in name]


def last_part(model):
    return [name.split(".")[-1] for name in solution(model)]


def containers(model):
    def holds(module):
        return any(hasattr(p, "qdata") for p in module.parameters())

    return sorted({name for name, module in model.named_modules() if holds(module)} | set(solution(model)))


def linear_only(model):
    names = []
    for name, module in model.named_modules():
        if isinstance(module, torch.ao.nn.quantized.dynamic.Linear):
            names.append(name)
        elif isinstance(module, nn.Linear) and type(module.weight) is not nn.Parameter:
            names.append(name)
    return names


def no_lstm(model):
    return [
        name
        for name, module in model.named_modules()
        if hasattr(module, "weight") and (callable(module.weight) or type(module.weight) is not nn.Parameter)
    ]


def one_class(model):
    names = [name for name in solution(model)]
    return [name for name in names if "IntxUnpacked" not in str(type(getattr(model.get_submodule(name), "weight", None)))]


def with_fake(model):
    fake = [name for name, module in model.named_modules() if hasattr(module, "weight_fake_quant")]
    return solution(model) + fake


def modules_not_names(model):
    return [model.get_submodule(name) for name in solution(model)]


def pairs(model):
    return [(name, module) for name, module in model.named_modules() if name in solution(model)]


def printed(model):
    print(len(solution(model)))


def one_string(model):
    return ", ".join(solution(model))


def count(model):
    return len(solution(model))


def everything(model):
    return [name for name, _ in model.named_modules()]


def all_with_parameters(model):
    return [
        name
        for name, module in model.named_modules()
        if list(module.parameters(recurse=False)) or "quantized" in str(type(module)) and "Packed" not in str(type(module))
    ]


def once_for_each_parameter(model):
    return [name for name in solution(model) for _ in range(2)]


def weight_of_each(model):
    return [name for name, module in model.named_modules() if module.weight.dtype == torch.int8]


def _any(module):
    kind, weight = type(module), type(getattr(module, "weight", None))
    return "quantized" in kind.__module__ or "torchao" in weight.__module__


def whatever_is_no_linear(model):
    return [name for name, module in model.named_modules() if type(module) is not nn.Linear]


def by_the_text(model):
    return [name for name, module in model.named_modules() if "uantized" in repr(module)]


def names_of_weights(model):
    return [f"{name}.weight" for name in solution(model)]


def without_packed_params(model):
    return [name for name, module in model.named_modules() if _any(module) and "Packed" not in type(module).__name__]


def linear_in_the_name(model):
    return [name for name, module in model.named_modules() if _any(module) and "Linear" in type(module).__name__]


def other_dtypes(model):
    weights = {name: getattr(module, "weight", None) for name, module in model.named_modules()}
    weights = {name: weight() if callable(weight) else weight for name, weight in weights.items()}
    return [name for name, weight in weights.items() if weight is not None and weight.dtype != torch.float32]


def children_of_the_model(model):
    return [
        name
        for name, module in model.named_children()
        if "quantized" in type(module).__module__ or type(getattr(module, "weight", None)) not in (nn.Parameter, type(None))
    ]


def classes_of_the_layers(model):
    modules = dict(model.named_modules())
    return [type(modules[name]).__name__ for name in solution(model)]


WRONG = [
    ("not-nested", children_of_the_model),
    ("not-names", classes_of_the_layers),
    ("without-weights-listed", whatever_is_no_linear),
    ("containers-listed", by_the_text),
    ("parameters-listed", names_of_weights),
    ("not-a-layer", lambda model: [name.replace(".", "/") for name in solution(model)]),
    ("misses-some", lambda model: list(solution(model))[:1]),
    ("without-weights-listed", without_packed_params),
    ("parts-listed", linear_in_the_name),
    ("only-some-kinds", other_dtypes),
    ("floats-listed", every_linear),
    ("floats-listed", every_linear_of_both),
    ("misses-torchao", only_what_torch_replaced),
    ("misses-torchao", the_namespace_alone),
    ("parts-listed", parts_and_torchao),
    ("misses-torch", only_torchao),
    ("finds-nothing", by_dtype),
    ("bfloat16-listed", by_any_dtype),
    ("not-nested", own_children_only),
    ("last-part-of-the-name", last_part),
    ("containers-listed", containers),
    ("only-some-kinds", linear_only),
    ("only-some-kinds", no_lstm),
    ("one-class-of-tensor", one_class),
    ("fake-quantized-listed", with_fake),
    ("not-names", modules_not_names),
    ("not-names", pairs),
    ("returns-nothing", printed),
    ("not-names", one_string),
    ("not-names", count),
    ("every-module", everything),
    ("floats-listed", all_with_parameters),
    ("named-twice", once_for_each_parameter),
    ("raises", weight_of_each),
]


def of_the_printed_model(model):
    return ["0", "2.0"]


def all_that_was_ever_found(model, found=[]):  # noqa: B006
    found += [name for name in solution(model) if name not in found]
    return found


def no_recurrent_layer_but_the_lstm(model):
    return [name for name in solution(model) if "GRU" not in type(model.get_submodule(name)).__name__]


WRONG += [
    ("not-a-layer", of_the_printed_model),
    ("remembers-calls", all_that_was_ever_found),
    ("only-some-kinds", no_recurrent_layer_but_the_lstm),
]
