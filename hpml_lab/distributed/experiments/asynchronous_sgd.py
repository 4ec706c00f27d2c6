"""Synchronous, K-synchronous, K-batch and asynchronous SGD on a virtual clock: how long an update takes, how old its gradients
are, and what that does to a real training."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean, median

import numpy as np
import torch
from torch import Tensor

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.progress import progress
from hpml_lab.core.timing.threads import one_thread
from hpml_lab.core.timing.timeline import gantt
from hpml_lab.data import load
from hpml_lab.distributed.lessons.parameter_server import (
    ASYNCHRONOUS,
    K_BATCH,
    K_SYNCHRONOUS,
    SYNCHRONOUS,
    Update,
    largest_rate,
    seconds_of_k,
    seconds_of_one,
    updates,
)

QUICK = dict(workers=8, wait=4, straggle=2.0, until=200.0, rate=2.0, seeds=3)
FULL = dict(workers=8, wait=4, straggle=2.0, until=1000.0, rate=2.0, seeds=10)
BATCH = 16
UNDIVIDED = "asynchronous, with the synchronous η"
TARGET = 0.4  # mean loss of the training images
COLORS = {"in an update": style.BLUE, "thrown away": style.GREY}
DRAWN_SECONDS = 12.0


@dataclass
class PolicyRow(Row):
    """One policy: medians over the seeds, and the loss at each whole second of the first one's training."""

    policy: str = column("policy")
    wait: int = column("gradients of an update")
    rate: float = column("η of an update")
    mean: float = column("an update takes", "s")
    expected: float | None = column("by the formula", "s")
    age: float = column("mean age of a gradient", "updates")
    oldest: int = column("oldest", "updates")
    cancelled: float = column("thrown away", "% of the gradients")
    to_target: float | None = column(f"to a loss of {TARGET}", "s")
    loss: float = column("loss at the end")
    losses: list[float] = field(default_factory=list)  # at the end, of each seed


class DigitsRegression:
    """Softmax regression of the digits in float64, whose gradients each worker takes from batches of its own."""

    def __init__(self) -> None:
        data = load("digits", "cpu")
        pixels = data.train_x.flatten(1).double()
        self.x = torch.cat([pixels, torch.ones(len(pixels), 1, dtype=torch.float64)], 1)
        self.y = torch.nn.functional.one_hot(data.train_y, 10).double()

    def start(self) -> Tensor:
        return torch.zeros(self.x.shape[1], 10, dtype=torch.float64)

    def loss(self, weights: Tensor) -> float:
        """The mean cross-entropy of all training images."""
        return -(self.y * (self.x @ weights).log_softmax(1)).sum(1).mean().item()

    def gradient(self, seed: int) -> Callable[[Tensor, int, int], Tensor]:
        def of_batch(weights: Tensor, worker: int, number: int) -> Tensor:
            chosen = np.random.default_rng([seed, worker, number]).integers(len(self.x), size=BATCH)
            x, y = self.x[chosen], self.y[chosen]
            return x.T @ ((x @ weights).softmax(1) - y) / BATCH

        return of_batch


