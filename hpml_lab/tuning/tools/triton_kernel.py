"""Kernels in Triton's language that run on both devices: compiled for a GPU, interpreted on the CPU."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from functools import cached_property
from subprocess import CalledProcessError
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hpml_lab.core.system.errors import LabError


def require_triton(device: torch.device | None = None) -> None:
    """Raise LabError if Triton is not installed, or cannot launch on `device`. torch installs it on Linux, but not on macOS."""
    try:
        import triton
    except ImportError as error:
        raise LabError(
            f"Triton cannot be imported here ({error}).",
            "torch's wheels for Linux install it, those for macOS do not: run this on Linux. It needs no GPU.",
        ) from error
    if device is None or device.type != "cuda":
        return
    try:
        triton.runtime.driver.active.utils  # noqa: B018  Triton compiles its launcher, in C, before the first launch
    except (RuntimeError, OSError, CalledProcessError) as error:
        raise LabError(
            f"Triton cannot build its launcher here ({str(error).strip().splitlines()[0][:120]}).",
            "It needs a C compiler and Python's headers (Debian and Ubuntu: sudo apt-get install gcc python3-dev).",
        ) from error


class TritonKernel:
    """A kernel in Triton's language for both devices: compiled for tensors on a GPU, interpreted for tensors on the CPU.

    The interpreter runs the same source with NumPy, one program after the other. It shows whether a kernel is correct, but
    not how fast it is. Launch with `kernel.on(device)[programs](arguments, …)`.
    """

    def __init__(self, source: Callable[..., None]) -> None:
        self.source = self.__wrapped__ = source  # by __wrapped__ its code is found
        self.__doc__, self.__name__ = source.__doc__, source.__name__

    @cached_property
    def _interpreted(self) -> "_Interpreted":
        # Triton itself decides once per process, by TRITON_INTERPRET. Here the tensors' device decides.
        from triton.runtime import interpreter

        round_fma_once(interpreter)
        return _Interpreted(interpreter.InterpretedFunction(self.source))

    @cached_property
    def _compiled(self) -> Any:
        import triton

        return triton.jit(self.source)

    def on(self, device: torch.device) -> Any:
        """The version of this kernel for tensors of `device`."""
        return self._interpreted if device.type == "cpu" else self._compiled


class _Interpreted:
    """kernel[programs](arguments, …) in the interpreter."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __getitem__(self, programs: tuple[int, ...]) -> Callable[..., None]:
        return interpreted_library()(self._function[programs])


@contextlib.contextmanager
def interpreted_library() -> Iterator[None]:
    """Within the block, what Triton's language has written in itself (tl.sum, tl.max, …) can be called from the interpreter.

    Without TRITON_INTERPRET these functions can only be compiled. Afterwards everything is as before: the interpreter leaves
    some of the language patched, with which nothing could be compiled any more. Blocks may be nested: the outermost counts, and
    many launches within it are quicker than each in its own.
    """
    import triton.language as tl
    from triton.runtime import JITFunction, interpreter

    if interpreter._patch_lang is _patched_already:
        yield
        return
    with contextlib.suppress(ImportError):
        import triton.experimental.gluon  # noqa: F401  the first launch imports it, and it wants the functions as they are
    owners = (tl, tl.core, tl.math, tl.standard, tl.tensor, tl.dtype, tl.core.tensor_descriptor_base)
    before = [(owner, dict(vars(owner))) for owner in owners]
    patch = interpreter._patch_lang
    try:
        patch(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
        interpreter._patch_lang = _patched_already  # each launch, and each call of such a function, would patch it again
        for owner, names in before:
            for name, value in names.items():
                if isinstance(value, JITFunction):
                    setattr(owner, name, _rewritten(value.fn))
        yield
    finally:
        interpreter._patch_lang = patch
        for owner, names in before:
            for name, value in list(vars(owner).items()):
                if name not in names and isinstance(owner, type):  # a module keeps what the interpreter has added for itself
                    delattr(owner, name)
                elif name in names and names[name] is not value:
                    setattr(owner, name, names[name])


def _patched_already(_: Any) -> SimpleNamespace:
    return SimpleNamespace(restore=lambda: None)


@functools.cache
def _rewritten(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of Triton's language as its interpreter calls it."""
    from triton.runtime import interpreter

    rewritten = interpreter.InterpretedFunction(function).rewrite()
    rewritten.fn = rewritten  # where a reduction looks for the function that combines two elements
    return rewritten


def round_fma_once(interpreter: Any) -> None:
    """Make the interpreter's fma(a, b, c) = a·b + c round once, as on a GPU. In Triton 3.6 it rounds twice."""
    import triton.language as tl

    builder, handle = interpreter.interpreter_builder, interpreter.TensorHandle
    a = handle(np.array([1 + 2**-12], np.float32), tl.float32)
    c = handle(np.array([-1 - 2**-11], np.float32), tl.float32)
    if builder.create_fma(a, a, c).data[0] == 0:  # a² + c is 2⁻²⁴, which is lost if a² is rounded first

        def fma(x: Any, y: Any, z: Any) -> Any:
            wide = x.data.astype(np.float64) * y.data + z.data  # the product of two float32 is exact in float64
            return handle(wide.astype(z.data.dtype), z.dtype.scalar)

        builder.create_fma = fma
