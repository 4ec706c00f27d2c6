"""All optimizations of the tuning guide on one training run: each alone, and all together."""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from hpml_lab.core.experiment import Fits, Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.timing.clock import PLACEBO, SAMPLES, Timing
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import VERDICTS, horizontal_bars
from hpml_lab.core.system.errors import LabError
from hpml_lab.data import sets
from hpml_lab.tuning.experiments.all_switches.in_process import SwitchBench, SwitchCounts
from hpml_lab.tuning.lessons.switches import OPTIMIZATIONS, GuideSwitches
from hpml_lab.tuning.experiments.turns import in_turns, own_process

QUICK = dict(data="digits", channels=16, blocks=2, batch=32, steps=3, samples=SAMPLES)
FULL = dict(data="mnist", channels=64, blocks=6, batch=512, steps=8, samples=9)
BOUND = 1e-9  # on losses in float64: rounding in another order stays far below it, a changed computation does not
OFF, LEAN, ON, LARGE_BATCH, DEBUGGING = "all off", "all but checkpointing", "all on", "all on, batch × 4", "all off, debugging"
FACTOR = 4  # of LARGE_BATCH


@dataclass
class SwitchedStep(Row):
    """One training step with some switches on."""

    switches: str = column("switched on")
    step_ms: float = column("step", "ms")
    gain: float = column("speed-up over all off, per sample")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")
    operators: int = column("operators per step")
    kept_mb: float = column("kept for backward", "MB")
    peak_mb: float = column("peak memory", "MB")
    loss_difference: float | None = column("largest difference of a loss")


def switch_label(switch: str) -> str:
    """The name of a switch in tables and figures."""
    return switch.replace("_", " ")


def compared_switches(has_cudnn: bool) -> dict[str, GuideSwitches]:
    """What the experiment compares: nothing, each switch alone, and several together.

    The search alone would be compared with itself where there is no cuDNN.
    """
    lean = {name: True for name in OPTIMIZATIONS if name != "checkpointing"}
    alone = [name for name in OPTIMIZATIONS if has_cudnn or name != "search"]
    on = GuideSwitches(**lean, checkpointing=True)
    return {
        DEBUGGING: GuideSwitches(debugging=True),
        OFF: GuideSwitches(),
        **{switch_label(name): GuideSwitches(**{name: True}) for name in alone},
        LEAN: GuideSwitches(**lean),
        ON: on,
        LARGE_BATCH: on,
    }


def measure_switches(
    compared: dict[str, GuideSwitches], params: Params, data: str, processes: bool
) -> tuple[dict[str, Timing], dict[str, SwitchCounts]]:
    """Times of a step, and counts, of each of `compared`, and of OFF once more as the placebo.

    processes  whether runs with the search and without it, and the placebo, get a process each: a process that has run a shape
               without the search does not search it again (see experiments.cudnn_benchmark.in_process.Convolutions)
    """
    settings = (params.device.torch, data, params.channels, params.blocks)
    runs = {name: (switches, params.batch * (FACTOR if name == LARGE_BATCH else 1)) for name, switches in compared.items()}
    with ExitStack() as started:
        if processes:
            groups = {on: {name: run for name, run in runs.items() if run[0].search == on} for on in (False, True)}
            bench = {on: started.enter_context(own_process(SwitchBench, group, *settings)) for on, group in groups.items()}
            again = started.enter_context(own_process(SwitchBench, {OFF: runs[OFF]}, *settings))
        else:
            again = SwitchBench(runs, *settings)
            bench = {False: again, True: again}
        where = {name: bench[switches.search] for name, switches in compared.items()}
        samplers = {name: partial(where[name].seconds, name) for name in compared} | {PLACEBO: partial(again.seconds, OFF)}
        times = in_turns(samplers, samples=params.samples)
        steps = {LARGE_BATCH: 0}  # its batches are others, so that its losses are, too
        counts = {name: where[name].counts(name, steps.get(name, params.steps)) for name in compared}
    return times, counts


def gain_per_sample(times: dict[str, Timing], name: str) -> SpeedUp:
    """How many times as fast a sample of the run `name` is as one with all switches off: the one speed-up of the ladder."""
    factor = FACTOR if name == LARGE_BATCH else 1
    return speed_up_of(times[OFF].samples, [seconds / factor for seconds in times[name].samples], times[PLACEBO].samples)


