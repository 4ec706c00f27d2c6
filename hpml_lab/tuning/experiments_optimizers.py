"""The experiment of notebook 10 on fused optimizers: Adam as a for-loop, in lists, fused, and in one kernel of our own."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hpml_lab.core import style
from hpml_lab.core.counting import operators
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timing import interleaved
from hpml_lab.tuning.experiments_kernels import NOTEBOOK, copy_bandwidth

OWN = "own kernel in Triton"
ADAM: dict[str, dict[str, bool]] = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
BYTES = 28  # an element: p, g, m, v are read, p, m, v are written, 4 bytes each


def model(shapes: list[int], device: torch.device, seed: int) -> list[Tensor]:
    """Parameters of the given sizes with a gradient each."""
    generator = torch.Generator(device).manual_seed(seed)
    made = [torch.randn(n, device=device, generator=generator).requires_grad_() for n in shapes]
    for p in made:
        p.grad = torch.randn(p.shape, device=device, generator=generator)
    return made


def spacings(a: Tensor, b: Tensor) -> float:
    """The largest difference, in gaps between neighbouring float32 at the larger of |b| and a hundredth of b's largest."""
    size = b.abs().maximum(b.abs().max() / 100)
    return ((a - b).abs() / (torch.nextafter(size, torch.full_like(size, torch.inf)) - size)).max().item()


def walked(
    make: Callable[[list[Tensor]], torch.optim.Optimizer], shapes: list[int], device: torch.device, steps: int
) -> list[Tensor]:
    """p, m and v of all parameters after `steps` steps with new random gradients in each."""
    params = model(shapes, device, seed=1)
    optimizer, generator = make(params), torch.Generator(device).manual_seed(2)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, device=device, generator=generator)
        optimizer.step()
    state = [optimizer.state[p] for p in params]
    ends = ([p.detach() for p in params], [one["exp_avg"] for one in state], [one["exp_avg_sq"] for one in state])
    return [torch.cat(end) for end in ends]


def calls_of(optimizer: torch.optim.Optimizer) -> int:
    """How many operators one step calls; the marks that torch sets for its profiler around a step are none."""
    return len(operators(optimizer.step))


def launches_of(make: Callable[[list[Tensor]], torch.optim.Optimizer], tensors: int, device: torch.device) -> int:
    """The same for the Triton Adam, on tensors of one element, for the interpreter is slow: the count of steps, and a launch
    for each table that it keeps, which torch does not see."""
    optimizer = make(model([1] * tensors, device, seed=0))
    optimizer.step()
    return sum(one.name == "_foreach_add_" for one in operators(optimizer.step)) + len(optimizer._tables)


def draw_fused_optimizers(result: Result):
    """Time of one Adam step for each way to run it, for a model of many small tensors and for one large tensor, beside the
    time that the memory needs for 28 bytes a parameter; and how many operators each way calls."""
    figure = style.new_figure(10, 3.4)
    panels = figure.subplots(1, 3)
    for axes, name in zip(panels, result.arrays["floors, µs"], strict=False):
        shown = [row for row in result.rows if row["model"] == name and row["time, µs"] != "-"]
        bars = axes.barh(range(len(shown)), [row["time, µs"] for row in shown], color=style.BLUE, edgecolor="white")
        ground = dict(facecolor="white", edgecolor="none", pad=1)  # the line of the limit may pass through the figure
        axes.bar_label(bars, fmt="{:,.0f}", fontsize=8, padding=3, zorder=4, bbox=ground)
        axes.axvline(result.arrays["floors, µs"][name], color=style.RED, linestyle="--", label="memory limit")
        axes.set_yticks(range(len(shown)), [row["way"] for row in shown])
        axes.invert_yaxis()
        axes.margins(x=0.25)
        axes.grid(axis="y", visible=False)
        axes.set_axisbelow(True)
        axes.set_xlabel("µs a step")
        axes.set_title(name)
    panels[0].set_ylabel("way to run it")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", fontsize=8)
    axes, (first, second) = panels[2], result.arrays["floors, µs"]
    ways = list(dict.fromkeys(row["way"] for row in result.rows))
    for shift, name, colour, hatch in ((-0.2, first, style.ORANGE, None), (0.2, second, style.GREEN, "///")):
        calls = [row["operator calls"] for row in result.rows if row["model"] == name]
        places = [place + shift for place in range(len(ways))]
        bars = axes.barh(places, calls, 0.36, color=colour, hatch=hatch, edgecolor="white", label=name)
        axes.bar_label(bars, fontsize=8, padding=2)
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(ways)), ways)
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("operator calls a step")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", fontsize=8, ncols=2)
    return figure


