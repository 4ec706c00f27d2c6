"""What a loss assumes about the targets: squared error, a Gaussian and a mixture density network on Bishop's inverse problem.

The nets of all seeds are trained at once, as one batched program (tanh_networks.py); the floors are exact (inverse_problem.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import torch
from torch import Tensor

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.show.progress import progress
from hpml_lab.targets.experiments.tanh_networks import Nets
from hpml_lab.targets.lessons import mdn
from hpml_lab.targets.lessons.inverse_problem import NOISE, drawn, everything, exact, floors, forward
from hpml_lab.targets.views.density_image import SHOWN_X, density_image, seed_strip, show_samples

QUICK = dict(samples=2000, steps=600, seeds=5, components=3)
FULL = dict(samples=2000, steps=1500, seeds=10, components=3)

RATE = 1e-2
MSE, GAUSSIAN, ALIKE, APART = "squared error", "one Gaussian", "mixture, default start", "mixture, started apart"
MODELS = (MSE, GAUSSIAN, ALIKE, APART)
COLORS = dict(zip(MODELS, (style.GREY, style.ORANGE, style.RED, style.BLUE), strict=True))
SEEDS = "the seeds"
Numbers = list[float]


@dataclass
class DensityModel(Row):
    """One model over all seeds; the lists hold one number for each seed."""

    model: str = column("model")
    nll: str = column("−log-likelihood, median (range)", "nats")
    mse: str = column("squared error of its mean, median (range)")
    miss: str = column("|f(prediction) − x|, median (range)")
    impossible: str = column("predictions with p(t | x) = 0, median (range)", "%")
    nlls: Numbers = field(default_factory=list)
    mses: Numbers = field(default_factory=list)
    misses: Numbers = field(default_factory=list)
    shares: Numbers = field(default_factory=list)


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Above: p(t | x) as an image, the darker the denser; exact with samples and conditional mean, then of two mixtures
    that differ only in their initial weights, the worst seed of each, with the means of their components, the wider the larger
    their weight. Below: each seed's −log-likelihood, and how far its prediction is from a solution; dashed lines are exact.
    Look where the mean runs."""
    figure = style.new_figure(10, 7)
    above, below = figure.subfigures(2, 1, height_ratios=(1.5, 1))
    left, middle, right = above.subplots(1, 3, sharey=True)
    likelihood, miss = below.subplots(1, 2, width_ratios=(2, 1))
    x = torch.tensor(result.arrays["x"])
    t = torch.linspace(-0.1, 1.1, 241)
    known = exact(x)
    density_image(left, x, t, known.density(t), "exact,\nand 400 samples")
    show_samples(left, 400)
    left.plot(x.numpy(), known.mean.numpy(), color=style.INK, linestyle="--", label="E[t | x]")
    left.plot(x.numpy(), np.array(result.arrays[MSE])[:, 0], color=style.RED, linewidth=1.5, label="net, squared error")
    left.legend(fontsize=8, loc="upper left")
    for axes, model in ((middle, ALIKE), (right, APART)):
        outputs = torch.tensor(result.arrays[model])
        density_image(axes, x, t, mdn.density(outputs, t), f"{model}:\nworst seed")
        log_pi, mu, _ = (part.numpy() for part in mdn.mixture(outputs))
        for k in range(mu.shape[-1]):
            axes.scatter(x.numpy(), mu[:, k], s=14 * np.exp(log_pi[:, k]) + 0.1, color=style.CYCLE[1 + k], linewidths=0)
    left.set_ylabel("t")
    rows = result.rows(DensityModel)
    lines = {"floor": floors().nll, "own width": floors().own_width, "one width": floors().one_width}
    seed_strip(likelihood, {row.model: row.nlls for row in rows}, COLORS)
    for label, level in lines.items():
        likelihood.axhline(level, color=style.INK, linestyle="--", linewidth=1)
        likelihood.annotate(label, (1, level), xycoords=("axes fraction", "data"), fontsize=8, ha="right", va="bottom")
    likelihood.set(ylabel="−log-likelihood (nats)", title="Every seed: how well the density fits", xlim=(-0.6, len(rows) - 0.1))
    seed_strip(miss, {row.model: row.misses for row in rows if row.model != GAUSSIAN}, COLORS)
    miss.axhline(NOISE / 2, color=style.INK, linestyle="--", linewidth=1)
    miss.annotate("mean |noise|", (1, NOISE / 2), xycoords=("axes fraction", "data"), fontsize=8, ha="right", va="bottom")
    miss.set(ylabel="|f(prediction) − x|", title="How far from a solution", ylim=(0, None))
    return figure


