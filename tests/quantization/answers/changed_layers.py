"""Answers to `changed-layers`: names of the layers whose weights are quantized, by torch or by torchao."""

import torch
from edited_source import wrong_answers
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


def by_the_base_class(model):
    from torchao.utils import TorchAOBaseTensor

    def quantized(module):
        if any(isinstance(p, TorchAOBaseTensor) for p in module.parameters(recurse=False)):
            return True
        return type(module).__module__.startswith("torch.ao.nn.quantized") and has_weights(module)

    return [name for name, module in model.named_modules() if quantized(module)]


ALSO_RIGHT = [by_module_name_of_the_type, by_recursion, by_the_state, by_the_base_class]


CHANGED, ADDED, FOUND = "replaced and has_weights or own", "names.append(name)", "return names"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("without-weights-listed", (CHANGED, '(replaced or own) and "Packed" not in type(module).__name__')),
            ("containers-listed", (CHANGED, '"uantized" in repr(module)')),
            ("parts-listed", (CHANGED, '(replaced or own) and "Linear" in type(module).__name__')),
            ("floats-listed", (CHANGED, "isinstance(module, (nn.Linear, torch.ao.nn.quantized.dynamic.Linear))")),
            ("floats-listed", (CHANGED, '"Quantized" in repr(module).partition("(")[0] or own')),
            ("only-some-kinds", (CHANGED, f'({CHANGED}) and "GRU" not in type(module).__name__')),
            ("named-twice", (ADDED, "names += [name, name]")),
            ("parameters-listed", (ADDED, 'names.append(f"{name}.weight")')),
            ("not-a-layer", (ADDED, 'names.append(name.replace(".", "/"))')),
            ("misses-some", (FOUND, "return names if len(names) > 1 else []")),
            ("misses-some", (FOUND, "return names[:1]")),
        ],
    )
]
