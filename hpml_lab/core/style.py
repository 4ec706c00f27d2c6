"""The look of every figure: one palette, axes with units, a white ground that reads in light and dark themes."""

import contextlib
import io

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

# Okabe and Ito's colors, which people with any common color blindness can distinguish; grey is for references.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442")
GREY, INK = "#6b7280", "#1f2937"
WHITE_GROUND = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # a text's bbox over lines, bars or hatching
CYCLE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # never by color alone
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))

STYLE = {
    "axes.prop_cycle": matplotlib.cycler(color=CYCLE),
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.labelsize": 10,
    "figure.facecolor": "white",
    "font.size": 10,
    "grid.color": "#e5e7eb",
    "image.cmap": "cividis",
    "legend.frameon": False,
    "lines.linewidth": 2,
    "text.color": INK,
}


def in_style() -> contextlib.AbstractContextManager:
    """The context in which figures are drawn: artists take the house's style as they are made."""
    return matplotlib.rc_context(STYLE)


def new_figure(width: float = 7.0, height: float = 4.0) -> Figure:
    """An empty figure of `width` × `height` inches in the house's style.

    It is not one of pyplot's: a figure that pyplot holds can vanish from a cell when a widget event arrives meanwhile.
    """
    with in_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
    return figure


def time_unit(longest_seconds: float) -> tuple[float, str]:
    """The factor and the unit for an axis of times up to `longest_seconds`: (1e3, "ms") below two seconds, else (1.0, "s")."""
    return (1e3, "ms") if longest_seconds < 2 else (1.0, "s")


def label_log_axis(axis, text: str = "{x:,g}") -> None:
    """Label a logarithmic axis (`axes.xaxis` or `axes.yaxis`) with plain numbers at 1, 2 and 5 times each power of ten."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter(text))
    axis.set_minor_formatter(NullFormatter())


def png(figure: Figure, dpi: int = 100) -> bytes:
    """The figure as PNG."""
    buffer = io.BytesIO()
    with in_style():
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()
