"""A continuous target as a histogram: bins from the empirical CDF and of equal width, by number of bins, against a mixture.

Two targets of the same samples: Bishop's t, uniform over all samples, and y = exp(5 t) / s, which is skewed. The nets of all
seeds and kinds of bins are trained at once, as one batched program; the floors are exact (inverse_problem.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.show.progress import progress
from hpml_lab.targets.experiments.regression_targets import RATE, SEEDS, negative, spread, started_apart
from hpml_lab.targets.experiments.tanh_networks import Nets
from hpml_lab.targets.lessons import bins, mdn
from hpml_lab.targets.lessons.inverse_problem import bins_floor, drawn, everything, exact, floors, log_slope, skewed, unskewed
from hpml_lab.targets.views.density_image import SHOWN_X, density_image

QUICK = dict(samples=2000, steps=600, seeds=3, counts=(5, 20, 50, 200), components=3)
FULL = dict(samples=2000, steps=1500, seeds=10, counts=(5, 10, 20, 50, 100, 200), components=8)

PLAIN, SKEWED = "t, Bishop's", "y, skewed"
TARGETS = {PLAIN: lambda t: t, SKEWED: skewed}
INVERSE = {PLAIN: lambda t: t, SKEWED: unskewed}
CDF, EQUAL = "empirical CDF", "equal widths"
EDGES = {CDF: bins.cdf_edges, EQUAL: bins.equal_edges}
COLORS = {CDF: style.BLUE, EQUAL: style.ORANGE}
MIXTURE = "mixture"


@dataclass
class BinnedModel(Row):
    """One kind of bins with one number of them, or the mixture (0 bins), over all seeds."""

    target: str = column("target")
    kind: str = column("bins")
    count: int = column("number")
    nll: str = column("−log-likelihood, median (range)", "nats")
    least: float | None = column("least with these bins", "nats", None)
    nlls: list[float] = field(default_factory=list)
    leasts: list[float] = field(default_factory=list)  # each seed has edges of its own


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """−log-likelihood by number of bins, on the two targets: medians over the seeds, bands from the lowest to the highest.
    Dotted: the least that these bins can have, with exact probabilities. The gray band is the mixture, the dashed line the
    exact floor. Look for the number of bins at which a curve leaves its dotted one; where do the two kinds of bins agree?"""
    figure = style.new_figure(10, 4.3)
    rows = result.rows(BinnedModel)
    for axes, target in zip(figure.subplots(1, 2), TARGETS, strict=True):
        (mixture,) = (row for row in rows if row.target == target and row.kind == MIXTURE)
        axes.axhspan(min(mixture.nlls), max(mixture.nlls), color=style.GREY, alpha=0.5, linewidth=1.5, label=MIXTURE)
        for i, kind in enumerate(EDGES):
            found = [row for row in rows if row.target == target and row.kind == kind]
            counts, values = [row.count for row in found], np.array([row.nlls for row in found])
            look = {"color": COLORS[kind], "marker": style.MARKERS[i], "markersize": 5}
            axes.plot(counts, np.median(values, 1), style.LINES[i], label=kind, **look)
            axes.fill_between(counts, values.min(1), values.max(1), color=COLORS[kind], alpha=0.2, linewidth=0)
            least = [row.least for row in found]
            axes.plot(counts, least, ":", color=COLORS[kind], linewidth=1.5, label="least with these bins")
        axes.axhline(result.arrays["floor"][target], color=style.INK, linestyle="--", linewidth=1, label="exact floor")
        axes.set(xscale="log", xlabel="number of bins", title=f"Target: {target}")
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
    figure.axes[0].set_ylabel("−log-likelihood (nats)")
    figure.axes[1].legend(fontsize=9)
    return figure


@picture
def binned_densities(result: Result):
    """p(y | x) of the skewed target as an image: exact, from bins of the empirical CDF and of equal width, and from the
    mixture. The axis of y is logarithmic, and lines at the left are edges of bins. Look at the small values, which are most
    of the samples: how many bins of equal width are left for them?"""
    figure = style.new_figure(10, 3.8)
    panels = figure.subplots(1, 4, sharey=True)
    x, y = torch.tensor(result.arrays["x"]), skewed(torch.linspace(-0.02, 1.02, 241))
    t = unskewed(y)
    slope = log_slope(t).exp()  # densities are shown for t = log y / 5 + constant, so that all of them use the same colors
    density_image(panels[0], x, y, exact(x).density(t), "exact")
    for axes, kind in zip(panels[1:], EDGES, strict=False):
        shown = result.arrays["bins"][kind]
        edges, logits = torch.tensor(shown["edges"]), torch.tensor(shown["logits"])
        density_image(axes, x, y, bins.density(logits, edges, y) * slope, f"{len(edges) - 1} bins,\n{kind}")
        axes.hlines(edges.numpy(), x[0].item(), x[0].item() + 0.06, color=style.RED, linewidth=0.6)
    density_image(panels[3], x, y, mdn.density(torch.tensor(result.arrays[MIXTURE]), y) * slope, MIXTURE)
    for axes in panels:
        axes.set_yscale("log")
    panels[0].set_ylabel("y")
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


def cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """Of each sample (S, B): −log p of its bin. The width of the bin is a constant, so its gradient is the likelihood's."""
    return F.cross_entropy(logits.flatten(0, 1), classes.flatten(), reduction="none").view(classes.shape)


