"""The experiments of notebook 08 on hiding the time to load: prefetching, workers, pinned memory, a second CUDA stream."""

import functools
import gc
import multiprocessing
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

from hpml_lab.core import style
from hpml_lab.core.attempt import attempt
from hpml_lab.core.counting import profiled, trace_events
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timeline import CLOCK, Span, gantt, overlap, rows
from hpml_lab.core.timing import measure
from hpml_lab.core.workers import allow_oversubscription, shutdown_workers, sleep_until
from hpml_lab.loading import pipeline
from hpml_lab.loading.pipeline import (
    LECTURE_COMPUTE,
    LECTURE_COMPUTE_8,
    LECTURE_LOAD,
    LECTURE_WAIT_8,
    Accelerator,
    Epoch,
    Fetch,
    expected_time,
    lecture_time,
    lower_bound,
    run_epoch,
    simulate,
    stamped_loader,
)
from hpml_lab.loading.prefetch import DevicePrefetcher, ThreadPrefetcher
from hpml_lab.loading.storage import (
    BatchedImages,
    CheapImages,
    Clips,
    Photos,
    StorageModel,
    make_clips,
    make_photos,
    ready_made,
)

NOTEBOOK = "08_loading"
COLOURS = {"load": style.BLUE, "collate": style.PURPLE, "compute": style.ORANGE}


