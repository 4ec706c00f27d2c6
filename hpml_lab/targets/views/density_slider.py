"""A slider over x: the density of t that each model predicts there, next to the exact one."""

import math

import ipywidgets
import numpy as np
import torch
from matplotlib.patches import Polygon

from hpml_lab.core.experiment import Result
from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.core.system.errors import LabError
from hpml_lab.targets.lessons import bins, mdn
from hpml_lab.targets.lessons.inverse_problem import exact
from hpml_lab.targets.views.density_image import density_image, show_samples

T = torch.linspace(-0.15, 1.15, 521)
HIGHEST = 8.0
GAUSSIAN, MIXTURE, BINS = "squared error, as a Gaussian", "mixture", "bins"
LOOK = {GAUSSIAN: (style.ORANGE, "--"), MIXTURE: (style.BLUE, "-"), BINS: (style.RED, "-")}


def explore_density(regression: Result, discretized: Result) -> LiveFigure:
    """p(t | x) at the x of the slider. Left: the exact density as an image. Right: a cut through it at this x, gray, and what
    three models predict: the squared error read as a Gaussian of one width, the mixture, and the bins. Move x into
    the fold, along the dashed line of the image."""
    for result, slug in ((regression, "regression-targets"), (discretized, "discretized-targets")):
        if result.slug != slug:
            raise LabError(f"this is a result of {result.slug!r}.", f"Hand over the result of {slug} here.")
    densities = predicted_densities(regression, discretized)
    x = regression.arrays["x"]
    control = ipywidgets.FloatSlider(value=0.6, min=-0.05, max=1.05, step=x[1] - x[0], description="x", readout_format=".2f")

    def build(figure) -> list:
        image, cut = figure.subplots(1, 2, sharey=True)
        grid = torch.tensor(x)
        density_image(image, grid, T, exact(grid).density(T), "exact p(t | x), and 400 samples")
        show_samples(image, 400)
        image.set_ylabel("t")
        line = image.axvline(0, color=style.SKY, linewidth=2, linestyle="--")
        cut.set(xlim=(0, HIGHEST), xlabel="p(t | x)", title="at this x")
        shade = cut.add_patch(Polygon([(0, 0), (0, 1)], color=style.GREY, alpha=0.35, linewidth=0, label="exact"))
        curves = [cut.plot([], [], line, color=color, linewidth=1.8, label=name)[0] for name, (color, line) in LOOK.items()]
        cut.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        return [line, shade, *curves]

    def update(artists: list, x: float) -> None:
        line, shade, *curves = artists
        line.set_xdata([x, x])
        known = exact(torch.tensor([x], dtype=torch.float64)).density(T)[0].numpy()
        shade.set_xy(np.column_stack([np.r_[0, known.clip(max=HIGHEST), 0], np.pad(T.numpy(), 1, mode="edge")]))
        index = round((x - regression.arrays["x"][0]) / control.step)
        for curve, name in zip(curves, LOOK, strict=True):
            curve.set_data(densities[name][index], T.numpy())

    return LiveFigure(build, update, {"x": control}, " ".join(explore_density.__doc__.split()), width=9.0, height=4.6)


def predicted_densities(regression: Result, discretized: Result) -> dict[str, np.ndarray]:
    """{model: p(t | x) (X, T)} from the outputs that the results keep."""
    mu, variance = torch.tensor(regression.arrays["squared error"]), regression.arrays["variance"]
    shown = discretized.arrays["plain"]
    found = {
        GAUSSIAN: (-(T - mu).square() / (2 * variance)).exp() / math.sqrt(2 * math.pi * variance),
        MIXTURE: mdn.density(torch.tensor(regression.arrays["mixture, started apart"]), T),
        BINS: bins.density(torch.tensor(shown["logits"]), torch.tensor(shown["edges"]), T),
    }
    return {name: p.numpy() for name, p in found.items()}
