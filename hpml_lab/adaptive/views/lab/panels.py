"""The optimizer lab's picture: paths on a surface, and the losses, step sizes and state over the steps."""

import math
import re
import textwrap
from collections.abc import Iterable

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hpml_lab.adaptive.views.lab.rule_paths import MOST_OPTIMIZERS, LabPath, LabSettings, Pair
from hpml_lab.core.show import style
from hpml_lab.landscape.surfaces import Surface
from hpml_lab.optim.colors import optimizer_style
from hpml_lab.optim.formulas import FORMULAS

WIDTH, HEIGHT = 9.6, 5.5  # inches
LOWEST_LOSS, LOWEST_STEP = 1e-6, 1e-5  # where the logarithmic axes end
_HEIGHTS = LinearSegmentedColormap.from_list("heights", ["#80808000", "#80808060"])
_SMALL = 8.5  # points

# Forms of one rule have its color and a line and marker of their own.
_FORM_LINE = (0, (3, 1, 1, 1))
_FORM_MARKERS = {
    "lecture_momentum": "h",
    "lecture_nesterov": "p",
    "lecture_adagrad": "*",
    "ruder_rmsprop": "8",
    "paper_adamax": "H",
    "ruder_nadam": "<",
}


def look(optimizer: str) -> dict:
    """Color, line and marker of an optimizer, a name in FORMULAS."""
    form = {"linestyle": _FORM_LINE, "marker": _FORM_MARKERS[optimizer]} if optimizer in _FORM_MARKERS else {}
    return optimizer_style(optimizer, marker=True) | form


# Parameters x and y, in every panel that shows both.
_PARAMETERS = (("x", "#1c7f3c"), ("y", "#AA4499"))  # colors that no optimizer has
# The state's entries that are kept from step to step, in TeX; the others are computed anew in each step.
_STATE_SYMBOLS = {"b": "b", "G": "G", "E_g2": "E[g^2]", "E_delta2": r"E[\Delta^2]", "v": "v", "m": "m", "u": "u"}


def state_names(optimizer: str) -> list[str]:
    """The entries of an optimizer's state that are drawn: at most two."""
    return [name for name in FORMULAS[optimizer].state if name in _STATE_SYMBOLS]


def label(optimizer: str) -> str:
    """An optimizer's name, short enough for three in a row: "Adamax (paper)"."""
    return re.sub(r", (?:the )?(\w+)'s form", r" (\1)", FORMULAS[optimizer].title)


def _decade(value: float) -> float:
    """The smallest power of ten that is not below a positive value."""
    return 10.0 ** math.ceil(math.log10(value))


def _lowest(surface: Surface) -> float:
    return min(surface.value(*point) for point in surface.minima)


