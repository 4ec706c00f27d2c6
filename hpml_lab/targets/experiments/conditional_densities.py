"""Four conditional distributions of one autoregressive task: a pixel of a digit, given the pixels before it.

The net that learned them has a head of 17 logits, one for each level of a pixel. The same net with three other heads assumes
Gaussians. All are compared by the probability of the 17 levels (autoregressive.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.show.progress import progress
from hpml_lab.data import DataSet, load
from hpml_lab.targets.experiments.regression_targets import SEEDS, spread
from hpml_lab.targets.experiments.tanh_networks import climb_and_fall
from hpml_lab.targets.lessons import mdn
from hpml_lab.targets.lessons.autoregressive import PixelNet, draw_images, mixture_levels, normal_levels

QUICK = dict(steps=250, batch=16, channels=32, seeds=2, components=3)
FULL = dict(steps=1500, batch=32, channels=32, seeds=5, components=5)

LEVELS, SIDE = 17, 8  # of scikit-learn's digits
RATE = 1e-2
UNIT = 4.0  # levels: in which the heads give means and widths; mdn.py's least width is then a small part of a level
SIMILAR = 200  # test pixels with the most similar predictions
DRAWN = 12
SQUARED, GAUSSIAN, MIXTURE, HISTOGRAM = "squared error", "one Gaussian", "mixture of Gaussians", "histogram"
ALONE = "no context: histogram of the position"
LOOK = {GAUSSIAN: (style.ORANGE, "s", "-"), SQUARED: (style.RED, "^", "--")}
Numbers = list[float]


@dataclass
class PixelHead(Row):
    """One head of the net, over all seeds."""

    head: str = column("head")
    nll: str = column("−log-likelihood of a pixel, median (range)", "nats")
    outside: float | None = column("probability of values that no pixel has", "%", None)
    nlls: Numbers = field(default_factory=list)


@dataclass
class Conditional(Row):
    """One of the four conditional distributions, and how far each head is from what the pixels are."""

    shape: str = column("shape")
    position: str = column("pixel")
    mean: float = column("its mean", "level")
    histogram: float = column("histogram: distance from what the pixels are", "%")
    gaussian: float = column("one Gaussian", "%")
    squared: float = column("squared error", "%")
    chance: float = column("by chance alone", "%")


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Above: the pixels that the net has read; the red square is the next one. Below: how probable each of its 17 levels is.
    Bars: the net with a histogram as its head; dashes: what the pixel was in the 200 test cases with the most similar
    predictions; lines: what one Gaussian with a width of its own, and the squared error, predict for the same cases. Look for
    the shapes that no single Gaussian has, and for the level at which each line has its peak."""
    shown = result.arrays["shown"]
    figure = style.new_figure(10.5, 5.2)
    above, below = figure.subplots(2, len(shown), height_ratios=(1, 1.5))
    for read, axes, (shape, found) in zip(above, below, shown.items(), strict=True):
        seen = np.array(found["image"])
        seen[found["position"] :] = np.nan
        row, column_ = divmod(found["position"], SIDE)
        read.imshow(seen.reshape(SIDE, SIDE), cmap="Blues", vmin=-0.15, vmax=1)
        read.add_patch(_square(column_, row))
        read.set(title=shape, xticks=[], yticks=[])
        read.grid(False)
        read.spines[:].set_visible(False)
        levels = range(LEVELS)
        axes.bar(levels, found[HISTOGRAM], 0.9, color=style.SKY, alpha=0.7, label=HISTOGRAM)
        axes.plot(levels, found["pixels"], "_", color=style.INK, markersize=9, markeredgewidth=2.2, label="what the pixels are")
        for head, (color, marker, line) in LOOK.items():
            axes.plot(levels, found[head], line, color=color, marker=marker, markersize=4, linewidth=1.3, label=head)
        axes.set(xlabel="level of the pixel", xticks=range(0, LEVELS, 4), ylim=(0, None))
    below[0].set_ylabel("probability")
    figure.legend(*below[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _square(x: int, y: int):
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=style.RED, linewidth=2)


@picture
def drawn_digits(result: Result):
    """Images drawn pixel by pixel, each from what the net predicts after those drawn before it, by the head of the net; the
    first row is real. Nothing else differs between the nets. Look at the background, and at which strokes hold together."""
    rows = result.arrays["drawn"]
    figure = style.new_figure(9.5, 1.0 * len(rows))
    for axes, (name, images) in zip(figure.subplots(len(rows), 1), rows.items(), strict=True):
        tiles = np.array(images).reshape(-1, SIDE, SIDE) / (LEVELS - 1)
        gap = np.full((SIDE, 1), np.nan)
        axes.imshow(np.hstack([part for tile in tiles for part in (tile, gap)]), cmap="Blues", vmin=-0.15, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.set_ylabel(name.replace(" ", "\n"), rotation=0, ha="right", va="center")
        axes.grid(False)
        axes.spines[:].set_visible(False)
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainedHead:
    """A net with one head, and the Gaussians that its outputs stand for, if they do: (log π, μ, σ), each (…, K), in levels."""

    net: PixelNet
    gaussians: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]] | None

    def log_p(self, outputs: Tensor) -> Tensor:
        """log P of the levels (…, 17), by outputs (…, n)."""
        return mixture_levels(*self.gaussians(outputs), LEVELS) if self.gaussians else outputs.log_softmax(-1)

    def outside(self, outputs: Tensor) -> float | None:
        """The mean probability of values below the lowest level and above the highest one, in percent."""
        if self.gaussians is None:
            return None
        return 100 * (1 - self.log_p(outputs).exp().sum(-1)).mean().item()


