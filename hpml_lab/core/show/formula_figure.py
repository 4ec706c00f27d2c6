"""Sliders over a formula, drawn in the browser: the page computes with the formula itself, translated from its Python.

    FormulaFigure("sharding.zero_sliders", alt, [Choice("ranks", {"1": 1, "2": 2}, "2")], [Bars(("all", "a part"), kept, …)])

Nothing is asked of a kernel, so it moves on a web page, too. In a saved notebook a plain picture of the start takes its place.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.show.javascript import Translation, plain
from hpml_lab.core.show.png import with_picture
from hpml_lab.core.system.errors import LabError

PAGE = Path(__file__).with_suffix(".mjs")
Formula = Callable[..., float]  # (the number of a bar or curve, then what is chosen, in the order of the choices)


@dataclass(frozen=True)
class Choice:
    """A slider, or a list, over values by what it says; the one called `start` comes first."""

    name: str
    values: Mapping[str, Any]
    start: str
    slider: bool = True


@dataclass(frozen=True)
class Bars:
    """A bar for each name, `value` long; `parts` are seconds that are written before it.

    ends    of the axis
    limits  dashed lines across the bars, by name
    rest    whether what a bar lacks to the end of the axis is colored, and the bar gray
    """

    names: Sequence[str]
    value: Formula
    label: str
    unit: str
    ends: tuple[float, float]
    log: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    parts: Sequence[Formula] = ()
    rest: bool = False


@dataclass(frozen=True)
class Curves:
    """A curve for each name: `value` over all values of the choice `over`, with a line at the chosen one."""

    names: Sequence[str]
    value: Formula
    label: str
    over: str
    ends: tuple[float, float]


def amount(value: float, unit: str) -> str:
    """A number with its unit, as the page writes it: "120 GB", "34 ms", "61 %"."""
    if unit == "%":
        return f"{value:.0f} %"
    if unit == "s" and value < 1:
        value, unit = 1e3 * value, "ms"
    return f"{float(f'{value:.3g}'):,.10g} {unit}"


class FormulaFigure(anywidget.AnyWidget):
    """Choices above panels of bars and curves.

    name  "topic.function" of the function that makes this figure: by it a web page finds what it needs
    """

    _esm = traitlets.Unicode().tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)

    def __init__(self, name: str, alt: str, choices: Sequence[Choice], panels: Sequence[Bars | Curves]) -> None:
        for choice in choices:
            if choice.start not in choice.values:
                raise LabError(f"{choice.start!r} is not offered for {choice.name}.", f"Use one of {', '.join(choice.values)}.")
            whole = [word for word in choice.values if word.isdecimal()]  # a page's object has these first, in their order
            if list(choice.values)[: len(whole)] != sorted(whole, key=int):
                raise LabError(f"A page would offer {choice.name} in another order.", 'Write "1.0" or "1 rank", not "1".')
        self.name, self.choices, self.panels = name, choices, panels
        super().__init__(_esm=self.module(), alt=alt)

    def module(self) -> str:
        """The page as one JavaScript module: `mount(el, {alt})`, and anywidget's `render`."""
        translation = Translation()
        formulas = [
            [translation.function(each) for each in (panel.value, *getattr(panel, "parts", ()))] for panel in self.panels
        ]
        text = "".join(f"const {name} = {code};\n" for name, code in translation.functions.items())
        text += "const FORMULAS = [\n" + "".join(f"  [{', '.join(each)}],\n" for each in formulas) + "];\n"
        about = {
            "choices": [
                asdict(choice) | {"values": {k: plain(v) for k, v in choice.values.items()}} for choice in self.choices
            ],
            "panels": [{k: v for k, v in vars(panel).items() if k not in ("value", "parts")} for panel in self.panels],
            "look": {"colors": style.CYCLE, "GREY": style.GREY, "BLUE": style.BLUE, "RED": style.RED},
        }
        return f"{text}const ABOUT = {json.dumps(about, ensure_ascii=False)};\n" + PAGE.read_text(encoding="utf-8")

    def values(self, panel: Bars | Curves, **chosen: str) -> list[list[float]]:
        """For each bar its value and its parts, or each curve's points; what is not `chosen` stands at its start."""
        given = {choice.name: choice.values[chosen.get(choice.name, choice.start)] for choice in self.choices}
        count = range(len(panel.names))
        if isinstance(panel, Bars):
            return [[formula(index, *given.values()) for formula in (panel.value, *panel.parts)] for index in count]
        over = next(choice for choice in self.choices if choice.name == panel.over)
        return [[panel.value(index, *(given | {panel.over: x}).values()) for x in over.values.values()] for index in count]

    def figure(self) -> Figure:
        """The start as a figure to keep."""
        figure = style.new_figure(10 if len(self.panels) > 1 else 8, 3.2)
        with style.in_style():
            for axes, panel in zip(figure.subplots(1, len(self.panels), squeeze=False)[0], self.panels, strict=True):
                (self._draw_bars if isinstance(panel, Bars) else self._draw_curves)(axes, panel)
        return figure

    def _draw_bars(self, axes: Axes, panel: Bars) -> None:
        rows = self.values(panel)
        names, lengths = [], [value for value, *_ in rows]
        behind = "\n" if len(rows) <= 5 else ": "  # more bars leave room for one line each, as on the page
        for name, (value, *parts) in zip(panel.names, rows, strict=True):
            seconds = " + ".join(amount(part, "s") for part in parts)
            names.append(f"{name}{behind}{seconds}{': ' * bool(parts)}{amount(value, panel.unit)}")
        horizontal_bars(axes, names, lengths, color=style.GREY if panel.rest else style.BLUE)
        if panel.rest:
            left = [panel.ends[1] - length for length in lengths]
            axes.barh(range(len(rows)), left, left=lengths, color=style.CYCLE[: len(rows)], alpha=0.5)
        for name, at in panel.limits.items():
            axes.axvline(at, color=style.RED, linestyle="--", linewidth=1)
            axes.text(at, 1, name, color=style.RED, fontsize=8, ha="center", va="bottom", transform=axes.get_xaxis_transform())
        axes.set(xscale="log" if panel.log else "linear", xlim=panel.ends, xlabel=panel.label)
        if panel.log:
            style.label_log_axis(axes.xaxis)
            axes.xaxis.set_major_locator(LogLocator(100))

    def _draw_curves(self, axes: Axes, panel: Curves) -> None:
        over = next(choice for choice in self.choices if choice.name == panel.over)
        xs = list(over.values.values())
        for name, ys, color, marker in zip(panel.names, self.values(panel), style.CYCLE, style.MARKERS, strict=False):
            axes.plot(xs, ys, color=color, marker=marker, markersize=4, label=name)
        axes.axvline(over.values[over.start], color=style.INK, linewidth=1)
        axes.set(xscale="log", xlabel=over.name, ylabel=panel.label, ylim=panel.ends)
        axes.set_xticks(xs[::3], list(over.values)[::3])
        axes.minorticks_off()
        axes.legend(fontsize=8, ncols=len(panel.names), loc="lower center", bbox_to_anchor=(0.5, 1.0))

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.alt}"

    def _repr_mimebundle_(self, **options: Any):
        """The widget, the picture in its place where there is no kernel, and by what name a web page finds its module."""
        about = {"alt": self.alt, "formula": self.name}
        return with_picture(super()._repr_mimebundle_(**options), repr(self), style.png(self.figure()), about)
