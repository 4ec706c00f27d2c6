"""C code that this machine's compiler makes, where it has one."""

import contextlib
import ctypes
import subprocess
import tempfile
from pathlib import Path

from hpml_lab.core.system.installed import find_tool

DEADLINE_SECONDS = 60


def compiler() -> str | None:
    """The C compiler of this machine, or None."""
    return next(filter(None, map(find_tool, ("cc", "gcc", "clang"))), None)


def compiled(code: str, target: Path, *options: str) -> bool:
    """Compile a C program into the file `target`; False where there is no compiler, or where it does not accept the code."""
    if (cc := compiler()) is None:
        return False
    source = target.with_suffix(".c")
    source.write_text(code, encoding="utf-8")
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # a compiler that does not run, or not to its end
        return (
            subprocess.run([cc, *options, "-o", target, source], capture_output=True, timeout=DEADLINE_SECONDS).returncode == 0
        )
    return False


def loaded(code: str, *options: str) -> ctypes.CDLL | None:
    """C functions compiled into a library, ready to be called; None where `compiled` says no."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows keeps a loaded library
        library = Path(folder) / "code.so"
        if compiled(code, library, "-shared", "-fPIC", *options):
            with contextlib.suppress(OSError):  # no program may be loaded from this folder, or it is for another processor
                return ctypes.CDLL(str(library))
    return None
