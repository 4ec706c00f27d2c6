"""A device that works later makes a clock on the host blame the wrong line: three ways of timing, side by side."""

from dataclasses import dataclass

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import grouped_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.timing.timeline import gantt, span
from hpml_lab.core.timing.timeline import rows as span_rows
from hpml_lab.profiling.lessons.step_clocks import ITEM, STEP_CLOCKS, STEP_PARTS, GpuStep, SimulatedStep, median_seconds
from hpml_lab.profiling.tools.queued_device import QueuedDevice

QUICK = dict(steps=5, forward=0.010, backward=0.020, step=0.004, width=2048, layers=4)
FULL = dict(steps=20, forward=0.010, backward=0.020, step=0.004, width=4096, layers=8)
HOST, SIMULATED, DEVICE_LANE = "Python (host)", "simulation", "device (simulated)"
NAIVE_SHARE = "simulation: naive share of loss.item()"
COLORS = dict(zip(STEP_PARTS, (style.BLUE, style.ORANGE, style.GREEN, style.RED), strict=True))


@dataclass
class PartTimes(Row):
    """One part of a training step, as three clocks see it."""

    where: str = column("where")
    part: str = column("part")
    naive: float = column("naive", "ms")
    synchronized: float = column("synchronized", "ms")
    events: float = column("events", "ms")


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Above, the simulated device: when Python made each call of one step, and when the device did the work. Below, the time
    that three ways of timing give each part: a naive clock around the calls, a clock with a synchronize before each look at it,
    and events in the device's own queue. A GPU has bars of its own where there is one.

    The naive clock gives nearly all the time to loss.item(), which only waits.
    """
    rows = result.rows(PartTimes)
    machines = list(dict.fromkeys(row.where for row in rows))
    figure = style.new_figure(9, 2.0 + 2.4 * len(machines))
    grid = figure.subplots(1 + len(machines), 1, height_ratios=(1, *(1.5 for _ in machines)), squeeze=False)[:, 0]
    gantt(grid[0], result.arrays["timeline"], COLORS, [HOST, DEVICE_LANE])
    grid[0].set_title("one step on the simulated device, without a synchronize")
    grid[0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    for axes, where in zip(grid[1:], machines, strict=True):
        shown = [row for row in rows if row.where == where]
        series = {method: [getattr(row, method) for row in shown] for method in STEP_CLOCKS}
        grouped_bars(axes, [row.part for row in shown], series, labels="%.1f")
        axes.set(ylabel="ms a step", title=f"what each clock says: {where}")
        axes.margins(y=0.15)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment(
    "async-timing", lecture="L3", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL, uses=("cuda",)
)  # fmt: skip
def async_timing(params: Params) -> Result:
    """Clocks that stop before the work is done: naive, synchronized and event timing."""
    lengths = {"forward": params.forward, "backward": params.backward, "step": params.step}
    seconds = {}
    for method, clock in STEP_CLOCKS.items():
        with QueuedDevice() as device:
            seconds[method] = median_seconds(SimulatedStep(device, lengths), clock, params.steps)

    result = Result([Table("A training step by three clocks", part_times(SIMULATED, seconds))])
    result.arrays["timeline"] = timeline(lengths)
    result.notes.append("The simulated device computes nothing: its work is a sleep of known length in a queue of its own.")
    result.key_figure(NAIVE_SHARE, 100 * item_share(seconds["naive"]), unit="%")
    claim_order_of_work(result, lengths)
    host = [row for row in result.arrays["timeline"] if row["lane"] == HOST]
    whole, work = max(row["end"] for row in host) - min(row["start"] for row in host), sum(lengths.values())
    result.measured(
        "The naive clocks are right in sum: the whole step takes at least as long as its work",
        whole >= work,  # a sleep may end early by the clock that is read here
        f"{whole * 1e3:.1f} ms of {work * 1e3:.1f} ms",
    )
    measure_blame(result, SIMULATED, seconds)
    result.measured(
        "In the simulation, synchronized clocks and events give each part its own length, to 2 ms",
        all(abs(seconds[method][part] - lengths[part]) < 2e-3 for method in ("synchronized", "events") for part in lengths),
        ", ".join(f"{part}: {seconds['events'][part] * 1e3:.1f} ms" for part in lengths),
    )
    if params.device.is_cuda:
        gpu = GpuStep(params.device.torch, params.width, params.layers)
        seconds = {method: median_seconds(gpu, clock, params.steps) for method, clock in STEP_CLOCKS.items()}
        result.tables[0].rows.extend(part_times("GPU", seconds))
        measure_blame(result, "GPU", seconds)
        result.key_figure("GPU: naive share of loss.item()", 100 * item_share(seconds["naive"]), unit="%")
    else:
        what = "a CPU does its work within the call, so only the simulation shows the mistake"
        result.notes.append(NO_CUDA.format(what=what, slug="async-timing"))
    return result


def claim_order_of_work(result: Result, lengths: dict[str, float]) -> None:
    """The exact part: this device begins only when somebody waits for it, whatever the speed of the machine."""
    with QueuedDevice(held=True) as device:
        for part, call in SimulatedStep(device, dict.fromkeys(lengths, 0.0)).calls().items():
            if part == ITEM:
                before_item = device.submitted, device.completed
            call()
        after_item = device.submitted, device.completed
    result.claim(
        "When the naive clocks of forward, backward and step stop, none of the three is done; after loss.item() all are",
        (before_item, after_item) == ((3, 0), (3, 3)),
        f"{before_item[1]}, then {after_item[1]} of {after_item[0]} done",
    )


def timeline(lengths: dict[str, float]) -> list[dict]:
    """When Python made each call of one step, and when the simulated device did the work."""
    with QueuedDevice() as device:
        step, spans = SimulatedStep(device, lengths), []
        for part, call in step.calls().items():
            with span(spans, HOST, part):
                call()
        return span_rows([*spans, *device.spans])


def part_times(where: str, seconds: dict[str, dict[str, float]]) -> list[PartTimes]:
    """One row a part: ms a step by each clock."""
    return [PartTimes(where, part, **{method: by[part] * 1e3 for method, by in seconds.items()}) for part in STEP_PARTS]


def item_share(seconds: dict[str, float]) -> float:
    """loss.item()'s share of a step."""
    return seconds[ITEM] / sum(seconds.values())


def measure_blame(result: Result, where: str, seconds: dict[str, dict[str, float]]) -> None:
    """Which line is blamed, by the naive clock and by the others."""
    shares = {method: item_share(by) for method, by in seconds.items()}
    result.measured(
        f"The naive clock blames loss.item(), the others find that it costs less than a tenth of the step ({where})",
        shares["naive"] > 0.5 and max(shares["synchronized"], shares["events"]) < 0.1,
        ", ".join(f"{method}: {100 * share:.0f} %" for method, share in shares.items()),
    )
