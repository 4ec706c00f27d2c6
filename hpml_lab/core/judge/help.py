"""Help with an exercise, on purpose only: one hint more at each call, from general to nearly the line, and the solution."""

import ast
import html
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from hpml_lab.core.experiment.render import prose_html
from hpml_lab.core.judge.exercises import Exercise, find_exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import CHECKOUT, ROOT

_asked: Counter[str] = Counter()


@dataclass(frozen=True)
class Help:
    """A hint, or a solution with its code."""

    title: str
    text: str
    code: str = ""

    def __repr__(self) -> str:
        return f"{self.title}. {self.text}" + f"\n\n{self.code}" * bool(self.code)

    def _repr_html_(self) -> str:
        code = f'<pre tabindex="0">{html.escape(self.code)}</pre>' if self.code else ""
        return f'<div role="status"><b>{html.escape(self.title)}</b>. {prose_html(self.text)}{code}</div>'


def hint(name: str) -> Help:
    """The next hint for the exercise `name`: its idea first, then what students miss, and at last a line with a gap.

    Raises LabError for a name that is no exercise.
    """
    found = find_exercise(name)
    known = hints(found)
    number = min(_asked[name], len(known) - 1)
    _asked[name] += 1
    return Help(f"Hint {number + 1} of {len(known)}", known[number])


def hints(found: Exercise) -> list[str]:
    """All hints for an exercise, from general to nearly the line. They are those that its check gives for mistakes."""
    module = sys.modules[found.judge.__module__]
    idea = " ".join(module.__doc__.split("\n\n")[0].split(":", 1)[-1].split())
    if (word := idea.split()[0]).isascii() and word.isalpha() and len(word) > 1:  # no formula
        idea = idea[0].upper() + idea[1:]
    rubrics = [rubric for rubric in vars(module).values() if isinstance(rubric, Rubric)]
    if not rubrics:
        return list(dict.fromkeys([idea, *_literal_hints(Path(module.__file__))]))
    first_of = {fragment: row.hint for rubric in rubrics for fragment, row in reversed(rubric.edits)}
    ordered = [first_of[fragment] for fragment in dict.fromkeys(fragment for rubric in rubrics for fragment, _ in rubric.edits)]
    places = ((rubric, fragment) for rubric in rubrics for fragment, _ in rubric.edits)
    lines = (line.strip().replace(part, "…") for rubric, part in places for line in rubric.source.splitlines() if part in line)
    gaps = [f"One line of it: `{line}`" for line in lines if len(line) >= 8][:1]
    return list(dict.fromkeys([idea, *ordered, *gaps]))


def _literal_hints(path: Path) -> list[str]:
    """The texts of the mistakes that a judge raises, as they stand in its source."""
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    raised = (call.args[1] for call in calls if getattr(call.func, "id", "") == "Mistake" and len(call.args) == 2)
    return [text.value for text in raised if isinstance(text, ast.Constant)]


def solution(name: str) -> Help:
    """The answer to the exercise `name` and what it shows.

    Raises LabError for a name that is no exercise, where `HPML_SOLUTIONS` is "closed", and without a checkout, in which alone
    the solutions are.
    """
    found = find_exercise(name)
    if os.environ.get("HPML_SOLUTIONS") == "closed":
        raise LabError("solutions are closed in this course.", f'hint("{name}") says one thing more at each call.')
    path = answers_file(found)
    title = f"A solution of {name}"
    return Help(title, ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), "\n\n\n".join(solution_source(path)))


def answers_file(found: Exercise) -> Path:
    """The file of answers to an exercise, which is part of the tests and ships with the checkout alone."""
    topic = found.notebook.split("_", 1)[1]
    path = ROOT / "tests" / topic / "answers" / f"{found.name.replace('-', '_')}.py"
    if not CHECKOUT or not path.is_file():
        raise LabError("an installed package has no solutions.", f"They are in the project's tests/{topic}/answers.")
    return path


def solution_source(path: Path) -> list[str]:
    """The statements of a file of answers that its `solution` needs, in their order; the last is the solution itself."""
    text = path.read_text(encoding="utf-8")
    statements = ast.parse(text).body
    by_name = {name: node for node in statements for name in _names_made(node)}
    needed, open_names = [], ["solution"]
    while open_names:
        node = by_name.get(open_names.pop())
        if node is not None and node not in needed:
            needed.append(node)
            open_names += [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    own = by_name["solution"]
    ordered = [node for node in statements if node in needed and node is not own] + [own]
    return [ast.get_source_segment(text, node) for node in ordered]


def _names_made(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    return [name.id for target in getattr(node, "targets", []) for name in ast.walk(target) if isinstance(name, ast.Name)]