@picture
def mixture_plateau(result: Result):
    """The loss of each seed's mixture, step by step, from the two initializations; the rate and the batches are the same. The
    dashed line above is the best single Gaussian whose width depends on x, the one below the exact floor. Which seeds
    cross the upper line, and when?"""
    figure = style.new_figure(7.5, 3.8)
    axes = figure.subplots()
    for model in (ALIKE, APART):
        for i, curve in enumerate(result.arrays["losses"][model]):
            steps = result.arrays["loss_steps"]
            axes.plot(steps, curve, color=COLORS[model], linewidth=1.2, alpha=0.8, label=model if i == 0 else None)
    for level, name in ((floors().nll, "exact floor"), (floors().own_width, "single Gaussian")):
        axes.axhline(level, color=style.INK, linestyle="--", linewidth=1)
        axes.text(1.01, level, name, transform=axes.get_yaxis_transform(), va="center", fontsize=9)
    axes.set(xlabel="step", ylabel="−log-likelihood (nats)", ylim=(floors().nll - 0.05, 0.3))
    axes.legend(loc="upper right")
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Median and range."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def squared(outputs: Tensor, t: Tensor) -> Tensor:
    return (outputs[..., 0] - t).square()


def negative(outputs: Tensor, t: Tensor) -> Tensor:
    return -mdn.log_likelihood(outputs, t)


def started_apart(nets: Nets, targets: Tensor) -> Nets:
    """The same nets, the last layer of each initialized for its targets (S, N)."""
    for s, of_net in enumerate(targets):
        mdn.start_apart(*nets.last_layer(s), of_net)
    return nets


def scored(model: str, nll: Tensor, mean: Tensor, prediction: Tensor, x: Tensor, t: Tensor) -> DensityModel:
    """The row of a model: −log-likelihoods, means and predictions (S, B) at the samples x, t (B,)."""
    miss = (forward(prediction) - x).abs()
    nlls, mses = nll.mean(1).tolist(), (mean - t).square().mean(1).tolist()
    shares = (100 * (miss > NOISE).double().mean(1)).tolist()  # the noise is never larger
    misses = miss.mean(1).tolist()
    return DensityModel(model, spread(nlls), spread(mses, 4), spread(misses), spread(shares, 1), nlls, mses, misses, shares)


def judge(result: Result, x: Tensor) -> None:
    """Add what the losses assume, and what the trainings show; `x` are samples."""
    found, least = {row.model: row for row in result.rows(DensityModel)}, floors()
    mse, _, alike, apart = (found[model] for model in MODELS)
    made = torch.Generator().manual_seed(0)
    mu, t = torch.randn(2, 100, dtype=torch.float64, generator=made)
    mu.requires_grad_()
    (of_normal,) = torch.autograd.grad(-torch.distributions.Normal(mu, 0.3).log_prob(t).sum(), mu)
    (of_square,) = torch.autograd.grad((mu - t).square().sum(), mu)
    result.claim(
        "The squared error is a Gaussian's −log-likelihood: with the same width σ for all x, the gradients differ by the "
        "factor 2σ² only",
        torch.allclose(of_normal * 2 * 0.3**2, of_square, rtol=1e-12),
    )
    impossible = ((forward(exact(x).mean) - x).abs() > NOISE).double().mean().item()
    result.claim(
        "Even the exact conditional mean is not a solution: for more than a tenth of the samples p(t | x) is 0 there",
        impossible > 0.1,
        f"{100 * impossible:.1f} % of the samples",
    )
    result.measured(
        "The predictions of the net trained on the squared error are impossible for more than a tenth of the samples, in every "
        "seed; those of the mixture's likeliest component for fewer than a hundredth",
        min(mse.shares) > 10 and max(apart.shares) < 1,
        f"{mse.impossible} and {apart.impossible} %",
        depends_on=SEEDS,
    )
    result.measured(
        "The mixture gives up nothing: the squared error of its mean is within 5 % of the net's that minimizes it",
        all(a < 1.05 * b for a, b in zip(apart.mses, mse.mses, strict=True)),
        f"{apart.mse} and {mse.mse}",
        depends_on=SEEDS,
    )
    result.measured(
        "Started apart, the mixture ends below −1 nat in every seed", max(apart.nlls) < -1, apart.nll, depends_on=SEEDS
    )
    stuck = sum(value > least.own_width for value in alike.nlls)
    result.measured(
        "From the default initialization, with the same rate, some seed's mixture ends no better than a single Gaussian can",
        stuck > 0,
        f"{stuck} of {len(alike.nlls)} seeds above {least.own_width:.3f}; {alike.nll}",
        depends_on=SEEDS,
    )