class Panels:
    """The picture's four panels and what moves in them."""

    def build(self, figure: Figure) -> list[Artist]:
        """Make the panels and all artists that move; return the latter."""
        figure.set_layout_engine("none")
        self.figure = figure
        self.surface_axes = figure.add_axes((0.062, 0.135, 0.42, 0.755))
        self.loss, self.sizes, self.state = (figure.add_axes((0.575, low, 0.41, 0.21)) for low in (0.665, 0.3725, 0.08))
        self.title = figure.text(0.062, 0.945, "", fontsize=11, fontweight="bold")
        self.formula = figure.text(0.062, 0.908, "", fontsize=_SMALL)
        figure.text(0.482, 0.945, "+ start   ★ minimum", fontsize=_SMALL, ha="right")
        self.surface_axes.grid(False)
        self.surface_axes.tick_params(labelsize=_SMALL)
        for axes in (self.loss, self.sizes, self.state):
            axes.tick_params(labelsize=_SMALL)
            if axes is not self.state:
                axes.tick_params(labelbottom=False)
        self.state.set_xlabel("step", fontsize=_SMALL, labelpad=1)
        self.surface_axes.set_xlabel("x", labelpad=0)
        self.surface_axes.set_ylabel("y", labelpad=-2)
        self._grounds: dict[Surface, list[Artist]] = {}
        self._legends: list[Artist] = []

        def line(axes: Axes, **look) -> Line2D:
            return axes.plot([], [], **look)[0]

        top, slots = self.surface_axes, range(MOST_OPTIMIZERS)
        self.marks = [axes.axvline(0, color=style.GREY, lw=1, zorder=1.5) for axes in (self.loss, self.sizes, self.state)]
        head = {"mec": "none", "zorder": 3}  # a marker at the chosen step, on each line
        self.paths = [line(top, lw=1.8, ms=9, mew=1.2, **head) for _ in slots]
        self.dots = line(top, ls="", marker=".", ms=4, zorder=2.9)  # each step of the followed optimizer
        self.begin = line(top, ls="", marker="+", ms=12, mew=2, color=style.INK, zorder=4)
        self.losses = [line(self.loss, lw=1.6, ms=6, mew=0.8, **head) for _ in slots]
        self.rate = line(self.sizes, color=style.GREY, lw=1.4, ls=":", zorder=2.5)
        self.size_lines = [line(self.sizes, color=color, lw=1.6, zorder=3) for _, color in _PARAMETERS]
        self.state_lines = [
            line(self.state, color=color, lw=1.6, ls=dash, zorder=3) for dash in ("-", "--") for _, color in _PARAMETERS
        ]
        self.note = figure.text(0.062, 0.068, "", fontsize=9, va="top", zorder=6)
        return [
            *self.marks,
            *self.paths,
            self.dots,
            self.begin,
            *self.losses,
            self.rate,
            *self.size_lines,
            *self.state_lines,
            self.note,
        ]

    @staticmethod
    def ground(chosen: LabSettings) -> tuple:
        """What the fixed parts depend on: they are drawn anew only if this changes."""
        return chosen.surface, tuple(chosen.hyper), chosen.follow, chosen.steps

    def set_fixed_parts(self, chosen: LabSettings) -> None:
        """Set what does not move: contours, axes, legends, and the look of each line."""
        self._drawn: dict[int, LabPath] = {}
        self._followed: LabPath | None = None
        surface, follow = chosen.surface, chosen.follow
        with style.in_style():
            if surface not in self._grounds:
                self._grounds[surface] = _contours(self.surface_axes, surface)
            for other, artists in self._grounds.items():
                for artist in artists:
                    artist.set_visible(other is surface)
            self.title.set_text(surface.title)
            self.formula.set_text(surface.formula)
            x0, x1, y0, y1 = surface.window
            self.surface_axes.set(xlim=(x0, x1), ylim=(y0, y1))
            for axes in (self.loss, self.sizes, self.state):
                axes.set_xlim(0, chosen.steps)
            self._set_scales(surface)
            self._set_legends(chosen)
            names = list(chosen.hyper)
            for slot, (path, loss) in enumerate(zip(self.paths, self.losses, strict=True)):
                for line in (path, loss):
                    line.set_visible(slot < len(names))
                    if slot < len(names):
                        line.set(markerfacecolor=look(names[slot])["color"], **look(names[slot]))
                if slot < len(names):
                    path.set_linewidth(2.2 if names[slot] == follow else 1.6)
            self.dots.set_color(look(follow)["color"])
            shown = 2 * len(state_names(follow))
            for i, line in enumerate(self.state_lines):
                line.set_visible(i < shown)

    def _set_scales(self, surface: Surface) -> None:
        x0, x1, y0, y1 = surface.window
        self.top_loss, self.top_size = self._top_loss[surface], _decade(max(x1 - x0, y1 - y0))
        steep = max(map(abs, surface.gradient(*surface.start)), default=1.0)
        self.state_range = -_decade(3 * steep), _decade(10 * steep * steep)
        self.loss.set_yscale("log")
        self.loss.set_ylim(LOWEST_LOSS, self.top_loss)
        self.sizes.set_yscale("log")
        self.sizes.set_ylim(LOWEST_STEP, self.top_size)
        # Linear about zero, so that a momentum that swings looks like a swing; logarithmic beyond, for squares.
        self.state.set_yscale("symlog", linthresh=_decade(steep) / 100, linscale=0.8)
        self.state.set_ylim(*self.state_range)
        first, low, high = (round(math.log10(abs(value))) for value in (_decade(steep), *self.state_range))
        ticks = [-(10.0**k) for k in range(first, low + 1, 2)] + [0.0] + [10.0**k for k in range(first, high + 1, 2)]
        self.state.set_yticks(ticks, [_power(tick) for tick in ticks])
        self.state.minorticks_off()

    @property
    def _top_loss(self) -> dict[Surface, float]:
        return {surface: artists[0].top for surface, artists in self._grounds.items()}

    def _set_legends(self, chosen: LabSettings) -> None:
        for legend in self._legends:
            legend.remove()
        names, follow = list(chosen.hyper), label(chosen.follow)
        handles = [Line2D([], [], mec="none", label=label(name), **look(name)) for name in names]
        small = {"frameon": False, "fontsize": _SMALL, "borderaxespad": 0, "handletextpad": 0.4, "columnspacing": 1.0}
        columns = len(names) if len(names) < 4 else 3
        names_box = {"handlelength": 1.8, "labelspacing": 0.3, "bbox_to_anchor": (0.99, 0.995)}
        self._legends = [self.figure.legend(handles=handles, loc="upper right", ncols=columns, **names_box, **small)]
        parameters = [Line2D([], [], color=color, label=f"|Δ{name}|") for name, color in _PARAMETERS]
        rate = Line2D([], [], color=style.GREY, ls=":", label="rate α")
        tensors = [
            Line2D([], [], color=color, ls=dash, label=f"${_STATE_SYMBOLS[name]}_{parameter}$")
            for dash, name in zip(("-", "--"), state_names(chosen.follow), strict=False)
            for parameter, color in _PARAMETERS
        ]
        for axes, lines in ((self.sizes, [*parameters, rate]), (self.state, tensors)):
            legend = axes.legend(handles=lines, loc="lower right", bbox_to_anchor=(1, 1.02), ncols=4, handlelength=1.4, **small)
            self._legends.append(legend)
        left = {"loc": "left", "fontsize": 9, "pad": 4}
        self.loss.set_title("loss f − lowest f", **left)
        self.sizes.set_title(f"{follow}: step size", **left)
        self.state.set_title(f"{follow}: state" if tensors else f"{follow} has no state", **left)

    def show(self, chosen: LabSettings) -> None:
        """Set what moves."""
        paths = chosen.paths
        for slot, (name, path) in enumerate(paths.items()):
            if self._drawn.get(slot) is not path:  # setting a line's data costs more than drawing it
                self._drawn[slot] = path
                self.paths[slot].set_data(*self._clipped(path))
                self.losses[slot].set_data(np.arange(len(path.losses)), self._height(path))
            for line in (self.paths[slot], self.losses[slot]):
                line.set_markevery([min(chosen.step, path.steps)])
            if name == chosen.follow and self._followed is not path:
                self._show_followed(path)
        self.begin.set_data([chosen.start[0]], [chosen.start[1]])
        for mark in self.marks:
            mark.set_xdata([chosen.step, chosen.step])
        self.note.set_text(_note(paths.values()))

    def _show_followed(self, path: LabPath) -> None:
        self._followed = path
        self.dots.set_data(*self._clipped(path))
        steps = np.arange(1, len(path.x))
        for line, values in zip(self.size_lines, (path.x, path.y), strict=True):
            line.set_data(steps, np.clip(np.abs(np.diff(values)), LOWEST_STEP, self.top_size))
        self.rate.set_data(steps, np.clip(path.rates, LOWEST_STEP, self.top_size))
        for i, line in enumerate(self.state_lines):
            if line.get_visible():
                name = state_names(path.optimizer)[i // 2]
                values = path.states[i % 2][name]
                line.set_data(np.arange(len(values)), np.clip(values, *self.state_range))

    def _height(self, path: LabPath) -> np.ndarray:
        return np.clip(np.array(path.losses) - _lowest(path.surface), LOWEST_LOSS, self.top_loss)

    @staticmethod
    def _clipped(path: LabPath) -> np.ndarray:
        """The points, with those far outside moved to three windows away: a canvas cannot draw 1e6."""
        x0, x1, y0, y1 = path.surface.window
        wide, high = 3 * (x1 - x0), 3 * (y1 - y0)
        return np.stack([np.clip(path.x, x0 - wide, x1 + wide), np.clip(path.y, y0 - high, y1 + high)])

    def target_at(self, x: float, y: float) -> tuple[str, Pair] | None:
        """What lies at a point of the picture, both from 0 to 1, from the left and from the top: ("surface", (x, y)) or
        ("step", (step, 0)), or None."""
        for kind, axes in (("surface", self.surface_axes), ("step", self.loss), ("step", self.sizes), ("step", self.state)):
            box = axes.get_position()
            across, up = (x - box.x0) / box.width, (1 - y - box.y0) / box.height
            if -0.02 <= across <= 1.02 and -0.02 <= up <= 1.02:
                across, up = min(max(across, 0.0), 1.0), min(max(up, 0.0), 1.0)
                (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
                return kind, (x0 + across * (x1 - x0), y0 + up * (y1 - y0) if kind == "surface" else 0.0)
        return None


def _power(value: float) -> str:
    """±1, ±100, and from there ±10⁴."""
    if abs(value) <= 100:
        return f"{value:g}".replace("-", "−")
    digits = str(round(math.log10(abs(value)))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return ("−" if value < 0 else "") + "10" + digits


def _contours(axes: Axes, surface: Surface) -> list[Artist]:
    """Draw the surface: lines of height, greyer with height, and stars at the minima."""
    x0, x1, y0, y1 = surface.window
    xs, ys = np.linspace(x0, x1, 201), np.linspace(y0, y1, 201)
    lowest = _lowest(surface)
    heights = np.array([[surface.value(x, y) - lowest for x in xs.tolist()] for y in ys.tolist()])
    # Areas between two lines are of equal size, except for finer ones on the valley's floor.
    levels = np.unique(np.quantile(heights, [0, 0.01, 0.03, 0.07, 0.15, 0.25, 0.37, 0.5, 0.63, 0.76, 0.88, 1]))
    colors = _HEIGHTS(np.linspace(0, 1, len(levels) - 1))
    filled = axes.contourf(xs, ys, heights, levels=levels, colors=colors, zorder=0.5)
    lines = axes.contour(xs, ys, heights, levels=levels[1:-1], colors=style.GREY, linewidths=0.6, zorder=0.6)
    filled.top = _decade(float(heights.max()))
    stars = axes.plot(
        *zip(*surface.minima, strict=True), ls="", marker="*", ms=13, mfc=style.YELLOW, mec=style.INK, mew=1, zorder=2
    )
    return [filled, lines, *stars]


def _note(paths: Iterable[LabPath]) -> str:
    """What the lines do not show, in few letters: text takes more time to draw than all lines together."""
    diverged = [f"{label(path.optimizer)} {path.end}" for path in paths if path.end]
    left = [f"{label(path.optimizer)} {path.left}" for path in paths if path.left is not None and not path.end]
    notes = [*diverged, *(["outside from step: " + ", ".join(left)] if left else [])]
    return "\n".join(textwrap.wrap("; ".join(notes), 62, max_lines=2, placeholder=" …"))
