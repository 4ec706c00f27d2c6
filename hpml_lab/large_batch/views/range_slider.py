"""A range test to play with: a slider for the smoothing, and the rates that are read from what it leaves."""

import ipywidgets
import numpy as np

from hpml_lab.core.experiment import Result
from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.large_batch.lessons.range_test import BETA, choose, smoothed


def explore_smoothing(result: Result) -> LiveFigure:
    """The range test of one seed, with a slider for the smoothing β: the losses, the smoothed losses, and the chosen rates."""
    rates, losses = result.arrays["rates"], result.arrays["losses"]
    controls = {
        "beta": ipywidgets.FloatSlider(value=BETA, min=0.0, max=0.98, step=0.02, description="β"),
        "seed": ipywidgets.IntSlider(value=0, min=0, max=len(losses[0]) - 1, description="seed"),
    }

    def build(figure) -> list:
        axes = figure.subplots()
        highest = 2 * max(row[0] for row in losses[:5])
        axes.set(xscale="log", xlabel="learning rate", ylabel="training loss", ylim=(0, highest), xlim=(rates[0], rates[-1]))
        axes.set_xticks([10.0**power for power in range(-4, 1)], ["0.0001", "0.001", "0.01", "0.1", "1"])
        (raw,) = axes.plot([], [], color=style.GREY, linewidth=1, alpha=0.8, label="loss of each batch")
        (smooth,) = axes.plot([], [], color=style.BLUE, label="smoothed")
        marks = [
            axes.axvline(rates[0], color=color, linestyle=line, label=label)
            for color, line, label in (
                (style.GREEN, "--", "steepest"),
                (style.RED, ":", "least"),
                (style.ORANGE, "-.", "least / 10"),
            )
        ]
        axes.legend(fontsize=9, loc="lower left")
        return [raw, smooth, *marks]

    def update(artists: list, beta: float, seed: int) -> None:
        raw, smooth, *marks = artists
        values = np.array([row[seed] for row in losses])
        raw.set_data(rates, values)
        smooth.set_data(rates, smoothed(values.tolist(), beta))
        choice = choose(rates, values.tolist(), beta)
        for mark, rate in zip(marks, (choice.steepest, choice.least, choice.tenth), strict=True):
            mark.set_xdata([rate, rate])

    return LiveFigure(build, update, controls, " ".join(explore_smoothing.__doc__.split()), width=7.0, height=3.8)
