"""One page of a class's lab reports: step by step what each student expected, found and says of it, and what is missing.

A report is somebody else's file: whatever is wrong with one is said in the row of its student.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Template

from hpml_lab.core.system.errors import LabError
from hpml_lab.course.lab_assignment import LABS
from hpml_lab.your_script import DONE, TASKS, LabReport, read_report, shortcomings

FILE = "report.json"
WITH_REPORT = {f"lab{number}": sheet.steps for number, sheet in LABS.items() if sheet.steps}  # {assignment: its steps}
PAGE = Template(
    """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Lab reports</title>
<style>
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0 }
tr { border-bottom: 1px solid #8888 }
</style>
<h1>Lab reports</h1>
<p>{{ students }} student{{ "s" if students != 1 }}.</p>
<h2>What is missing, and what cannot be</h2>
<table><tr><th>student</th><th>script</th><th>machine</th><th>steps done</th><th>what is wrong</th></tr>
{% for work in works %}<tr><td>{{ work.student }}</td><td>{{ work.report.script }}</td>
<td>{{ work.report.machine }}{{ ", " + work.report.gpu if work.report.gpu else "" }}</td>
<td>{{ work.done }} of {{ work.steps | length }}</td><td>{{ work.problems | join("; ") }}</td></tr>
{% endfor %}</table>
{% for task in tasks %}<h2>{{ task.title }}</h2>
<p>{{ task.question }}</p>
<table><tr><th>student</th><th>expected</th><th>found</th><th>in their words</th></tr>
{% for work in works %}{% for step in work.report.steps if step.name == task.name and step.state %}
<tr><td>{{ work.student }}</td><td>{{ step.prediction }}</td>
<td>{{ "Not done here: " if step.state != "done" else "" }}{{ step.says | join(" ") }}</td>
<td>{{ step.sentence }}</td></tr>
{% endfor %}{% endfor %}</table>
{% endfor %}</html>
""",
    autoescape=True,
)


@dataclass
class LabWork:
    """One student's report, the steps that it has to have, and what is wrong with it; an empty one where it cannot be read."""

    student: str
    steps: Collection[str]
    report: LabReport = field(default_factory=LabReport)
    problems: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        return sum(step.state == DONE for step in self.report.steps if step.name in self.steps)


def lab_works(folder: Path | str) -> list[LabWork]:
    """The reports `<folder>/<student>/report.json`, in order of the names. Raises LabError where there is none.

    Also those of an nbgrader course's `submitted`, where each student has a folder for each lab: `<student>/lab2/report.json`.
    """
    students = [path for path in sorted(Path(folder).glob("*")) if path.is_dir() and not path.name.startswith(".")]
    paths = [path for student in students for path in _handed_in(student)]
    if not any(map(os.path.exists, paths)):
        raise LabError(f"{folder} has no reports.", f"Give each student a folder in it, with a {FILE}.")
    return [_work(path, path.relative_to(folder).parent.as_posix()) for path in paths]


def _handed_in(student: Path) -> list[Path]:
    """Where a student's reports are, or ought to be: one that is missing is a row of the page, too."""
    several = [lab / FILE for lab in sorted(student.glob("lab*")) if lab.name in WITH_REPORT or os.path.exists(lab / FILE)]
    return [student / FILE] if os.path.exists(student / FILE) or not several else several


def _work(path: Path, student: str) -> LabWork:
    work = LabWork(os.fsencode(student).decode("utf-8", "backslashreplace"), WITH_REPORT.get(path.parent.name, TASKS))
    try:
        work.report = read_report(path)
        work.problems += shortcomings(work.report, work.steps)
    except LabError as error:
        work.problems.append(error.problem.replace(str(path), FILE))
    return work


def reports_page(folder: Path | str) -> str:
    """The page as HTML."""
    works = lab_works(folder)
    students = len({work.student.partition("/")[0] for work in works})  # of whom each may have several labs
    page = PAGE.render(works=works, students=students, tasks=list(TASKS.values()))
    return page.encode("utf-8", "backslashreplace").decode()