def level(x: Tensor) -> Tensor:
    """The levels, 0 to 16, of the pixels of images (N, 1, 8, 8): (N, 64)."""
    return (x * (LEVELS - 1)).round().long().flatten(1)


def negative_log_p(log_p: Tensor, images: Tensor) -> Tensor:
    """−log P (N, 64) of each pixel, by log P of its levels (N, 64, 17)."""
    return -log_p.gather(2, level(images)[..., None])[..., 0]


def in_levels(outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mixture that 3 K outputs stand for."""
    log_pi, mu, sigma = mdn.mixture(outputs)
    return log_pi, mu * UNIT, sigma * UNIT


def train_head(head: str, images: Tensor, params: Params, seed: int) -> TrainedHead:
    """Train a net with this head on random images."""
    sizes = {SQUARED: 1, GAUSSIAN: 3, MIXTURE: 3 * params.components, HISTOGRAM: LEVELS}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        net = PixelNet(SIDE, sizes[head], params.channels)
    if head == MIXTURE:
        mdn.start_apart(net.head.weight, net.head.bias, level(images[:200]).flatten().cpu() / UNIT)
    trained = TrainedHead(net.to(images.device), None if head == HISTOGRAM else in_levels)
    made = torch.Generator().manual_seed(7919 * seed + 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
    for t in range(params.steps):
        x = images[torch.randint(len(images), (params.batch,), generator=made).to(images.device)]
        outputs = net(x)
        loss = (outputs[..., 0] - level(x) / UNIT).square() if head == SQUARED else negative_log_p(trained.log_p(outputs), x)
        optimizer.param_groups[0]["lr"] = RATE * climb_and_fall(t / params.steps)
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
    if head != SQUARED:
        return trained
    with torch.no_grad():
        sigma = (net(images)[..., 0] * UNIT - level(images)).square().mean().sqrt()  # fits the training pixels best
    return TrainedHead(net, lambda mu: (torch.zeros_like(mu), mu * UNIT, sigma.expand_as(mu)))


def moments(p: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and width (N,) of distributions over the levels (N, 17), in levels."""
    k = torch.arange(LEVELS, device=p.device, dtype=p.dtype)
    mean = p @ k
    return mean, (p @ k.square() - mean.square()).clamp(min=1e-6).sqrt()


def four_shapes(p: Tensor) -> dict[str, int]:
    """{shape: index}: which of the distributions (N, 17) have two peaks, a long tail, one peak inside, or nearly none.

    Two peaks, at both ends, count for as much as they rise above what is between them, at the mean.
    """
    k = torch.arange(LEVELS, device=p.device, dtype=p.dtype)
    mean, width = moments(p)
    bell = normal_levels(mean, width, LEVELS).exp()
    skew = ((k - mean[:, None]) ** 3 * p).sum(1) / width**3
    at_mean = torch.where((k - mean[:, None]).abs() < 1.5, p, 0).sum(1)  # three levels, as at each end
    inside = (p.argmax(1) > 3) & (p.argmax(1) < LEVELS - 4)
    scores = {
        "two peaks": torch.minimum(p[:, :3].sum(1), p[:, -3:].sum(1)) - at_mean,
        "a long tail": torch.where((width > 3) & (p.amax(1) < 0.6), skew.abs(), 0),
        "one peak": torch.where(inside, -gap(p, bell), -1),
        "nearly flat": torch.special.entr(p).sum(1),
    }
    return {shape: int(score.argmax()) for shape, score in scores.items()}


def gap(p: Tensor, q: Tensor) -> Tensor:
    """Total variation (…,): the share of probability that p and q (…, 17) have in different places."""
    return (p - q).abs().sum(-1) / 2


def compared(shape: str, p: dict[str, Tensor], index: int, levels: Tensor) -> tuple[Conditional, dict[str, Tensor]]:
    """One of the four: the test pixels with the most similar predictions, what each head predicts for them, and what they are.

    p       {head: (N, 17)}, the predictions for all test pixels, of which one has this shape
    levels  (N,): what these pixels are

    Counts of a few hundred pixels differ from their probabilities by chance, too: that is drawn.
    """
    near = gap(p[HISTOGRAM], p[HISTOGRAM][index]).argsort()[: min(SIMILAR, len(levels) // 2)]
    found = {head: of_head[near].mean(0) for head, of_head in p.items()}
    found["pixels"] = torch.bincount(levels[near], minlength=LEVELS) / len(near)
    shown = found[HISTOGRAM]
    draws = torch.multinomial(shown, 200 * len(near), replacement=True, generator=torch.Generator().manual_seed(0))
    chance = gap(F.one_hot(draws.view(200, -1), LEVELS).float().mean(1), shown).mean()
    mean = moments(shown[None])[0].item()
    gaps = [100 * gap(each, found["pixels"]).item() for each in (shown, found[GAUSSIAN], found[SQUARED])]
    row, column_ = divmod(index % SIDE**2, SIDE)
    return Conditional(shape, f"row {row}, column {column_}", mean, *gaps, 100 * chance.item()), found


def judge(result: Result) -> None:
    """Add what the heads learned, and what the four distributions are."""
    heads = {row.head: np.array(row.nlls) for row in result.rows(PixelHead)}
    four = {row.shape: row for row in result.rows(Conditional)}

    def measured(text: str, holds: bool, figures: str) -> None:
        result.measured(text, holds, figures, depends_on=SEEDS)

    gain = heads[ALONE] - heads[HISTOGRAM]
    measured(
        "Knowing the pixels before is worth more than a fifth of a nat for each pixel, in every seed",
        gain.min() > 0.2,
        f"{spread(gain.tolist())} nats",
    )
    order = (SQUARED, GAUSSIAN, HISTOGRAM)
    measured(
        "The histogram fits better than one Gaussian, and this better than the squared error, by a fifth of a nat and more, in "
        "every seed",
        all((heads[a] - heads[b]).min() > 0.2 for a, b in zip(order, order[1:], strict=False)),
        ", ".join(f"{name}: {np.median(heads[name]):.3f}" for name in (*order, MIXTURE)),
    )
    measured(
        "The histogram has learned the four: it differs from what the pixels are by less than twice what chance makes",
        all(row.histogram < 2 * row.chance for row in four.values()),
        "; ".join(f"{shape}: {row.histogram:.0f}, chance {row.chance:.0f} %" for shape, row in four.items()),
    )
    gaps = {shape: (row.gaussian, 2 * row.chance) for shape, row in four.items()}
    measured(
        "One Gaussian comes within twice what chance makes of the one with one peak, not of two peaks, nor of a long tail",
        all((gap > limit) == (shape != "one peak") for shape, (gap, limit) in gaps.items() if shape != "nearly flat"),
        "; ".join(f"{shape}: {gap:.0f} %" for shape, (gap, _) in gaps.items()),
    )
    two = four["two peaks"]
    measured(
        "Between two peaks the mean is a poor prediction: more than a quarter of the squared error's "
        "probability lies elsewhere than the pixels",
        two.squared > 25,
        f"{two.squared:.0f} %, around level {two.mean:.1f}",
    )
    outside = next(row.outside for row in result.rows(PixelHead) if row.head == SQUARED)
    measured(
        "Read as a Gaussian, the squared error gives more than a tenth of its probability to values that no pixel has",
        outside > 10,
        f"{outside:.1f} %",
    )


@experiment("conditional-densities", lecture="L3", notebook="18_targets", draw=draw, quick=QUICK, full=FULL)
def conditional_densities(params: Params) -> Result:
    """Four conditional distributions of an autoregressive task, learned by a net, and what a Gaussian makes of them."""
    data: DataSet = load("digits", params.device.torch)
    train_x, test_x = data.train_x, data.test_x
    heads = (HISTOGRAM, MIXTURE, GAUSSIAN, SQUARED)
    nlls: dict[str, Numbers] = {head: [] for head in heads}
    outside, p, drawn = {}, {}, {"real": level(test_x[:DRAWN]).tolist()}
    for seed, head in progress([(seed, head) for seed in range(params.seeds) for head in heads], "nets"):
        trained = train_head(head, train_x, params, seed)
        with torch.no_grad():
            outputs = trained.net(test_x)
            log_p = trained.log_p(outputs)
        nlls[head].append(negative_log_p(log_p, test_x).mean().item())
        if seed == 0:
            p[head], outside[head] = log_p.exp().flatten(0, 1).cpu(), trained.outside(outputs)
            made = torch.Generator(params.device.torch).manual_seed(1)
            drawn[head] = level(draw_images(trained.net, trained.log_p, DRAWN, SIDE, made)).tolist()
    counts = F.one_hot(level(train_x), LEVELS).sum(0) + 1  # (64, 17); one more of each, so that none is impossible
    alone = (counts / counts.sum(1, keepdim=True)).log().expand(len(test_x), -1, -1)
    nlls[ALONE] = [negative_log_p(alone, test_x).mean().item()]

    levels, rows, shown = level(test_x).flatten().cpu(), [], {}
    for shape, index in four_shapes(p[HISTOGRAM]).items():
        row, found = compared(shape, p, index, levels)
        rows.append(row)
        image, position = divmod(index, SIDE**2)
        shown[shape] = {"image": test_x[image].flatten().tolist(), "position": position}
        shown[shape] |= {name: [round(value, 4) for value in each.tolist()] for name, each in found.items()}
    result = Result(
        [
            Table(
                f"{len(test_x)} test images: {params.steps:,} steps, {params.seeds} seeds, mixtures of {params.components}",
                [PixelHead(head, spread(of_head), outside.get(head), of_head) for head, of_head in nlls.items()],
            ),
            Table("Four conditional distributions, first seed", rows),
        ],
        arrays={"shown": shown, "drawn": drawn},
    )
    for row in result.rows(PixelHead):
        result.key_figure(f"−log-likelihood of a pixel, {row.head}", row.nll, "nats")
    result.key_figure("values that no pixel has, squared error", outside[SQUARED], "%")
    judge(result)
    return result
