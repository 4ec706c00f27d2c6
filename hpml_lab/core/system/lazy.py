"""Front doors that load nothing until a name is used.

A package that imports its experiments loads torch and matplotlib, which takes seconds. A child process that starts anew
(spawn) and the command line need neither, so the packages hand out their names on demand (PEP 562). A front door says what it
offers once, as imports that type checkers and editors follow:

    if TYPE_CHECKING:
        from hpml_lab.loading.tools.tuner import tune as tune
    else:
        __getattr__, __dir__, __all__ = attach(__name__, __file__)
"""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path


def attach(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package whose `__init__` is `file`.

    The names are those that `file` imports as themselves (`from module import name as name`), which is how type checkers know
    what a package hands on. Each import runs when its name is used first.
    """
    module_of = modules_of(Path(file))

    def get(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name]), name)

    return get, lambda: sorted(module_of), list(module_of)


def modules_of(front_door: Path) -> dict[str, str]:
    """{name: the module it comes from} for what the `__init__` of a topic hands on, in its order."""
    imports = (node for node in ast.walk(ast.parse(front_door.read_bytes())) if isinstance(node, ast.ImportFrom))
    return {alias.asname: node.module for node in imports for alias in node.names if alias.asname}
