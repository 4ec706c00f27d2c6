"""The experiment of notebook 09 that brings a slow trainer step by step to its best."""

import tempfile
from pathlib import Path

import numpy as np

from hpml_lab.core import style
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.progress import progress
from hpml_lab.core.result import Claim, Result
from hpml_lab.data import load
from hpml_lab.profiling.habits import write_folder
from hpml_lab.profiling.ladder import CHANGES, ROUNDING, Ladder, LadderPlan, Rung, applicable
from hpml_lab.profiling.slow_trainer import PARTS

NOTEBOOK = "09_profiling"
TOTAL = "slow trainer / best trainer, times"
LARGEST = "largest part of the slow trainer, % of its time"
FLOOR = "what one spacing in each weight does to a loss"
TEN = 10.0


def draw_profile_loop(result: Result):
    """Down the ladder, one rung a change. Top left: milliseconds of one iteration by part, with the speed-up so far; top right:
    the same as shares of each iteration. A rung in brackets was taken back. Bottom left: the losses of all rungs, one over the
    other. Bottom right: how far each rung's losses are from the rung below, dots, against what is allowed, bars; the planted
    mistakes are the crosses.
    """
    rungs = result.arrays["rungs"]
    figure = style.new_figure(11, 2.4 + 0.36 * (2 * len(rungs) + len(result.arrays["planted"])))
    (left, right), (losses, off) = figure.subplots(2, 2, height_ratios=(1.1, 1), width_ratios=(1.2, 1))
    names = [one["name"] if one["kept"] else f"({one['name']})" for one in rungs]
    places = np.arange(len(rungs))
    reached, shared = np.zeros(len(rungs)), np.zeros(len(rungs))
    whole = np.array([sum(one["profile"].values()) for one in rungs])
    colours = (*style.CYCLE, style.GREY)
    hatches = (None, "///", "...", "xxx", "++", "ooo", "\\\\\\", "--")
    for part, colour, hatch in zip(PARTS, colours, hatches, strict=True):
        took = np.array([one["profile"][part] for one in rungs])
        options = dict(color=colour, hatch=hatch, edgecolor="white", linewidth=0.5)
        left.barh(places, took * 1e3, left=reached * 1e3, label=part, **options)
        right.barh(places, 100 * took / whole, left=shared, **options)
        reached, shared = reached + took, shared + 100 * took / whole
    for place, one in enumerate(rungs):
        left.text(reached[place] * 1e3, place, f" ×{one['so far']:.1f}", va="center", fontsize=9)
    left.set_yticks(places, names)
    left.set(
        xlabel="ms an iteration, parts timed one by one", xlim=(0, 1.12e3 * max(reached)), title="time, and speed-up so far"
    )
    left.legend(fontsize=9, loc="lower right", ncols=2)
    right.set_yticks(places, [""] * len(places))
    right.set(xlabel="% of the iteration", xlim=(0, 100), title="shares: the next change attacks the largest")
    for axes in (left, right):
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
    for one in rungs:
        losses.plot(range(1, 1 + len(one["losses"])), one["losses"], color=style.BLUE, linewidth=1, alpha=0.6)
    for one, colour, line in zip(result.arrays["planted"], style.CYCLE[1:], ("--", ":", "-.", (0, (1, 3))), strict=False):
        losses.plot(range(1, 1 + len(one["losses"])), one["losses"], color=colour, linestyle=line, label=one["mistake"])
    losses.plot([], [], color=style.BLUE, label="every rung")
    losses.set(xlabel="iteration", ylabel="training loss", title="losses")
    losses.legend(fontsize=8)
    tiny = 1e-9  # where "the same bits" is drawn: a logarithmic axis has no 0
    places = np.arange(1, len(rungs))
    off.barh(places, [max(one["bound"], tiny) for one in rungs[1:]], color=style.SKY, alpha=0.5, label="allowed")
    off.plot([max(one["difference"], tiny) for one in rungs[1:]], places, "o", color=style.BLUE, label="found")
    wrong = [one["largest difference"] for one in result.arrays["planted"]]
    below = len(rungs) + np.arange(len(wrong))
    off.barh(below, [max(one["allowed"], tiny) for one in result.arrays["planted"]], color=style.SKY, alpha=0.5)
    off.plot([min(one, 50) for one in wrong], below, "X", color=style.RED, label="planted mistakes")
    off.set_yticks([*places, *below], [*names[1:], *(one["mistake"] for one in result.arrays["planted"])], fontsize=8)
    off.set(
        xscale="log", xlabel=f"largest difference of a loss ({tiny:g} stands for 0)", xlim=(tiny / 2, 1e2), title="the check"
    )
    off.invert_yaxis()
    off.legend(fontsize=8, loc="upper right")
    return figure


def _row(rung: Rung, below: Rung | None, so_far: float) -> dict:
    row = {"step": rung.step.switch if rung.step else "the slow trainer"}
    if rung.step:
        row |= {
            "attacks": rung.step.part,
            "largest before": below.largest,
            "ms of the part before": below.profile[rung.step.part] * 1e3,
            "ms of it after": rung.profile[rung.step.part] * 1e3,
            "gain": rung.gain,
            "most by that part alone": 1 / (1 - below.share(rung.step.part)),
        }
    row |= {"ms an iteration": rung.seconds * 1e3, "speed-up so far": so_far, "s once before": rung.once}
    if rung.step:
        row |= {"largest difference": rung.difference, "allowed": rung.bound, "kept": rung.kept}
    return row


