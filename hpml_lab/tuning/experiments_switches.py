"""The closing experiment of notebook 10: all rows of the guide on one training run, each alone and all together."""

import torch

from hpml_lab.core import style
from hpml_lab.core.counting import operators, peak_bytes, saved_tensors
from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timing import Comparison, interleaved
from hpml_lab.data import sets
from hpml_lab.tuning.blocks import gradient_bytes
from hpml_lab.tuning.switched import ALL, Run, Switches

BOUND = 1e-9  # of the losses in float64: what the order of additions changes, and nothing else


def draw_all_switches(result: Result):
    """Each switch alone, and several together, on one training run: left, samples per second as a multiple of the run with
    all off; right, the memory that the forward pass keeps for the backward pass. The first bar is the run with anomaly mode
    left on."""
    figure = style.new_figure(8.5, 0.32 * len(result.rows) + 1.2)
    left, right = figure.subplots(1, 2, sharey=True)
    names = [row["switch"] for row in result.rows]
    colours = [style.GREY if n.startswith("all off") else style.GREEN if n.startswith("all") else style.BLUE for n in names]
    left.barh(names, [row["times faster"] for row in result.rows], color=colours)
    left.axvline(1, color=style.INK, linewidth=1, linestyle=":")
    left.invert_yaxis()
    left.set(xlabel="samples/s, times those of all off", ylabel="what is on")
    right.barh(names, [row["kept for backward, MB"] for row in result.rows], color=colours)
    right.set_xlabel("kept for the backward pass in MB")
    for axes in (left, right):
        axes.grid(axis="y", visible=False)
        axes.set_axisbelow(True)
    return figure


@experiment(
    "all-switches",
    lecture="L4",
    notebook="10_tuning",
    draw=draw_all_switches,
    quick=dict(data="digits", channels=16, blocks=2, batch=32, steps=3, samples=3),
    full=dict(data="mnist", channels=64, blocks=6, batch=512, steps=20, samples=15),
    uses=("cuda",),
)
def all_switches(size: Size) -> Result:
    """The whole guide on one training run: each switch alone, and all together."""
    notes = []
    try:
        data = sets.load(size.data, size.device.torch)
    except LabError as error:
        data = sets.load("digits", size.device.torch)
        notes.append(f"{error} The run used scikit-learn's digits instead.")

    def run(switches: Switches, dtype: torch.dtype = torch.float32, times: int = 1) -> Run:
        images = data.train_x.to(dtype)
        return Run(switches, images, data.train_y, channels=size.channels, blocks=size.blocks, batch=size.batch * times)

    fast = {name: True for name in ALL if name != "checkpointing"}
    settings = {
        "all off, debugging": Switches(debugging=True),
        "all off": Switches(),
        **{name: Switches(**{name: True}) for name in ALL},
        "all but checkpointing": Switches(**fast),
        "all on": Switches(**fast, checkpointing=True),
    }
    losses = {name: _losses(run(one, torch.float64), size.steps) for name, one in settings.items()}
    runs = {name: run(one) for name, one in settings.items()}
    runs["all on, batch × 4"] = run(settings["all on"], times=4)
    told = interleaved({name: one.step for name, one in runs.items()}, samples=size.samples)
    rows = []
    for name, one in runs.items():
        images, labels = one.next_batch()
        with saved_tensors([*one.net.parameters(), one.images]) as saved:
            one.loss(images, labels)
        seconds = told[name].seconds
        apart = (losses[name] - losses["all off"]).abs().max().item() if name in losses else None
        rows.append(
            {
                "switch": name.replace("_", " "),
                "ms a step": seconds * 1e3,
                "samples/s": one.batch / seconds,
                "times faster": Comparison(told["all off"], told[name]).ratio * one.batch / size.batch,
                "operators a step": len(operators(one.step)),
                "kept for backward, MB": sum(saved.values()) / 1e6,
                "peak of a step, MB": _peak(one) / 1e6,
                "largest difference of a loss": apart,
            }
        )
    by = {row["switch"]: row for row in rows}
    off, lean, everything = by["all off"], by["all but checkpointing"], by["all on"]
    largest = max(row["largest difference of a loss"] for row in rows if row["largest difference of a loss"] is not None)
    fewer = ("gradients to none", "fused pointwise", "fused layer norm", "fused optimizer")
    claims = [
        Claim(f"no switch changes a loss by more than {BOUND:g}, in float64", largest <= BOUND, f"{largest:.1e}"),
        Claim(
            "gradients to none, and each fusion, call fewer operators",
            all(by[name]["operators a step"] < off["operators a step"] for name in fewer),
            f"{off['operators a step']} → " + ", ".join(str(by[name]["operators a step"]) for name in fewer),
        ),
        Claim(
            "checkpointing keeps less for the backward pass and calls more operators",
            by["checkpointing"]["kept for backward, MB"] < off["kept for backward, MB"]
            and by["checkpointing"]["operators a step"] > off["operators a step"],
        ),
        Claim(
            "all on keeps less than half of what all off keeps",
            everything["kept for backward, MB"] < off["kept for backward, MB"] / 2,
            f"{off['kept for backward, MB']:.1f} → {everything['kept for backward, MB']:.1f} MB",
        ),
        Claim(
            "all but checkpointing make the step at least 1.5 times faster",
            lean["times faster"] >= 1.5,
            f"{lean['times faster']:.2f} times",
            exact=False,
        ),
        Claim(
            "anomaly mode left on makes the step at least 1.5 times slower",
            by["all off, debugging"]["times faster"] <= 1 / 1.5,
            f"{1 / by['all off, debugging']['times faster']:.2f} times",
            exact=False,
        ),
        Claim(
            "no single switch gains as much as all together",
            lean["times faster"] > max(by[name.replace("_", " ")]["times faster"] for name in ALL),
            exact=False,
        ),
    ]
    quantities = {
        "all but checkpointing, times faster": lean["times faster"],
        "all on, times faster": everything["times faster"],
        "kept for backward, all off over all on, times": off["kept for backward, MB"] / everything["kept for backward, MB"],
    }
    if not size.device.is_cuda:
        notes.append(
            "No CUDA GPU here: the search and the layout have little to gain on a processor, and a saved operator saves less; "
            "run `hpml-lab run all-switches --size full` on a machine with one."
        )
    return Result(rows, claims, quantities, notes)


def _peak(run: Run) -> int:
    """The most bytes that a step has in use beyond weights and Adam's state: gradients that stay from step to step count."""

    def step() -> None:  # begins and ends with the same memory, as peak_bytes asks for
        run.step()
        if run.switches.gradients_to_none:
            run.optimizer.zero_grad(set_to_none=True)

    step()
    return gradient_bytes(run.net) + peak_bytes(step, run.images.device)


def _losses(run: Run, steps: int) -> torch.Tensor:
    return torch.stack([run.step() for _ in range(steps)]).cpu()
