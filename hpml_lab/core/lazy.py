"""Front doors that load nothing until a name is used.

A package that imports its experiments loads torch and matplotlib, which takes seconds. A child process that starts anew
(spawn) and the command line need neither, so the packages hand out their names on demand (PEP 562).
"""

import importlib
from collections.abc import Callable


def attach(package: str, exports: dict[str, list[str]]) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package's `__init__`.

    exports  {module of the package, such as "experiments.zero_grad": [names that it defines]}
    """
    module_of = {name: module for module, names in exports.items() for name in names}

    def get(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)

    return get, lambda: sorted(module_of), list(module_of)
