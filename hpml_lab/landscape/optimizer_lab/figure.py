"""How optimizers and surfaces look in the lab and in other figures: colors, lines and markers, and contour lines."""

import torch
from matplotlib.axes import Axes

from hpml_lab.core.show import style
from hpml_lab.landscape.surfaces import Surface
from hpml_lab.optim.formulas.colors import optimizer_style

# Forms of one rule have its color and a line and marker of their own.
_FORM_LINE = (0, (3, 1, 1, 1))
_FORM_MARKERS = {
    "lecture_momentum": "h",
    "lecture_nesterov": "p",
    "lecture_adagrad": "d",
    "ruder_rmsprop": "8",
    "paper_adamax": "H",
    "ruder_nadam": "<",
}


def form_of(optimizer: str) -> str | None:
    """The rule that a rule is another form of, such as "momentum" for "lecture_momentum"."""
    return optimizer.partition("_")[2] if optimizer in _FORM_MARKERS else None


def look(optimizer: str) -> dict:
    """Color, line and marker of an optimizer, a name in FORMULAS."""
    form = {"linestyle": _FORM_LINE, "marker": _FORM_MARKERS[optimizer]} if optimizer in _FORM_MARKERS else {}
    return optimizer_style(optimizer, marker=True) | form


def surface_map(ax: Axes, surface: Surface, window: tuple[float, float, float, float] | None = None, levels: int = 18) -> None:
    """Contour lines of a surface, evenly spaced in the logarithm of its height above the lowest minimum."""
    x0, x1, y0, y1 = window or surface.window
    x = torch.linspace(x0, x1, 160, dtype=torch.float64)
    y = torch.linspace(y0, y1, 160, dtype=torch.float64)
    height = surface.value(x[None], y[:, None]) - surface.value(*surface.minima[0])
    height = torch.log10(height.clamp(min=1e-3)).numpy()
    ax.contour(x, y, height, levels=levels, colors=style.GREY, linewidths=0.6, alpha=0.6, linestyles="solid")
    ax.set(xlim=(x0, x1), ylim=(y0, y1), xlabel="x", ylabel="y")
    ax.grid(False)
