"""The look of every figure: one palette, axes with units, and no ground, so that a picture follows the page's theme.

Each color has a contrast of at least 3:1 on white and on JupyterLab's dark #111111, so one picture serves both.
"""

import contextlib
import io

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

# Near Okabe and Ito's colors, and as far apart as theirs for any common color blindness; grey is for references.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW = ("#3b5fc0", "#d87818", "#14906a", "#d8304a", "#c46cc4", "#0c9cd8", "#806e10")
INK, GREY = "#767676", "#8c8c8c"  # text and lines on the page
DARK = "#1f2937"  # text on a light ground of its own
WHITE_GROUND = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # a text's bbox over lines, bars or hatching
CYCLE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # never by color alone
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))

STYLE = {
    "axes.prop_cycle": matplotlib.cycler(color=CYCLE),
    "axes.edgecolor": GREY,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "figure.facecolor": "none",
    "font.size": 10,
    "grid.color": "#80808040",
    "hatch.color": INK,
    "image.cmap": "cividis",
    "legend.frameon": False,
    "lines.linewidth": 2,
    "patch.edgecolor": INK,
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9,
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
