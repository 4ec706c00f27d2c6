"""Leaves the process as it was after code that a student wrote: random states, modes, settings, and the names of torch."""

import builtins
import contextlib
import decimal
import gc
import logging
import math
import operator
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.overrides
import torch.utils._device as default_device
import torch.utils._python_dispatch as dispatch
from torch._tensor_str import get_printoptions
from torch.optim import optimizer

from hpml_lab.core.judge.watch import is_students
from hpml_lab.core.timing.threads import one_thread

# What an answer may replace names of: to change `torch.add` for its own calls, it changes it for all.
_OWNERS = (
    *(builtins, math, os, random, sys),
    *(np, np.linalg, np.random),
    *(torch, torch.autograd, torch.linalg, torch.nn, torch.nn.functional, torch.nn.init, torch.optim),
    *(torch.Tensor, torch.nn.Module, torch.optim.Optimizer),
)

# Hooks that every module and optimizer calls; a mode that counts operators registers some as it is entered.
_HOOKS = [
    hooks
    for module in (torch.nn.modules.module, optimizer)
    for name, hooks in vars(module).items()
    if name.startswith("_global_") and isinstance(hooks, dict)
]


def _set_hooks(before: list[dict[int, Any]]) -> None:
    for hooks, own in zip(_HOOKS, before, strict=True):
        hooks.clear()
        hooks.update(own)


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # deleted meanwhile
        return None


def _change_directory(path: str | None) -> None:
    if path is not None:
        with contextlib.suppress(OSError):
            os.chdir(path)


def _set_environment(before: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(before)


def _new_files_mask() -> int:
    mask = os.umask(0o077)  # it can only be read by setting it; a file that a thread makes meanwhile is private, not public
    os.umask(mask)
    return mask


def _root_logging() -> tuple[int, int, list[logging.Handler]]:
    return logging.root.level, logging.root.manager.disable, logging.root.handlers[:]


def _set_root_logging(before: tuple[int, int, list[logging.Handler]]) -> None:
    level, disabled, handlers = before
    logging.root.setLevel(level)
    logging.disable(disabled)
    logging.root.handlers[:] = handlers


# Settings of the process: what reads each, and what sets it back.
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (_working_directory, _change_directory),
    (_new_files_mask, os.umask),
    (_root_logging, _set_root_logging),
    (lambda: dict(os.environ), _set_environment),
    (lambda: sys.path[:], lambda before: sys.path.__setitem__(slice(None), before)),
    (lambda: [dict(hooks) for hooks in _HOOKS], _set_hooks),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.gettrace, sys.settrace),
    (sys.getprofile, sys.setprofile),
    (gc.isenabled, lambda before: gc.enable() if before else gc.disable()),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.is_warn_always_enabled, torch.set_warn_always),
    (get_printoptions, lambda before: torch.set_printoptions(**before)),
    (lambda: torch.get_autocast_dtype("cpu"), lambda before: torch.set_autocast_dtype("cpu", before)),
    (lambda: torch.backends.cudnn.benchmark, lambda before: setattr(torch.backends.cudnn, "benchmark", before)),
    (lambda: torch.backends.cudnn.deterministic, lambda before: setattr(torch.backends.cudnn, "deterministic", before)),
    (
        lambda: torch.backends.cuda.matmul.fp32_precision,
        lambda before: setattr(torch.backends.cuda.matmul, "fp32_precision", before),
    ),
    (lambda: sys.float_info.min / 2 == 0, torch.set_flush_denormal),  # torch sets it, but cannot be asked for it
)


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Run a `with` block on one CPU thread of torch, with gradients on, and set back what it changed in the process.

    Set back are random states, settings of Python, NumPy and torch, modes that were entered and not left, a default device,
    and replaced names of the modules that students use. Not set back are files, threads and processes that the block leaves,
    and what it closed. A child that it forked ends here: two processes must not go on with one notebook.
    """
    process = os.getpid()
    names = [vars(owner).copy() for owner in _OWNERS]
    settings = [read() for read, _ in _SETTINGS]
    python, numpy = random.getstate(), np.random.get_state()
    with (
        one_thread(),
        _modes(),
        warnings.catch_warnings(),
        decimal.localcontext(),
        np.errstate(),
        np.printoptions(),
        torch.random.fork_rng(devices=[]),
        torch.inference_mode(False),  # sets back whether autocast is on, too
        torch.enable_grad(),
    ):
        try:
            yield
        finally:
            if os.getpid() != process:
                os._exit(0)
            _set_names_back(names)
            random.setstate(python)
            np.random.set_state(numpy)
            for (read, set_back), before in zip(_SETTINGS, settings, strict=True):
                if read() != before:
                    set_back(before)


@contextlib.contextmanager
def _modes() -> Iterator[None]:
    """Leave the modes that were entered in a `with` block and not left, a default device among them."""
    functions = torch.overrides._get_current_function_mode_stack()
    dispatched = len(dispatch._get_current_dispatch_mode_stack())
    current, context = default_device.CURRENT_DEVICE, getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    try:
        yield
    finally:
        while len(dispatch._get_current_dispatch_mode_stack()) > dispatched:
            dispatch._pop_mode()
        if torch.overrides._get_current_function_mode_stack() != functions:
            while torch.overrides._get_current_function_mode_stack():
                torch.overrides._pop_mode()
            for mode in functions:
                torch.overrides._push_mode(mode)
        default_device.CURRENT_DEVICE, torch._GLOBAL_DEVICE_CONTEXT.device_context = current, context


def _set_names_back(before: list[dict[str, Any]]) -> None:
    now = [vars(owner).copy() for owner in _OWNERS]
    if all(map(_has_same_bindings, now, before)):  # at nearly every check
        return
    known = {id(value) for names in before for value in names.values()}
    for owner, current, names in zip(_OWNERS, now, before, strict=True):
        for name, value in names.items():
            if current.get(name, _set_names_back) is not value and not _is_librarys(current.get(name), known):
                setattr(owner, name, value)
        # A new name of a module may be a submodule that was imported; one of a class may hide what the class inherits.
        if isinstance(owner, type):
            for name in current.keys() - names.keys():
                if any(hasattr(base, name) for base in owner.__bases__) and not _is_librarys(current[name], known):
                    delattr(owner, name)


def _has_same_bindings(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """True for the same names, in the same order, bound to the very same objects: `==` would ask the objects themselves."""
    return list(now) == list(before) and all(map(operator.is_, now.values(), before.values()))


def _is_librarys(value: Any, known: set[int]) -> bool:
    """True for a new function of a library: torch itself wraps some of its own when its compiler is loaded."""
    code = getattr(value, "__code__", None)
    return code is not None and id(value) not in known and not is_students(code.co_filename)
