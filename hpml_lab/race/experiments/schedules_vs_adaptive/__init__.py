"""SGD with a schedule of the learning rate compared with adaptive methods: who ends better, and who is there first.

A fifth of the training labels are wrong: without noise, nets of this size learn all images by heart, and there is nothing for
a schedule to average out. Validation images choose the peak rates, test images are shown and choose nothing.
"""

from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import median

import numpy as np

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.threads import all_threads
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.data import load
from hpml_lab.optim.formulas.colors import OPTIMIZER_COLORS, optimizer_key
from hpml_lab.optim.schedules import factor
from hpml_lab.race.experiments.schedules_vs_adaptive.contest import (
    ENTRANTS,
    PEAKS,
    PLAN,
    ContestCurves,
    first_reached,
    train_contest,
    with_wrong_labels,
)
from hpml_lab.race.tools.program import NETS, Setting, flat_inputs
from hpml_lab.race.lessons.seed_by_seed import ahead, median_and_range, percent, sooner
from hpml_lab.race.experiments.training_speed import seconds_alone

QUICK = dict(data="digits", width=0.25, iterations=400, batch=32, seeds=8, valid=200, wrong=0.2, threshold=0.9, looks=25)
FULL = dict(data="mnist", width=1.0, iterations=5000, batch=128, seeds=8, valid=5000, wrong=0.2, threshold=0.95, looks=25)


@dataclass
class ContestEntry(Row):
    """One optimizer with one schedule at its best peak rate, over all seeds."""

    optimizer: str = column("optimizer")
    schedule: str = column("schedule")
    lr: float = column("best peak rate")
    final: str = column("final test accuracy, median (range)", "%")
    reached: str = column("iterations to the threshold, median (range)")
    seconds: float = column("training alone to the threshold, median", "s")
    at_edge: bool = column("best rate at the edge of the sweep")
    valid: float = 0.0  # final validation accuracy, median
    valid_loss: float = 0.0
    final_by_seed: list[float] = field(default_factory=list)
    reached_by_seed: list[float] = field(default_factory=list)
    curve: list[list[float]] = field(default_factory=list)  # test accuracy by seed

    @property
    def name(self) -> str:
        return f"{self.optimizer}, {self.schedule}"

    @property
    def score(self) -> tuple[float, float]:
        """What the validation images say: the higher, the better."""
        return self.valid, -self.valid_loss


Entries = dict[tuple[str, str], ContestEntry]  # by optimizer and schedule


def contest_entries(curves: ContestCurves, threshold: float, seconds: dict[str, float]) -> Entries:
    """Each entrant at its best peak rate: the highest median validation accuracy at the end (of equals, the lower loss)."""
    entries = {}
    for entrant in ENTRANTS:
        planned = [k for k, row in enumerate(PLAN) if row[:2] == entrant]
        candidates = [_entry(k, curves, threshold, seconds[entrant[0]]) for k in planned]
        best = max(candidates, key=lambda entry: entry.score)
        best.at_edge = best in (candidates[0], candidates[-1])
        entries[entrant] = best
    return entries


def _entry(k: int, curves: ContestCurves, threshold: float, seconds: float) -> ContestEntry:
    final = curves.test[-1, k].tolist()
    reached = [first_reached(curves.iterations, accuracy, threshold) for accuracy in curves.valid[:, k].T.tolist()]
    loss = curves.loss[-1, k].median().item()
    return ContestEntry(
        *PLAN[k],
        final=median_and_range(percent(final)),
        reached=median_and_range(reached),
        seconds=median(reached) * seconds,
        at_edge=False,
        valid=curves.valid[-1, k].median().item(),
        valid_loss=loss if isfinite(loss) else inf,
        final_by_seed=final,
        reached_by_seed=reached,
        curve=curves.test[:, k].T.tolist(),
    )


def judge_contest(result: Result, entries: Entries, threshold: float) -> None:
    """Add who ends better and who is there first, in pairs of seeds: all entrants of a seed share start and batches."""

    def best_schedule(optimizer: str) -> ContestEntry:
        entered = [entry for (name, schedule), entry in entries.items() if name == optimizer and schedule != "constant"]
        return max(entered, key=lambda entry: entry.score)

    def better(a: ContestEntry, b: ContestEntry, text: str) -> None:
        holds, count = ahead(a.final_by_seed, b.final_by_seed)
        result.measured(text, holds, f"{a.name} compared with {b.name}: {count}", depends_on="the data and the seeds")

    momentum, adam = (best_schedule(name) for name in ("Momentum", "Adam"))
    constant, level = entries["Adam", "constant"], f"{100 * threshold:g} %"
    plain = entries["Momentum", "constant"]
    better(momentum, plain, "SGD with momentum ends better with a schedule than at a constant rate")
    better(momentum, constant, "SGD with momentum and a schedule ends better than Adam at a constant rate")
    better(momentum, adam, "SGD with momentum and a schedule ends better than Adam with a schedule")
    holds, count = sooner(constant.reached_by_seed, momentum.reached_by_seed)
    result.measured(
        f"Adam at a constant rate reaches {level} before SGD with momentum and a schedule",
        holds,
        f"{constant.name} compared with {momentum.name}: {count}",
        depends_on="the data and the seeds",
    )


