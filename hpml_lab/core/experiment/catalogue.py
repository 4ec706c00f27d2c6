"""All experiments and exercises by their source alone: names are known and checked in a tenth of a second, without torch.

The registries know the same once the topics are imported; a test holds them equal.
"""

import difflib
import functools
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpml_lab.core.system.attempt import error_message_of
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.lazy import modules_of
from hpml_lab.core.system.paths import NOTEBOOKS, REFERENCE, ROOT

# The slug and the lecture in an experiment's decorator, its function's name, and the first line of its docstring.
REGISTERED = re.compile(
    r'^@experiment\(\s*"([\w-]+)",\s*lecture="([^"]+)".*?^def (\w+)\(.*?\n    """(.*?)\.?(?:"""|\n)', re.MULTILINE | re.DOTALL
)
SIZES = ("quick", "full")
EXERCISE = re.compile(r'^@exercise\(\s*"([\w-]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Listed:
    """One row of the list; `module` registers it."""

    slug: str
    notebook: str
    lecture: str
    title: str
    module: str

    @property
    def recorded(self) -> bool:
        """Whether a run at full size ships."""
        return (REFERENCE / f"{self.slug}.json").is_file()


@functools.cache
def catalogue() -> list[Listed]:
    """Every experiment, in the order of the notebooks and of the headings in each."""
    rows = []
    for notebook, topic in _topics():
        order, placed = list(modules_of(topic / "__init__.py")), []
        for module, text in _sources(topic / "experiments"):
            for slug, lecture, name, title in REGISTERED.findall(text):
                row = Listed(slug, notebook, lecture, title, module)
                placed.append((order.index(name) if name in order else len(order), row))
        rows += [row for _, row in sorted(placed, key=lambda pair: pair[0])]
    return rows


@functools.cache
def exercise_modules() -> dict[str, tuple[str, str]]:
    """{exercise: (its notebook, the module that registers it)} for every exercise, in the order of the notebooks."""
    found = (
        (name, notebook, module)
        for notebook, topic in _topics()
        for module, text in _sources(topic / "exercises")
        for name in EXERCISE.findall(text)
    )
    return {name: (notebook, module) for name, notebook, module in found}


def listed(slug: str, registered: Iterable[str] = ()) -> Listed:
    """The row of an experiment. Raises LabError for an unknown one, with the nearest known.

    registered  those that are known besides
    """
    rows = {row.slug: row for row in catalogue()}
    if slug not in rows:
        raise unknown("experiment", slug, [*rows, *registered], "`hpml-lab list` shows them all.")
    return rows[slug]


def require_size(size: str) -> None:
    """Raise LabError for a size that experiments do not have."""
    if size not in SIZES:
        raise LabError(f"{size!r} is not a valid size.", f"Use {' or '.join(SIZES)}.")


def notebook_file(name: str) -> Path:
    """The notebook that is named, with or without its folder and ending. Raises LabError for an unknown one."""
    path = NOTEBOOKS / f"{Path(name).stem}.ipynb"
    if not path.is_file():
        known = ", ".join(other.stem for other in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")))
        raise LabError(f"no notebook is called {name!r}.", f"There are {known}.")
    return path


def unknown(kind: str, name: str, known: Iterable[str], otherwise: str = "") -> LabError:
    """The error for a name that is none, with those that it may have been meant for."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return LabError(f"no {kind} is called {name!r}.", f"Did you mean {' or '.join(near)}?" if near else otherwise)


def load_module(module: str) -> None:
    """Import the module that registers an experiment or an exercise. Raises LabError where it does not load."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a broken installation fails in many ways
        problem = f"{module} does not load here ({error_message_of(error)})."
        raise LabError(problem, "Run `hpml-lab doctor` to see what to fix.") from error


def _topics() -> Iterator[tuple[str, Path]]:
    """(notebook, folder of its topic) in the order of the notebooks."""
    for notebook in sorted(path.stem for path in NOTEBOOKS.glob("[0-9]*.ipynb")):
        yield notebook, ROOT / "hpml_lab" / notebook.split("_", 1)[1]


def _sources(folder: Path) -> Iterator[tuple[str, str]]:
    """(module, source) for what is in a folder of the package."""
    for path in sorted(folder.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        yield module, path.read_text(encoding="utf-8")
