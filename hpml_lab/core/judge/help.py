"""Help with an exercise, on purpose only: one hint more at each call, from general to nearly the line, and the solution."""

import ast
import html
import os
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from hpml_lab.core.judge.exercises import Exercise, Verdict, find_exercise, last_verdict
from hpml_lab.core.judge.mistake import SEEN, Mistake
from hpml_lab.core.judge.rubric import UNKNOWN, Rubric
from hpml_lab.core.show.prose import prose_html
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import CHECKOUT, ROOT

_read: defaultdict[str, set[str]] = defaultdict(set)  # by exercise: the hints that this process has shown
_about: dict[str, str] = {}  # by exercise: the mistake that its last hint was about


# Words that speak of an answer. A hint that is shown although no answer was seen, or another one, cannot know what they say.
OF_AN_ANSWER = {
    "the student's own": r"\b(you|your|yours|yourself)\b",
    "an answer that is pointed at": r"^(That|This|These|Those) (is|are|belong|was|were)\b",
    "praise of a part": r"^(Almost|Right|Correct)\b|\b(is|are) right\b(?!, too)|\bcorrectly\b",
    "a fault that was found": r"\b(is|are|was) (wrong|missing|reversed|swapped)\b|\bmistake\b|\boff by one\b",
    "what it did": r"\b(has|have) (not )?(changed|moved)\b|\bno longer\b",
}


def speaks_of_an_answer(text: str) -> str:
    """Why a hint cannot be shown to a student whose answer nobody has seen; "" if it can."""
    return next((why for why, words in OF_AN_ANSWER.items() if re.search(words, text, re.IGNORECASE)), "")


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
    """The next hint for the exercise `name`; it follows what the last check in this process said.

    After a named mistake it begins with that one, a step further than the check: its place in a right answer, or the idea.
    Otherwise it begins with the idea. Then come the rules that students miss, and at last a line with a gap. These say nothing
    of an answer, which may have changed since. Raises LabError for a name that is no exercise.
    """
    found, last = find_exercise(name), last_verdict(name)
    if last:
        return Help("Nothing to add", "The last check found the answer right.")
    known = hints(found, last)
    mistake = "" if last is None else last.mistake
    again = mistake not in ("", *UNKNOWN, _about.get(name))  # another mistake than at the last hint, perhaps an earlier one
    text = known[0] if again else next((text for text in known if text not in _read[name]), known[-1])
    _read[name].add(text)
    _about[name] = mistake
    return Help(f"Hint {known.index(text) + 1} of {len(known)}", text)


def hints(found: Exercise, last: Verdict | None = None) -> list[str]:
    """All hints for an exercise after a verdict, in their order. Their rules are those that its check gives for mistakes."""
    module = sys.modules[found.judge.__module__]
    idea = " ".join(module.__doc__.split("\n\n")[0].split(":", 1)[-1].split())
    if (word := idea.split()[0]) == "a" or word.isascii() and word.isalpha() and len(word) > 1:  # no formula
        idea = idea[0].upper() + idea[1:]
    rubrics = [rubric for rubric in vars(module).values() if isinstance(rubric, Rubric)]
    first_of: dict[str, str] = {}
    for rubric in rubrics:
        for fragment, row in rubric.edits:
            if not speaks_of_an_answer(rule := row.hint.split(SEEN)[-1]):
                first_of.setdefault(fragment, rule)
    literal = [] if rubrics else [rule.split(SEEN)[-1] for rule in _literal_hints(Path(module.__file__))]
    rules = [*first_of.values(), *(rule for rule in literal if not speaks_of_an_answer(rule))]
    gaps = [gap for rubric in rubrics for fragment, _ in rubric.edits if len(gap := _line_with_gap(rubric, fragment)) >= 8][:1]
    if last is None or last.mistake in ("", *UNKNOWN):
        ordered = [idea, *rules, *(f"One line of it: `{gap}`" for gap in gaps)]
    else:
        place = _place(rubrics, last)
        first = [f"Its place in a right answer: `{place}`", idea] if place else [idea]
        unread = [rule for rule in rules if rule not in last.message]
        ordered = [f"Last check: `{last.mistake}`. {first[0]}", *first[1:], *unread]
        ordered += [f"One line of it: `{gap}`" for gap in gaps if gap != place]
    return list(dict.fromkeys(ordered))


def _place(rubrics: list[Rubric], verdict: Verdict) -> str:
    """The line of the right answer with a gap where a verdict's mistake stands; "" if no single row says what it says."""
    rows = ((rubric, fragment, row) for rubric in rubrics for fragment, row in rubric.edits if row.name == verdict.mistake)
    said = ((rubric, fragment) for rubric, fragment, row in rows if Mistake(row.name, row.hint).hint == verdict.message)
    return next(filter(None, (_line_with_gap(rubric, fragment) for rubric, fragment in said)), "")


def _line_with_gap(rubric: Rubric, fragment: str) -> str:
    """The first line of the right answer that holds the fragment and more, with a gap in its place; "" if there is none."""
    lines = (line.strip().replace(fragment, "…") for line in rubric.source.splitlines() if fragment in line)
    return next((line for line in lines if line not in ("…", "return …")), "")


def _literal_hints(path: Path) -> list[str]:
    """The texts of the mistakes that a judge raises, as they stand in its source; a missing `return` is no hint to anybody."""
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    raised = [call.args for call in calls if getattr(call.func, "id", "") == "Mistake" and len(call.args) == 2]
    literal = [(name.value, text.value) for name, text in raised if all(isinstance(arg, ast.Constant) for arg in (name, text))]
    return [text for name, text in literal if name != "returns-nothing"]


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
    what = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).removeprefix(f"Answers to `{name}`: ")
    return Help(title, what[0].upper() + what[1:], "\n\n\n".join(solution_source(path)))


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
