"""The experiments of notebook 09 on watching a whole run: the sampler, and the classifier of bottlenecks."""

import hashlib
import itertools
import tempfile
import threading
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import mean, pstdev

import torch

from hpml_lab.core import style
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.profiling.bottleneck import BOUNDS, CANNOT_TELL, SHORTEST, Diagnosis, classify, decide
from hpml_lab.profiling.known_loops import BLOCK, ON_HOST, WRITTEN, on_gpu
from hpml_lab.profiling.monitor import GPU_COLUMNS, Monitor, MonitorSample, read_csv

NOTEBOOK = "09_profiling"
TICKS = 0.05  # seconds: some ticks of the coarsest clock by which a system counts processor time


# --- monitors --------------------------------------------------------------------------------------------------------------


def bursts(seconds: float, duty: float, cycle: float, device: torch.device) -> None:
    """A load that computes for `duty` of each `cycle`, on one core and, where there is one, on the GPU.

    A burst is over when it has had its processor time: where other programs want the core too, it takes longer.
    """
    matrix = torch.ones(2048, 2048, device=device) if device.type == "cuda" else None
    start = time.perf_counter()
    for number in itertools.count():
        begin = start + number * cycle
        if begin >= start + seconds:
            return
        used = time.thread_time()
        while time.thread_time() - used < duty * cycle:
            hashlib.sha256(BLOCK).digest()
            if matrix is not None:
                matrix @ matrix
                torch.cuda.synchronize(device)
        time.sleep(max(0.0, begin + cycle - time.perf_counter()))


def averaged(samples: list[MonitorSample], together: int) -> list[tuple[float, float]]:
    """(time in s, % of one core that this process used), over whole windows of `together` samples each."""
    windows = [samples[k : k + together] for k in range(0, max(1, len(samples) - together + 1), together)]
    return [(part[-1].at, 100 * sum(one.process_cpu for one in part) / sum(one.seconds for one in part)) for part in windows]


class _Broken(Exception):
    """What the planted run raises."""


def stopped_by_an_error(rate: float) -> tuple[bool, int]:
    """Whether a monitor's thread is gone after its block raised, and how many samples it kept."""
    monitor = Monitor(rate)
    try:
        with monitor:
            time.sleep(3 / rate)
            raise _Broken
    except _Broken:
        pass
    return not any(one.name == "hpml-monitor" for one in threading.enumerate()), len(monitor.samples)


def draw_monitors(result: Result):
    """Processor use of one load that is busy for half of each cycle, as its own process's counters give it: over short
    windows, shorter than a burst, and over long windows, each of several cycles. A dashed line marks the planted duty
    cycle.

    Short windows jump between idle and busy; long windows stay level, at the planted share where a core was free.
    """
    figure = style.new_figure(8, 3.8)
    axes = figure.subplots()
    for name, colour, marker in (("short windows", style.SKY, "."), ("long windows", style.BLUE, "s")):
        points = result.arrays[name]
        points = [(0.0, points[0][1]), *points]  # a value holds from the point before on
        axes.step([at for at, _ in points], [value for _, value in points], where="pre", color=colour,
                  linewidth=1 if name == "short windows" else 3, marker=marker, label=name)  # fmt: skip
    axes.axhline(result.arrays["duty"], linestyle="--", color=style.ORANGE, label="planted duty cycle")
    axes.set(xlabel="time in s", ylabel="use of one core in %", ylim=(-4, 135))
    axes.legend(ncols=3, loc="upper right", fontsize=9)
    return figure


