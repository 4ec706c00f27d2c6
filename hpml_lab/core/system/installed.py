"""Finding what is not on every machine: programs, such as py-spy, perf, gcc, dot or fio, and packages, such as torchview."""

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

from hpml_lab.core.system.errors import LabError


def find_tool(name: str) -> str | None:
    """The path of the program `name`, or None: on PATH first, then next to this Python.

    The second place matters where an environment's Python is called without activating the environment: tools that pip
    installed there, such as py-spy, are then not on PATH.
    """
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def need(module: str, package: str | None = None) -> ModuleType:
    """Import `module`, which not every environment has; LabError, which names the package, where it is not installed.

    package  its name for pip, where that is not the module's
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        absent = (error.name or module).partition(".")[0]
        if absent == module.partition(".")[0]:  # else something that it needs is missing
            absent = package or module
        raise LabError(f"{absent} is not installed in this Python.", f"pip install {absent}") from error