def reaching(edges: Tensor, y: Tensor) -> Tensor:
    """The edges, the outermost wide enough for all of y."""
    return bins.widened(edges, y.min().item(), y.max().item())


@dataclass(frozen=True)
class TrainedBins:
    """The nets of one number of bins: those for kind k, target j and seed s, and their edges."""

    nets: Nets
    edges: dict[tuple[str, str], list[Tensor]]


def train_bins(count: int, x: Tensor, t: Tensor, params: Params) -> TrainedBins:
    """Nets for all kinds of bins.

    The empirical CDF puts the samples of both targets into the same classes, because y grows with t; so one net per seed serves
    both targets, and only the widths of its bins differ. In float64: in float32 an edge between two samples that are very close
    would be rounded to one of them.
    """
    t = t.double()
    edges = {
        (target, kind): [make(target_of(of_seed), count) for of_seed in t]
        for target, target_of in TARGETS.items()
        for kind, make in EDGES.items()
    }
    classes = [
        torch.stack([bins.bin_of(y, e) for y, e in zip(TARGETS[target](t), edges[target, kind], strict=True)])
        for target, kind in ((PLAIN, CDF), (PLAIN, EQUAL), (SKEWED, EQUAL))
    ]
    device, seeds = params.device.torch, range(params.seeds)
    nets = Nets([*seeds] * 3, count, device)
    nets.train(x.repeat(3, 1).to(device), torch.cat(classes).to(device), cross_entropy, params.steps, RATE)
    return TrainedBins(nets, {key: [each.float() for each in found] for key, found in edges.items()})


def scored_bins(count: int, trained: TrainedBins, test_x: Tensor, test_t: Tensor) -> list[BinnedModel]:
    """The rows of one number of bins."""
    outputs = trained.nets.outputs(test_x).unflatten(0, (3, -1))
    rows = []
    for (target, kind), edges in trained.edges.items():
        group = 0 if kind == CDF else 1 if target == PLAIN else 2
        y, nlls, least = TARGETS[target](test_t), [], []
        for logits, of_seed in zip(outputs[group], edges, strict=True):
            wide = reaching(of_seed, y)
            nlls.append(-bins.log_likelihood(logits, y, wide).mean().item())
            least.append(bins_floor(INVERSE[target](wide), wide.diff()))
        rows.append(BinnedModel(target, kind, count, spread(nlls), median(least), nlls, least))
    return rows


def judge(result: Result, counts: Sequence[int]) -> None:
    """Add what the trainings show."""
    found = {(row.target, row.kind, row.count): row for row in result.rows(BinnedModel)}

    def nlls(target: str, kind: str, count: int) -> np.ndarray:
        return np.array(found[target, kind, count].nlls)

    least = result.arrays["floor"]
    result.claim(
        "The least that bins from the empirical CDF can have falls with each number of bins towards the exact floor",
        all(
            found[target, CDF, few].least > found[target, CDF, many].least > least[target]
            for target in TARGETS
            for few, many in zip(counts, counts[1:], strict=False)
        ),
        ", ".join(f"{found[PLAIN, CDF, count].least:.3f}" for count in counts),
    )
    middle = counts[1:-1]
    curves = {target: np.array([nlls(target, CDF, count) for count in counts]) for target in TARGETS}  # (counts, seeds)
    result.measured(
        "A number of bins between the fewest and the most is best, on both targets and in every seed (empirical CDF)",
        all((curve[1:-1].min(0) < np.minimum(curve[0], curve[-1])).all() for curve in curves.values()),
        "; ".join(
            f"{target}: " + ", ".join(f"{count}: {value:.3f}" for count, value in zip(counts, np.median(curve, 1), strict=True))
            for target, curve in curves.items()
        ),
        depends_on=SEEDS,
    )
    ahead = {count: nlls(SKEWED, EQUAL, count) - nlls(SKEWED, CDF, count) for count in counts}
    result.measured(
        "On the skewed target the empirical CDF is better than equal widths, with each number of bins and in every seed",
        all(gain.min() > 0 for gain in ahead.values()),
        ", ".join(f"{count}: {np.median(gain):.3f}" for count, gain in ahead.items()),
        depends_on=SEEDS,
    )
    apart = max(np.abs(nlls(PLAIN, EQUAL, count) - nlls(PLAIN, CDF, count)).max() for count in counts[:-1])
    result.measured(
        f"On Bishop's t, which is uniform, the two kinds of bins differ by less than 0.05 nats for up to {middle[-1]} bins",
        apart < 0.05,
        f"{apart:.3f}",
        depends_on=SEEDS,
    )
    gain = nlls(SKEWED, MIXTURE, 0) - np.min([nlls(SKEWED, CDF, count) for count in middle], axis=0)
    result.measured(
        "On the skewed target the best histogram is better than the mixture, in every seed",
        gain.min() > 0,
        f"by {spread(gain.tolist())} nats",
        depends_on=SEEDS,
    )