def takes(seed: int, straggle: float) -> Callable[[int, int], float]:
    """A gradient takes 1 + Exp(straggle) seconds; the same ones whatever the policy."""
    return lambda worker, number: 1 + straggle * np.random.default_rng([seed, worker, number, 1]).exponential()


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Above: the first seconds of each policy, a lane for each worker; gray: a gradient that is thrown away. Below: the loss of
    all training images. Each gradient moves the weights equally far, but on the dotted line as far as a whole synchronous
    update. How much of the lanes is gray, how much is empty, and what does the dotted line do first?"""
    figure = style.new_figure(10.5, 6)
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.3))
    lanes = result.arrays["lanes"]
    panels = above.subplots(1, len(lanes), sharey=True)
    for axes, (policy, spans) in zip(panels, lanes.items(), strict=True):
        gantt(axes, spans, COLORS)
        axes.set(title=policy, xlim=(0, DRAWN_SECONDS))
    panels[0].set_ylabel("worker")
    above.legend(*panels[1].get_legend_handles_labels(), loc="outside lower right", ncols=2, fontsize=8)
    axes = below.subplots()
    for number, (policy, losses) in enumerate(result.arrays["losses"].items()):
        line = ":" if policy == UNDIVIDED else style.LINES[number % 3]
        axes.plot(range(1, len(losses) + 1), losses, line, color=style.CYCLE[number], label=policy)
    axes.set(xlabel="seconds of the virtual clock", ylabel="training loss", yscale="log")
    axes.legend(fontsize=8)
    return figure


def drawn(found: list[Update]) -> list[dict[str, float | str]]:
    """Spans of the first seconds, as `gantt` draws them."""
    spans = []
    for what, chosen in (("in an update", "used"), ("thrown away", "cancelled")):
        works = [work for update in found for work in getattr(update, chosen) if work.begin < DRAWN_SECONDS]
        spans += [{"lane": f"{work.worker}", "what": what, "start": work.begin, "end": work.end} for work in works]
    return sorted(spans, key=lambda span: (span["lane"], span["start"]))


# ---- the experiment --------------------------------------------------------------------------------------------------


def trained(digits: DigitsRegression, policy: str, wait: int, rate: float, params: Params, seed: int) -> list[Update]:
    """All updates until the time is over."""
    found = updates(policy, digits.gradient(seed), digits.start(), takes(seed, params.straggle), params.workers, wait, rate)
    return list(itertools.takewhile(lambda update: update.clock <= params.until, found))


def each_second(digits: DigitsRegression, found: list[Update], until: float) -> list[float]:
    """The loss at the end of each whole second: that of the last update before it."""
    losses, weights, known = [], digits.start(), None
    waiting = iter([*found, None])
    following = next(waiting)
    for second in range(1, int(until) + 1):
        while following is not None and following.clock <= second:
            weights, known, following = following.weights, None, next(waiting)
        known = digits.loss(weights) if known is None else known
        losses.append(known)
    return losses


def expected_seconds(policy: str, wait: int, params: Params) -> float | None:
    """Of an update, by the formula; a K-batch update has none where gradients take at least a second."""
    if policy == K_BATCH:
        return None
    if policy == ASYNCHRONOUS:
        return seconds_of_one(params.workers, params.straggle)
    return seconds_of_k(params.workers, wait, params.straggle)


def mean_seconds(policy: str, wait: int, params: Params) -> float:
    """The mean time of 4,000 updates, whose gradients are 0: only the clock counts."""
    zero = torch.zeros((), dtype=torch.float64)
    found = updates(policy, lambda *_: zero, zero, takes(0, params.straggle), params.workers, wait, 1.0)
    return next(itertools.islice(found, 3_999, None)).clock / 4_000


def on_a_parabola(workers: int, share: float) -> float:
    """|w| after 4,000 asynchronous updates of workers that are equally fast, on w²/2, at this share of the largest rate."""
    found = updates(
        ASYNCHRONOUS,
        lambda weights, worker, number: weights,
        torch.ones((), dtype=torch.float64),
        lambda worker, number: 1.0,
        workers,
        1,
        share * largest_rate(workers - 1),
    )
    return abs(next(itertools.islice(found, 4_000, None)).weights.item())


def as_one_process(digits: DigitsRegression, params: Params) -> tuple[float, float]:
    """How far (all workers, synchronous) and (one, asynchronous) are from SGD in a plain loop after 20 updates."""
    apart = []
    for policy, workers in ((SYNCHRONOUS, params.workers), (ASYNCHRONOUS, 1)):
        gradient, weights = digits.gradient(0), digits.start()
        for step in range(20):
            parts = [gradient(weights, worker, step) for worker in range(workers)]
            weights = weights - params.rate * torch.stack(parts).mean(0)
        found = updates(policy, gradient, digits.start(), takes(0, params.straggle), workers, workers, params.rate)
        last = next(itertools.islice(found, 19, None)).weights
        apart.append(((last - weights).abs().max() / weights.abs().max()).item())
    return apart[0], apart[1]


@experiment("asynchronous-sgd", lecture="own", notebook="13_distributed", draw=draw, quick=QUICK, full=FULL)
@one_thread()
def asynchronous_sgd(params: Params) -> Result:
    """Synchronous, K-synchronous, K-batch and asynchronous SGD on a virtual clock, with real gradients."""
    digits, n, k = DigitsRegression(), params.workers, params.wait
    rows, lanes, curves = [], {}, {}
    waits = {SYNCHRONOUS: n, K_SYNCHRONOUS: k, K_BATCH: k, ASYNCHRONOUS: 1, UNDIVIDED: 1}
    for name, wait in progress(list(waits.items()), "policies"):
        policy = ASYNCHRONOUS if name == UNDIVIDED else name
        rate = params.rate * (1 if name == UNDIVIDED else wait / n)
        ages, lost, to_target, ends = [], [], [], []
        for seed in range(params.seeds):
            found = trained(digits, policy, wait, rate, params, seed)
            losses = each_second(digits, found, params.until)
            ages += [work.age for update in found for work in update.used]
            cancelled = sum(len(update.cancelled) for update in found)
            lost.append(100 * cancelled / (cancelled + len(found) * wait))
            reached = [second for second, loss in enumerate(losses, 1) if loss <= TARGET]
            to_target.append(reached[0] if reached else float("inf"))
            ends.append(losses[-1])
            if seed == 0:
                curves[name] = [round(loss, 4) for loss in losses]
                if name != UNDIVIDED:
                    lanes[name] = drawn(found)
        reached = median(to_target)
        rows.append(
            PolicyRow(
                policy=name,
                wait=wait,
                rate=rate,
                mean=mean_seconds(policy, wait, params),
                expected=expected_seconds(policy, wait, params),
                age=mean(ages),
                oldest=max(ages),
                cancelled=mean(lost),
                to_target=reached if reached < float("inf") else None,
                loss=median(ends),
                losses=ends,
            )
        )
    title = f"{n} workers, of which an update waits for {n}, {k} or 1; {params.until:.0f} s, {params.seeds} seeds"
    result = Result([Table(title, rows)], arrays={"lanes": lanes, "losses": curves})
    judge(result, digits, params)
    return result


def judge(result: Result, digits: DigitsRegression, params: Params) -> None:
    """Add what holds on every machine: the clock is virtual."""
    n = params.workers
    by_policy = {row.policy: row for row in result.rows()}
    synchronous, asynchronous = by_policy[SYNCHRONOUS], by_policy[ASYNCHRONOUS]
    result.key_figure("updates a second, asynchronous over synchronous", synchronous.mean / asynchronous.mean, "times")
    faster = synchronous.mean / asynchronous.mean / n
    result.key_figure("gradients used a second, asynchronous over synchronous", faster, "times")
    apart = as_one_process(digits, params)
    result.claim(
        "Synchronous SGD is one process with the batches of all workers, asynchronous SGD with one worker is SGD, to rounding",
        max(apart) < 1e-12,
        f"{apart[0]:.1e} and {apart[1]:.1e} apart",
    )
    known = [row for row in result.rows() if row.expected is not None]
    result.claim(
        "The mean time of 4,000 updates is within 3 % of the formula's",
        all(abs(row.mean / row.expected - 1) < 0.03 for row in known),
        ", ".join(f"{row.policy}: {row.mean:.3g} and {row.expected:.3g} s" for row in known if row.policy != UNDIVIDED),
    )
    result.claim(
        f"An asynchronous gradient is {n - 1} updates old on average, one for each other worker; the others are fresh",
        abs(asynchronous.age / (n - 1) - 1) < 0.05 and all(row.oldest == 0 for row in result.rows() if row.wait > 1),
        f"{asynchronous.age:.2f}, the oldest {asynchronous.oldest}",
    )
    below, above = on_a_parabola(n, 0.97), on_a_parabola(n, 1.03)
    result.claim(
        f"With gradients {n - 1} updates old, SGD on a parabola converges up to η·λ = 2 sin(π/(4·{n - 1} + 2)), not up to 2",
        below < 1e-3 and above > 1e3,
        f"at {largest_rate(n - 1):.3f}: 3 % below |w| becomes {below:.1e}, 3 % above {above:,.0f}",
    )
    order = [by_policy[name] for name in (ASYNCHRONOUS, K_SYNCHRONOUS, SYNCHRONOUS)]
    result.measured(
        "If each gradient moves the weights equally far, the loss is lowest where nobody waits, and highest where all wait, in "
        "every seed",
        all(a < b < c for a, b, c in zip(*(row.losses for row in order), strict=True)),
        ", ".join(f"{row.policy}: {row.loss:.3f}" for row in order),
        depends_on="the seeds",
    )
