"""Front doors that load nothing until a name is used.

A package that imports its experiments loads torch and matplotlib, which takes seconds. A child process that starts anew
(spawn) and the command line need neither, so the packages hand out their names on demand (PEP 562).
"""

import importlib
from collections.abc import Callable


def attach(package: str, exports: dict[str, list[str]]) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package's `__init__`.

    exports  {module of the package, such as "experiments.zero_grad", or one of another package by its full name, such as
             "hpml_lab.core.ring": [names that it defines]}
    """
    module_of = {name: module for module, names in exports.items() for name in names}

    def get(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = module_of[name]
        full_name = module if module.startswith("hpml_lab.") else f"{package}.{module}"
        return getattr(importlib.import_module(full_name), name)

    return get, lambda: sorted(module_of), list(module_of)
