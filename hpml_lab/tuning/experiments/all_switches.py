"""All optimizations of the tuning guide on one training run: each alone, and all together."""

from dataclasses import dataclass

import torch

from hpml_lab.core import style
from hpml_lab.core.counting import operators, peak_bytes, saved_tensors
from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.result import Result
from hpml_lab.core.timing import Comparison, interleaved
from hpml_lab.data import sets
from hpml_lab.tuning.networks import gradient_bytes
from hpml_lab.tuning.switches import OPTIMIZATIONS, GuideSwitches, SwitchedRun

QUICK = dict(data="digits", channels=16, blocks=2, batch=32, steps=3, samples=3)
FULL = dict(data="mnist", channels=64, blocks=6, batch=512, steps=20, samples=15)
BOUND = 1e-9  # on losses in float64: rounding in another order stays far below it, a changed computation does not
OFF, LEAN, ON, LARGE_BATCH, DEBUGGING = "all off", "all but checkpointing", "all on", "all on, batch × 4", "all off, debugging"


@dataclass
class SwitchedStep:
    """One training step with some switches on."""

    switches: str = column("switched on")
    step_ms: float = column("step", "ms")
    samples_per_second: float = column("throughput", "samples/s")
    speedup: float = column("speedup over all off", "times")
    operators: int = column("operators per step")
    kept_mb: float = column("kept for backward", "MB")
    peak_mb: float = column("peak memory", "MB")
    loss_difference: float | None = column("largest difference of a loss")


def switch_label(switch: str) -> str:
    """The name of a switch in tables and figures."""
    return switch.replace("_", " ")


def compared_switches() -> dict[str, GuideSwitches]:
    """What the experiment compares: nothing, each switch alone, and several together."""
    lean = {name: True for name in OPTIMIZATIONS if name != "checkpointing"}
    return {
        DEBUGGING: GuideSwitches(debugging=True),
        OFF: GuideSwitches(),
        **{switch_label(name): GuideSwitches(**{name: True}) for name in OPTIMIZATIONS},
        LEAN: GuideSwitches(**lean),
        ON: GuideSwitches(**lean, checkpointing=True),
    }


def kept_bytes(run: SwitchedRun) -> int:
    """Bytes that the forward pass keeps for the backward pass, not counting parameters and images."""
    images, labels = run.next_batch()
    with saved_tensors([*run.net.parameters(), run.images]) as saved:
        run.loss(images, labels)
    return sum(saved.values())


def peak_of_step(run: SwitchedRun) -> int:
    """Peak bytes of a step beyond weights and Adam's state. Gradients that stay from step to step count."""

    def step() -> None:  # begins and ends with the same memory, as peak_bytes requires
        run.step()
        if run.switches.gradients_to_none:
            run.optimizer.zero_grad(set_to_none=True)

    step()
    return gradient_bytes(run.net) + peak_bytes(step, run.images.device)


def first_losses(run: SwitchedRun, steps: int) -> torch.Tensor:
    return torch.stack([run.step() for _ in range(steps)]).cpu()


def draw(result: Result):
    """Each switch alone, and several together, on one training run. Left: throughput relative to the run with all switches off.
    Right: memory that the forward pass keeps for the backward pass. The first bar is the run with anomaly mode left on."""
    rows = result.rows(SwitchedStep)
    figure = style.new_figure(8.5, 0.32 * len(rows) + 1.2)
    speedups, memory = figure.subplots(1, 2, sharey=True)
    names = [row.switches for row in rows]
    colors = [style.GREY if n.startswith(OFF) else style.GREEN if n.startswith("all") else style.BLUE for n in names]
    speedups.barh(names, [row.speedup for row in rows], color=colors)
    speedups.axvline(1, color=style.INK, linewidth=1, linestyle=":")
    speedups.invert_yaxis()
    speedups.set(xlabel="throughput relative to all off", ylabel="switched on")
    memory.barh(names, [row.kept_mb for row in rows], color=colors)
    memory.set_xlabel("kept for the backward pass in MB")
    for axes in (speedups, memory):
        axes.grid(axis="y", visible=False)
        axes.set_axisbelow(True)
    return figure


