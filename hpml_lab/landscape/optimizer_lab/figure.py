"""The optimizer lab as a plain figure, for the saved notebook and for reports: paths on the surface, and losses by step."""

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpml_lab.core.show import style
from hpml_lab.landscape.optimizer_lab.lab_paths import LabSettings, surface_named
from hpml_lab.landscape.surfaces import Surface
from hpml_lab.optim.formulas.by_name import FORMULAS
from hpml_lab.optim.formulas.colors import optimizer_style

LOWEST_LOSS = 1e-6  # where the logarithmic axis ends

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


def draw(chosen: LabSettings) -> Figure:
    """Paths and losses. What leaves the window is cut there; a path that ends early says why in the legend."""
    figure, surface = style.new_figure(9.6, 3.9), surface_named(chosen.surface)
    lowest = min(surface.value(*point) for point in surface.minima)
    with style.in_style():
        ground, losses = figure.subplots(1, 2, width_ratios=(1.2, 1))
        surface_map(ground, surface)
        ground.plot(*zip(*surface.minima, strict=True), ls="", marker="*", ms=13, mfc=style.YELLOW, mec=style.INK)
        ground.plot(*chosen.start, marker="+", ms=12, mew=2, color=style.INK)
        for name, path in chosen.paths.items():
            title = FORMULAS[name].title + (f", {path.end}" if path.end else "")
            both = look(name) | {"linewidth": 1.8, "markersize": 5, "label": title}
            ground.plot(path.x, path.y, markevery=[path.steps], **both)
            losses.plot(np.maximum(np.array(path.losses) - lowest, LOWEST_LOSS), markevery=[path.steps], **both)
        ground.set_title(f"{surface.title}, {chosen.steps} steps", loc="left")
        losses.set(yscale="log", xlabel="step", ylim=(LOWEST_LOSS, None), xlim=(0, chosen.steps))
        losses.set_title("loss f − lowest f", loc="left")
        losses.legend(fontsize=8)
    return figure