@contextmanager
def clips_on_disk(clips: int, storage: StorageModel) -> Iterator[Clips]:
    """The clips in a temporary folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="hpml-clips-") as folder:
        yield Clips(make_clips(folder, clips), storage)


def batch_loads(storage: StorageModel, batches: int, batch_size: int) -> list[float]:
    """Seconds that each batch of a sequential epoch takes to load, by the model."""
    return [storage.load(range(b * batch_size, (b + 1) * batch_size)) for b in range(batches)]


def nothing_left() -> bool:
    """Whether no child process is left."""
    gc.collect()
    return not multiprocessing.active_children()


# --- prefetch ----------------------------------------------------------------------------------------------------------------


def draw_prefetch(result: Result):
    """When each batch is loaded and when it is computed on, one lane a process or thread, for a plain loop, for one
    thread and for two workers ahead of it; and how many times faster the loop becomes with one loader ahead, by the
    ratio of compute to load.

    Without prefetching no two bars overlap in time. The curve peaks where load and compute take equally long.
    """
    shown = ("plain loop", "thread, depth 2", "DataLoader, 2 workers")
    figure = style.new_figure(8, 8)
    grid = figure.subplots(4, 1, height_ratios=(1, 1.3, 1.7, 2.4))
    longest = max(row["end"] for name in shown for row in result.arrays["timelines"][name])
    for axes, name in zip(grid, shown, strict=False):
        timeline = result.arrays["timelines"][name]
        lanes = sorted({row["lane"] for row in timeline})
        gantt(axes, timeline, COLOURS, lanes)
        axes.set_xlim(0, longest * (1e3 if max(row["end"] for row in timeline) < 2 else 1))
        axes.set_axisbelow(True)
        axes.set_title(name)
        if name != shown[-1]:
            axes.set_xlabel("")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3)
    axes = grid[3]
    limits = result.arrays["limits"]
    ratios = [2 ** (k / 8) for k in range(-24, 25)]
    axes.plot(ratios, [(1 + r) / max(1, r) for r in ratios], color=style.GREY, label="limit: (L + C) / max(L, C)")
    for which, colour, marker in (("simulated", style.GREEN, "s"), ("measured", style.BLUE, "o")):
        axes.plot(
            [one["compute / load"] for one in limits],
            [one[which] for one in limits],
            marker,
            color=colour,
            markersize=8 if which == "measured" else 11,
            markerfacecolor="none" if which == "simulated" else colour,
            label=which,
        )
    axes.set_xscale("log", base=2)
    axes.set(xlabel="compute C / load L", ylabel="times faster", ylim=(0.9, 2.1))
    axes.set_title("what one loader ahead can gain")
    axes.legend(loc="upper right", fontsize=9)
    return figure


@experiment(
    "prefetch",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_prefetch,
    quick=dict(batches=10, batch_size=4, scale=0.04, depths=(1, 2, 4), workers=(1, 2), ratios=(0.25, 1.0, 4.0)),
    full=dict(batches=32, batch_size=8, scale=0.1, depths=(1, 2, 4), workers=(1, 2, 4, 8), ratios=(0.125, 0.25, 0.5, 1, 2, 4)),
)
def prefetch(size: Size) -> Result:
    """Prefetching: load the next batches while the current one is computed on."""
    storage = StorageModel(size.scale)
    loads = batch_loads(storage, size.batches, size.batch_size)
    load = sum(loads)
    rows_, timelines, limits, seen, orders = [], {}, [], [], []

    with clips_on_disk(size.batches * size.batch_size, storage) as clips, allow_oversubscription():
        indices = list(BatchSampler(SequentialSampler(clips), size.batch_size, drop_last=False))

        def run(batches: Any, step: float) -> Epoch:
            accelerator = Accelerator(step)
            epoch = run_epoch(batches, accelerator)
            seen.append(tuple(accelerator.seen))
            orders.append(epoch.ordered)
            return epoch

        step = load / size.batches  # as much to compute as to load
        ways: dict[str, tuple[Any, float]] = {
            "plain loop": (stamped_loader(clips, size.batch_size, 0), simulate(loads, step, 0)),
            **{
                f"thread, depth {depth}": (
                    ThreadPrefetcher(Fetch(clips), indices, depth=depth),
                    simulate(loads, step, 1, depth),
                )
                for depth in size.depths
            },
            "2 threads, depth 4": (ThreadPrefetcher(Fetch(clips), indices, threads=2, depth=4), simulate(loads, step, 2, 2)),
            **{
                f"DataLoader, {n} worker{'s' * (n > 1)}": (stamped_loader(clips, size.batch_size, n), simulate(loads, step, n))
                for n in size.workers
            },
        }
        for name, (batches, predicted) in ways.items():
            epoch = run(batches, step)
            loading = [one for one in epoch.spans if one.what == "load"]
            computing = [one for one in epoch.spans if one.what == "compute"]
            timelines[name] = rows(epoch.spans)
            rows_.append(
                {
                    "way": name,
                    "seconds": epoch.seconds,
                    "simulated, s": predicted,
                    "times faster": rows_[0]["seconds"] / epoch.seconds if rows_ else 1.0,
                    "load and compute at once, s": overlap(loading, computing),
                    "start-up, s": epoch.parts["start-up"],
                    "waiting, s": epoch.parts["waiting"] + epoch.parts["collate"] + epoch.parts["queue"],
                }
            )
        for ratio in size.ratios:
            step = ratio * load / size.batches
            # The plain loop takes turns by its nature: with known waits its time is known.
            ahead = run(ThreadPrefetcher(Fetch(clips), indices, depth=2), step)
            plain = simulate(loads, step, 0)
            limits.append(
                {
                    "compute / load": float(ratio),
                    "simulated": plain / simulate(loads, step, 1, 2),
                    "measured": plain / ahead.seconds,
                    "seconds": ahead.seconds,
                    "bound": lower_bound(load, step * size.batches, 1),
                }
            )

    by_way = {row["way"]: row for row in rows_}
    deepest, shallow = by_way[f"thread, depth {max(size.depths)}"], by_way[f"thread, depth {min(size.depths)}"]
    best = max(rows_, key=lambda row: row["times faster"])
    claims = [
        Claim("every way gives the same batches, bit for bit and in the same order", len(set(seen)) == 1),
        Claim(
            "in the plain loop loading and computing never overlap, with one thread ahead they do",
            rows_[0]["load and compute at once, s"] < 1e-6 < shallow["load and compute at once, s"],
            f"{shallow['load and compute at once, s']:.2f} s at once with a thread",
        ),
        Claim("every batch was loaded, then collated, then received, by all time stamps", all(orders)),
        Claim(
            "with one loader ahead no epoch is faster than max(load, compute)",
            all(one["seconds"] >= one["bound"] for one in limits),
        ),
        Claim("no worker process is left", nothing_left()),
        Claim(
            "where load and compute take equally long, one thread ahead gains most, and less than 2×",
            2 > max(limits, key=lambda one: one["measured"])["measured"]
            and max(limits, key=lambda one: one["measured"])["compute / load"] == 1,
            ", ".join(f"C/L = {one['compute / load']:g}: {one['measured']:.2f}×" for one in limits),
            exact=False,
        ),
        Claim(
            "a deeper queue smooths uneven reads: the deepest thread waits less than the shallowest",
            deepest["waiting, s"] < shallow["waiting, s"],
            f"{shallow['waiting, s']:.2f} → {deepest['waiting, s']:.2f} s",
            exact=False,
        ),
        Claim(
            "each way with threads takes what the simulation says, to 10 %",
            all(abs(row["seconds"] / row["simulated, s"] - 1) < 0.1 for row in rows_ if "thread" in row["way"]),
            ", ".join(f"{row['seconds'] / row['simulated, s']:.2f}" for row in rows_ if "thread" in row["way"]),
            exact=False,
        ),
    ]
    quantities = {
        "load, s": load,
        "plain loop, s": rows_[0]["seconds"],
        "one thread ahead, times faster": by_way["thread, depth 2"]["times faster"],
        "best, times faster": best["times faster"],
    }
    return Result(rows_, claims, quantities, arrays={"timelines": timelines, "limits": limits})


# --- num-workers -------------------------------------------------------------------------------------------------------------

PART_STYLE = {
    "compute": (style.ORANGE, None),
    "waiting": (style.BLUE, "///"),
    "collate": (style.PURPLE, "..."),
    "queue": (style.GREEN, "xxx"),
    "start-up": (style.RED, "++"),
    "end": (style.GREY, "ooo"),
}


def draw_num_workers(result: Result):
    """Above: seconds an epoch by the number of workers, measured cold and warm, beside the lecture's formula and the
    bound; and the same epochs split into parts (left bar of a pair cold, right bar warm). Below: an epoch of cheap
    images, one by one and in whole batches.

    The lecture's formula goes on falling where the bound is flat: the compute is not shared.
    """
    figure = style.new_figure(9, 8)
    grid = figure.subplot_mosaic([["walls", "parts"], ["cheap", "cheap"]], height_ratios=(1.6, 1))
    axes, table = grid["walls"], result.rows
    places = range(len(table))
    theory = result.arrays["theory"]
    workers = [str(one["workers"]) for one in theory]
    beyond = range(len(theory))
    axes.plot(beyond, [one["lecture"] for one in theory], "--", color=style.RED, label="lecture: (L + C) / N")
    axes.plot(beyond, [one["bound"] for one in theory], color=style.GREY, label="bound: max(C, L / N)")
    axes.plot(beyond, [one["simulated"] for one in theory], ":", color=style.INK, label="simulated")
    axes.plot(places, [row["cold, s"] for row in table], "s", color=style.ORANGE, label="measured, cold", markersize=8)
    axes.plot(places, [row["warm, s"] for row in table], "o", color=style.BLUE, label="measured, warm")
    axes.set_xticks(beyond, workers)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="y", which="minor", labelsize=8)
    axes.set(xlabel="workers N", ylabel="seconds an epoch")
    axes.legend(fontsize=8)
    axes = grid["parts"]
    for which, shift in (("cold", -0.2), ("warm", 0.2)):
        base = [0.0] * len(table)
        for part, (colour, hatch) in PART_STYLE.items():
            heights = [parts[part] for parts in result.arrays["parts"][which]]
            axes.bar(
                [place + shift for place in places],
                heights,
                0.36,
                bottom=base,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0.5,
                label=part if which == "cold" else None,
            )
            base = [low + height for low, height in zip(base, heights, strict=True)]
    axes.set_xticks(places, workers[: len(table)])
    axes.set_axisbelow(True)
    axes.set(xlabel="workers N (left cold, right warm)", ylabel="seconds of the main loop")
    axes.grid(axis="x", visible=False)
    axes.legend(fontsize=8)
    axes = grid["cheap"]
    cheap = result.arrays["cheap"]
    for shift, (name, colour, hatch) in zip(
        (-0.2, 0.2), (("one by one", style.SKY, None), ("whole batches", style.GREEN, "///")), strict=True
    ):
        bars = axes.bar(
            [place + shift for place in range(len(cheap))],
            [one[name] for one in cheap],
            0.36,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=name,
        )
        axes.bar_label(bars, fmt="%.2g", fontsize=8)
    axes.set_xticks(range(len(cheap)), [str(one["workers"]) for one in cheap])
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.15)
    axes.set_axisbelow(True)
    axes.set(xlabel="workers", ylabel="seconds an epoch", title="cheap images")
    axes.legend(fontsize=8, loc="upper left")
    return figure


def cheap_epoch(images: CheapImages, batch_size: int, workers: int) -> tuple[float, int]:
    """Seconds of one epoch of DataLoader over `images`, start of its workers included, and the number of images seen."""
    batched = isinstance(images, BatchedImages)
    options: dict[str, Any] = {"timeout": pipeline.DEADLINE} if workers else {}
    start = CLOCK()
    loader = DataLoader(images, batch_size, num_workers=workers, collate_fn=ready_made if batched else None, **options)
    iterator = iter(loader)
    try:
        seen = sum(len(labels) for _, labels in iterator)
        return CLOCK() - start, seen
    finally:
        shutdown_workers(iterator)


@experiment(
    "num-workers",
    lecture="L0 L3 L4",
    notebook=NOTEBOOK,
    draw=draw_num_workers,
    quick=dict(workers=(0, 1, 2, 4, 8), batches=24, batch_size=8, scale=0.04, cheap=4000, cheap_workers=(0, 1, 2, 4, 8)),
    full=dict(workers=(0, 1, 2, 4, 8, 16), batches=21, batch_size=32, scale=1.0, cheap=60_000, cheap_workers=(0, 1, 2, 4, 8)),
    lecture_says={
        "lecture's formula for 8 workers, s": "16.15",
        "lecture's ideal overhead for 8 workers, s": "0.82",
        "8 workers, times faster": "6.40 (129.17 / 20.17 s)",
        "8 workers: waiting over computing, ratio": "0.32 (4.84 / 15.33 s)",
        "8 workers, 21 batches of 32 simulated at the lecture's latencies, s": "20.17 (15.33 + 4.84)",
        "workers that suffice": "8 workers were tried",
        "cheap images, 1 worker, s": "6.7 (MNIST, with training, pinned memory)",
        "cheap images, 4 workers, s": "4.1",
        "cheap images, 8 workers, s": "4.5",
    },
)
def num_workers(size: Size) -> Result:
    """How many workers: measured, the lecture's formula, the bound, and where the rest goes."""
    storage = StorageModel(size.scale)
    loads = batch_loads(storage, size.batches, size.batch_size)
    load = sum(loads)
    compute = load * LECTURE_COMPUTE / LECTURE_LOAD  # the lecture's proportion
    step = compute / size.batches
    rows_, parts, seen, epochs = [], {"cold": [], "warm": []}, [], []

    with clips_on_disk(size.batches * size.batch_size, storage) as clips, allow_oversubscription():
        for workers in size.workers:
            loader = stamped_loader(clips, size.batch_size, workers, persistent_workers=workers > 0)
            told = {}
            for which in ("cold", "warm"):
                if workers == 0 and which == "warm":  # nothing was started, so nothing is warm
                    told[which] = told["cold"]
                    continue
                accelerator = Accelerator(step)
                told[which] = run_epoch(loader, accelerator)
                seen.append(tuple(accelerator.seen))
                epochs.append((workers, told[which]))
            del loader  # ends the workers
            for which, epoch in told.items():
                parts[which].append(epoch.parts)
            warm = told["warm"]
            rows_.append(
                {
                    "workers": workers,
                    "cold, s": told["cold"].seconds,
                    "warm, s": warm.seconds,
                    "simulated, s": simulate(loads, step, workers),
                    "bound, s": lower_bound(load, compute, workers),
                    "bound + first batch, s": expected_time(load, compute, workers, size.batches),
                    "lecture's formula, s": lecture_time(load, compute, workers),
                    "times faster (warm)": rows_[0]["warm, s"] / warm.seconds if rows_ else 1.0,
                    "start-up (cold), s": told["cold"].parts["start-up"],
                    **{f"{part} (warm), s": warm.parts[part] for part in ("waiting", "collate", "queue")},
                }
            )
        one_by_one, whole = CheapImages(size.cheap), BatchedImages(size.cheap)
        cheap, counts = [], []
        for workers in size.cheap_workers:
            slow, fast = (cheap_epoch(images, 64, workers) for images in (one_by_one, whole))
            cheap.append({"workers": workers, "one by one": slow[0], "whole batches": fast[0]})
            counts += [slow[1], fast[1]]

    by_workers = {row["workers"]: row for row in rows_}
    lecture_8 = lecture_time(LECTURE_LOAD, LECTURE_COMPUTE, 8)
    enough = next(n for n in range(1, 65) if LECTURE_LOAD / n <= LECTURE_COMPUTE)
    cheap_by = {one["workers"]: one for one in cheap}
    first, most = cheap[0], cheap[-1]
    claims = [
        Claim("every number of workers gives the same batches, bit for bit and in the same order", len(set(seen)) == 1),
        Claim("every batch was loaded, then collated, then received, by all time stamps", all(e.ordered for _, e in epochs)),
        Claim(
            "compute, waiting, collate, queue, start-up and end add up to each epoch's wall time",
            all(epoch.accounted() for _, epoch in epochs),
        ),
        Claim(
            "no epoch is faster than the bound max(compute, load / workers)",
            all(epoch.seconds >= lower_bound(load, compute, workers) for workers, epoch in epochs),
            f"least distance {min(e.seconds / lower_bound(load, compute, n) - 1 for n, e in epochs):.1%}",
        ),
        Claim(
            "with the lecture's own figures its formula promises less than the compute alone from 9 workers on",
            min(n for n in range(1, 65) if lecture_time(LECTURE_LOAD, LECTURE_COMPUTE, n) < LECTURE_COMPUTE) == 9
            and enough == 8,
        ),
        Claim("every image was seen once by every way to fetch cheap images", set(counts) == {size.cheap}),
        Claim("no worker process is left", nothing_left()),
        Claim(
            "each warm epoch takes what the simulation says, to 15 %",
            all(abs(row["warm, s"] / row["simulated, s"] - 1) < 0.15 for row in rows_),
            ", ".join(f"{row['workers']}: {row['warm, s'] / row['simulated, s']:.2f}" for row in rows_),
            exact=False,
        ),
        Claim(
            "8 workers beat 4, and 4 beat 0 (warm)",
            by_workers[8]["warm, s"] < by_workers[4]["warm, s"] < by_workers[0]["warm, s"],
            f"{by_workers[0]['warm, s']:.2f} → {by_workers[4]['warm, s']:.2f} → {by_workers[8]['warm, s']:.2f} s",
            exact=False,
        ),
        Claim(
            "a worker makes cheap images slower",
            cheap_by[1]["one by one"] > first["one by one"],
            f"{first['one by one']:.2f} → {cheap_by[1]['one by one']:.2f} s",
            exact=False,
        ),
        Claim(
            "whole batches in the main process beat every number of workers one by one",
            first["whole batches"] < min(one["one by one"] for one in cheap),
            f"{min(one['one by one'] for one in cheap) / first['whole batches']:.0f}× faster",
            exact=False,
        ),
    ]
    quantities = {
        "lecture's formula for 8 workers, s": round(lecture_8, 2),
        "lecture's ideal overhead for 8 workers, s": round(lecture_8 - LECTURE_COMPUTE_8, 2),
        "bound for 8 workers with the lecture's figures, s": lower_bound(LECTURE_LOAD, LECTURE_COMPUTE, 8),
        "workers that suffice": enough,
        "workers' worth that 8 workers delivered there": LECTURE_LOAD / (LECTURE_COMPUTE_8 + LECTURE_WAIT_8),
        "8 workers, times faster": by_workers[8]["times faster (warm)"],
        "8 workers: waiting over computing, ratio": sum(
            by_workers[8][f"{part} (warm), s"] for part in ("waiting", "collate", "queue")
        )
        / parts["warm"][size.workers.index(8)]["compute"],
        "8 workers, share of the epoch beyond the bound": 1 - by_workers[8]["bound, s"] / by_workers[8]["warm, s"],
        "load here, s": load,
        "compute here, s": compute,
        f"cheap images, {most['workers']} workers, whole batches, s": most["whole batches"],
        **{f"cheap images, {one['workers']} worker{'s' * (one['workers'] != 1)}, s": one["one by one"] for one in cheap},
    }
    notes = []
    if size.scale < 1:
        notes.append(
            f"Waits are {1 / size.scale:g} times shorter than the lecture's, starting a worker is not: its share is larger "
            "here. `--size full` takes the lecture's waits (10 minutes)."
        )
    if multiprocessing.get_start_method() != "fork":
        notes.append("Workers start with spawn or forkserver here: each imports torch first, which takes seconds when cold.")
    theory = [
        {
            "workers": workers,
            "lecture": lecture_time(load, compute, workers),
            "bound": lower_bound(load, compute, workers),
            "simulated": simulate(loads, step, workers),
        }
        for workers in dict.fromkeys((*size.workers, 16))  # past the point from which more workers gain nothing
    ]
    last = theory[-1]
    # The lecture does not tell its number of batches; at these latencies 21 of them take its 114 s.
    quantities["8 workers, 21 batches of 32 simulated at the lecture's latencies, s"] = simulate(
        batch_loads(StorageModel(), 21, 32), LECTURE_COMPUTE / 21, 8
    )
    quantities["16 workers: simulated over the lecture's formula, ratio"] = last["simulated"] / last["lecture"]
    return Result(rows_, claims, quantities, notes, {"parts": parts, "cheap": cheap, "theory": theory})