@experiment("all-switches", lecture="L4", notebook="10_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda", "mnist"))
def all_switches(params: Params) -> Result:
    """The whole guide on one training run: each switch alone, and all together."""
    notes = []
    try:
        data = sets.load(params.data, params.device.torch)
    except LabError as error:
        data = sets.load("digits", params.device.torch)
        notes.append(f"{error} The run used scikit-learn's digits instead.")

    def make_run(switches: GuideSwitches, dtype: torch.dtype = torch.float32, batch: int = params.batch) -> SwitchedRun:
        images = data.train_x.to(dtype)
        return SwitchedRun(switches, images, data.train_y, channels=params.channels, blocks=params.blocks, batch=batch)

    compared = compared_switches()
    exact = {name: first_losses(make_run(switches, torch.float64), params.steps) for name, switches in compared.items()}
    runs = {name: make_run(switches) for name, switches in compared.items()}
    runs[LARGE_BATCH] = make_run(compared[ON], batch=4 * params.batch)
    times = interleaved({name: run.step for name, run in runs.items()}, samples=params.samples)
    rows = {}
    for name, run in runs.items():
        seconds = times[name].seconds
        rows[name] = SwitchedStep(
            switches=name,
            step_ms=seconds * 1e3,
            samples_per_second=run.batch / seconds,
            speedup=Comparison(times[OFF], times[name]).ratio * run.batch / params.batch,
            operators=len(operators(run.step)),
            kept_mb=kept_bytes(run) / 1e6,
            peak_mb=peak_of_step(run) / 1e6,
            loss_difference=(exact[name] - exact[OFF]).abs().max().item() if name in exact else None,
        )
    off, lean, everything = rows[OFF], rows[LEAN], rows[ON]
    largest = max(row.loss_difference for row in rows.values() if row.loss_difference is not None)
    fewer = [
        rows[switch_label(name)] for name in ("gradients_to_none", "fused_pointwise", "fused_layer_norm", "fused_optimizer")
    ]
    debugging_slowdown = 1 / rows[DEBUGGING].speedup

    result = Result([Table("One training step", list(rows.values()))], notes=notes)
    result.key_figure("all but checkpointing, speedup", lean.speedup, unit="times")
    result.key_figure("all on, speedup", everything.speedup, unit="times")
    result.key_figure("kept for backward, all off over all on", off.kept_mb / everything.kept_mb, unit="times")
    result.claim(f"No switch changes a loss by more than {BOUND:g} in float64", largest <= BOUND, f"{largest:.1e}")
    result.claim(
        "Setting gradients to None, and each fusion, calls fewer operators",
        all(row.operators < off.operators for row in fewer),
        f"{off.operators} → " + ", ".join(str(row.operators) for row in fewer),
    )
    recomputing = rows["checkpointing"]
    result.claim(
        "Checkpointing keeps less for the backward pass and calls more operators",
        recomputing.kept_mb < off.kept_mb and recomputing.operators > off.operators,
    )
    result.claim(
        "With all switches on, the forward pass keeps less than half as much as with all off",
        everything.kept_mb < off.kept_mb / 2,
        f"{off.kept_mb:.1f} → {everything.kept_mb:.1f} MB",
    )
    result.measured(
        "All switches but checkpointing make the step at least 1.5 times faster",
        lean.speedup >= 1.5,
        f"{lean.speedup:.2f} times",
    )
    result.measured(
        "Anomaly mode left on makes the step at least 1.5 times slower",
        debugging_slowdown >= 1.5,
        f"{debugging_slowdown:.2f} times",
    )
    best = max(rows[switch_label(name)].speedup for name in OPTIMIZATIONS)
    result.measured(
        "No single switch gains as much as all but checkpointing together",
        lean.speedup > best,
        f"{best:.2f} compared with {lean.speedup:.2f} times",
    )
    if not params.device.is_cuda:
        result.notes.append(
            "No CUDA GPU here: the search and the layout have little to gain on a CPU, and a saved operator saves less. "
            "Run `hpml-lab run all-switches --size full` on a machine with one."
        )
    return result