@experiment(
    "profile-loop",
    lecture="L1",
    notebook=NOTEBOOK,
    draw=draw_profile_loop,
    quick=dict(data="digits", train=320, test=40, batch=64, iterations=8, profiled=8, look=8, pairs=2, compile=False),
    full=dict(data="mnist", train=60000, test=500, batch=64, iterations=930, profiled=62, look=62, pairs=1, compile=True),
    uses=("cuda",),
)
def profile_loop(size: Size) -> Result:
    """A slow trainer, brought to its best by profile, change and assess.

    The lecture: remove the root cause of the biggest bottleneck first, one change at a time, and verify that the outputs are
    still valid.
    """
    plan = LadderPlan(size.iterations, size.profiled, size.batch, size.look, size.pairs)
    with tempfile.TemporaryDirectory(prefix="hpml-ladder-") as folder:
        files = write_folder(Path(folder), load(size.data), size.train, size.test)
        ladder = Ladder(files, size.device, plan, compile=size.compile)
        rungs = list(progress(ladder.climb(), "rungs", len(ladder.steps) + 1))
        best = [one for one in rungs if one.kept][-1]
        total = ladder.total(best)
        planted = ladder.planted(best)
        floor = ladder.floor(best)

    rows, drawn, below, so_far = [], [], None, 1.0
    attacked, shortened = [], []  # (step, whether), for the claims
    for rung in rungs:
        reached = so_far * rung.gain
        rows.append(_row(rung, below, reached))
        drawn.append(
            {
                "name": rung.step.switch if rung.step else "slow",
                "kept": rung.kept,
                "profile": rung.profile,
                "losses": rung.history.losses,
                "difference": min(rung.difference, 1e3),
                "bound": rung.bound,
                "so far": reached,
            }
        )
        if rung.step:
            if so_far < TEN:
                attacked.append((rung.step.switch, rung.step.part == below.largest))
            if rung.kept:
                shortened.append((rung.step.switch, rung.profile[rung.step.part] < below.profile[rung.step.part]))
        if rung.kept:
            below, so_far = rung, reached
    exact = [one for one in rungs if one.step and one.step.bound == 0]
    rounded = [one for one in rungs if one.step and one.step.bound > 0]
    claims = [
        Claim(
            "changes that keep every operation and its order leave every loss the same to the last bit",
            len(exact) >= 4 and all(one.same for one in exact),
            f"{len(exact)} changes: {', '.join(one.step.switch for one in exact)}",
        ),
        Claim(
            "changes that round in another order, or in 16 bits, move no loss by more than their stated bound",
            len(rounded) >= 3 and all(one.same for one in rounded),
            ", ".join(f"{one.step.switch} {one.difference:.1g} of {one.bound:g}" for one in rounded),
        ),
        Claim(
            "every trainer leaves the same bits each time it is run, with the clock or without: the check checks the change",
            all(one.repeats for one in rungs),
            f"{sum(one.repeats for one in rungs)} of {len(rungs)} rungs",
        ),
        Claim(
            "the check turns down all four planted mistakes, though nothing fails and nothing warns",
            len(planted) == 4 and all(not row["largest difference"] <= row["allowed"] for row in planted),
            ", ".join(f"{row['mistake']} {row['largest difference']:.2g} ({row['gain']:.2f} times)" for row in planted),
        ),
        Claim(
            "one spacing more in each starting weight moves a loss, and by less than the bound for rounding",
            0 < floor < ROUNDING,
            f"{floor:.1g} of {ROUNDING:g}",
        ),
        Claim(
            "the best trainer is at least ten times as fast as the slow one", total >= TEN, f"{total:.1f} times", exact=False
        ),
        Claim(
            "until the trainer is ten times as fast, each step attacks the part that is the largest just then",
            all(one for _, one in attacked),
            f"{sum(one for _, one in attacked)} of {len(attacked)} steps",
            exact=False,
        ),
        Claim(
            "each step that was kept shortens the part that it attacks",
            all(one for _, one in shortened),
            f"{sum(one for _, one in shortened)} of {len(shortened)}"
            + "".join(f"; not {name}" for name, one in shortened if not one),
            exact=False,
        ),
    ]
    quantities = {TOTAL: total, LARGEST: 100 * rungs[0].share(rungs[0].largest), FLOOR: floor}
    arrays = {
        "rungs": drawn,
        "planted": [{**row, "largest difference": min(row["largest difference"], 1e3)} for row in planted],
    }
    return Result(rows, claims, quantities, [*ladder.notes, *_notes(size)], arrays)


def _notes(size: Size) -> list[str]:
    absent = {
        need: [step.switch for step in CHANGES if step.needs == need and not applicable(step, size.device, size.compile)]
        for need in ("cuda", "bfloat16", "compile")
    }
    notes = []
    if absent["cuda"]:
        notes.append(
            f"No CUDA GPU here: {', '.join(absent['cuda'])} mean nothing on a CPU and were not tried; run"
            " `hpml-lab run profile-loop --size full` on a machine with one."
        )
    if absent["bfloat16"]:
        notes.append(f"bfloat16 was not tried: {size.device.dtype_reason}.")
    if absent["compile"]:
        notes.append("compiled was not tried: torch.compile takes tens of seconds at first; `--size full` tries it.")
    return notes
