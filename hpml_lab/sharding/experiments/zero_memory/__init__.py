"""What each rank keeps under DDP, ZeRO's stages and fully sharded training, next to the formula; one rank of thousands."""

import importlib.util
import math
import tempfile
from dataclasses import dataclass
from statistics import median

import torch
from matplotlib.figure import Figure

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.show import style
from hpml_lab.core.system.device import Device
from hpml_lab.core.system.placement import placement
from hpml_lab.sharding.experiments.zero_memory.on_ranks import (
    COUNT,
    COUNTER,
    WIDTH,
    first_of_many,
    AGAIN,
    DDP,
    DEEPSPEED,
    OURS_1,
    OURS_3,
    WAYS,
    ZERO_3,
    Weighed,
    weigh_and_time,
    weigh_deepspeed,
)
from hpml_lab.core.system.launcher import launch
from hpml_lab.sharding.experiments.zero_memory.sharded_runs import load_torch_classes
from hpml_lab.sharding.lessons.zero import Footprint, zero_formula

QUICK = dict(ranks=2, width=256, depth=4, samples=SAMPLES, many=(1, 256, 1024, 4096))
FULL = dict(ranks=4, width=1024, depth=8, samples=15, many=(1, 4, 16, 64, 256, 1024, 4096, 16384))
HANG_SECONDS = 600.0  # long after a rank that works would have finished, also on a busy machine


@dataclass
class RankMemory(Row):
    """What one rank keeps with one way to train: bytes per parameter, as the mean over the ranks."""

    way: str = column("way")
    stage: int = column("ZeRO stage")
    parameters: float = column("parameters", "B")
    gradients: float = column("gradients", "B")
    state: float = column("optimizer state", "B")
    rest: float = column("other tensors", "B")
    total: float = column("together", "B")
    formula: float = column("formula", "B")
    beyond: float = column("beyond it", "B")
    after_forward: float = column("after the forward pass", "B")
    peak: float = column("peak of a step", "B")
    step_ms: float | None = column("step", "ms", None)
    gain: float | None = column("speed-up over DDP", default=None)
    interval: str | None = column("90 % interval", default=None)
    verdict: str | None = None


@dataclass
class OneOfMany(Row):
    """What rank 0 of N keeps, in bytes per parameter."""

    ranks: int = column("ranks")
    formula: float = column("16/N", "B")
    by_rows: float = column("fully_shard", "B")
    by_numbers: float = column(OURS_3, "B")


@dataclass
class Twins(Row):
    """A class of this package and torch's that does the same: bytes per parameter on each rank, and time."""

    own: str = column("from scratch")
    torchs: str = column("torch's")
    own_total: float = column("keeps", "B")
    torchs_total: float = column("torch's keeps", "B")
    own_peak: float = column("peak of a step", "B")
    torchs_peak: float = column("torch's peak", "B")
    own_hidden: float = column("communication hidden", "%")
    torchs_hidden: float = column("torch's hidden", "%")
    gain: float = column("speed-up over torch's")
    interval: str = column("90 % interval")
    verdict: str | None = None


def memory_row(name: str, stage: int, whole: Footprint, held: list[Weighed], ranks: int, count: int) -> RankMemory:
    """The mean over the ranks, for one parameter."""
    mean = sum((item.before_update for item in held), Footprint(0, 0, 0)) / (len(held) * count)
    formula = zero_formula(stage, ranks, whole).owned
    return RankMemory(
        way=name,
        stage=stage,
        parameters=mean.parameters,
        gradients=mean.gradients,
        state=mean.state,
        rest=mean.rest,
        total=mean.total,
        formula=formula,
        beyond=mean.total - formula,
        after_forward=sum(item.after_forward for item in held) / (len(held) * count),
        peak=max(item.peak for item in held) / count,
    )


def twins_row(own: RankMemory, torchs: RankMemory, hidden: dict[str, float], found: SpeedUp) -> Twins:
    return Twins(
        own=own.way,
        torchs=torchs.way,
        own_total=own.total,
        torchs_total=torchs.total,
        own_peak=own.peak,
        torchs_peak=torchs.peak,
        own_hidden=100 * hidden[own.way],
        torchs_hidden=100 * hidden[torchs.way],
        **found.columns,
    )


def emulated(device: Device, placed: str) -> str:
    """A note if ranks placed on "cuda" compute in bfloat16 on GPUs that only emulate it, such as two T4."""
    if placed != "cuda" or device.can("bf16"):
        return ""
    return f"The times of the bf16 rows say nothing here, their bytes do: {device.dtype_reason}."


