"""Sliders over ZeRO's formula: how many parameters, how many ranks, and which stages fit into a GPU."""

from collections.abc import Iterable

import ipywidgets
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.sharding.lessons.zero import FLOAT32, MIXED, STAGES, zero_formula

SIZES = {f"{n:g} billion": n * 1e9 for n in (0.1, 0.35, 1.5, 3, 7.5, 13, 70, 175, 405, 1000)}
RANKS = [2**power for power in range(14)]
PRECISIONS = {"16-bit with float32 copy": MIXED, "float32": FLOAT32}
NAMES = ("0: every rank keeps all", "1: optimizer state sharded", "2: gradients, too", "3: parameters, too")
GPUS = {"24 GB": 24, "141 GB": 141}  # a large consumer's card, and an H200
LEAST, MOST = 0.05, 1e5  # GB, of the axis


def zero_sliders(parameters: str = "7.5 billion", ranks: int = 64, precision: str = "16-bit with float32 copy") -> LiveFigure:
    """A bar for each stage of ZeRO with what each rank keeps, on a scale with the memory of some GPUs."""
    wide = ipywidgets.Layout(width="420px")
    controls = {
        "parameters": ipywidgets.SelectionSlider(options=list(SIZES), value=parameters, description="parameters", layout=wide),
        "ranks": ipywidgets.SelectionSlider(options=RANKS, value=ranks, description="ranks", layout=wide),
        "precision": ipywidgets.Dropdown(options=list(PRECISIONS), value=precision, description="training in", layout=wide),
    }
    alt = "GB that each rank keeps at ZeRO's stages 0 to 3 for a chosen model and number of ranks, next to the memory of GPUs."
    return LiveFigure(_build, _update, controls, alt, width=8, height=3.2, moves="ranks")


def gigabytes(parameters: float, ranks: int, precision: str) -> list[float]:
    """What each rank keeps at each stage."""
    return [zero_formula(stage, ranks, PRECISIONS[precision]).owned * parameters / 1e9 for stage in STAGES]


def _build(figure: Figure) -> Iterable[Artist]:
    axes = figure.subplots()
    bars = axes.barh(STAGES, [1.0] * len(STAGES), left=LEAST, color=style.BLUE)
    texts = [  # the white ground keeps a value readable on a line
        axes.text(1.0, stage, "", va="center", fontsize=9, color=style.DARK, bbox=style.WHITE_GROUND) for stage in STAGES
    ]
    for name, size in GPUS.items():
        axes.axvline(size, color=style.RED, linestyle="--", linewidth=1)
        axes.text(size, -0.62, name, color=style.RED, fontsize=8, ha="center")
    axes.set(xscale="log", xlim=(LEAST, MOST), xlabel="GB on each rank, without activations", ylim=(3.6, -0.8))
    style.label_log_axis(axes.xaxis)
    axes.xaxis.set_major_locator(LogLocator())
    axes.set_yticks(STAGES, NAMES)
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    return [*bars, *texts]


def _update(artists: list[Artist], parameters: str, ranks: int, precision: str) -> None:
    for stage, size in enumerate(gigabytes(SIZES[parameters], ranks, precision)):
        bar, text = artists[stage], artists[len(STAGES) + stage]
        bar.set_width(max(size - LEAST, 0))
        text.set_position((1.1 * max(size, LEAST), stage))
        text.set_text(f"{size:,.3g} GB")
