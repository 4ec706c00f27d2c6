"""The experiment of notebook 09 on clocks: a device that works later makes a clock on the host blame the wrong line."""

from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn

from hpml_lab.core import counting, style
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timeline import CLOCK, gantt, span
from hpml_lab.core.timeline import rows as span_rows
from hpml_lab.profiling.queued import QueuedDevice

PARTS = ("forward", "backward", "step", "loss.item()")
METHODS = ("naive", "synchronised", "events")
HOST, SIMULATED = "Python (host)", "simulation"
COLOURS = dict(zip(PARTS, (style.BLUE, style.ORANGE, style.GREEN, style.RED), strict=True))


def draw_async_timing(result: Result):
    """Above, the simulated device: when Python made each call of one step, and when the device did the work. Below, the
    time that three ways of timing give each part: a naive clock around the calls, a clock with a synchronise before each
    look at it, and events in the device's own queue. A GPU has bars of its own where there is one.

    The naive clock gives nearly all the time to loss.item(), which only waits.
    """
    places = list(dict.fromkeys(row["where"] for row in result.rows))
    figure = style.new_figure(9, 2.6 + 2.8 * len(places))
    grid = figure.subplots(1 + len(places), 1, height_ratios=(1, *(1.5 for _ in places)), squeeze=False)[:, 0]
    gantt(grid[0], result.arrays["timeline"], COLOURS, [HOST, "device (simulated)"])
    grid[0].set_title("one step on the simulated device, without a synchronise")
    grid[0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    for axes, where in zip(grid[1:], places, strict=True):
        rows = [row for row in result.rows if row["where"] == where]
        for shift, (method, colour, hatch) in enumerate(
            zip(METHODS, (style.RED, style.BLUE, style.GREEN), (None, "///", "..."), strict=True)
        ):
            bars = axes.bar(
                [place + 0.27 * (shift - 1) for place in range(len(rows))],
                [row[f"{method}, ms"] for row in rows],
                0.25,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                label=method,
            )
            axes.bar_label(bars, fmt="%.1f", fontsize=8)
        axes.set_xticks(range(len(rows)), [row["part"] for row in rows])
        axes.set(ylabel="ms a step", title=f"what each clock says: {where}")
        axes.margins(y=0.15)
        axes.grid(axis="x", visible=False)
        axes.set_axisbelow(True)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    return figure


class SimulatedStep:
    """One training step on a QueuedDevice: three pieces of work of known length, then the loss is asked for."""

    def __init__(self, device: QueuedDevice, seconds: dict[str, float]) -> None:
        self.device, self.seconds, self.losses = device, seconds, []
        self.weight, self.loss = 1.0, None

    def calls(self) -> dict[str, Callable[[], Any]]:
        """The parts by name, in order, as a loop calls them."""
        return {"forward": self._forward, "backward": self._backward, "step": self._step, "loss.item()": self._item}

    def synchronize(self) -> None:
        self.device.synchronize()

    def event(self) -> Any:
        return self.device.record()

    def between(self, a: Any, b: Any) -> float:
        return self.device.item(b) - self.device.item(a)

    def _forward(self) -> None:
        self.loss = self.device.launch("forward", self.seconds["forward"], lambda: self.weight**2)

    def _backward(self) -> None:
        self.device.launch("backward", self.seconds["backward"])

    def _step(self) -> None:
        def update() -> None:
            self.weight *= 0.8

        self.device.launch("step", self.seconds["step"], update)

    def _item(self) -> None:
        self.losses.append(self.device.item(self.loss))
        self.device.synchronize()  # one queue: on a GPU too, what item() copies waits for all that was queued before it


class GpuStep:
    """One training step of a wide net on a CUDA GPU, with the same parts."""

    def __init__(self, device: torch.device, width: int, layers: int) -> None:
        self.device, self.losses = device, []
        self.net = nn.Sequential(*(nn.Linear(width, width, device=device) for _ in range(layers)))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.x = torch.randn(width, width, device=device)
        self.loss = None

    def calls(self) -> dict[str, Callable[[], Any]]:
        """The parts by name, in order, as a loop calls them."""
        return {"forward": self._forward, "backward": self._backward, "step": self._step, "loss.item()": self._item}

    def synchronize(self) -> None:
        counting.synchronize(self.device)

    def event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def between(self, a: torch.cuda.Event, b: torch.cuda.Event) -> float:
        b.synchronize()
        return a.elapsed_time(b) / 1e3  # it is in ms

    def _forward(self) -> None:
        self.loss = self.net(self.x).square().mean()

    def _backward(self) -> None:
        self.loss.backward()

    def _step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _item(self) -> None:
        self.losses.append(self.loss.item())


def naive(one: SimulatedStep | GpuStep) -> dict[str, float]:
    """Seconds by a clock around each call: how long the calls took, not their work."""
    seconds = {}
    for part, call in one.calls().items():
        start = CLOCK()
        call()
        seconds[part] = CLOCK() - start
    return seconds


def synchronised(one: SimulatedStep | GpuStep) -> dict[str, float]:
    """Seconds by a clock that waits for the device before each look: right, but host and device no longer work at once."""
    seconds = {}
    for part, call in one.calls().items():
        one.synchronize()
        start = CLOCK()
        call()
        one.synchronize()
        seconds[part] = CLOCK() - start
    return seconds


def by_events(one: SimulatedStep | GpuStep) -> dict[str, float]:
    """Seconds by events, marks in the device's own queue that are read when all is done: right, and nobody waits before."""
    marks = [one.event()]
    calls = one.calls()
    for call in calls.values():
        call()
        marks.append(one.event())
    one.synchronize()
    return {part: one.between(a, b) for part, a, b in zip(calls, marks, marks[1:], strict=False)}


CLOCKS = dict(zip(METHODS, (naive, synchronised, by_events), strict=True))


def medians(one: SimulatedStep | GpuStep, clock: Callable, steps: int) -> dict[str, float]:
    """The median seconds of each part over `steps` steps, each begun on an idle device, after one to warm up."""
    clock(one)
    seen = []
    for _ in range(steps):
        one.synchronize()
        seen.append(clock(one))
    return {part: median(step[part] for step in seen) for part in PARTS}


@experiment(
    "async-timing",
    lecture="L3",
    notebook="09_profiling",
    draw=draw_async_timing,
    quick=dict(steps=5, forward=0.010, backward=0.020, step=0.004, width=2048, layers=4),
    full=dict(steps=20, forward=0.010, backward=0.020, step=0.004, width=4096, layers=8),
    uses=("cuda",),
)
def async_timing(size: Size) -> Result:
    """Clocks that stop before the work is done: naive, synchronised and event timing."""
    lengths = {"forward": size.forward, "backward": size.backward, "step": size.step}
    rows, found, losses, totals = [], {}, [], []
    for method, clock in CLOCKS.items():
        with QueuedDevice() as device:
            one = SimulatedStep(device, lengths)
            found[method] = medians(one, clock, size.steps)
            losses.append(one.losses)
            totals.append((device.submitted, device.completed))
    rows += table(SIMULATED, found)

    # The exact part: this device begins only when somebody waits for it, whatever the speed of the machine.
    with QueuedDevice(held=True) as device:
        one = SimulatedStep(device, dict.fromkeys(lengths, 0.0))
        before_item, order = [], []
        for part, call in one.calls().items():
            if part == "loss.item()":
                before_item.append((device.submitted, device.completed))
            else:
                order.append(part)
            call()
        after_item = device.submitted, device.completed
        done = list(device.done)

    with QueuedDevice() as device:
        one, spans = SimulatedStep(device, lengths), []
        for part, call in one.calls().items():
            with span(spans, HOST, part):
                call()
        timeline = span_rows([*spans, *device.spans])
        longest = sum(lengths.values())
        whole_naive = max(one.end for one in spans) - min(one.start for one in spans)

    claims = [
        Claim(
            "simulation: when the naive clocks of forward, backward and step stopped, none of the three was done",
            before_item == [(3, 0)],
            f"{before_item[0][1]} of {before_item[0][0]} done",
        ),
        Claim("simulation: after loss.item() all three are done", after_item == (3, 3)),
        Claim("simulation: work is done in the order in which it was handed in", done == order),
        Claim(
            "simulation: the naive clocks are right in sum: the whole step took at least as long as its work",
            whole_naive >= longest,
            f"{whole_naive * 1e3:.1f} ms of {longest * 1e3:.1f} ms",
            exact=False,  # a sleep may end early by the clock that is read here
        ),
        Claim("simulation: every way of timing sees the same losses", losses[0] == losses[1] == losses[2]),
        Claim(
            "simulation: the device was given and did the same work whatever the clock",
            len(set(totals)) == 1 and all(submitted == completed for submitted, completed in totals),
        ),
        *measured_claims(SIMULATED, found),
        Claim(
            "simulation: synchronised clocks and events give each part its own length, to 2 ms",
            all(abs(found[m][part] - lengths[part]) < 2e-3 for m in METHODS[1:] for part in lengths),
            ", ".join(f"{part}: {found['events'][part] * 1e3:.1f} ms" for part in lengths),
            exact=False,
        ),
    ]
    quantities = {"simulation: naive share of loss.item(), %": 100 * share(found["naive"])}
    notes = ["The simulated device computes nothing: its work is a sleep of known length in a queue of its own."]
    if size.device.is_cuda:
        gpu = GpuStep(size.device.torch, size.width, size.layers)
        found = {method: medians(gpu, clock, size.steps) for method, clock in CLOCKS.items()}
        rows += table("GPU", found)
        claims += measured_claims("GPU", found)
        quantities["GPU: naive share of loss.item(), %"] = 100 * share(found["naive"])
    else:
        notes.append(
            "No CUDA GPU here: a CPU does its work within the call, so only the simulation shows the mistake; run"
            " `hpml-lab run async-timing --size full` on a machine with one."
        )
    return Result(rows, claims, quantities, notes, {"timeline": timeline})


def table(where: str, found: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """One row a part: ms a step by each clock."""
    return [
        {"where": where, "part": part, **{f"{method}, ms": found[method][part] * 1e3 for method in METHODS}} for part in PARTS
    ]


def share(seconds: dict[str, float]) -> float:
    """loss.item()'s share of a step."""
    return seconds["loss.item()"] / sum(seconds.values())


def measured_claims(where: str, found: dict[str, dict[str, float]]) -> list[Claim]:
    """Who is blamed, by the naive clock and by the others."""
    return [
        Claim(
            f"{where}: the naive clock blames loss.item(), the others find that it costs less than a tenth of the step",
            share(found["naive"]) > 0.5 and max(share(found[method]) for method in METHODS[1:]) < 0.1,
            ", ".join(f"{method}: {100 * share(found[method]):.0f} %" for method in METHODS),
            exact=False,
        )
    ]
