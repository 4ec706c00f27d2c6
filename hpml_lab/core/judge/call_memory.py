"""What an answer remembers from one call to the next: default arguments and globals that its calls change."""

import contextlib
import copy
import inspect
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_DATA = (list, dict, set, int, float, str, torch.Tensor, np.ndarray, types.NoneType)
_LARGE = 10_000  # elements: what is larger is not copied for each check
REMEMBERS = "Each call is right by itself, but what it leaves in {} is still there in the next one. Begin anew in each call."

# Mistakes of judges that say more about what is kept.
_NAMED = {"one-ring-for-all", "shared-between-datasets"}


def _size(value: Any) -> int:
    return math.prod(value.shape) if hasattr(value, "shape") else len(value) if hasattr(value, "__len__") else 1


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    return dict(zip(names, values, strict=True)) | (function.__kwdefaults__ or {})


def _globals(function: Callable[..., Any]) -> dict[str, Any]:
    return {name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__}


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    """Those of the values that are data and not large."""
    copies = {}
    for name, value in values.items():
        if type(value) in _DATA and _size(value) <= _LARGE:
            with contextlib.suppress(Exception):  # what cannot be copied is left alone
                copies[name] = copy.deepcopy(value)
    return copies


class FunctionMemory:
    """A function's default arguments and the globals that it names, where they are data, as they are now."""

    def __init__(self, function: Any) -> None:
        self.function: Any = function if inspect.isfunction(function) else None
        self.defaults = _copied(_defaults(function)) if self.function else {}
        self.globals = _copied(_globals(function)) if self.function else {}

    def changed(self) -> list[str]:
        """The names whose values are others than they were."""
        pairs = [(self.defaults, _defaults), (self.globals, _globals)] if self.function else []
        return [
            name
            for before, now in pairs
            for name, value in now(self.function).items()
            if name in before and repr(value) != repr(before[name])
        ]

    def forget(self) -> None:
        """Give the function copies of what it had before."""
        function, values = self.function, _defaults(self.function) | copy.deepcopy(self.defaults)
        names = list(_defaults(function))[: len(function.__defaults__ or ())]
        function.__defaults__ = tuple(values[name] for name in names) or None
        function.__kwdefaults__ = {name: values[name] for name in function.__kwdefaults__ or ()} or None
        function.__globals__.update(copy.deepcopy(self.globals))

    def spoils(self, judge: Callable[[Callable[..., Any]], None], mistake: Exception) -> str:
        """The names whose values have changed, if the judge, which found a mistake, finds none once each call forgets."""
        changed = self.changed()
        if not changed or getattr(mistake, "name", "") in _NAMED:
            return ""

        def forgetful(*arguments: Any, **options: Any) -> Any:
            self.forget()
            return self.function(*arguments, **options)

        try:
            judge(forgetful)
        except Exception:
            return ""
        finally:
            self.forget()
        return " and ".join(f"`{name}`" for name in changed)
