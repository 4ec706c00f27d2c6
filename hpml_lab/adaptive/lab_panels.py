"""The optimizer lab's picture: paths on a surface, and beside it the losses, step sizes and state over the steps."""

import math
import textwrap
from collections.abc import Iterable

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hpml_lab.adaptive.lab_paths import MOST_OPTIMIZERS, Pair, Path, Settings
from hpml_lab.core import style
from hpml_lab.landscape.surfaces import Surface
from hpml_lab.optim.formulas import FORMULAS

WIDTH, HEIGHT = 9.6, 5.5  # inches
LOWEST_LOSS, LOWEST_STEP, LINEAR_STATE = 1e-6, 1e-5, 1e-2  # where the logarithmic axes end
_HEIGHTS = LinearSegmentedColormap.from_list("heights", ["white", "#cdd3dd"])
_SMALL = 8.5  # points

# Forms of one rule have one colour and differ in line and marker.
_LOOKS = {
    "gradient_descent": (style.BLUE, "-", "o"),
    "momentum": (style.ORANGE, "-", "s"),
    "nesterov": (style.GREEN, "-", "^"),
    "adagrad": (style.RED, "-", "D"),
    "adadelta": (style.PURPLE, "-", "v"),
    "rmsprop": (style.SKY, "-", "P"),
    "adam": (style.INK, "-", "X"),
    "adamw": (style.RED, "-.", "<"),
    "adamax": (style.BLUE, "-.", ">"),
    "nadam": (style.PURPLE, "-.", "d"),
    "lecture_momentum": (style.ORANGE, "--", "h"),
    "lecture_nesterov": (style.GREEN, "--", "p"),
    "lecture_adagrad": (style.RED, "--", "*"),
    "ruder_rmsprop": (style.SKY, "--", "8"),
    "paper_adamax": (style.BLUE, "--", "H"),
    "ruder_nadam": (style.PURPLE, "--", "^"),
}
# Parameters x and y, in every panel that shows both.
_PARAMETERS = (("x", style.INK), ("y", style.RED))
# The state's entries that outlive a step, as the formulas call them; the others are reckoned anew each time.
_STATE_SYMBOLS = {"b": "b", "G": "G", "E_g2": "E[g²]", "E_delta2": "E[Δ²]", "v": "v", "m": "m", "u": "u"}


def state_names(optimizer: str) -> list[str]:
    """The entries of an optimizer's state that are drawn: at most two."""
    return [name for name in FORMULAS[optimizer].state if name in _STATE_SYMBOLS]


