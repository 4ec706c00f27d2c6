"""All experiments by their source alone: `hpml-lab list` answers in half a second, and without torch.

The registry knows the same rows once the topics are imported; a test holds the two equal.
"""

import re
from dataclasses import dataclass

from hpml_lab.core.system.lazy import modules_of
from hpml_lab.core.system.paths import NOTEBOOKS, REFERENCE, ROOT

# The slug and the lecture in an experiment's decorator, its function's name, and the first line of its docstring.
REGISTERED = re.compile(
    r'^@experiment\(\s*"([\w-]+)",\s*lecture="([^"]+)".*?^def (\w+)\(.*?\n    """(.*?)\.?(?:"""|\n)', re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Listed:
    """One row of the list."""

    slug: str
    notebook: str
    lecture: str
    title: str

    @property
    def recorded(self) -> bool:
        """Whether a run at full size ships."""
        return (REFERENCE / f"{self.slug}.json").is_file()


def catalogue() -> list[Listed]:
    """Every experiment, in the order of the notebooks and of the headings in each."""
    rows = []
    for notebook in sorted(path.stem for path in NOTEBOOKS.glob("[0-9]*.ipynb")):
        topic = ROOT / "hpml_lab" / notebook.split("_", 1)[1]
        order, placed = list(modules_of(topic / "__init__.py")), []
        for path in sorted((topic / "experiments").rglob("*.py")):
            for slug, lecture, name, title in REGISTERED.findall(path.read_text(encoding="utf-8")):
                placed.append((order.index(name) if name in order else len(order), Listed(slug, notebook, lecture, title)))
        rows += [row for _, row in sorted(placed, key=lambda pair: pair[0])]
    return rows
