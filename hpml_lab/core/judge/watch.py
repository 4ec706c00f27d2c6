"""What a call does on the way: the torch functions that it calls, and how many steps of Python its own code runs."""

import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.overrides import TorchFunctionMode, resolve_name

import hpml_lab

_NOT_THE_STUDENTS = tuple(
    f"{folder}{os.sep}"
    for folder in {str(Path(hpml_lab.__file__).parent), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))}
)


@functools.cache
def is_students(filename: str) -> bool:
    """True for a file, or a cell of a notebook, that belongs neither to this package nor to Python or an installed package."""
    if filename.startswith((*_NOT_THE_STUDENTS, "<frozen", "<__array_function__")) or filename.endswith(".pyx"):
        return False
    # A compiled module's frames have the names of its sources, seen from the folder in which its package lies.
    return os.path.isabs(filename) or not any(os.path.exists(folder + filename) for folder in _NOT_THE_STUDENTS)


@dataclass(frozen=True)
class Watched:
    """A call that was watched: what it returned, the torch functions it called, and the steps of Python outside libraries."""

    result: Any
    calls: tuple[str, ...]
    steps: int


class _Calls(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(resolve_name(function) or getattr(function, "__name__", repr(function)))
        return function(*args, **(kwargs or {}))


def torch_calls(call: Callable[[], Any]) -> tuple[str, ...]:
    """The names of the torch functions that `call()` calls, in order."""
    with _Calls() as calls:
        call()
    return tuple(calls.names)


def watch(call: Callable[[], Any]) -> Watched:
    """Run `call()` and watch it.

    A step is one instruction of Python in code that belongs to no library: a loop over more elements takes more steps,
    one call that works on all of them does not.
    """
    steps = 0

    def count(frame: Any, event: str, _: Any) -> Any:
        nonlocal steps
        if event == "opcode":
            steps += 1
        return count

    def entered(frame: Any, event: str, _: Any) -> Any:
        if not is_students(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        return count

    before = sys.gettrace()
    with _Calls() as calls:
        sys.settrace(entered)
        try:
            result = call()
        finally:
            sys.settrace(before)
    return Watched(result, tuple(calls.names), steps)
