"""Kernels that are written here or generated: Triton's, for a GPU or for its interpreter, and those of torch.compile."""

import inspect
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from hpml_lab.core.counting import synchronize
from hpml_lab.core.errors import LabError


def require_triton() -> None:
    """Raise LabError where Triton is not installed: torch brings it on Linux, and not on macOS."""
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise LabError(
            f"Triton cannot be imported here ({error}).",
            "torch's Linux wheels bring it, those for macOS do not: run this on Linux; it needs no GPU.",
        ) from error


class Kernel:
    """A kernel in Triton's language, for both devices: compiled for tensors on a GPU, interpreted for those on the CPU.

    The interpreter runs the same source, program by program, with NumPy. It shows whether a kernel is right and never how
    fast it is. Launch with `kernel.on(device)[programs](arguments, …)`.
    """

    def __init__(self, source: Callable[..., None]) -> None:
        self.source = source
        self.__doc__, self.__name__ = source.__doc__, source.__name__

    @cached_property
    def _interpreted(self) -> Any:
        # By itself Triton chooses when it decorates, for the whole process, by TRITON_INTERPRET; here tensors decide.
        from triton.runtime import interpreter

        one_rounding(interpreter)
        return interpreter.InterpretedFunction(self.source)

    @cached_property
    def _compiled(self) -> Any:
        import triton

        return triton.jit(self.source)

    def on(self, device: torch.device) -> Any:
        """The version of this kernel for tensors of `device`."""
        return self._interpreted if device.type == "cpu" else self._compiled

    @property
    def text(self) -> str:
        """The source, as it stands in the module."""
        return inspect.getsource(self.source)


def one_rounding(interpreter: Any) -> None:
    """Let the interpreter's fma(a, b, c) = a·b + c round once, as a GPU's does: that of Triton 3.6 rounds twice."""
    import triton.language as tl

    builder, handle = interpreter.interpreter_builder, interpreter.TensorHandle
    a = handle(np.array([1 + 2**-12], np.float32), tl.float32)
    c = handle(np.array([-1 - 2**-11], np.float32), tl.float32)
    if builder.create_fma(a, a, c).data[0] == 0:  # a² + c is 2⁻²⁴, which a² rounded by itself has lost

        def fma(x: Any, y: Any, z: Any) -> Any:
            wide = x.data.astype(np.float64) * y.data + z.data  # the product of two float32 is exact in float64
            return handle(wide.astype(z.data.dtype), z.dtype.scalar)

        builder.create_fma = fma


@dataclass(frozen=True)
class Compiled:
    """A function that torch.compile has compiled for the inputs it was shown.

    work      the compiled function
    kernels   how many kernels were generated, for forward and backward together
    seconds   what the first call took
    """

    work: Callable[..., Any]
    kernels: int
    seconds: float


def compiled(function: Callable[..., Any], use: Callable[[Callable[..., Any]], object], device: torch.device) -> Compiled:
    """Compile `function` with torch.compile, running `use(compiled function)` once so that all the code is generated.

    Raises LabError where torch finds no compiler for `device`: a C++ compiler for the CPU, Triton for a GPU.
    """
    import torch._inductor.config
    from torch._inductor.utils import run_and_get_code

    torch.compiler.reset()
    work = torch.compile(function, dynamic=False)  # the code is for these shapes
    start = time.perf_counter()
    try:
        # By itself torch tries out each vector extension that the processor names, and starts a pool of processes that
        # compile: for one small function both take longer than the compilation.
        with torch._inductor.config.patch({"cpp.vec_isa_ok": True, "compile_threads": 1}):
            _, generated = run_and_get_code(use, work)
    except RuntimeError as error:  # errors of Dynamo and of Inductor are RuntimeErrors
        if not no_compiler(error):
            raise
        raise LabError(
            f"torch.compile finds no compiler here ({str(error).strip().splitlines()[0][:120]}).",
            "It needs a C++ compiler on the CPU (Debian and Ubuntu: sudo apt-get install g++) and Triton on a GPU: "
            "`hpml-lab doctor` says what is missing.",
        ) from error
    synchronize(device)
    # Generated code names each kernel once, as it hands its source to the compiler.
    kernels = sum(len(re.findall(r"async_compile\.(?:cpp_pybinding|triton)\(", code)) for code in generated)
    return Compiled(work, kernels, time.perf_counter() - start)


def no_compiler(error: BaseException) -> bool:
    """Whether a compilation failed because there is no compiler, and not because the code is wrong."""
    text = str(error)
    return any(name in text for name in ("InvalidCxxCompiler", "No working C++ compiler", "TritonMissing", "working triton"))
