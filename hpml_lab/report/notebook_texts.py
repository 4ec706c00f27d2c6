"""What the report takes from the notebooks: their titles, and the question that each prediction answers."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import NOTEBOOKS
from hpml_lab.core.system.readers import RECORD, reader, text_of

GUESS = re.compile(r"^\w*guess\w* = \.\.\.\s*#?(.*)$", re.MULTILINE)
HEADING = re.compile(r"^## .*`([a-z0-9-]+)`\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Question:
    """Where a prediction is asked for, and in which words."""

    notebook: str
    slug: str
    text: str


def title(notebook: str) -> str:
    """The first heading of a notebook, or its name where it cannot be read."""
    for kind, source in _cells(NOTEBOOKS / f"{notebook}.ipynb"):
        if kind == "markdown" and (found := re.match(r"# (.+)", source)):
            return found[1]
    return notebook


def questions() -> dict[str, Question]:
    """{code of the cell that compares a guess: the question above it}, from all notebooks."""
    found = {}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        slug = text = asked = ""
        for kind, source in _cells(path):
            if kind == "markdown":
                slug, text = (HEADING.findall(source) or [slug])[-1], source
            elif guess := GUESS.search(source):
                asked = question(text) or re.sub(r":? ?your numbers?:?", "", guess[1]).strip()
            elif "predicted(" in source:
                found[source.strip()] = Question(path.stem, slug, asked)
    return found


def question(markdown: str) -> str:
    """The sentences of the last paragraph with a question, from its first to its last question; "" without one."""
    for paragraph in reversed(re.split(r"\n\s*\n", markdown)):
        sentences = re.split(r"(?<=[.?!])\**\s+", " ".join(paragraph.split()))
        asking = [number for number, sentence in enumerate(sentences) if sentence.rstrip("*").endswith("?")]
        if asking:
            words = " ".join(sentences[asking[0] : asking[-1] + 1])
            words = re.sub(r"^\W*Predict( first|, then measure)?[.:*\s]*", "", words).replace("**", "")
            words = re.sub(r"\$([^$]*)\$", r"\1", words).replace(r"\kappa", "κ")  # the only letter so far
            return words[0].upper() + words[1:]
    return ""


def _cells(path: Path) -> list[tuple[str, str]]:
    """(kind, source) of a notebook's cells; none if it cannot be read."""
    try:
        return _read_cells(path)
    except LabError:
        return []


@reader("a notebook", "Get it again: `hpml-lab notebooks DIR`.")
def _read_cells(path: Path) -> list[tuple[str, str]]:
    cells = json.loads(text_of(path, RECORD))["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