# ---- drawing ---------------------------------------------------------------------------------------------------------

SCHEDULES = ("constant", "step", "cosine", "one-cycle")
LINES = dict(zip(SCHEDULES, ("-", "--", "-.", (0, (1, 1))), strict=True))
MARKS = dict(zip(SCHEDULES, "os^D", strict=True))


@picture
def schedule_shapes():
    """The four schedules: the factor on the peak rate over the training. A constant rate stays, the others take large steps
    first and small ones last; one-cycle starts with a climb."""
    figure = style.new_figure(6.0, 3.0)
    axes = figure.subplots()
    T = 400
    for name in SCHEDULES:
        values = [factor(name, t, T) for t in range(T)]
        axes.plot(np.linspace(0, 100, T), values, linestyle=LINES[name], color=style.INK, linewidth=1.6, label=name)
    axes.set(xlabel="part of the training (%)", ylabel="rate / peak rate", ylim=(-0.03, 1.08))
    figure.legend(loc="outside lower center", ncols=len(SCHEDULES), handlelength=3)
    return figure


def draw(result: Result):
    """One row an entrant, from the best final accuracy down: medians over the seeds, with bars from the smallest to the
    largest. Left: final accuracy on the test images. Right: iterations to the threshold on the validation images; an arrow
    marks a median that never got there. Look for bars on the left that do not overlap, and for who is first on the right."""
    rows = sorted(result.rows(ContestEntry), key=lambda row: median(row.final_by_seed))
    figure = style.new_figure(9.0, 4.6)
    final, reached = figure.subplots(1, 2, sharey=True)
    last = result.arrays["iterations"][-1]
    for y, row in enumerate(rows):
        _draw_bar(final, y, percent(row.final_by_seed), row)
        _draw_bar(reached, y, [min(value, 1.1 * last) for value in row.reached_by_seed], row, never=1.1 * last)
    final.set_yticks(range(len(rows)), [row.name for row in rows])
    final.set(xlabel="final test accuracy (%)", ylabel="optimizer, schedule", title="How well")
    level = 100 * result.arrays["threshold"]
    reached.set(xlabel=f"iterations to {level:g} % (validation)", title="How soon", xlim=(0, None))
    return figure


def _draw_bar(axes, y: int, values: list[float], row: ContestEntry, never: float = inf) -> None:
    """The median of `values` as a marker and their range as a bar; an arrow if the median is `never`."""
    middle, color = median(values), OPTIMIZER_COLORS[optimizer_key(row.optimizer)]
    axes.plot([min(values), max(values)], [y, y], color=color, linewidth=2, alpha=0.6)
    axes.plot(middle, y, ">" if middle == never else MARKS[row.schedule], color=color, markersize=7)


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment(
    "schedules-vs-adaptive", lecture="L0", notebook="06_race", draw=draw, quick=QUICK, full=FULL, uses=("cuda", "mnist")
)
def schedules_vs_adaptive(params: Params) -> Result:
    """SGD with a schedule of the learning rate compared with adaptive methods, each at its best rate."""
    device = params.device.torch
    data = load(params.data, device)
    x, test_x = flat_inputs(data)
    kept = len(x) - params.valid
    train = x[:kept], with_wrong_labels(data.train_y[:kept], params.wrong)
    valid, test = (x[kept:], data.train_y[kept:]), (test_x, data.test_y)
    net = NETS["net 2"] if params.width == 1 else NETS["net 2"].scaled(params.width)
    workers = 1 if device.type == "cuda" or params.size == "quick" else all_threads()
    lengths = params.iterations, params.batch, params.looks
    curves = train_contest(net, range(params.seeds), train, valid, test, *lengths, workers)
    settings = [Setting(name, lr=peaks[0]) for name, peaks in PEAKS.items()]
    seconds = seconds_alone(net, settings, *train, params.batch, samples=SAMPLES)
    entries = contest_entries(curves, params.threshold, seconds)
    best = max(entries.values(), key=lambda entry: median(entry.final_by_seed))
    earliest = min(entries.values(), key=lambda entry: median(entry.reached_by_seed))

    title = f"Each entrant at its best peak rate; the threshold is {100 * params.threshold:g} % on the validation images"
    result = Result([Table(title, list(entries.values()))])
    result.key_figure("ends with the best accuracy", best.name, lecture="often SGD with a schedule")
    result.key_figure("is there first", earliest.name, lecture="an adaptive method")
    result.key_figure("best final accuracy", round(100 * median(best.final_by_seed), 2), unit="%")
    result.key_figure("trainings", len(PLAN) * params.seeds)
    judge_contest(result, entries, params.threshold)
    result.arrays = {"iterations": curves.iterations, "threshold": params.threshold}
    result.notes.append(
        f"{100 * params.wrong:g} % of the training labels were drawn again, at random. Without that, the nets learn all images "
        "by heart, and the noise that a falling rate averages out vanishes by itself."
    )
    if params.data == "digits":
        command = "hpml-lab run schedules-vs-adaptive --size full"
        result.notes.append(f"quick: scikit-learn's digits and a small net 2; `{command}` takes MNIST.")
    if device.type != "cuda":
        result.notes.append("No CUDA GPU here: full takes about 20 minutes on 2 cores. After a kill it continues where it was.")
    return result
