"""Runs the steps of a lab on one script, and keeps the report after each: an interruption loses the running step alone."""

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hpml_lab.core.experiment.render import table_text
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.profilers.script_profile import check_script
from hpml_lab.your_script.tools.lab_report import DONE, NOT_DONE, NOT_HERE, LabReport, LabStep, report_in
from hpml_lab.your_script.tools.lab_steps import TASKS, task_called
from hpml_lab.your_script.tools.lab_task import Findings, Lab, NotDone, NotHere


def run_lab(
    script: Sequence[str],
    folder: Path | str = "lab",
    *,
    steps: Sequence[str] = (),
    again: bool = False,
    seconds: float = 60.0,
    say: Callable[[str], object] = lambda line: None,
) -> LabReport:
    """Run the steps of a lab on `python SCRIPT…` and keep what they find in `folder`.

    steps    names of TASKS; all of them otherwise
    again    also those that the report has already
    seconds  after which a step begins nothing new
    say      is called with what is going on, line by line
    Raises LabError for a script that is not there, an unknown step, and a folder with the report of another script.
    """
    require_steps(script, steps)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    report, digest = report_in(folder, script), digest_of(script)
    lab = Lab(script, folder.absolute(), seconds)
    for seeds in [step for step in report.steps if step.name == "seeds" and is_done(step, digest)]:
        lab.note_seeds(row.accuracy for table in report.tables_of(seeds) for row in table.rows)
    chosen = [task for task in TASKS.values() if task.name in (steps or TASKS)]
    done = [task.name for task in chosen if is_done(report.step(task.name), digest) and not again]
    if done:
        say(f"Done already: {', '.join(done)}. --again runs them anew.")
    for task in [task for task in chosen if task.name not in done]:
        step = report.step(task.name)
        say(f"{task.name}: {task.question}" + (f" You expect: {step.prediction}" if step.prediction else ""))
        start = time.monotonic()
        try:
            state, found = DONE, task.run(lab)
        except (NotDone, LabError) as reason:
            state, found = NOT_HERE if isinstance(reason, NotHere) else NOT_DONE, Findings([str(reason)], [])
        except Exception as error:  # a fault of a step costs no other one
            state, found = NOT_DONE, Findings([f"it ended in {type(error).__name__}: {error}"], [])
        report = report_in(folder, script)  # once more: words may have been written meanwhile, and steps that another run did
        report.keep(task.name, state, found.says, found.tables, time.monotonic() - start, digest)
        report.commit = machine.commit() or ""
        report.write(folder)
        for line in step_text(report, report.step(task.name)).splitlines():
            say(line)
    return report


def is_done(step: LabStep, digest: str) -> bool:
    """Whether a step has run with the script as it is now; one that was not possible is tried again."""
    return step.state == DONE and step.script == digest


def digest_of(script: Sequence[str]) -> str:
    """The sha256 of the script's file; "" for a module, whose file is not looked for."""
    files = [Path(word) for word in script if word.endswith(".py") and Path(word).is_file()]
    return hashlib.sha256(files[0].read_bytes()).hexdigest() if files else ""


def remark(script: Sequence[str], folder: Path | str, name: str, *, prediction: str = "", sentence: str = "") -> LabReport:
    """Keep what the reader expects of a step before it runs, or says of it afterwards. Raises LabError for an unknown step."""
    require_steps(script, [name])
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    report = report_in(folder, script, measured_here=False)
    step = report.step(name)
    if prediction and is_done(step, digest_of(script)):
        raise LabError(f"{name} has run already: what is expected of it now is no prediction.", "Say what you think of it.")
    if prediction:  # of a script that has changed: what was found before is no answer to it
        report.keep(name, "", [], [], 0.0)
    step.prediction, step.sentence = prediction or step.prediction, sentence or step.sentence
    report.write(folder)
    return report


def require_steps(script: Sequence[str], names: Sequence[str]) -> None:
    """Raise LabError for a script that is not there, and for a name that is no step's."""
    check_script(script)
    for name in names:
        task_called(name)


def step_text(report: LabReport, step: LabStep) -> str:
    """What a step has found, for a terminal."""
    lines = [f"  {step.name}: {step.state}, {step.seconds:.0f} s"]
    for table in report.tables_of(step):
        lines += [f"  {line}" for line in table_text(list(table.columns.values()), table.cells()).splitlines()]
    return "\n".join([*lines, *(f"  {line}" for line in step.says)])
