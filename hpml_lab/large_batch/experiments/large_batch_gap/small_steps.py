"""The reasoning behind linear scaling, and how far it holds: k small steps against one step of k times the rate.

Without momentum, k small steps end at w − η Σ gⱼ(wⱼ), and the large one at w − kη · (1/k) Σ gⱼ(w). They differ only because the
small ones take each gradient where they have come to, a distance that grows with k η.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.large_batch.experiments.batched_trainings import HIDDEN, BatchedTrainings, ImageRows
from hpml_lab.optim import SGD

RATE = 0.005  # of the trainings, at the small batch
TINY = (1e-6, 2e-6, 4e-6, 8e-6)  # rates at which the reasoning is exact enough to be checked
RATES = (*TINY, 3e-5, 1e-4, 3e-4, 1e-3, 2e-3, RATE, 1e-2, 2e-2)
SOFTMAX, NET = "softmax regression", "the net"
LAYERS = {SOFTMAX: (), NET: HIDDEN}  # a smooth loss, and one with the kinks of ReLU


@dataclass
class SmallAgainstLarge(Row):
    """k steps of a rate, and one step of k times the rate on the same samples."""

    model: str = column("model")
    rate: float = column("rate η")
    large_rate: float = column("k η")
    distance: float = column("distance of the ends, relative to the large step")


def small_against_large(data: ImageRows, batch: int, k: int, rate: float, hidden: Sequence[int] = HIDDEN) -> float:
    """How far k steps of `rate` end from one step of k·rate on the same samples, relative to the length of that step."""
    small, large = (
        BatchedTrainings(data, [0], size, partial(SGD, lr=lr), hidden).run(steps)
        for size, lr, steps in ((batch, rate, k), (k * batch, k * rate, 1))
    )
    start = BatchedTrainings(data, [0], batch, partial(SGD, lr=rate), hidden)
    a, b, w = (torch.cat([p.flatten() for p in trainings.parameters]) for trainings in (small, large, start))
    return ((a - b).norm() / (b - w).norm()).item()


def steps_at_each_rate(data: ImageRows, batch: int, k: int) -> list[dict]:
    """Both models at RATES, on the first k·batch images in float64: a tiny difference of two long vectors is measured.

    For a result's arrays: the figure shows them, and 24 rows of a table say no more.
    """
    first = slice(k * batch)
    double = replace(data, x=data.x[first].double(), y=data.y[first])
    return [
        asdict(SmallAgainstLarge(model, rate, k * rate, small_against_large(double, batch, k, rate, hidden)))
        for model, hidden in LAYERS.items()
        for rate in RATES
    ]


def small_steps(result: Result) -> list[SmallAgainstLarge]:
    """The comparisons of a run of large-batch-gap; in older records they are a table."""
    rows = [SmallAgainstLarge(**row) for row in result.arrays.get("small_steps", [])]
    return rows or result.rows(SmallAgainstLarge)


def check_proportional(result: Result, k: int) -> None:
    """Add the claim about the distance at the tiny rates."""
    tiny = [row.distance for row in small_steps(result) if row.model == SOFTMAX and row.rate in TINY]
    ratios = [b / a for a, b in zip(tiny, tiny[1:], strict=False)]
    result.claim(
        f"{k} small steps and one of {k} times the rate end at a distance that is proportional to the rate: in softmax "
        "regression, while the rate is tiny, twice the rate doubles it",
        all(1.9 < ratio < 2.1 for ratio in ratios),
        ", ".join(f"{ratio:.4f}" for ratio in ratios),
    )


@picture
def why_linear(result: Result):
    """How far k small steps end from one step of k times the rate on the same samples, relative to the length of that step. On
    the dashed line the distance is proportional to the rate; the dotted line is the rate of the trainings."""
    figure = style.new_figure(6.5, 3.8)
    axes = figure.subplots()
    for i, model in enumerate(LAYERS):
        rows = [row for row in small_steps(result) if row.model == model]
        rates, look = [row.large_rate for row in rows], {"color": style.CYCLE[i], "marker": style.MARKERS[i], "markersize": 5}
        axes.plot(rates, [row.distance for row in rows], label=model, **look)
        if model == SOFTMAX:
            line = [rows[0].distance * row.rate / rows[0].rate for row in rows]
            axes.plot(rates, line, color=style.GREY, linestyle="--", label="proportional to the rate")
            axes.axvline(RATE * rates[0] / rows[0].rate, color=style.RED, linestyle=":", label="rate of the trainings")
    axes.set(xscale="log", yscale="log", ylim=(None, 2), xlabel="rate of the large step, k η")
    axes.set_ylabel("distance / length of the large step")
    axes.legend(fontsize=9)
    return figure
