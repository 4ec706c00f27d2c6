"""A lab in a notebook: a cell for each step, which asks, runs and shows it, and keeps it in the report of the command line."""

import html
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_lab.core.experiment.registry import default_size
from hpml_lab.core.experiment.render import folded, table_html
from hpml_lab.core.experiment.results_folder import results_folder
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import show_picture
from hpml_lab.core.show.prose import prose_html
from hpml_lab.core.system.files import atomic_write
from hpml_lab.your_script.lessons import lab_training
from hpml_lab.your_script.tools.lab import digest_of, is_done, remark, run_lab
from hpml_lab.your_script.tools.lab_report import DONE, LabReport, LabStep, recorded_report, report_in
from hpml_lab.your_script.tools.lab_steps import task_called
from hpml_lab.your_script.views.lab_page import FIGURES, lab_page

QUICK_OPTIONS = ("--quick", "--samples", "256")
QUICK_STEPS = ("parts", "profile", "scales", "roofline")  # those that run the script at most once; all others with size full
SHORT, LONG = 20.0, 60.0  # seconds after which a step begins nothing new, quick and full


class LabNotebook:
    """The lab of one script: `lab.step("parts", guess)` as a cell's last line runs a step and shows it.

    script   the words after `python`, or one file; by default the template, which is copied into the folder
    folder   for the report and its page; by default one for each script and size in `lab` among the results
    size     quick: only the steps that run the script at most once; full: all. By default the size of all notebooks
    seconds  after which a step begins nothing new; by default SHORT or LONG, by the size
    """

    def __init__(
        self, script: Sequence[str] | str = (), folder: Path | str = "", *, size: str = "", seconds: float | None = None
    ) -> None:
        script = [script] if isinstance(script, str) else list(script)
        self.size = size or default_size()
        self.seconds = seconds or (SHORT if self.size == "quick" else LONG)
        if not folder and (results := results_folder()) is None:  # nothing is kept, as in tests
            self._thrown_away = tempfile.TemporaryDirectory(prefix="hpml-lab-", ignore_cleanup_errors=True)
            results = Path(self._thrown_away.name)
        name = next((Path(word).stem for word in script if word.endswith(".py")), "lab_training")
        self.folder = Path(folder or results / "lab" / f"{name}-{self.size}").absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.script = script or [str(self._template()), *(QUICK_OPTIONS if self.size == "quick" else ())]

    def _template(self) -> Path:
        """The template in the lab's folder; what is there already is the reader's."""
        path = self.folder / "lab_training.py"
        return path if path.exists() else atomic_write(path, Path(lab_training.__file__).read_bytes())

    def step(self, name: str, expected: Any = ..., *, run: bool = False, again: bool = False) -> "StepCard":
        """Run a step, unless the report has it already, and show it.

        expected  what you expect of it, which stands in the report beside what was found
        run       also where the size would leave it out
        again     also where the report has it
        Raises LabError for a step that there is none of.
        """
        task_called(name)
        report = report_in(self.folder, self.script)
        if expected is not ... and not is_done(report.step(name), digest_of(self.script)):
            report = remark(self.script, self.folder, name, prediction=str(expected))
        if run or self.size == "full" or name in QUICK_STEPS:
            report = run_lab(self.script, self.folder, steps=[name], again=again, seconds=self.seconds)
        return StepCard(report, name, recorded_report())

    def explain(self, name: str, sentence: Any = ...) -> None:
        """Write down what you make of a step, if you say it. Raises LabError for a step that there is none of."""
        task_called(name)
        if sentence is not ...:
            remark(self.script, self.folder, name, sentence=str(sentence))

    def report(self) -> LabReport:
        """The report as it is by now."""
        return report_in(self.folder, self.script, measured_here=False)

    def write_page(self) -> Path:
        """Write the report as one page, which `hpml-lab lab` would write."""
        return atomic_write(self.folder / "lab.html", lab_page(self.report()))


@dataclass(frozen=True)
class StepCard:
    """One step of a lab, as a notebook shows it: pictures, sentences, tables, and those of the recorded lab if there is one."""

    report: LabReport
    name: str
    recorded: LabReport | None = None

    def __repr__(self) -> str:
        return f"{self.name}: {task_called(self.name).title}"  # the same on every machine, for nbval

    def pictures(self) -> list[tuple[Any, str]]:
        """(figure, caption) of each table that has one; those of the recorded lab where this one has not done the step."""
        found = _drawn(self.report, self.name)
        if not found and self.recorded is not None:
            where = f"Recorded lab on the template, {self.recorded.where}: "
            found = [(figure, where + caption) for figure, caption in _drawn(self.recorded, self.name)]
        return found

    def html(self) -> str:
        step = self.report.step(self.name)
        expected = f"You expected: {html.escape(step.prediction)}. " if step.prediction else ""
        if not step.state:
            own = (
                f"<p>{expected}Not run at this size, for it takes up to a minute or two. "
                "<code>run=True</code> in this cell runs it.</p>"
            )
        else:
            own = (f"<p>{expected}</p>" if expected else "") + _words(step) + folded("The table", _tables(self.report, step))
        if self.recorded is None or not (there := self.recorded.step(self.name)).state:
            return own
        where = html.escape(f"{self.recorded.where}, commit {self.recorded.commit}")
        return own + folded(f"Recorded lab on the template: {where}", _words(there) + _tables(self.recorded, there))

    def _ipython_display_(self) -> None:
        from IPython.display import display

        for figure, caption in self.pictures():
            show_picture(figure, caption)
        display({"text/html": self.html(), "text/plain": repr(self)}, raw=True)


def _drawn(report: LabReport, name: str) -> list[tuple[Any, str]]:
    tables = [table for table in report.tables_of(report.step(name)) if table.rows]
    with style.in_style():
        return [(draw(table), draw.__doc__) for table in tables if (draw := FIGURES.get(type(table.rows[0]).__name__))]


def _words(step: LabStep) -> str:
    lead = "" if step.state == DONE else "Not done here: "
    return "".join(_said(lead + line) for line in step.says)


def _tables(report: LabReport, step: LabStep) -> str:
    return "".join(
        f"<p><b>{html.escape(table.title)}</b></p>{table_html(list(table.columns.values()), table.cells())}"
        for table in report.tables_of(step)
    )


def _said(line: str) -> str:
    return f"<pre>{html.escape(line)}</pre>" if "\n" in line else f"<p>{prose_html(line)}</p>"
