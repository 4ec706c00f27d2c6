"""Finding the programs that an experiment or a command starts, such as py-spy, perf, gcc, dot or fio."""

import shutil
import sys
from pathlib import Path


def find_tool(name: str) -> str | None:
    """The path of the program `name`, or None: on PATH first, then next to this Python.

    The second place matters where an environment's Python is called without activating the environment: tools that pip
    installed there, such as py-spy, are then not on PATH.
    """
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