# --- pinned-memory -----------------------------------------------------------------------------------------------------------


def draw_pinned_memory(result: Result):
    """Bandwidth of a copy by its size: from pageable and from pinned memory to the GPU, or, without a GPU, from one
    place of the host's memory to another."""
    figure = style.new_figure(7, 4)
    axes = figure.subplots()
    table = result.rows
    for name, colour, marker in zip(
        ("pageable, GB/s", "pinned, GB/s", "host to host, GB/s"), (style.ORANGE, style.BLUE, style.GREY), "soD", strict=True
    ):
        points = [(row["MB"], row[name]) for row in table if row.get(name) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, color=colour, label=name.removesuffix(", GB/s"))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="size of the copy in MB", ylabel="bandwidth in GB/s")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def copy_seconds(source: torch.Tensor, target: torch.Tensor, repeats: int = 10) -> tuple[float, float]:
    """Median seconds of a copy to the GPU by CUDA's events, and median seconds until the call returned, after warm-up."""
    device, copy, called = target.device, [], []
    for turn in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        begin.record(torch.cuda.current_stream(device))
        start = CLOCK()
        target.copy_(source, non_blocking=True)
        back = CLOCK() - start
        end.record(torch.cuda.current_stream(device))
        end.synchronize()
        if turn >= 3:
            copy.append(begin.elapsed_time(end) / 1e3)
            called.append(back)
    return float(torch.tensor(copy).median()), float(torch.tensor(called).median())


