"""Sliders over rate, batch limit and batching window: a queue on the virtual clock, redrawn while they move."""

import ipywidgets
import numpy as np

from hpml_lab.core.experiment import Result
from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.core.system.errors import LabError
from hpml_lab.serving.lessons.traffic import due_times, percentiles
from hpml_lab.serving.lessons.virtual_queue import TICKS_PER_SECOND, QueueTrace, ServiceModel, number_in_system, simulate, ticks

REQUESTS = 3_000
GAPS = due_times(1.0, REQUESTS)  # the same randomness at every rate: only what the sliders change changes
EXAMPLE = (8e-3, 1e-3)  # seconds: a batch of n takes 8 + n ms
LIMITS = (1, 2, 4, 8, 16, 32)
SHOWN = 60  # services of the queue over time
ENDS = (5, 10, 20, 50, 100, 200, 500, REQUESTS)  # of the axis of requests in the system
LONGEST = 300.0  # services of one request on the latency axis


def explore_queue(result: Result | None = None) -> LiveFigure:
    """Left: how many requests are in the system, over time. Right: the share of requests that are answered within so many
    milliseconds, from the moment due, with p50 and p99. Below: capacity of the batch limit, load, and mean batch. Raise the
    rate until one at a time has no steady state; then raise the batch limit, and last the window."""
    base, per_request = EXAMPLE
    if result is not None:
        if result.slug != "inference-pipeline":
            raise LabError(f"this is a result of {result.slug!r}.", "Hand over the result of inference-pipeline here.")
        base, per_request = result.arrays["service"]
    single = 1 / (base + per_request)  # requests a second
    layout = ipywidgets.Layout(width="460px")
    rates = [
        float(f"{share * single:.3g}") for share in (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6)
    ]
    controls = {
        "rate": ipywidgets.SelectionSlider(
            options=[(f"{rate:g} /s", rate) for rate in dict.fromkeys(rates)], value=rates[4], description="rate", layout=layout
        ),
        "limit": ipywidgets.SelectionSlider(options=LIMITS, value=1, description="batch limit", layout=layout),
        "window": ipywidgets.IntSlider(value=0, min=0, max=20, step=1, description="window, ms", layout=layout),
    }
    span = SHOWN * 1e3 / single  # ms
    shortest = 0.7 * 1e3 / single

    def build(figure) -> list:
        queue, shares = figure.subplots(1, 2)
        (line,) = queue.step([], [], where="post", color=style.BLUE, linewidth=1.2)
        queue.set(xlim=(0, span), xlabel="time (ms)", ylabel="requests in the system", title="The queue")
        (curve,) = shares.plot([], [], color=style.BLUE)
        shares.set(xscale="log", xlim=(shortest, LONGEST * 1e3 / single), ylim=(0, 101), title="Latency")
        shares.set(xlabel="latency from the moment due (ms)", ylabel="requests answered (%)")
        style.label_log_axis(shares.xaxis, "{x:g}")
        marks = [shares.axvline(1, color=color, linestyle=dash) for color, dash in ((style.GREEN, "--"), (style.RED, ":"))]
        words = figure.text(0.5, 0.005, "", ha="center", va="bottom", fontsize=10, fontweight="bold")
        figure.get_layout_engine().set(rect=(0, 0.07, 1, 0.93))
        return [line, curve, *marks, words]

    def update(artists: list, rate: float, limit: int, window: int) -> int:
        line, curve, middle, tail, words = artists
        model = ServiceModel(base, per_request, limit)
        trace = served(rate, base, per_request, limit, window / 1e3)
        moments, numbers = number_in_system(trace.arrivals, trace.departures)
        shown = np.searchsorted(moments, ticks(span / 1e3), side="right")
        line.set_data(moments[:shown] / 1e3, numbers[:shown])
        highest = next((end for end in ENDS if end > numbers[:shown].max(initial=0)), ENDS[-1])
        line.axes.set_ylim(0, highest)
        latencies = np.sort(trace.sojourns) / 1e3
        curve.set_data(latencies, np.arange(1, len(latencies) + 1) / len(latencies) * 100)
        steady = rate < model.capacity
        p50, p99 = percentiles(latencies, (50, 99))
        for mark, value in ((middle, p50), (tail, p99)):
            mark.set_xdata([value, value])
            mark.set_visible(steady)
        words.set_text(
            f"capacity {model.capacity:.0f} /s, load {rate / model.capacity:.2f}, mean batch {trace.batches.mean():.2f}: "
            + (
                f"p50 {p50:.1f} ms (dashed), p99 {p99:.1f} ms (dotted)"
                if steady
                else "NO STEADY STATE, the queue grows without end"
            )
        )
        return highest

    return LiveFigure(build, update, controls, " ".join(explore_queue.__doc__.split()), width=9.5, height=4.2)


def served(rate: float, base: float, per_request: float, limit: int, window: float) -> QueueTrace:
    """The same requests at another rate, in seconds, on the virtual clock."""
    arrivals = np.rint(GAPS / rate * TICKS_PER_SECOND).astype(np.int64)
    return simulate(arrivals, ticks(base), max(ticks(per_request), 1), limit=limit, window=ticks(window))
