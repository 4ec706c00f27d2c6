"""Puts back what a training step changes: weights, gradients, buffers, optimizers, schedulers, and the random states.

For work that has to run the step as it is and must not train, such as the trials of the tuner.
"""

import contextlib
import copy
import functools
import inspect
import random
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.system.errors import LabError

LONGEST = 1000  # a longer list holds data, not models
PASSED_OVER = (type, types.ModuleType, torch.Tensor, DataLoader)  # a loader may have a state, and no step trains it
DEPTH = 4  # how far references are followed: a step, an object that it uses, that object's attributes, and a list in one


def trained_by(step: Any) -> list[Any]:
    """The models, optimizers and everything else with a `state_dict` that a step refers to.

    They are looked for in the variables that a function uses, in a method's object and its attributes, in the attributes and
    the `__call__` of an object, in the arguments of a functools.partial, and in lists, tuples and dicts there.
    """
    found: dict[int, Any] = {}
    seen: set[int] = set()

    def visit(value: Any, depth: int) -> None:
        if id(value) in seen or depth > DEPTH or isinstance(value, PASSED_OVER):
            return
        seen.add(id(value))
        if _has_state(value):
            found[id(value)] = value
        for part in _parts(value):
            visit(part, depth + 1)

    visit(step, 0)
    modules = [value for value in found.values() if isinstance(value, torch.nn.Module)]
    inside = {id(part) for module in modules for part in module.modules() if part is not module}
    return [value for key, value in found.items() if key not in inside]


def _has_state(value: Any) -> bool:
    try:
        return callable(value.state_dict) and callable(value.load_state_dict)
    except Exception:  # a __getattr__ may raise anything: that of settings which are attributes, a KeyError
        return False


def _parts(value: Any) -> list[Any]:
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if inspect.ismethod(value):
        return [value.__self__, value.__func__]
    if inspect.isfunction(value):
        used = [value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__]
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # a variable that has no value yet
                used.append(cell.cell_contents)
        return [*used, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, Mapping | list | tuple | set):
        items = value.values() if isinstance(value, Mapping) else value
        return list(items) if len(value) <= LONGEST else []
    if type(value).__module__ not in ("builtins", "numpy"):
        called = [type(value).__call__] if callable(value) else []  # a step may be an object
        return [*getattr(value, "__dict__", {}).values(), *called]
    return []


def _names(code: types.CodeType) -> set[str]:
    """The global names that a function's code uses, that of its inner functions and comprehensions included."""
    return set(code.co_names).union(*(_names(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))


@contextlib.contextmanager
def restored(objects: Iterable[Any]) -> Iterator[None]:
    """After the block, `objects` (models, optimizers, …) and the random states are bitwise what they were before it.

    Takes the memory of a second copy of the models and optimizers, on their device. What an object keeps besides its tensors
    and its `state_dict`, such as a counter of its own, is not put back.
    """
    objects = list(objects)
    back = [_keep_module(value) if isinstance(value, torch.nn.Module) else _keep_state(value) for value in objects]
    back.insert(0, _keep_tensors({id(tensor): tensor for value in objects for tensor in _tensors(value)}.values()))
    states = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            for put_back in back:
                put_back()
            random.setstate(states[0])
            np.random.set_state(states[1])


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Those that a model holds, and those that an optimizer updates, which may be in no model."""
    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, torch.optim.Optimizer):
        yield from (parameter for group in value.param_groups for parameter in group["params"])


def _keep_tensors(tensors: Iterable[torch.Tensor]) -> Callable[[], None]:
    kept = [(tensor, _clone(tensor), tensor.grad, _clone(tensor.grad)) for tensor in tensors if tensor.is_leaf]

    def put_back() -> None:
        with torch.no_grad():
            for tensor, value, grad, grad_value in kept:
                tensor.copy_(value)
                tensor.grad = grad
                if grad is not None:
                    grad.copy_(grad_value)

    return put_back


def _keep_state(value: Any) -> Callable[[], None]:
    state = copy.deepcopy(value.state_dict())
    return lambda: value.load_state_dict(state)


def _keep_module(module: torch.nn.Module) -> Callable[[], None]:
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
        raise LabError("A model has parameters without a shape yet (a lazy layer).", "Run one batch through it first.")
    modes = [(part, part.training) for part in module.modules()]
    holders = [(part, dict(part._parameters), dict(part._buffers)) for part in module.modules()]

    def put_back() -> None:
        for part, parameters, buffers in holders:  # a step may replace a buffer by a new tensor
            part._parameters.update(parameters)
            part._buffers.update(buffers)
        for part, training in modes:
            part.training = training

    return put_back


def _clone(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone()