@experiment("discretized-targets", lecture="L3", notebook="18_targets", draw=draw, quick=QUICK, full=FULL)
def discretized_targets(params: Params) -> Result:
    """A classifier over bins predicts a density: which edges, how many bins, and how it compares with a mixture."""
    seeds, device = range(params.seeds), params.device.torch
    x, t = drawn(seeds, params.samples)
    test_x, test_t = everything()

    trained, rows = {}, []
    for count in progress(params.counts, "numbers of bins, all kinds and seeds at once"):
        trained[count] = train_bins(count, x, t, params)
        rows += scored_bins(count, trained[count], test_x, test_t)

    y = torch.cat([target_of(t) for target_of in TARGETS.values()])
    mixtures = started_apart(Nets([*seeds] * 2, 3 * params.components, device), y)
    mixtures.train(x.repeat(2, 1).to(device), y.to(device), negative, params.steps, RATE)
    outputs = mixtures.outputs(test_x).unflatten(0, (2, -1))
    floor = {PLAIN: floors().nll, SKEWED: floors().nll + log_slope(test_t).mean().item()}
    for (target, target_of), of_target in zip(TARGETS.items(), outputs, strict=True):
        nlls = negative(of_target, target_of(test_t)).mean(1).tolist()
        rows.append(BinnedModel(target, MIXTURE, 0, spread(nlls), None, nlls, [floor[target]] * params.seeds))

    best = {kind: best_count(rows, SKEWED, kind) for kind in EDGES}
    arrays = {
        "x": SHOWN_X.tolist(),
        "floor": floor,
        MIXTURE: mixtures.outputs(SHOWN_X)[params.seeds].tolist(),
        "bins": {kind: of_first_seed(trained[best[CDF]], SKEWED, kind, SHOWN_X, test_t) for kind in EDGES},
        "plain": of_first_seed(trained[best_count(rows, PLAIN, CDF)], PLAIN, CDF, SHOWN_X, test_t),
    }
    title = (
        f"{params.samples:,} samples, {params.steps:,} steps, {params.seeds} seeds; mixtures of {params.components} components"
    )
    result = Result([Table(title, sorted(rows, key=lambda row: (row.target, row.kind)))], arrays=arrays)
    for target in TARGETS:
        result.key_figure(f"exact floor of {target}", f"{arrays['floor'][target]:.4f}", "nats")
        for kind in EDGES:
            count = best_count(rows, target, kind)
            (row,) = (row for row in rows if (row.target, row.kind, row.count) == (target, kind, count))
            result.key_figure(f"{target}: best number of bins, {kind}", f"{count}: {row.nll}", "nats")
    judge(result, params.counts)
    return result


def best_count(rows: Sequence[BinnedModel], target: str, kind: str) -> int:
    """The number of bins with the smallest median."""
    return min((row for row in rows if (row.target, row.kind) == (target, kind)), key=lambda row: median(row.nlls)).count


def of_first_seed(trained: TrainedBins, target: str, kind: str, x: Tensor, test_t: Tensor) -> dict[str, list]:
    """Edges and logits (X, K) of the first seed's net."""
    group = 0 if kind == CDF else 1 if target == PLAIN else 2
    logits = trained.nets.outputs(x).unflatten(0, (3, -1))[group, 0]
    edges = reaching(trained.edges[target, kind][0], TARGETS[target](test_t))
    return {"edges": edges.tolist(), "logits": (100 * logits).round().div(100).tolist()}