def _decade(value: float) -> float:
    """The power of ten at or above a positive value."""
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
        self.loss, self.sizes, self.state = (figure.add_axes((0.575, low, 0.41, 0.225)) for low in (0.70, 0.39, 0.08))
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
        self.paths = [line(top, lw=1.8, zorder=3) for _ in slots]
        self.dots = line(top, ls="", marker=".", ms=4, zorder=3.5)  # each step of the followed optimizer
        self.begin = line(top, ls="", marker="+", ms=12, mew=2, color=style.INK, zorder=4)
        self.heads = [line(top, ls="", ms=9, mec="white", mew=1.2, zorder=5) for _ in slots]
        self.losses = [line(self.loss, lw=1.6, zorder=3) for _ in slots]
        self.loss_heads = [line(self.loss, ls="", ms=6, mec="white", mew=0.8, zorder=5) for _ in slots]
        self.rate = line(self.sizes, color=style.GREY, lw=1.4, ls=":", zorder=2.5)
        self.size_lines = [line(self.sizes, color=colour, lw=1.6, zorder=3) for _, colour in _PARAMETERS]
        self.state_lines = [
            line(self.state, color=colour, lw=1.6, ls=dash, zorder=3) for dash in ("-", "--") for _, colour in _PARAMETERS
        ]
        self.note = figure.text(0.062, 0.06, "", fontsize=9, va="top", zorder=6)
        return [
            *self.marks,
            *self.paths,
            self.dots,
            self.begin,
            *self.heads,
            *self.losses,
            *self.loss_heads,
            self.rate,
            *self.size_lines,
            *self.state_lines,
            self.note,
        ]

    @staticmethod
    def ground(chosen: Settings) -> tuple:
        """What the fixed parts depend on: they are drawn anew only where this changes."""
        return chosen.surface, tuple(chosen.hyper), chosen.follow, chosen.steps

    def dress(self, chosen: Settings) -> None:
        """Set the fixed parts: contours, axes, legends, and which line has which look."""
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
            for slot, parts in enumerate(zip(self.paths, self.heads, self.losses, self.loss_heads, strict=True)):
                for part in parts:
                    part.set_visible(slot < len(names))
                if slot < len(names):
                    colour, dash, marker = _LOOKS[names[slot]]
                    for part in parts[::2]:
                        part.set(color=colour, linestyle=dash)
                    for part in parts[1::2]:
                        part.set(color=colour, marker=marker)
                    parts[0].set(linewidth=2.2 if names[slot] == follow else 1.6)
            self.dots.set_color(_LOOKS[follow][0])
            shown = 2 * len(state_names(follow))
            for place, line in enumerate(self.state_lines):
                line.set_visible(place < shown)

    def _set_scales(self, surface: Surface) -> None:
        x0, x1, y0, y1 = surface.window
        self.top_loss, self.top_size = self._top_loss[surface], _decade(max(x1 - x0, y1 - y0))
        steep = max(map(abs, surface.gradient(*surface.start)), default=1.0)
        self.state_range = -_decade(10 * steep), _decade(100 * steep * steep)
        self.loss.set_yscale("log")
        self.loss.set_ylim(LOWEST_LOSS, self.top_loss)
        self.sizes.set_yscale("log")
        self.sizes.set_ylim(LOWEST_STEP, self.top_size)
        self.state.set_yscale("symlog", linthresh=LINEAR_STATE, linscale=0.5)
        self.state.set_ylim(*self.state_range)
        low, high = (round(math.log10(abs(one))) for one in self.state_range)
        ticks = [-(10.0**k) for k in range(low - low % 2, -1, -2)] + [0.0] + [10.0**k for k in range(0, high + 1, 2)]
        self.state.set_yticks(ticks, [_power(tick) for tick in ticks])
        self.state.minorticks_off()

    @property
    def _top_loss(self) -> dict[Surface, float]:
        return {surface: artists[0].top for surface, artists in self._grounds.items()}

    def _set_legends(self, chosen: Settings) -> None:
        for legend in self._legends:
            legend.remove()
        names, follow = list(chosen.hyper), FORMULAS[chosen.follow].title
        handles = []
        for name in names:
            colour, dash, marker = _LOOKS[name]
            handles.append(Line2D([], [], color=colour, ls=dash, marker=marker, mec="white", label=FORMULAS[name].title))
        small = {"frameon": False, "fontsize": _SMALL, "borderaxespad": 0, "handletextpad": 0.4, "columnspacing": 1.0}
        columns = len(names) if len(names) < 4 else 3
        self._legends = [
            self.figure.legend(handles=handles, loc="upper right", bbox_to_anchor=(0.99, 0.998), ncols=columns, **small)
        ]
        parameters = [Line2D([], [], color=colour, label=f"of {name}") for name, colour in _PARAMETERS]
        rate = Line2D([], [], color=style.GREY, ls=":", label="rate α")
        tensors = [
            Line2D([], [], color=colour, ls=dash, label=f"{_STATE_SYMBOLS[one]} of {parameter}")
            for dash, one in zip(("-", "--"), state_names(chosen.follow), strict=False)
            for parameter, colour in _PARAMETERS
        ]
        for axes, lines in ((self.sizes, [*parameters, rate]), (self.state, tensors)):
            legend = axes.legend(handles=lines, loc="lower right", bbox_to_anchor=(1, 1.02), ncols=4, handlelength=1.4, **small)
            self._legends.append(legend)
        left = {"loc": "left", "fontsize": 9, "pad": 4}
        self.loss.set_title("loss f − lowest f", **left)
        self.sizes.set_title(f"{follow}: step size", **left)
        self.state.set_title(f"{follow}: state" if tensors else f"{follow} has no state", **left)

    def show(self, chosen: Settings) -> None:
        """Set what moves."""
        paths, lowest = chosen.paths, _lowest(chosen.surface)
        for slot, (name, path) in enumerate(paths.items()):
            points, height = self._in_sight(path.points, chosen.surface), self._height(path.losses, lowest)
            at = min(chosen.step, path.steps)
            self.paths[slot].set_data(points.T)
            self.heads[slot].set_data(points[at : at + 1].T)
            self.losses[slot].set_data(range(len(height)), height)
            self.loss_heads[slot].set_data([at], height[at : at + 1])
            if name == chosen.follow:
                self.dots.set_data(points.T)
                self._show_closely(path)
        self.begin.set_data([chosen.start[0]], [chosen.start[1]])
        for mark in self.marks:
            mark.set_xdata([chosen.step, chosen.step])
        self.note.set_text(_note(paths.values()))

    def _show_closely(self, path: Path) -> None:
        points = np.array(path.points)
        moved, steps = np.abs(np.diff(points, axis=0)), np.arange(1, len(points))
        for place, line in enumerate(self.size_lines):
            line.set_data(steps, np.clip(moved[:, place], LOWEST_STEP, self.top_size))
        self.rate.set_data(steps, np.clip(path.rates, LOWEST_STEP, self.top_size))
        for place, line in enumerate(self.state_lines):
            if line.get_visible():
                name = state_names(path.optimizer)[place // 2]
                values = [state[place % 2][name] for state in path.states]
                line.set_data(range(len(values)), np.clip(values, *self.state_range))

    def _height(self, losses: list[float], lowest: float) -> np.ndarray:
        return np.clip(np.array(losses) - lowest, LOWEST_LOSS, self.top_loss)

    @staticmethod
    def _in_sight(points: list[Pair], surface: Surface) -> np.ndarray:
        """The points, those far outside drawn in to three windows away: a canvas has no room for 1e6."""
        x0, x1, y0, y1 = surface.window
        spread = 3 * np.array([x1 - x0, y1 - y0])
        return np.clip(np.array(points), np.array([x0, y0]) - spread, np.array([x1, y1]) + spread)

    def place(self, x: float, y: float) -> tuple[str, Pair] | None:
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
    # Areas between two lines are equally large; the valley's floor has finer ones.
    levels = np.unique(np.quantile(heights, [0, 0.01, 0.03, 0.07, 0.15, 0.25, 0.37, 0.5, 0.63, 0.76, 0.88, 1]))
    colours = _HEIGHTS(np.linspace(0, 1, len(levels) - 1))
    filled = axes.contourf(xs, ys, heights, levels=levels, colors=colours, zorder=0.5)
    lines = axes.contour(xs, ys, heights, levels=levels[1:-1], colors="#8b95a5", linewidths=0.6, zorder=0.6)
    filled.top = _decade(float(heights.max()))
    stars = axes.plot(
        *zip(*surface.minima, strict=True), ls="", marker="*", ms=13, mfc="#F0E442", mec=style.INK, mew=1, zorder=2
    )
    return [filled, lines, *stars]


def _note(paths: Iterable[Path]) -> str:
    """What happened that the lines do not show; mostly nothing, as text costs more time than all lines together."""
    told = []
    for path in paths:
        title = FORMULAS[path.optimizer].title
        if path.end:
            told.append(f"{title} {path.end}.")
        elif path.left is not None:
            told.append(f"{title} leaves the window at step {path.left}.")
    return "\n".join(textwrap.wrap(" ".join(told), 74, max_lines=2, placeholder=" …"))
