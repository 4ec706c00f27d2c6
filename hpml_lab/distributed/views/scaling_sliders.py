"""The alpha-beta model to play with: choose the model's size, the link and the number of ranks, and read off the efficiency."""

import ipywidgets

from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.distributed.lessons.alpha_beta import ALGORITHMS, LINKS, efficiency
from hpml_lab.distributed.tools.extrapolation import COUNTS, STRONG_KIND, WEAK_KIND, label_ranks, step_seconds

SIZES = {"25 million": 25e6, "124 million": 124e6, "1 billion": 1e9, "8 billion": 8e9, "70 billion": 70e9, "405 billion": 405e9}
ALT = (
    "Left: the seconds of one training step, compute and all-reduce, for three all-reduces on the chosen number of ranks. "
    "Right: the efficiency of each from 1 to 8,192 ranks, with the chosen number marked."
)


def scaling_sliders() -> LiveFigure:
    """A figure that follows sliders over model size, link and ranks. Nothing overlaps, so real trainings do better."""
    layout = ipywidgets.Layout(width="460px")
    controls = {
        "parameters": ipywidgets.SelectionSlider(
            options=list(SIZES.items()), value=8e9, description="parameters", layout=layout, continuous_update=True
        ),
        "link": ipywidgets.Dropdown(options=list(LINKS), value="InfiniBand NDR", description="link", layout=layout),
        "ranks": ipywidgets.SelectionSlider(
            options=[(f"{count:,}", count) for count in COUNTS], value=1024, description="ranks", layout=layout
        ),
        "kind": ipywidgets.Dropdown(options=(WEAK_KIND, STRONG_KIND), value=WEAK_KIND, description="scaling", layout=layout),
    }
    return LiveFigure(_build, _update, controls, ALT, width=10, height=3.8, moves="ranks")


def _build(figure) -> list:
    bars, curves = figure.subplots(1, 2, width_ratios=(1, 1.3))
    names = list(ALGORITHMS)
    compute = bars.barh(names, [1] * len(names), color=style.GREY)
    waiting = bars.barh(names, [1] * len(names), left=1, color=style.CYCLE[: len(names)], hatch="///", edgecolor="white")
    bars.invert_yaxis()
    bars.set(xlim=(0, 1), xlabel="share of a step: compute (gray), all-reduce (hatched)")
    bars.grid(axis="y", visible=False)
    texts = [bars.text(0.02, index, "", va="center", color="white", fontweight="bold") for index in range(len(names))]
    lines = [
        curves.plot(COUNTS, [100] * len(COUNTS), color=color, marker=marker, ms=4, label=name)[0]
        for name, color, marker in zip(names, style.CYCLE, style.MARKERS, strict=False)
    ]
    marker = curves.axvline(1, color=style.INK, lw=1)
    curves.axhline(50, color=style.GREY, lw=1)
    curves.set(xlabel="ranks", ylabel="efficiency in %", ylim=(0, 103))
    label_ranks(curves)
    curves.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return [*compute, *waiting, *texts, *lines, marker]


def _update(artists: list, parameters: float, link: str, ranks: int, kind: str) -> None:
    count = len(ALGORITHMS)
    compute, waiting, texts, lines = (artists[count * part : count * (part + 1)] for part in range(4))
    seconds, costs = step_seconds(parameters, LINKS[link], ranks, kind)
    for work, wait, text, cost in zip(compute, waiting, texts, costs.values(), strict=True):
        share = efficiency(seconds, cost)
        work.set_width(share)
        wait.set_x(share)
        wait.set_width(1 - share)
        text.set_text(f"{_time(seconds)} + {_time(cost)}: {100 * share:.0f} %")
    for name, line in zip(ALGORITHMS, lines, strict=True):
        steps = [step_seconds(parameters, LINKS[link], n, kind) for n in COUNTS]
        line.set_ydata([100 * efficiency(own, all_costs[name]) for own, all_costs in steps])
    artists[-1].set_xdata([ranks, ranks])


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