def draw(result: Result):
    """Each switch alone, and several together, on one training run. Left: speed-up over the run with all switches off, per
    sample; gray bars claim nothing, orange ones are slower. Right: memory that the forward pass keeps for the backward
    pass. The first bar is the run with anomaly mode left on."""
    rows = result.rows(SwitchedStep)
    figure = style.new_figure(8.5, 0.32 * len(rows) + 1.2)
    speedups, memory = figure.subplots(1, 2)
    names = [row.switches for row in rows]
    horizontal_bars(speedups, names, [row.gain for row in rows], color=[VERDICTS.get(row.verdict, style.GREY) for row in rows])
    speedups.axvline(1, color=style.INK, linewidth=1, linestyle=":")
    speedups.set(xlabel="speed-up over all off, per sample", ylabel="switched on")
    horizontal_bars(memory, names, [row.kept_mb for row in rows], color=style.GREEN)
    memory.set(xlabel="kept for the backward pass in MB", yticklabels=[])
    return figure


def gpu_bytes(params: Params) -> float:
    """The memory of a GPU at the peak of a step: with all off it holds 27 float32 for each pixel, channel and block of an image
    of MNIST, with all on a quarter of that for four times the images; and what three processes need that run nothing."""
    return 27 * 4 * 28 * 28 * params.channels * params.blocks * params.batch + 2e9


@experiment(
    "all-switches",
    lecture="L4",
    notebook="11_tuning",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("cuda", "mnist"),
    fits=Fits(gpu_bytes, scale="batch", least=32),
)
def all_switches(params: Params) -> Result:
    """The whole guide on one training run: each switch alone, and all together."""
    data, notes = params.data, []
    try:
        sets.load(data)
    except LabError as error:
        data = "digits"
        # Of so few images that the batch of LARGE_BATCH at full size would not be whole: its steps would count as large ones.
        params.batch = min(params.batch, len(sets.load(data).train_x) // FACTOR)
        notes.append(f"{error} The run used scikit-learn's digits instead, in batches of {params.batch}.")
    compared = compared_switches(params.device.is_cuda)
    times, counts = measure_switches(compared, params, data, processes=params.device.is_cuda)
    gains = {name: gain_per_sample(times, name) for name in compared}
    rows = {}
    for name, gain in gains.items():
        count = counts[name]
        differences = [abs(a - b) for a, b in zip(count.losses, counts[OFF].losses, strict=name != LARGE_BATCH)]
        rows[name] = SwitchedStep(
            switches=name,
            step_ms=times[name].seconds * 1e3,
            operators=count.operators,
            kept_mb=count.kept / 1e6,
            peak_mb=count.peak / 1e6,
            loss_difference=max(differences, default=None),
            **gain.columns,
        )
    off, lean, everything = rows[OFF], rows[LEAN], rows[ON]
    largest = max(row.loss_difference for row in rows.values() if row.loss_difference is not None)
    fewer = [
        rows[switch_label(name)] for name in ("gradients_to_none", "fused_pointwise", "fused_layer_norm", "fused_optimizer")
    ]

    result = Result([Table("One training step", list(rows.values()))], notes=notes)
    result.key_figure("all but checkpointing, speed-up", lean.gain)
    result.key_figure("all on, speed-up", everything.gain)
    result.key_figure("kept for backward, all off over all on", off.kept_mb / everything.kept_mb, unit="times")
    result.claim(f"No switch changes a loss by more than {BOUND:g} in float64", largest <= BOUND, f"{largest:.1e}")
    result.claim(
        "Setting gradients to None, and each fusion, calls fewer operators",
        all(row.operators < off.operators for row in fewer),
        f"{off.operators} → " + ", ".join(str(row.operators) for row in fewer),
    )
    result.claim(
        "With all switches on, the forward pass keeps less than half as much as with all off",
        everything.kept_mb < off.kept_mb / 2,
        f"{off.kept_mb:.1f} → {everything.kept_mb:.1f} MB",
    )
    result.measured(
        "All switches but checkpointing make the step at least 1.5 times as fast", gains[LEAN].low >= 1.5, str(gains[LEAN])
    )
    result.measured(
        "Anomaly mode left on makes the step take at least 1.5 times as long",
        gains[DEBUGGING].slowdown.low >= 1.5,
        gains[DEBUGGING].slowdown_text,
    )
    best = max(
        (switch_label(name) for name in OPTIMIZATIONS if switch_label(name) in gains), key=lambda name: gains[name].ratio
    )
    result.measured(
        "No single switch gains as much as all but checkpointing together",
        gains[LEAN].low > gains[best].high,
        f"{best}: {gains[best]}; together: {gains[LEAN]}",
    )
    if params.device.is_cuda:
        result.device = str(params.device)  # this process has not used it
    else:
        result.notes.append(
            "No CUDA GPU here: there is no cuDNN, so the search is left out; the layout has little to gain on a CPU, and "
            "a saved operator saves less. Run `hpml-lab run all-switches --size full` on a machine with one."
        )
    return result