def copy_beside_compute(source: torch.Tensor, device: torch.device) -> dict[str, float]:
    """Seconds of a copy on a side stream, of matrix products on the current one, and of both begun at once."""
    target = torch.empty_like(source, device=device)
    side, current = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    a = torch.randn(2048, 2048, device=device)
    out = torch.empty_like(a)

    def copy() -> None:
        side.wait_stream(current)
        with torch.cuda.stream(side):
            target.copy_(source, non_blocking=True)

    def products(count: int) -> None:
        for _ in range(count):
            torch.mm(a, a, out=out)

    def seconds(work: Any) -> float:
        taken = []
        for turn in range(9):
            torch.cuda.synchronize(device)
            start = CLOCK()
            work()
            torch.cuda.synchronize(device)
            if turn >= 2:
                taken.append(CLOCK() - start)
        return float(torch.tensor(taken).median())

    alone = seconds(copy)
    count = max(1, round(alone / (seconds(lambda: products(20)) / 20)))
    return {"copy": alone, "compute": seconds(lambda: products(count)), "both": seconds(lambda: (copy(), products(count)))}


def pinning_told() -> tuple[bool, str]:
    """Whether DataLoader(pin_memory=True) gave pinned tensors, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (batch,) = next(iter(DataLoader(TensorDataset(torch.zeros(4, 3)), 4, pin_memory=True)))
        pinned = batch.is_pinned()
    told = [str(one.message) for one in caught if "pin_memory" in str(one.message)]
    return pinned, told[0] if told else ""


@experiment(
    "pinned-memory",
    lecture="L3 L4",
    notebook=NOTEBOOK,
    draw=draw_pinned_memory,
    quick=dict(kilobytes=(64, 256, 1024, 4096, 16384, 65536)),
    full=dict(kilobytes=(64, 256, 1024, 4096, 16384, 65536, 262144)),
    lecture_says={"pinned over pageable, times faster": "“almost always better”, no figure"},
    uses=("cuda",),
)
def pinned_memory(size: Size) -> Result:
    """Pinned memory: how fast a batch gets to the GPU, and whether the processor must wait for it."""
    device = size.device.torch
    rows_, notes, quantities = [], [], {}
    for kilobytes in size.kilobytes:
        pageable = torch.ones(kilobytes * 256)  # 4 bytes each
        host = torch.empty_like(pageable)
        row: dict[str, Any] = {"MB": kilobytes / 1024}
        row["host to host, GB/s"] = pageable.nbytes / measure(functools.partial(host.copy_, pageable), samples=5).seconds / 1e9
        if size.device.is_cuda:
            target = torch.empty_like(pageable, device=device)
            for name, source in (("pageable", pageable), ("pinned", pageable.pin_memory())):
                copied, called = copy_seconds(source, target)
                row[f"{name}, GB/s"] = source.nbytes / copied / 1e9
                row[f"{name}: call returns after, µs"] = called * 1e6
        rows_.append(row)
    pinned, told = pinning_told()
    claims = [
        Claim(
            "DataLoader(pin_memory=True) gives pinned tensors, or warns that it does not",
            pinned != bool(told),
            "pinned" if pinned else f"UserWarning: {told[:90]}…",
        ),
        Claim("a tensor made the ordinary way is pageable", not torch.zeros(4).is_pinned()),
    ]
    largest = rows_[-1]
    quantities["host to host, GB/s"] = largest["host to host, GB/s"]
    if size.device.is_cuda:
        beside = copy_beside_compute(torch.ones(64 << 18).pin_memory(), device)
        hidden = (beside["copy"] + beside["compute"] - beside["both"]) / min(beside["copy"], beside["compute"])
        quantities |= {
            "pageable to GPU, GB/s": largest["pageable, GB/s"],
            "pinned to GPU, GB/s": largest["pinned, GB/s"],
            "pinned over pageable, times faster": largest["pinned, GB/s"] / largest["pageable, GB/s"],
            "share of a copy hidden behind compute": hidden,
        }
        claims += [
            Claim(
                "the largest copy is faster from pinned memory",
                largest["pinned, GB/s"] > largest["pageable, GB/s"],
                f"{largest['pinned, GB/s']:.1f} against {largest['pageable, GB/s']:.1f} GB/s",
                exact=False,
            ),
            Claim(
                "a non_blocking copy of pinned memory returns before it is done, one of pageable memory does not",
                largest["pinned: call returns after, µs"] * 10 < largest["pageable: call returns after, µs"],
                f"{largest['pinned: call returns after, µs']:.0f} against {largest['pageable: call returns after, µs']:.0f} µs",
                exact=False,
            ),
            Claim(
                "a copy on a side stream hides behind compute for at least half of its time",
                hidden > 0.5,
                f"copy {beside['copy'] * 1e3:.1f} ms, compute {beside['compute'] * 1e3:.1f} ms, "
                f"both {beside['both'] * 1e3:.1f} ms",
                exact=False,
            ),
        ]
    else:
        refused = attempt(lambda: torch.zeros(4).pin_memory())
        notes.append(
            NO_CUDA.format(what="only copies within the host's memory were measured", slug="pinned-memory")
            + f" tensor.pin_memory() here: {refused}."
        )
    return Result(rows_, claims, quantities, notes)


# --- gpu-prefetcher ----------------------------------------------------------------------------------------------------------

COPY_COLOURS = {"copy": style.SKY, "compute": style.ORANGE}


def draw_gpu_prefetcher(result: Result):
    """When batches are copied and when they are computed on, one lane each: above, every copy before its step; below,
    the next batch's copy under way during the current step.

    With a GPU the times are those of the profiler's trace; without one they are of an emulation, and the title says so.
    """
    figure = style.new_figure(8, 4.4)
    grid = figure.subplots(2, 1)
    kind = result.arrays["kind"]
    longest = max(row["end"] for timeline in result.arrays["timelines"].values() for row in timeline)
    for axes, (name, timeline) in zip(grid, result.arrays["timelines"].items(), strict=True):
        gantt(axes, timeline, COPY_COLOURS, ("copy", "compute"))
        axes.set_xlim(0, longest * (1e3 if max(row["end"] for row in timeline) < 2 else 1))
        axes.set_axisbelow(True)
        axes.set_title(f"{name} ({kind})")
    grid[0].set_xlabel("")
    return figure


def emulated(batches: int, seconds: float) -> dict[str, tuple[float, list[Span], list[int]]]:
    """The two schedules without a GPU: a thread stands for the copy engine, and copies and steps are waits."""

    def copy(number: int) -> tuple[int, Span]:
        start = CLOCK()
        sleep_until(start + seconds)
        return number, Span("copy", "copy", start, CLOCK())

    told = {}
    for name, arriving in (
        ("copy, then compute", map(copy, range(batches))),
        ("next copy beside the step", ThreadPrefetcher(copy, range(batches), depth=1)),
    ):
        spans, order, begin = [], [], CLOCK()
        for number, copied in arriving:
            start = CLOCK()
            sleep_until(start + seconds)
            spans += [copied, Span("compute", "compute", start, CLOCK())]
            order.append(number)
        told[name] = (CLOCK() - begin, spans, order)
    return told


def traced(events: list[dict[str, Any]], steps: int) -> list[Span]:
    """Copies to the GPU and steps on it from the events of a profiler's trace; a step is an equal share of the kernels."""
    copies = [one for one in events if one.get("cat") == "gpu_memcpy" and "HtoD" in one["name"]]
    kernels = [one for one in events if one.get("cat") == "kernel"]
    if not kernels or len(kernels) % steps:
        raise LabError(
            f"the profiler's trace has {len(kernels)} kernels for {steps} equal steps.",
            "Close other tools that use the GPU's counters (nsys, ncu, a second profiler) and run it again.",
        )
    share = len(kernels) // steps
    spans = [Span("copy", "copy", one["ts"] / 1e6, (one["ts"] + one["dur"]) / 1e6) for one in copies]
    for begin in range(0, len(kernels), share):
        first, last = kernels[begin], kernels[begin + share - 1]
        spans.append(Span("compute", "compute", first["ts"] / 1e6, (last["ts"] + last["dur"]) / 1e6))
    return spans