@experiment(
    "fused-optimizers",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_fused_optimizers,
    quick=dict(tensors=60, side=64, large=1 << 20, steps=10, checked=(1040, 16, 7, 1), samples=5),
    full=dict(tensors=400, side=64, large=100_000_000, steps=50, checked=(100_000, 1040, 16, 7, 1), samples=9),
    uses=("cuda",),
)
def fused_optimizers(size: Size) -> Result:
    """Adam as a for-loop, in lists of tensors, fused, and in one Triton kernel, against the limit of the memory."""
    device, notes = size.device.torch, []
    makers: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
        name: lambda params, options=options: torch.optim.Adam(params, lr=1e-3, **options) for name, options in ADAM.items()
    }
    try:
        from hpml_lab.tuning.triton_adam import TritonAdam

        makers[OWN] = lambda params: TritonAdam(params, lr=1e-3)
    except LabError as error:
        notes.append(str(error))

    shapes = list(size.checked)
    ends = {name: walked(make, shapes, device, size.steps) for name, make in makers.items()}
    apart = {name: [spacings(a, b) for a, b in zip(end, ends["fused"], strict=True)] for name, end in ends.items()}
    relative = max(((end[0] - ends["fused"][0]).abs().max() / ends["fused"][0].abs().max()).item() for end in ends.values())

    many = f"{size.tensors} tensors of {size.side}×{size.side}"
    one = f"1 tensor of {size.large / 1e6:.3g} M"
    models = {many: [size.side**2] * size.tensors, one: [size.large]}
    rows, floors, ratios = [], {}, {}
    bandwidth = copy_bandwidth(device)
    for name, sizes in models.items():
        built = {way: make(model(sizes, device, seed=0)) for way, make in makers.items()}
        floors[name] = BYTES * sum(sizes) / bandwidth / 1e3
        timed = {way: optimizer.step for way, optimizer in built.items() if way != OWN or device.type == "cuda"}
        turns = interleaved(timed, samples=size.samples)
        for (way, make), optimizer in zip(makers.items(), built.values(), strict=True):
            time = turns[way].seconds * 1e6 if way in turns else None
            rows.append(
                {
                    "model": name,
                    "way": way,
                    "operator calls": launches_of(make, len(sizes), device) if way == OWN else calls_of(optimizer),
                    "time, µs": time or "-",
                    "share of the memory limit": floors[name] / time if time else "-",
                    "times faster than the loop": turns["for-loop"].seconds * 1e6 / time if time else "-",
                    "apart from fused, spacings of p, m, v": " ".join(f"{x:.2g}" for x in apart[way]),
                }
            )
        ratios[name] = {way: turns["for-loop"].seconds / turns[way].seconds for way in turns}
        del built, timed
    own_apart = apart.get(OWN, [])
    calls = {(row["model"], row["way"]): row["operator calls"] for row in rows}
    claims = [
        Claim(
            "the for-loop calls as many operators for each tensor as for one",
            calls[many, "for-loop"] == size.tensors * calls[one, "for-loop"],
            f"{calls[one, 'for-loop']} a tensor",
        ),
        Claim(
            "foreach and fused call as many operators for all tensors as for one",
            all(calls[many, way] == calls[one, way] for way in ("foreach", "fused")),
            f"foreach {calls[many, 'foreach']}, fused {calls[many, 'fused']}",
        ),
        Claim("fused calls two: one counts the steps, one is Adam", calls[many, "fused"] == 2),
        Claim(
            "the Triton kernel, where there is Triton, gives torch's fused p, m and v within 4 spacings",
            max(own_apart, default=0) <= 4,
            " ".join(f"{x:.2g}" for x in own_apart) or "no Triton",
        ),
        Claim("all ways give the same parameters, within 2e-6 of the largest", relative < 2e-6, f"{relative:.1e}"),
        Claim(
            "fused is faster than the for-loop for many small tensors",
            ratios[many]["fused"] > 1,
            f"{ratios[many]['fused']:.2f} times",
            exact=False,
        ),
    ]
    if device.type == "cuda" and OWN in makers:
        own = next(row for row in rows if row["model"] == one and row["way"] == OWN)
        fused = next(row for row in rows if row["model"] == one and row["way"] == "fused")
        share, ratio = own["share of the memory limit"], fused["time, µs"] / own["time, µs"]
        claims += [
            Claim("the Triton kernel reaches 85 % of the copy bandwidth", share >= 0.85, f"{share:.0%}", exact=False),
            Claim("it is not slower than fused (to 2 %)", ratio >= 0.98, f"{ratio:.2f} times as fast", exact=False),
        ]
    if device.type != "cuda":
        notes.append(
            NO_CUDA.format(what="the Triton kernel was checked in the interpreter and not timed", slug="fused-optimizers")
        )
    quantities: dict[str, Any] = {
        "fused over the for-loop, many tensors, times": ratios[many]["fused"],
        "foreach over the for-loop, many tensors, times": ratios[many]["foreach"],
        "fused over the for-loop, one tensor, times": ratios[one]["fused"],
        "operator calls of the for-loop, many tensors": calls[many, "for-loop"],
    }
    return Result(rows, claims, quantities, notes, {"floors, µs": floors})