def draw(result: Result) -> Figure:
    """Left: bytes per parameter that each rank keeps when the gradients are ready, by ZeRO's stages, first in float32 and then
    in bf16; the diamond is the formula, the cross the peak of a step. Right: what rank 0 of N keeps: cut by numbers it follows
    the formula, cut by rows it stops shrinking."""
    figure = style.new_figure(10.5, 4.8)
    bars, many = figure.subplots(1, 2, width_ratios=(1.7, 1))
    rows = sorted(result.tables[0].rows, key=lambda row: ("bf16" in row.way, row.stage))
    positions = range(len(rows))
    left = [0.0] * len(rows)
    kinds = (("parameters", style.BLUE, None), ("gradients", style.ORANGE, "///"), ("state", style.GREEN, "..."))
    for kind, color, hatch in (*kinds, ("rest", style.GREY, "xx")):
        values = [getattr(row, kind) for row in rows]
        label = {"state": "optimizer state", "rest": "other tensors"}.get(kind, kind)
        bars.barh(positions, values, left=left, color=color, hatch=hatch, edgecolor="white", label=label)
        left = [a + b for a, b in zip(left, values, strict=True)]
    bars.plot([row.formula for row in rows], positions, "D", color=style.INK, markersize=6, label="formula")
    bars.plot([row.peak for row in rows], positions, "x", color=style.RED, markersize=7, label="peak of a step")
    bars.set_yticks(
        positions, [f"stage {row.stage}: {row.way}".replace(" (this package", "\n(this package") for row in rows], fontsize=8
    )
    bars.invert_yaxis()
    bars.grid(axis="y", visible=False)
    bars.set_axisbelow(True)
    bars.set_xlabel(f"bytes per parameter on each of {result.arrays['ranks']} ranks")
    figure.legend(loc="outside lower left", ncols=6, fontsize=8)
    points = result.tables[-1].rows
    ranks = [row.ranks for row in points]
    many.plot(ranks, [row.formula for row in points], "--", color=style.GREY, label="16/N")
    many.plot(ranks, [row.by_rows for row in points], style.MARKERS[1] + "-", color=style.ORANGE, label="fully_shard: by rows")
    many.plot(
        ranks, [row.by_numbers for row in points], style.MARKERS[0] + ":", color=style.BLUE, label="this package: by numbers"
    )
    many.axvline(WIDTH, color=style.GREY, linestyle=":", linewidth=1)
    many.text(WIDTH, many.get_ylim()[1], f" {WIDTH} rows", color=style.INK, fontsize=8, va="top", rotation=90, ha="right")
    many.set(xscale="log", yscale="log", xlabel="ranks N", ylabel="bytes per parameter on rank 0")
    many.xaxis.set_major_formatter("{x:,g}")
    many.yaxis.set_major_formatter("{x:g}")
    many.legend(fontsize=8)
    return figure