@experiment(
    "monitors",
    lecture="L1 L3",
    notebook=NOTEBOOK,
    draw=draw_monitors,
    quick=dict(seconds=1.6, duty=0.5, cycle=0.2, rate=50.0, together=20, slow_rate=10.0),
    full=dict(seconds=20.0, duty=0.5, cycle=0.5, rate=50.0, together=50, slow_rate=10.0),
    uses=("cuda",),
)
def monitors(size: Size) -> Result:
    """Monitors: what the machine does while a run goes, at an instant and on average."""
    device = size.device.torch
    with Monitor(size.rate) as fast:
        before = time.process_time()
        bursts(size.seconds, size.duty, size.cycle, device)
        own = time.process_time() - before
    with Monitor(size.slow_rate) as slow:
        bursts(size.seconds / 2, size.duty, size.cycle, device)
    stopped, kept = stopped_by_an_error(size.rate)
    with tempfile.TemporaryDirectory(prefix="hpml-monitor-") as folder:
        path = fast.to_csv(Path(folder) / "run.csv")
        back, header = read_csv(path), path.read_text().splitlines()[0].split(", ")

    samples, table, spread, duty = fast.samples, [], [], 100 * size.duty
    for name, together in (("each sample", 1), ("some cycles", size.together), ("whole run", len(samples))):
        values = [value for _, value in averaged(samples, together)]
        spread.append(pstdev(values))
        extreme = sum(value < 0.2 * duty or value > 100 - 0.2 * duty for value in values)
        table.append(
            {
                "averaged over": name,
                "window, s": mean(one.seconds for one in samples) * min(together, len(samples)),
                "windows": len(values),
                "least, % of a core": min(values),
                "most, % of a core": max(values),
                "share near 0 or 100, %": 100 * extreme / len(values),
            }
        )
    summed = sum(one.process_cpu for one in samples)
    whole = table[-1]["most, % of a core"]
    claims = [
        Claim("samples are in order, and each begins where the one before ends",
              all(abs(b.at - a.at - b.seconds) < 1e-9 < b.seconds for a, b in itertools.pairwise(samples))),
        Claim("the processor time of all samples adds up to what the process's own clock gives, to 0.05 s",
              abs(summed - own) <= TICKS, f"{summed:.3f} s and {own:.3f} s"),
        Claim("the table read back from the CSV file equals the table in memory", back == fast.rows),
        Claim("the file has the columns of nvidia-smi's query, under its names",
              header[:4] == ["timestamp", *GPU_COLUMNS[:3]], ", ".join(header[:4])),
        Claim("a column of a GPU holds figures only where a GPU is read",
              any(row[name] is not None for row in fast.rows for name in GPU_COLUMNS) == bool(samples[0].gpus)),
        Claim("a run that raises leaves no sampler behind, and keeps its samples", stopped and kept >= 1),
        Claim("at 10 samples a second the sampler's own processor time is under 1 % of the run",
              slow.cost < 0.01, f"{100 * slow.cost:.2f} %", exact=False),
        Claim("the average over the run is the planted duty cycle, to 10 points",
              abs(whole - duty) < 10, f"{whole:.0f} % of one core", exact=False),
        Claim("single samples vary at least three times as much as averages over some cycles (standard deviation)",
              spread[0] > 3 * spread[1], f"{spread[0]:.0f} and {spread[1]:.0f} points", exact=False),
    ]  # fmt: skip
    quantities = {
        "planted duty cycle, %": duty,
        "average over the run, % of a core": whole,
        "sampler's processor time at 10 samples a second, %": 100 * slow.cost,
        "sampler's processor time at 50 samples a second, %": 100 * fast.cost,
        "process's resident memory at the end, MiB": samples[-1].rss,
        "cores": len(samples[0].cores),
    }
    used = [gpu.utilization for one in samples for gpu in one.gpus if gpu.utilization is not None]
    if used:
        quantities["GPU utilization by NVML, mean, %"] = mean(used)
    return Result(
        rows=table,
        claims=claims,
        quantities=quantities,
        notes=[f"{fast.note} Its columns are empty. {NO_CUDA.format(what='its load is not seen', slug='monitors')}"]
        if not samples[0].gpus
        else [],
        arrays={"short windows": averaged(samples, 1), "long windows": averaged(samples, size.together), "duty": duty},
    )


# --- bottleneck-classes ----------------------------------------------------------------------------------------------------


