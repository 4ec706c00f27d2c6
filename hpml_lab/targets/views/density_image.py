"""What the figures of this topic share: a conditional density as an image, samples on top, and a strip of seeds."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.colors import PowerNorm
from torch import Tensor

from hpml_lab.core.show import style
from hpml_lab.targets.lessons.inverse_problem import draw

SHOWN_X = torch.linspace(-0.08, 1.08, 117)  # where the trained densities are kept
DENSEST = 12.0  # of an image: what is denser has the darkest color


def density_image(axes, x: Tensor, t: Tensor, p: Tensor, title: str = ""):
    """p(t | x) (X, T) over x and t, the darker the denser."""
    x, t, p = x.numpy(), t.numpy(), p.numpy()
    axes.grid(False)
    axes.set(title=title, xlabel="x", xlim=(x[0], x[-1]), ylim=(t[0], t[-1]))
    return axes.pcolormesh(x, t, p.T, cmap="Blues", norm=PowerNorm(0.6, 0, DENSEST), shading="nearest", rasterized=True)


def show_samples(axes, count: int) -> None:
    """`count` samples (x, t) as small points."""
    x, t = draw(count, torch.Generator().manual_seed(0))
    axes.plot(x.numpy(), t.numpy(), ".", color=style.INK, markersize=2, alpha=0.5)


def seed_strip(axes, values: Mapping[str, Sequence[float]], colors: Mapping[str, str]) -> None:
    """Each seed's value as a point, the median as a line, one column for each name."""
    for i, (name, of_seeds) in enumerate(values.items()):
        across = i + np.linspace(-0.2, 0.2, len(of_seeds))
        axes.plot(across, of_seeds, style.MARKERS[list(colors).index(name)], color=colors[name], markersize=5, linestyle="")
        axes.hlines(np.median(of_seeds), i - 0.3, i + 0.3, color=colors[name], linewidth=2)
    axes.set_xticks(range(len(values)), [name.replace(" ", "\n", 1).replace(", ", ",\n") for name in values], fontsize=8)
    axes.grid(False, axis="x")