@experiment(
    "zero-memory", lecture="L3", notebook="14_sharding", draw=draw, quick=QUICK, full=FULL, uses=("deepspeed", "two-gpus")
)
def zero_memory(params: Params) -> Result:
    """What each rank keeps: DDP, ZeRO's stages and fully sharded training, counted and compared with the formula."""
    load_torch_classes()
    placed = placement(params.ranks, params.device, all_gpus=params.size == "full", power_of_two=True)
    ranks, size = placed.ranks, (params.width, params.depth)
    on = dict(ranks=ranks, device=placed.device, deadline_seconds=HANG_SECONDS)
    reports = launch(weigh_and_time, *size, params.samples, placed.device, **on)
    held = {name: [report.held[name] for report in reports] for name in WAYS}
    count, tensors = params.depth * params.width * (params.width + 1), 2 * params.depth
    rows = {name: memory_row(name, way.stage, way.whole, held[name], ranks, count) for name, way in WAYS.items()}
    times = reports[0].seconds

    def gain(before: str, after: str) -> SpeedUp:
        return speed_up_of(times[before], times[after], times[before + AGAIN])

    for name, row in rows.items():
        row.step_ms = median(times[name]) * 1e3
        if name != DDP:
            vars(row).update(gain(DDP, name).columns)
    gains = {name: gain(way.twin, name) for name, way in WAYS.items() if way.twin}
    twins = [twins_row(rows[name], rows[WAYS[name].twin], reports[0].hidden, found) for name, found in gains.items()]
    result = Result(notes=[note for note in (placed.note, emulated(params.device, placed.device)) if note])
    if importlib.util.find_spec("deepspeed"):
        with tempfile.TemporaryDirectory(prefix="hpml-deepspeed-") as folder:
            weighed = launch(weigh_deepspeed, *size, placed.device, folder, **on)
        for name, (stage, _, whole) in DEEPSPEED.items():
            rows[name] = memory_row(name, stage, whole, [report[name] for report in weighed], ranks, count)
    else:
        result.notes.append("DeepSpeed is not installed, so its rows are missing: `pip install deepspeed` adds them.")
    [first] = launch(first_of_many, params.many, ranks=1, deadline_seconds=HANG_SECONDS)
    many = [OneOfMany(n, 16 / n, a / COUNT, b / COUNT) for n, (a, b) in zip(params.many, first, strict=True)]

    result.tables = [
        Table(f"Bytes per parameter on each of {ranks} ranks; {count:,} parameters, Adam", list(rows.values())),
        Table("From scratch, next to torch's own; a speed-up is the median over pairs of steps", twins),
        Table("One rank of many", many),
    ]
    result.arrays["ranks"] = ranks
    for name in (DDP, OURS_1, ZERO_3, OURS_3, "DeepSpeed 1", "DeepSpeed 2", "DeepSpeed 3"):
        result.key_figure(f"{name}, kept by each rank", rows[name].total if name in rows else None, unit="B per parameter")
    result.key_figure("rank 0 of more ranks than rows, fully_shard", many[-1].by_rows, unit="B per parameter")
    result.key_figure(f"{many[-1].ranks:,} ranks by the formula", many[-1].formula, unit="B per parameter")

    def kept(name: str) -> list[Footprint]:
        return [item.before_update for item in held[name]]

    state = 8 * count + COUNTER * tensors  # one process's
    weights = {name: torch.tensor(found) for name, found in reports[0].weights.items()}
    share = (4 * count / ranks, 4 * count / ranks, 8 * count / ranks + COUNTER * tensors)
    result.claim(
        "DDP keeps 16 bytes per parameter on every rank; fully sharded, every rank keeps 16/N exactly, in float32 and with "
        "bf16, in torch and from scratch",
        all((item.parameters, item.gradients, item.state) == (4 * count, 4 * count, state) for item in kept(DDP))
        and all(
            (item.parameters, item.gradients, item.state) == share
            for name, way in WAYS.items()
            if way.stage == 3
            for item in kept(name)
        ),
    )
    result.claim(
        "However the memory is partitioned, training computes the same weights",
        all(torch.allclose(weights[name], weights[DDP], rtol=1e-4, atol=1e-5) for name in WAYS if "bf16" not in name),
    )
    result.claim(
        f"Cut by rows, memory stops shrinking where there are more ranks than the {WIDTH} rows; cut by numbers it does not",
        len({a for n, (a, _) in zip(params.many, first, strict=True) if n >= WIDTH}) == 1 and first[-1][1] < first[-2][1],
    )
    result.measured(
        "The peak of a step falls as well: fully sharded lies below sharded state, and that below DDP",
        rows[OURS_3].peak < rows[OURS_1].peak < rows[DDP].peak,
        ", ".join(f"{rows[name].peak:.1f}" for name in (OURS_3, OURS_1, DDP)) + " bytes per parameter",
        depends_on="the allocator and the optimizer's temporaries",
    )
    slowdown = gain(DDP, ZERO_3)
    result.measured("Sharding everything makes a small network's step slower", slowdown.slower, slowdown.slowdown_text)
    if "DeepSpeed 1" in rows:
        sharing = [rows[f"DeepSpeed {stage}"] for stage in (1, 2, 3)]
        bucket = 4 * params.width**2 / count
        result.measured(
            "DeepSpeed keeps a second copy of the rank's part, 4/N bytes per parameter in float32, and up to two buckets; its "
            "stage 1 keeps only its part of the gradients, as stage 2 does",
            all(0 <= row.rest - 4 / ranks <= 2 * bucket for row in sharing)
            and all(math.isclose(row.gradients, 4 / ranks, rel_tol=1e-3) for row in sharing[:2]),
            f"other tensors of stages 1, 2, 3: {', '.join(f'{row.rest:.2f}' for row in sharing)}; a bucket has {bucket:.2f}; "
            f"gradients of stages 1, 2: {', '.join(f'{row.gradients:.2f}' for row in sharing[:2])}",
            depends_on="DeepSpeed's version",
        )
    return result
