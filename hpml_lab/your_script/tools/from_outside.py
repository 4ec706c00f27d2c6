"""Steps that any script can take: changes from outside, in turns with the script as it is, and a profile."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpml_lab.core.experiment import Row, Table, column
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import run_python, why_ended
from hpml_lab.core.system.readers import RECORD, reader, text_of
from hpml_lab.profilers.operator_table import read_operators
from hpml_lab.profilers.script_stacks import CodeLineShare, script_stacks
from hpml_lab.referee.copies import require_turns
from hpml_lab.referee.sameness import KEPT
from hpml_lab.referee.script_turns import Candidate, Compared, EndsEarly, Yardstick, compared
from hpml_lab.referee.tuneup import tuneup
from hpml_lab.your_script.tools.lab_task import LATE, Findings, Lab, NotDone, NotHere, not_run

WORKERS = (0, 1, 2, 4, 8)
AT_ONCE = 3  # numbers of workers that take turns with the script at the same time
LINES = 12  # of a profile's table


@dataclass
class GainRow(Row):
    """One change in turns with the script as it is."""

    change: str = column("change")
    speed_up: float | None = column("speed-up")
    interval: str = column("interval")
    noise: float | None = column("noise", "%")
    verdict: str = column("verdict")
    training: str = column("the training")


def _gain(name: str, found: Compared) -> GainRow:
    if found.gain is None or found.same is None:
        return GainRow(name, None, "", None, found.failed, "")
    gain = found.gain
    return GainRow(name, gain.ratio, gain.interval, 100 * gain.noise, gain.verdict, found.same.kind)


def _faster_and_another(rows: Sequence[GainRow], same: set[str]) -> list[str]:
    another = [row for row in rows if row.verdict == "faster" and row.training not in same]
    return [f"{row.change}: faster, and {row.training}." for row in another]


def try_workers(lab: Lab) -> Findings:
    """Numbers of workers until no further one gains."""
    _turns_here()
    base, late, end = Candidate("as it is", lab.script, isolate=True), LATE * lab.seconds, time.monotonic() + lab.seconds
    several = [
        Candidate(
            f"{workers} worker{'s' if workers != 1 else ''}",
            lab.script,
            [("loader", {"num_workers": workers, "persistent_workers": workers > 0})],
            reorders=True,
            isolate=True,
        )
        for workers in WORKERS
        if workers <= max(2, 2 * machine.cores())
    ]
    found: dict[str, Compared] = {}
    crowded: list[str] = []  # the line that says so, where there is memory for few copies
    yardstick = Yardstick(base, late, crowded.append)
    try:
        while several and not (found and time.monotonic() > end):
            found |= compared(several[:AT_ONCE], yardstick)
            several = [each for each in several if each.name not in found]
    except EndsEarly as error:
        raise NotDone(f"no gain can be measured: {error}") from None
    rows = [_gain(name, each) for name, each in found.items()]
    # Workers draw in another order, which is no other training.
    same = KEPT["rounding"]
    faster = [row for row in rows if row.verdict == "faster" and row.training in same]
    says = _faster_and_another(rows, same) + not_run(lab, [each.name for each in several]) + crowded
    if not faster:
        return Findings(["No number of workers gains beyond the noise.", *says], [Table("Workers of the loader", rows)])
    best = max(row.speed_up or 0.0 for row in faster)
    gains = {name: each.gain for name, each in found.items() if each.gain is not None}
    # The fewest whose interval reaches the best: more are no further gain.
    enough = next(row.change for row in faster if gains[row.change].high >= best)
    more = "; more are no further gain" if enough != rows[-1].change else "; more were not tried"
    says.insert(0, f"{enough}: {gains[enough]}{more}.")
    return Findings(says, [Table("Workers of the loader", rows)])


def _turns_here() -> None:
    try:
        require_turns()
    except LabError as error:
        raise NotHere(str(error)) from error


def _tuned(lab: Lab, title: str, only: Sequence[str], allow: str) -> Findings:
    _turns_here()
    found = tuneup(lab.script, only=only, allow=allow, minutes=lab.seconds / 60, isolate=True)
    if found.interrupted:
        raise KeyboardInterrupt
    rows = [_gain(rung.change.name, rung.found) for rung in found.rungs]
    late = [name for name, why in found.absent.items() if "--minutes" in why]
    says = [f"{rung.change.title}: {rung.text}; {rung.why}." for rung in found.kept]
    says += _faster_and_another(rows, KEPT[allow])
    if not says and rows and not late:
        says.append("No change gains beyond the noise.")
    says += [f"{rung.change.title}, the lines:\n{found.lines_of(rung).strip()}" for rung in found.kept]
    if found.together is not None and found.together.gain is not None:
        says.append(f"All kept ones together: {found.together.gain}.")
    says += found.notes
    says += [f"{name}: {why}." for name, why in found.absent.items() if only and name not in late]
    return Findings(says + not_run(lab, late), [Table(title, rows)] if rows else [])


def try_precision(lab: Lab) -> Findings:
    """Autocast to bfloat16, and a compiled net."""
    return _tuned(lab, "Autocast and compilation", ("autocast", "compiled"), "precision")


def try_everything(lab: Lab) -> Findings:
    """What the tuning guide's changes gain, one at a time and together."""
    return _tuned(lab, "The tuning guide's changes", (), "rounding")


def profile_lines(lab: Lab) -> Findings:
    """The script's own lines in which the time goes, and torch's operators; the page has functions as well."""
    page = lab.folder / "profile.html"
    samples, operators = (page.with_suffix(f".{kind}.json") for kind in ("speedscope", "operators"))
    for before in (samples, operators):
        before.unlink(missing_ok=True)
    command = ["-m", "hpml_lab", "profile", "--out", str(page), "--", *lab.script]
    run = run_python(command, deadline_seconds=LATE * lab.seconds)
    if run.exitcode is None:
        raise NotDone(f"it was not done after {LATE * lab.seconds:.0f} s; a shorter training, or --seconds, helps")
    if run.exitcode != 0 or not samples.exists():
        said = [line for line in run.stderr.splitlines() if not line.startswith("hpml-lab: the profile is")]
        raise NotDone(f"no profile: {why_ended(run.exitcode, chr(10).join(said)) or f'exit code {run.exitcode}'}")
    lines, home = read_lines(samples), f"{Path(lab.script[0]).resolve().parent}{os.sep}"
    for row in lines:
        row.line = row.line.removeprefix(home)
    says = ["No line of its own was at work."]
    if lines:  # the largest total are of lines that call the whole training
        row = max(lines, key=lambda row: row.own_percent)
        says = [f"{row.line}, `{row.source}`: {row.own_percent:.0f} %, with the libraries that it calls."]
    says.append(f"Functions and flame graph: {page.name}.")
    of_torch = [Table("Operators of torch", read_operators(operators)[:LINES])] if operators.exists() else []
    return Findings(says, [Table("Lines of the script", lines[:LINES]), *of_torch])


@reader("a profile's samples, as speedscope.app takes them", "Run the step again.")
def read_lines(path: Path | str) -> list[CodeLineShare]:
    """The lines of a script's own code in which most samples of a profile fell."""
    return script_stacks(json.loads(text_of(path, RECORD))).lines