@experiment("regression-targets", lecture="L3", notebook="18_targets", draw=draw, quick=QUICK, full=FULL)
def regression_targets(params: Params) -> Result:
    """The squared error predicts a mean that may be no solution; a mixture density network predicts the density."""
    seeds, device, K = range(params.seeds), params.device.torch, params.components
    x, t = drawn(seeds, params.samples)
    test_x, test_t = everything()

    def train(outputs: int, loss: Callable, start: Callable[[Nets, Tensor], Nets] = lambda nets, _: nets) -> Nets:
        return start(Nets(seeds, outputs, device), t).train(x.to(device), t.to(device), loss, params.steps, RATE)

    plan = {MSE: (1, squared), GAUSSIAN: (3, negative), ALIKE: (3 * K, negative), APART: (3 * K, negative, started_apart)}
    nets = {model: train(*plan[model]) for model in progress(plan, "models, all seeds at once")}
    arrays = {"x": SHOWN_X.tolist()}
    every = range(0, params.steps, max(1, params.steps // 150))
    arrays["loss_steps"] = list(every)
    arrays["losses"] = {model: smooth(nets[model].losses)[every].T.tolist() for model in (ALIKE, APART)}

    rows = []
    for model, made in nets.items():
        outputs = made.outputs(test_x)
        if model == MSE:  # as a Gaussian whose variance is that of its own errors on the training samples
            variance = torch.stack([squared(made.outputs(x[s])[s], t[s]).mean() for s in seeds])[:, None]
            arrays["variance"] = variance.mean().item()
            nll = squared(outputs, test_t) / (2 * variance) + (2 * torch.pi * variance).log() / 2
            rows.append(scored(model, nll, outputs[..., 0], outputs[..., 0], test_x, test_t))
        else:
            means, prediction = mdn.mean(outputs), mdn.likeliest(outputs)
            rows.append(scored(model, negative(outputs, test_t), means, prediction, test_x, test_t))
        worst = int(np.argmax(rows[-1].nlls))
        arrays[model] = made.outputs(SHOWN_X)[worst].tolist()
    title = f"{params.samples:,} samples, {params.steps:,} steps, {params.seeds} seeds; mixtures of {K} components"
    result = Result([Table(title, rows)], arrays=arrays)
    least = floors()
    result.key_figure("least −log-likelihood, exact", f"{least.nll:.4f}", "nats")
    result.key_figure("least −log-likelihood of one Gaussian, exact", f"{least.own_width:.3f}", "nats")
    result.key_figure("least squared error, exact", f"{least.mse:.5f}")
    for row in (rows[0], rows[-1]):
        result.key_figure(f"−log-likelihood, {row.model}", row.nll, "nats")
        result.key_figure(f"predictions with p(t | x) = 0, {row.model}", row.impossible, "%")
    judge(result, test_x)
    return result


def smooth(losses: Tensor, width: int = 10) -> Tensor:
    """Means of the last `width` losses (steps, S); of fewer at the start."""
    sums = torch.nn.functional.pad(losses.cumsum(0), (0, 0, width, 0))
    counts = torch.arange(1, len(losses) + 1).clamp(max=width)[:, None]
    return (sums[width:] - sums[:-width]) / counts
