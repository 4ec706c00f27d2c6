"""The ways to start a worker: what each costs, and the deadlock of a fork while another thread holds a lock."""

from dataclasses import dataclass

from matplotlib.lines import Line2D

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.children import ChildOutcome, run_in_child
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.timing.timeline import rows
from hpml_lab.processes.experiments.start_cost import (
    AGAIN,
    DONE,
    HANGS,
    HOLDING,
    SPAWN_WITH_TORCH,
    ForkWithTorch,
    StartCost,
    measure_starts,
    safe_methods,
    starts_with_torch,
)
from hpml_lab.processes.lessons import held_lock
from hpml_lab.processes.lessons.held_lock import HELD_LOCK_CASES, start_while_held
from hpml_lab.processes.views.timelines import draw_timelines, legend_entries

QUICK = dict(starts=SAMPLES, preload=False, hold=0.1, patience=0.4)
FULL = dict(starts=30, preload=True, hold=0.2, patience=1.0)
DEADLINE_SECONDS = 60.0  # a child that is not done by then is ended


@dataclass
class LockCase(Row):
    """A child that was started while a thread of its parent held a lock, and the parent afterwards."""

    case: str = column("child started by")
    child: str = column("the child")
    parent: str = column("the parent")


# ---- drawing -------------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """The time from the call of start() to the worker's first line, for each way to start it, on a logarithmic axis.

    Hatched bars are workers that have torch. Compare a thread with the processes, the fork of a small process with the fork of
    one that has written memory, and a worker that must import torch with all others.
    """
    costs = result.rows(StartCost)
    figure = style.new_figure(8.5, 1.4 + 0.4 * len(costs))
    axes = figure.subplots()
    values = [row.ready for row in costs]
    colors = [style.ORANGE if row.has_torch else style.BLUE for row in costs]
    hatches = ["///" if row.has_torch else None for row in costs]
    axes.barh([row.way for row in costs], values, color=colors, hatch=hatches, edgecolor="white")
    for index, value in enumerate(values):
        axes.text(value * 1.1, index, f"{value:,.0f} ms" if value >= 10 else f"{value:.2g} ms", va="center")
    axes.set(xscale="log", xlabel="time to the worker's first line, ms", xlim=(min(values) / 2, max(values) * 6))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    return figure


# What is too short to be seen as a bar: (what, start or end of it, marker, label).
_MOMENTS = ((held_lock.STARTS, "start", ">", "start() is called"), (held_lock.WAITS, "end", "*", "the child gets the lock"))


@picture
def held_lock_timelines(result: Result):
    """A process is started while another thread of the parent holds a lock.

    A forked child waits forever, long after the thread has released it. With hooks around the fork, start() waits for the lock
    before it forks, and the child gets it at once. A spawned child begins late and gets the lock, a lock of its own, while the
    thread still holds the parent's.
    """
    colors = {
        held_lock.HOLDS: style.BLUE,
        held_lock.STARTS: style.GREEN,
        held_lock.WAITS: style.YELLOW,
        held_lock.NEVER: style.RED,
    }
    lanes = (held_lock.PARENT, held_lock.THREAD, held_lock.CHILD)
    timelines = result.arrays["held"]
    figure = style.new_figure(9, 3.6)
    panels = figure.subplots(1, len(timelines), sharex=True, sharey=True, squeeze=False)[0]
    scale = draw_timelines(panels, timelines, colors, lanes)
    for axes, spans in zip(panels, timelines.values(), strict=True):
        axes.set_xlabel(panels[-1].get_xlabel())
        for what, end, marker, _ in _MOMENTS:
            moments = [row for row in spans if row["what"] == what]
            heights = [lanes.index(row["lane"]) for row in moments]
            axes.scatter([scale * row[end] for row in moments], heights, marker=marker, s=70, color=style.INK, zorder=3)
    every = [row for spans in timelines.values() for row in spans]
    longest = max(row["end"] for row in every)
    wide = {row["what"] for row in every if row["end"] - row["start"] > longest / 100}  # the others show as markers only
    seen = {what: color for what, color in colors.items() if what in wide}
    markers = [Line2D([], [], marker=m, color=style.INK, linestyle="none", label=label) for _, _, m, label in _MOMENTS]
    figure.legend(handles=[*legend_entries(seen), *markers], loc="outside upper center", ncols=3)
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------------


@experiment("start-methods", lecture="L0", notebook="07_processes", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def start_methods(params: Params) -> Result:
    """What fork, forkserver and spawn cost, and the deadlock that comes from a fork."""
    methods = safe_methods()
    costs = measure_starts(methods=methods, samples=params.starts, preload=params.preload)
    arguments = (CLOCK(), params.starts, params.patience, params.device.is_cuda)
    with_torch = run_in_child(starts_with_torch, *arguments, method="spawn", deadline_seconds=3 * DEADLINE_SECONDS)
    torch_starts = with_torch.value or ForkWithTorch([])
    gains = _gains(costs, methods[0])
    costs = sorted((row for row in [*costs, *torch_starts.rows] if AGAIN not in row.way), key=lambda row: row.ready)
    ready = {row.way: row.ready for row in costs}
    outcomes = {
        case: run_in_child(
            start_while_held, case, params.hold, params.patience, method="spawn", deadline_seconds=DEADLINE_SECONDS
        )
        for case in HELD_LOCK_CASES
    }
    locks = [_lock_case(case, outcome) for case, outcome in outcomes.items()]
    forked, hooked, spawned = locks

    result = Result([Table("Time to start a worker", costs), Table("A lock that was held at the start", locks)])
    result.claim(
        "A forked child never gets the lock that another thread held at the fork, though the parent does; with hooks around "
        "the fork (`os.register_at_fork`) it does; a spawned child has a lock of its own, and gets it while the thread holds "
        "the parent's",
        (forked.child, forked.parent) == (held_lock.GETS_NOT, held_lock.GETS)
        and (hooked.child, spawned.child) == (held_lock.GETS, held_lock.GETS_OWN),
        f"forked: the child {forked.child}, the parent {forked.parent}; with hooks {hooked.child}, spawned {spawned.child}",
    )
    result.measured(f"A thread starts faster than a process by {methods[0]}", gains["thread"].faster, str(gains["thread"]))
    if "fork" in methods:
        _compare_with_fork(result, gains)
        _claim_forks_with_torch(result, torch_starts, with_torch, params.device.is_cuda)
    else:
        result.notes.append("This system's own libraries do not survive a fork, so fork is not timed here: run it on Linux.")
    result.key_figure("spawn and import torch", ready.get(SPAWN_WITH_TORCH), "ms")
    if SPAWN_WITH_TORCH not in ready:
        result.notes.append(f"The child that imports torch did not finish ({with_torch.how}: {with_torch.error}).")
    if not params.device.is_cuda:
        result.notes.append(
            "No CUDA GPU here: that a child forked after CUDA was used cannot use it is not shown; run"
            " `hpml-lab run start-methods` on a machine with one."
        )
    result.arrays["held"] = {case: rows(outcome.value.spans) for case, outcome in outcomes.items() if outcome.value}
    return result


def _lock_case(case: str, outcome: ChildOutcome) -> LockCase:
    if outcome.how != "returned":
        return LockCase(case, f"{outcome.how} {outcome.error}".strip(), "not measured")
    return LockCase(case, outcome.value.child if outcome.value.asked else "never asked for it", outcome.value.parent)


def _gains(costs: list[StartCost], base: str) -> dict[str, SpeedUp]:
    """{way: its speed-up over the method `base`}, of the ways that took turns with it; also set in the rows."""
    samples = {row.way: row.samples for row in costs}
    gains = {}
    for row in costs:
        if row.way not in (base, base + AGAIN) and len(row.samples) == len(samples[base]) > 1 and not row.has_torch:
            gain = gains[row.way] = speed_up_of(samples[base], row.samples, samples[base + AGAIN])
            row.gain, row.interval = gain.ratio, gain.interval
    return gains


def _compare_with_fork(result: Result, gains: dict[str, SpeedUp]) -> None:
    result.key_figure("fork compared with a thread", gains["thread"].ratio, "times slower", lecture="much slower")
    for method in ("forkserver", "spawn"):
        gain = gains[method]
        result.key_figure(f"{method} compared with fork", 1 / gain.ratio, "times slower", lecture="slower")
    slower = [gains[method] for method in ("forkserver", "spawn")]
    text = "Forkserver and spawn are slower than the fork of a small process"
    result.measured(text, all(gain.slower for gain in slower), "; ".join(map(str, slower)))
    gain = gains[HOLDING]
    result.key_figure("fork after writing 256 MiB compared with fork", 1 / gain.ratio, "times slower")
    result.measured("The more memory a process has written, the longer its fork takes", gain.slower, str(gain))


def _claim_forks_with_torch(result: Result, torch_starts: ForkWithTorch, child: ChildOutcome, cuda: bool) -> None:
    ends = f"all threads: {torch_starts.all_threads}, one thread: {torch_starts.one_thread}"
    result.measured(
        "After torch has used two threads, a forked child hangs in its first large operation unless it sets one thread",
        (torch_starts.all_threads, torch_starts.one_thread) == (HANGS, DONE),
        ends if child.value else child.error or child.how,
    )
    if cuda:
        error = torch_starts.cuda_error
        result.measured("A child forked after CUDA was used cannot use CUDA", "CUDA" in error, error)
