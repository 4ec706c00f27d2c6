"""Compiles a function with torch.compile and counts the kernels that were generated."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hpml_lab.core.timing.compilation import QUICKLY, compiler_missing, kernels_of_this_processor, no_compiler
from hpml_lab.core.timing.counting import synchronize


@dataclass(frozen=True)
class CompiledFunction:
    """A function that torch.compile has compiled for the inputs of its first call.

    function  the compiled function
    kernels   how many kernels were generated, forward and backward together
    seconds   the time of the first call, which compiles
    """

    function: Callable[..., Any]
    kernels: int
    seconds: float


def compiled(
    function: Callable[..., Any], use: Callable[[Callable[..., Any]], object], device: torch.device | str
) -> CompiledFunction:
    """Compile `function` with torch.compile and call `use(compiled function)` once, so that all code is generated.

    Raises LabError if torch finds no compiler for `device`: a C++ compiler for the CPU, Triton and gcc for a GPU.
    """
    import torch._inductor.config
    from torch._inductor.utils import run_and_get_code

    torch.compiler.reset()
    compiled_function = torch.compile(function, dynamic=False)  # the code is for these shapes
    start = time.perf_counter()
    try:
        with kernels_of_this_processor(), torch._inductor.config.patch(QUICKLY):
            _, generated = run_and_get_code(use, compiled_function)
    except RuntimeError as error:  # Dynamo and Inductor raise subclasses of RuntimeError
        if not no_compiler(error):
            raise
        raise compiler_missing(error) from error
    synchronize(torch.device(device))
    # Generated code names each kernel once, where it passes the kernel's source to the compiler.
    kernels = sum(len(re.findall(r"async_compile\.(?:cpp_pybinding|triton)\(", code)) for code in generated)
    return CompiledFunction(compiled_function, kernels, time.perf_counter() - start)