def draw_bottleneck_classes(result: Result):
    """A confusion table of planted loops: one row for the bound that was planted, one column for the bound that the classifier
    named, and in each cell the number of loops.

    What lies on the diagonal is right. The last row holds loops of which nothing can be said, the last column answers
    that say so.
    """
    names = [*BOUNDS, CANNOT_TELL]
    counts = [[sum(row["planted"] == a and row["named"] == b for row in result.rows) for b in names] for a in names]
    figure = style.new_figure(7, 5)
    axes = figure.subplots()
    axes.imshow(counts, cmap="Blues", vmin=0, vmax=2 * max(map(max, counts)))
    for i, j in itertools.product(range(len(names)), repeat=2):
        if counts[i][j]:
            axes.text(j, i, str(counts[i][j]), ha="center", va="center", color=style.INK if i == j else style.RED)
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False)
    axes.set(xlabel="named by the classifier", ylabel="planted")
    return figure


def _row(name: str, truth: str, by: str, diagnosis: Diagnosis) -> dict[str, object]:
    seen = diagnosis.evidence
    return {
        "loop": name,
        "evidence": by,
        "planted": truth,
        "named": diagnosis.bound,
        "because": diagnosis.reason,
        "cores wanted": seen.cores_wanted,
        "busiest thread": seen.busiest,
        "waits for input": seen.input_wait,
        "threads at a lock": seen.lock_wait,
        "waits elsewhere": seen.unknown_wait,
        "kernels": seen.kernels,
        "copies": seen.copies,
    }


@experiment(
    "bottleneck-classes",
    lecture="L1",
    notebook=NOTEBOOK,
    draw=draw_bottleneck_classes,
    quick=dict(seconds=0.2),
    full=dict(seconds=1.5),
    uses=("cuda",),
)
def bottleneck_classes(size: Size) -> Result:
    """Bottlenecks: a classifier that names the bound of a loop, judged on loops whose bound was planted."""
    device, cpu, table = size.device.torch, torch.device("cpu"), []
    planted = [(one, cpu) for one in ON_HOST]
    if device.type == "cuda":
        planted += [(one, device) for one in on_gpu(device)]
    with warnings.catch_warnings():
        # On purpose: more workers than this machine may have cores.
        warnings.filterwarnings("ignore", message=".*suggested max number of worker")
        for one, where in planted:
            loop = one.loop(size.seconds)
            table.append(_row(one.name, one.truth, "measured", classify(loop, where)))
    measured = list(table)
    table += [_row(one.name, one.truth, "written down", decide(one.evidence)) for one in WRITTEN]

    right = sum(row["planted"] == row["named"] for row in measured)
    wrong = [row for row in measured if row["named"] not in (row["planted"], CANNOT_TELL)]
    named = Counter(row["planted"] for row in table)
    claims = [
        Claim("every bound was planted at least once, and loops of which nothing can be said at least twice",
              all(named[bound] for bound in BOUNDS) and named[CANNOT_TELL] >= 2),
        Claim("on evidence that is written down the decision is right every time",
              all(row["planted"] == row["named"] for row in table if row["evidence"] == "written down")),
        Claim("on the same evidence from a loop that is too short to be watched it says that it cannot tell",
              all(decide(replace(one.evidence, seconds=SHORTEST / 2)).bound == CANNOT_TELL for one in WRITTEN)),
        Claim("the bound of at least 12 measured loops is named rightly", right >= 12,
              f"{right} of {len(measured)} measured loops", exact=False),
        Claim("no loop is given a wrong bound: where the classifier is not right, it says that it cannot tell", not wrong,
              "; ".join(f"{row['loop']}: {row['named']}" for row in wrong) or "none", exact=False),
    ]  # fmt: skip
    return Result(
        rows=table,
        claims=claims,
        quantities={
            "measured loops": len(measured),
            "measured loops named rightly": right,
            "measured loops given a wrong bound": len(wrong),
        },
        notes=[]
        if device.type == "cuda"
        else [
            "Loops bound by a GPU are time lines written down by hand here. "
            + NO_CUDA.format(what="none is measured", slug="bottleneck-classes")
        ],  # fmt: skip
    )
