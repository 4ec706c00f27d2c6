"""What each change of the tuning guide gains on a script with planted habits, and whether it still trains the same."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.data import load
from hpml_lab.profiling.lessons import careless_training
from hpml_lab.referee import sameness
from hpml_lab.referee.changes import Tip, changes
from hpml_lab.referee.copies import require_turns
from hpml_lab.referee.script_turns import Compared
from hpml_lab.referee.tuneup import Tuneup, tuneup

# {change, or its name's beginning: (the planted habit, the classes that its removal can have)}
HABITS = {
    "workers": ("images wait for their turn", {sameness.BITWISE, sameness.REORDERED}),
    "gradients-to-none": ("gradients are set to 0", {sameness.BITWISE}),
    "fused": ("Adam goes from parameter to parameter", {sameness.BITWISE, sameness.ROUNDING}),
    "debugging-off": ("anomaly mode is left on", {sameness.BITWISE}),
}
TOGETHER = "all that are kept"
HALF = Tip("half-a-batch", "half of each batch left out", "15_large_batch", (("loader", {"batch_size": 32}),), lambda look: "")
# What the diff adds: (change, spaces in front of the line, its end).
EDITS = [("gradients-to-none", 12, "zero_grad(set_to_none=True)"), ("fused", 4, "lr=1e-3, fused=True)")]
QUICK = dict(data="digits", images=1280, changes=("gradients-to-none", "fused", "debugging-off"))
FULL = dict(data="digits", images=1280, changes=tuple(HABITS))


@dataclass
class ScriptChange(Row):
    """One change of the script: its gain in turns with the script as it is, and what became of the training."""

    change: str = column("change")
    habit: str = column("the habit")
    gain: float = column("speed-up")
    interval: str = column("interval")
    noise: float = column("noise", "%")
    verdict: str = column("verdict")
    training: str = column("the training")
    kept: bool = column("kept")


@dataclass
class ScriptLine(Row):
    """What no switch changes: a line of the script, and what it does."""

    found: str = column("found in the script")


@dataclass
class TriedChange(Row):
    """One change of any script, in words."""

    change: str = column("change")
    gain: str = column("speed-up")
    training: str = column("the training")
    kept: bool = column("kept")


# ---- measuring -------------------------------------------------------------------------------------------------------


def change_row(change: str, habit: str, found: Compared, kept: bool) -> ScriptChange:
    """A row; raises LabError for a change that does not get through."""
    if found.gain is None or found.same is None:
        raise LabError(f"{change} does not get through: {found.failed}.", "Run it again with less load on this machine.")
    gain, same = found.gain, found.same
    return ScriptChange(change, habit, **gain.columns, noise=100 * gain.noise, training=same.kind, kept=kept)


def tried_changes(found: Tuneup) -> list[TriedChange]:
    """The ladder of a script as rows."""
    return [TriedChange(rung.change.name, rung.text, rung.why, rung.kept) for rung in found.rungs]


def habit_of(change: str) -> str:
    """Its name in HABITS; "" for another change."""
    return next((name for name in HABITS if change.startswith(name)), "")


def tuned(script: list[str], names: Sequence[str]) -> Tuneup:
    """The ladder of these changes and of the mistake; raises LabError where one of them was not tried."""
    known = changes(machine.cores(), 0)
    tips = [next(tip for tip in known if tip.name.startswith(name)) for name in names]
    found = tuneup(script, tips=[*tips, HALF], minutes=30)
    if missing := {tip.name for tip in (*tips, HALF)} - {rung.change.name for rung in found.rungs}:
        problem = f"{', '.join(sorted(missing))}: not tried. {' '.join(dict.fromkeys([*found.absent.values(), *found.notes]))}"
        raise LabError(problem, "Run it again with less load on this machine.")
    return found


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """How many times as fast the script is with each change: a dot, and its 90 % interval as a line. The grey band behind it is
    what the script differs from itself in the same run. Blue is kept. Red is faster or not, and refused: it trains something
    else. Grey was not faster beyond noise."""
    rows = result.rows(ScriptChange)
    figure = style.new_figure(8, 1.2 + 0.4 * len(rows))
    axes = figure.subplots()
    for place, row in enumerate(rows):
        low, high = map(float, row.interval.split(" to "))
        color = style.BLUE if row.kept else style.RED if row.training == sameness.DIFFERENT else style.GREY
        noise = 1 + row.noise / 100
        axes.barh(place, noise - 1 / noise, left=1 / noise, height=0.8, color=style.GREY, alpha=0.25, edgecolor="none")
        axes.plot([low, high], [place, place], color=color, linewidth=3, solid_capstyle="butt")
        axes.plot(row.gain, place, "o" if row.kept else "X", color=color, markersize=9)
    axes.axvline(1, color=style.INK, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(rows)), [f"{row.change}\n{row.training}" for row in rows], fontsize=9)
    axes.set(xlabel="times as fast as the script as it is", ylabel="change")
    axes.invert_yaxis()
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("tune-up", lecture="own", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL)
def tune_up(params: Params) -> Result:
    """Habits planted in a script are found, one change at a time, and each is asked whether the training is still the same."""
    result = Result()
    try:
        require_turns()
    except LabError as error:
        result.notes.append(str(error))
        return result
    with tempfile.TemporaryDirectory(prefix="hpml-careless-") as name:
        script, images = Path(name) / "train.py", Path(name) / "digits.npz"
        shutil.copy(careless_training.__file__, script)
        data = load(params.data)
        np.savez(images, images=16 * data.train_x[: params.images, 0].numpy(), labels=data.train_y[: params.images].numpy())
        found = tuned([str(script), str(images)], params.changes)
        diffs = {rung.change.name: found.lines_of(rung) for rung in found.rungs}
        lines = [ScriptLine(note.rpartition(f"{Path(name).name}/")[2]) for note in found.notes]

    rows = []
    for rung in found.rungs:
        habit = "no habit, a mistake" if rung.change is HALF else HABITS[habit_of(rung.change.name)][0]
        rows.append(change_row(rung.change.name, habit, rung.found, rung.kept))
    mistake = next(row for row in rows if row.change == HALF.name)
    if found.together is not None:
        rows.append(change_row(TOGETHER, "", found.together, found.together_kept))
    result.tables += [Table("Changes, in turns", rows), Table("What no switch changes", lines)]
    result.key_figure("changes kept", len(found.kept), unit=f"of {len(found.rungs)}")
    if found.kept and (found.together is None or found.together_kept):
        result.key_figure("what is kept, speed-up", (found.together or found.kept[0].found).gain.ratio, unit="times")
    result.key_figure("half a batch, speed-up", mistake.gain, unit="times")

    planted = [row for row in rows if habit_of(row.change)]
    wrong = [f"{row.change}: {row.training}" for row in planted if row.training not in HABITS[habit_of(row.change)][1]]
    result.claim(
        "Without a habit it trains the same: bitwise, to rounding, or, where workers draw, with samples in another order",
        not wrong,
        "; ".join(wrong) or ", ".join(f"{row.change} {row.training}" for row in planted),
    )
    result.claim(
        "Half a batch is another training, though nothing fails, and is refused",
        mistake.training == sameness.DIFFERENT and not mistake.kept,
        next(rung.why for rung in found.rungs if rung.change is HALF),
    )
    result.claim(
        "The lines are found: where the loss is asked for in each step, and each bias that batch norm subtracts again",
        any("item 1 times a step" in row.found for row in lines)
        and any("Sequential.0, Sequential.3" in row.found for row in lines),
        f"{len(lines)} lines",
    )
    result.claim(
        "The change is written at its place: the call of the optimizer and of zero_grad, as a diff",
        all(f"+{' ' * indent}" in diffs[name] and text in diffs[name] for name, indent, text in EDITS if name in diffs),
        ", ".join(name for name, *_ in EDITS if name in diffs),
    )
    off = next(row for row in rows if row.change == "debugging-off")
    result.measured("Anomaly mode off is faster", off.verdict == "faster", f"{off.gain:.3g}× ({off.interval}; {off.verdict})")
    result.measured(
        "The refused mistake is faster as well: speed alone would have kept it",
        mistake.verdict == "faster",
        f"{mistake.gain:.3g}× ({mistake.interval}; {mistake.verdict})",
    )
    return result
