"""What compiling with torch.compile needs: settings that make small functions compile sooner, a cache, and a compiler."""

import contextlib
import getpass
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.machine import processor_digest

# By default torch tries each vector extension that the processor reports and starts a pool of compiler processes. For one
# small function, both take longer than the compilation.
QUICKLY = {"cpp.vec_isa_ok": True, "compile_threads": 1}

NO_COMPILER = (
    *("InvalidCxxCompiler", "No working C++ compiler"),  # for a CPU
    *("TritonMissing", "working triton"),
    *("Failed to find C compiler", "cuda_utils"),  # with which Triton builds its launcher
)


@contextlib.contextmanager
def kernels_of_this_processor() -> Iterator[None]:
    """Keep what torch.compile caches on disk in this `with` block apart from what it compiled for other processors.

    Inductor finds the generated C++ of a function by the function alone, whatever vectors it was written for, and a library by
    flags such as -march=native (torch 2.15). Where several kinds of nodes share a folder, kernels made for AVX-512
    would be built and called with AVX2: wrong numbers, or an illegal instruction. Child processes inherit the folder.
    """
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    folder = Path(before or Path(tempfile.gettempdir(), f"torchinductor_{_user()}"))
    name = f"processor-{processor_digest()}"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder if folder.name == name else folder / name)
    try:
        yield
    finally:
        os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
        if before is not None:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = before


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()


def no_compiler(error: BaseException) -> bool:
    """Whether a compilation failed because no compiler is installed, and not because the code is wrong."""
    return any(words in str(error) for words in NO_COMPILER)


def compiler_missing(error: BaseException) -> LabError:
    """What to report for an `error` for which `no_compiler` is true."""
    return LabError(
        f"torch.compile finds no compiler here ({str(error).strip().splitlines()[0][:120]}).",
        "It needs a C++ compiler on the CPU (Debian and Ubuntu: sudo apt-get install g++), and on a GPU Triton, gcc and "
        "Python's headers (python3-dev): `hpml-lab doctor` says what is missing.",
    )
