"""What compiling with torch.compile needs: settings that make small functions compile sooner, and a compiler."""

from hpml_lab.core.system.errors import LabError

# By default torch tries each vector extension that the processor reports and starts a pool of compiler processes. For one
# small function, both take longer than the compilation.
QUICKLY = {"cpp.vec_isa_ok": True, "compile_threads": 1}

NO_COMPILER = (
    *("InvalidCxxCompiler", "No working C++ compiler"),  # for a CPU
    *("TritonMissing", "working triton"),
    *("Failed to find C compiler", "cuda_utils"),  # with which Triton builds its launcher
)


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