def on_gpu(batches: int, megabytes: int, device: torch.device) -> dict[str, tuple[float, list[Span], list[int]]]:
    """The two schedules on a GPU: pinned batches, copied on the current stream or ahead on a side stream, then computed on.

    Seconds are the wall time of the whole loop, synchronised; the spans come from the profiler's trace of one more run.
    """
    columns = 2048
    height = max(1, (megabytes << 18) // columns)
    host = [torch.full((height, columns), float(number)).pin_memory() for number in range(batches)]
    weight = torch.eye(columns, device=device)

    def step(batch: torch.Tensor, products: int) -> torch.Tensor:
        for _ in range(products):
            batch = batch @ weight
        return batch[-1, -1]

    # A step that takes about as long as a copy shows the overlap best.
    first = host[0].to(device)
    copied = copy_seconds(host[0], torch.empty_like(first))[0]
    products = max(1, round(copied / measure(lambda: step(first, 1)).seconds))

    def run(arriving: Any) -> tuple[float, list[torch.Tensor]]:
        marks, ends = [], []
        torch.cuda.synchronize(device)
        start = CLOCK()
        for batch in arriving:
            marks.append(step(batch, products))
            ends.append(torch.cuda.Event())
            ends[-1].record()
            if len(ends) > 1:
                ends[-2].synchronize()  # at most two steps in flight, or the loop would fill the GPU with batches
        torch.cuda.synchronize(device)
        return CLOCK() - start, marks

    told = {}
    ahead = DevicePrefetcher(host, device)  # one for all turns: the allocator keeps blocks by their stream
    for name in ("copy, then compute", "next copy beside the step"):

        def turn(name: str = name) -> tuple[float, list[torch.Tensor]]:
            return run(ahead if name != "copy, then compute" else (one.to(device, non_blocking=True) for one in host))

        turn()  # the allocator's first blocks and the kernels' choice belong to no schedule
        wall, marks = turn()
        told[name] = (wall, traced(trace_events(profiled(turn, device)), batches), [round(float(mark)) for mark in marks])
    return told


@experiment(
    "gpu-prefetcher",
    lecture="L1",
    notebook=NOTEBOOK,
    draw=draw_gpu_prefetcher,
    quick=dict(batches=12, megabytes=32, seconds=0.02),
    full=dict(batches=24, megabytes=154, seconds=0.02),  # 256 images of 3 × 224 × 224 float32
    uses=("cuda",),
)
def gpu_prefetcher(size: Size) -> Result:
    """The next batch copied to the GPU beside the current step (the idea of apex's data prefetcher)."""
    if size.device.is_cuda:
        told = on_gpu(size.batches, size.megabytes, size.device.torch)
        kind, notes = "profiler's trace", []
    else:
        told = emulated(size.batches, size.seconds)
        kind = "emulated: a thread and waits"
        notes = [
            NO_CUDA.format(what="the two schedules are emulated, a thread stands for the copy engine", slug="gpu-prefetcher")
            + " The rows show the order of work, not the speed of any GPU."
        ]
    rows_, used_late = [], []
    for name, (seconds, spans, _) in told.items():
        copies = sorted((one for one in spans if one.what == "copy"), key=lambda one: one.start)
        steps = sorted((one for one in spans if one.what == "compute"), key=lambda one: one.start)
        # The trace rounds to nanoseconds or microseconds, as its version has it.
        used_late.append(all(copy.end <= step.start + 1e-5 for copy, step in zip(copies, steps, strict=True)))
        hidden = overlap(copies, steps) / sum(one.seconds for one in copies)
        rows_.append(
            {
                "schedule": f"{name} ({kind})",
                "ms a step": seconds / size.batches * 1e3,
                "copy, ms": sum(one.seconds for one in copies) / len(copies) * 1e3,
                "compute, ms": sum(one.seconds for one in steps) / len(steps) * 1e3,
                "share of the copies that is hidden": hidden,
            }
        )
    plain, ahead = rows_
    orders = [order for _, _, order in told.values()]
    claims = [
        Claim("both schedules give the same batches in the same order", orders[0] == orders[1] == list(range(size.batches))),
        Claim("no step begins before its batch's copy has ended", all(used_late)),
        Claim(
            "copies hide behind steps only where the next batch is copied ahead",
            plain["share of the copies that is hidden"] < 0.01 < ahead["share of the copies that is hidden"],
            f"{plain['share of the copies that is hidden']:.0%} against {ahead['share of the copies that is hidden']:.0%}",
        ),
        Claim(
            "copying ahead makes the step faster, and less than 2×",
            1 < plain["ms a step"] / ahead["ms a step"] < 2,
            f"{plain['ms a step']:.2f} → {ahead['ms a step']:.2f} ms ({kind})",
            exact=False,
        ),
    ]
    what = "" if size.device.is_cuda else " (emulated)"
    quantities = {
        f"copying ahead, times faster{what}": plain["ms a step"] / ahead["ms a step"],
        f"share of the copies that is hidden{what}": ahead["share of the copies that is hidden"],
    }
    timelines = {name: rows(spans)[: 2 * 8] for name, (_, spans, _) in told.items()}
    return Result(rows_, claims, quantities, notes, {"timelines": timelines, "kind": kind})


# --- io-vs-compute -----------------------------------------------------------------------------------------------------------

LOAD_PARTS = ("read", "decode", "transform", "collate")
STEP_PARTS = ("copy", "forward", "backward", "step")
IO_COLOURS = {
    "read": style.BLUE,
    "decode": style.SKY,
    "transform": style.GREEN,
    "collate": style.PURPLE,
    "copy": style.GREY,
    "forward": style.YELLOW,
    "backward": style.ORANGE,
    "step": style.RED,
}


def draw_io_vs_compute(result: Result):
    """Left: a batch's time, in the order of its parts, from reading the files to the optimizer's step. Right: how many
    times faster the loop becomes with loading beside computing, and with a step twice as fast, predicted from the split
    and measured.

    The dotted line marks 2, which a step twice as fast cannot reach while loading takes its turn.
    """
    figure = style.new_figure(9, 4.4)
    left, right = figure.subplots(1, 2)
    for place, row in enumerate(result.rows):
        left.barh(
            place,
            row["ms a batch"],
            left=row["begins at, ms"],
            color=IO_COLOURS[row["part"]],
            hatch="///" if row["part"] in LOAD_PARTS else None,
            edgecolor="white",
        )
    left.set_yticks(range(len(result.rows)), [row["part"] for row in result.rows])
    left.invert_yaxis()
    left.grid(axis="y", visible=False)
    for axes in (left, right):
        axes.set_axisbelow(True)
    left.set(xlabel="time of a batch in ms (hatched: loading)")
    gains = result.arrays["gains"]
    for shift, which, colour, hatch in ((-0.2, "predicted", style.GREY, "///"), (0.2, "measured", style.BLUE, None)):
        bars = right.bar(
            [place + shift for place in range(len(gains))],
            [one[which] for one in gains],
            0.36,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=which,
        )
        right.bar_label(bars, fmt="%.2f", fontsize=9)
    right.axhline(2, color=style.INK, linestyle=":", linewidth=1)
    right.set_xticks(range(len(gains)), [one["change"].replace(", ", ",\n") for one in gains])
    right.set_ylim(0, max(2.4, 1.25 * max(max(one["predicted"], one["measured"]) for one in gains)))
    right.set(ylabel="times faster")
    right.grid(axis="x", visible=False)
    right.legend(loc="upper left", ncols=2)
    return figure


def in_turns(a: list[float], b: list[float]) -> float:
    """Median over the turns of seconds(a) / seconds(b)."""
    return median(one / other for one, other in zip(a, b, strict=True))


class Trainer:
    """A small convolutional net that trains on photos; a step of `passes` passes stands for a slower accelerator."""

    def __init__(self, device: torch.device, width: int) -> None:
        torch.manual_seed(0)
        conv = functools.partial(torch.nn.Conv2d, kernel_size=3, stride=2, padding=1)
        self.net = torch.nn.Sequential(
            conv(3, width),
            torch.nn.ReLU(),
            conv(width, 2 * width),
            torch.nn.ReLU(),
            conv(2 * width, 4 * width),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * width, 10),
        ).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.device = device

    def done(self) -> float:
        """The moment at which all work that was queued on the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return CLOCK()

    def __call__(self, photos: torch.Tensor, labels: torch.Tensor, passes: int = 1) -> list[float]:
        """Train on one batch `passes` times. Returns the moments after copy, forward, backward, step (of the last pass)."""
        photos, labels = photos.to(self.device), labels.to(self.device)
        moments = [self.done()]
        for _ in range(passes):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.net(photos), labels)
            forward = self.done()
            loss.backward()
            backward = self.done()
            self.optimizer.step()
            step = self.done()
        return [*moments, forward, backward, step]


@experiment(
    "io-vs-compute",
    lecture="L0 L1",
    notebook=NOTEBOOK,
    draw=draw_io_vs_compute,
    quick=dict(rounds=3, batches=10, batch_size=12, side=224, crop=112, width=12),
    full=dict(rounds=3, batches=24, batch_size=64, side=384, crop=224, width=32),
    lecture_says={
        "loading over computing, ratio": "about 1 (“as expensive”)",
        "step twice as fast, times faster": "less than 2",
    },
    uses=("cuda",),
)
def io_vs_compute(size: Size) -> Result:
    """Where a batch's time goes, and what overlap or a faster accelerator can gain."""
    device = size.device.torch
    with tempfile.TemporaryDirectory(prefix="hpml-photos-") as folder, allow_oversubscription():
        photos = Photos(make_photos(Path(folder), size.batches * size.batch_size, side=size.side), size.crop)
        trainer = Trainer(device, size.width)

        alone, one_worker = (
            stamped_loader(photos, size.batch_size, workers, persistent_workers=workers > 0) for workers in (0, 1)
        )

        sums: dict[str, list[int]] = {"alone": [], "beside": []}

        def loop(loader: DataLoader, passes: int = 1, noted: list[int] | None = None) -> tuple[float, list[dict[str, float]]]:
            """One epoch: its seconds and the parts of each batch; `noted` takes the batches' checksums, which cost time."""
            split = []

            def step(batch: list[torch.Tensor]) -> None:
                images, labels, times = batch
                moments = [CLOCK(), *trainer(images, labels, passes)]
                split.append(dict(zip(LOAD_PARTS, times.diff(dim=1).sum(0).tolist(), strict=False)))
                split[-1] |= dict(zip(STEP_PARTS, (b - a for a, b in pairwise(moments)), strict=True))
                if noted is not None:
                    noted.append(pipeline.checksum([images, labels]))

            epoch = run_epoch(loader, step)
            for parts, collated in zip(split, (one for one in epoch.spans if one.what == "collate"), strict=True):
                parts["collate"] = collated.seconds
            return epoch.seconds, split

        # The warm-up: the worker starts, files come into the page cache, kernels are chosen.
        loop(alone, noted=sums["alone"])
        loop(one_worker, noted=sums["beside"])
        loop(alone, passes=2)
        # In turns, so that a busy moment of the machine falls on all three.
        turns = [(loop(alone), loop(one_worker), loop(alone, passes=2)) for _ in range(size.rounds)]
        del one_worker, alone  # ends the worker

    plain, beside, slow = ([turn[which][0] for turn in turns] for which in range(3))
    split, slow_split = ([parts for turn in turns for parts in turn[which][1]] for which in (0, 2))
    mean = {part: sum(one[part] for one in split) / len(split) for part in (*LOAD_PARTS, *STEP_PARTS)}
    load, compute = (sum(mean[part] for part in parts) for parts in (LOAD_PARTS, STEP_PARTS))
    rows_, begins = [], 0.0
    for part, seconds in mean.items():
        share = seconds / (load + compute)
        rows_.append({"part": part, "ms a batch": seconds * 1e3, "share": share, "begins at, ms": begins * 1e3})
        begins += seconds
    gap = abs(sum(sum(one.values()) for one in split) - sum(plain))
    # Two passes a batch are the machine with the slow accelerator; one pass is the accelerator twice as fast.
    slow_load = sum(one[part] for one in slow_split for part in LOAD_PARTS) / len(slow_split)
    slow_compute = sum(slow) / len(slow_split) - slow_load
    gains = [
        {
            "change": "load beside compute",
            "predicted": (load + compute) / max(load, compute),
            "measured": in_turns(plain, beside),
        },
        {
            "change": "step twice as fast, loading in turn",
            "predicted": (slow_load + slow_compute) / (slow_load + slow_compute / 2),
            "measured": in_turns(slow, plain),
        },
    ]
    overlapped, doubled = gains
    claims = [
        Claim(
            "the parts of all batches add up to the loop's wall time, to 5 % and 50 ms",
            gap < 0.05 * sum(plain) + 0.05,
            f"{gap / sum(plain):.1%} unaccounted",
        ),
        Claim(
            "a worker beside the loop gives the same batches, bit for bit and in the same order",
            len(sums["alone"]) == size.batches and sums["alone"] == sums["beside"],
        ),
        Claim(
            "by the split, a step twice as fast gains less than 2×", doubled["predicted"] < 2, f"{doubled['predicted']:.2f}×"
        ),
        Claim("no worker process is left", nothing_left()),
        Claim(
            "a step twice as fast gains what Amdahl's law says, to 15 %",
            abs(doubled["measured"] / doubled["predicted"] - 1) < 0.15,
            f"predicted {doubled['predicted']:.2f}×, measured {doubled['measured']:.2f}×",
            exact=False,
        ),
        Claim(
            "overlap gains at least half of what the split allows",
            overlapped["measured"] - 1 > 0.5 * (overlapped["predicted"] - 1),
            f"at most {overlapped['predicted']:.2f}×, measured {overlapped['measured']:.2f}×",
            exact=False,
        ),
    ]
    quantities = {
        "loading over computing, ratio": load / compute,
        "overlap, at most times faster": overlapped["predicted"],
        "overlap, measured times faster": overlapped["measured"],
        "step twice as fast, times faster": doubled["measured"],
    }
    notes = []
    if not size.device.is_cuda:
        notes.append(
            NO_CUDA.format(what="the step runs on a processor core, and the worker needs another one", slug="io-vs-compute")
        )
    return Result(rows_, claims, quantities, notes, {"gains": gains})
