"""The experiments of notebook 07 on shared memory: queues that pass handles, and a ring between two processes."""

import multiprocessing
import pickle
import shutil
import threading
from typing import Any

import numpy as np
import torch

from hpml_lab.core import style
from hpml_lab.core.children import suppress_fork_warning
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.ring import SHM, Ring
from hpml_lab.core.timeline import busy, gantt, rows
from hpml_lab.core.workers import child_pids
from hpml_lab.processes import relay, sharing
from hpml_lab.processes.start import methods

NOTEBOOK = "07_processes"
KIB, MIB = 1 << 10, 1 << 20
NOTHING_LEFT = "no process and no segment is left behind"
LABELS = {
    "pickle": "NumPy array, pickled",
    "bytes": "tensor's bytes",
    "torch": "new tensor, handle",
    "reused": "reused tensor, handle",
    "ring": "slot of a ring",
}
LARGEST, SMALLEST = "handles over pickle at the largest size, times", "handles over pickle at the smallest size, times"
REUSED, RING = "reused over new tensors at the largest size, times", "ring over handles at the smallest size, times"
CROSSOVER, MESSAGE = "handles win from, KB", "message of a handle, bytes"


def _traces() -> tuple[set[int], set[str]]:
    return child_pids(), sharing.named_segments()


# ---- tensor-queues ------------------------------------------------------------------------------------------------------


def draw_tensor_queues(result: Result):
    """Left: bytes per second over the size of a message, for each of the five routes; the dashed line marks the size from which
    handles beat pickled arrays. Right: how often each route copies the bytes after they were written, and in which stage.
    """
    figure = style.new_figure(10, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    for route, colour, marker in zip(sharing.ROUTES, style.CYCLE, style.MARKERS, strict=False):
        line = [row for row in result.rows if row["route"] == route]
        left.loglog(
            [row["KB"] for row in line], [row["MB/s"] for row in line], color=colour, marker=marker, label=LABELS[route]
        )
    if CROSSOVER in result.quantities:
        left.axvline(result.quantities[CROSSOVER], color=style.GREY, linestyle="--", linewidth=1.2)
    left.set(xlabel="size of one message in KB", ylabel="MB/s")
    left.legend(fontsize=9, loc="lower right")
    counted = result.arrays["copies"]
    names = [LABELS[row["route"]] for row in counted]
    reached = np.zeros(len(counted))
    stages = {"pack": "make the message", "pipe": "into the pipe", "read": "out of the pipe", "unpack": "make the array"}
    for (stage, label), colour, hatch in zip(stages.items(), style.CYCLE, (None, "///", "...", "xxx"), strict=False):
        width = np.array([row[stage] for row in counted])
        right.barh(names, width, left=reached, color=colour, hatch=hatch, edgecolor="white", label=label)
        reached += width
    for place, row in enumerate(counted):
        right.text(reached[place] + 0.1, place, row["copies"], va="center")
    right.invert_yaxis()
    right.set(xlabel="copies of the bytes", xlim=(0, max(reached) + 0.7))
    right.grid(axis="y", visible=False)
    right.legend(fontsize=9, loc="lower right")
    return figure


@experiment(
    "tensor-queues",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_tensor_queues,
    quick=dict(kib=(1, 16, 256, 2048, 16384), seconds=0.015, rounds=2),
    full=dict(kib=tuple(4**n for n in range(10)), seconds=0.3, rounds=5),
    lecture_says={LARGEST: "efficient", REUSED: "nearly free"},
)
def tensor_queues(size: Size) -> Result:
    """Tensors through queues: pickles, handles, and buffers that come back.

    The lecture: torch.multiprocessing moves a tensor into shared memory and passes only a handle; send buffers back.
    """
    before = _traces()
    notes = []
    sizes = [kib * KIB for kib in size.kib]
    if SHM.is_dir():
        room = shutil.disk_usage(SHM).free
        fits = [one for one in sizes if 8 * one <= room]  # the ring's slots, two buffers, and four new tensors under way
        if fits != sizes:
            notes.append(
                f"/dev/shm has {room / 1e6:.0f} MB free, too little for messages above {fits[-1] / 1e6:.1f} MB: they are left"
                " out. Give the container more (docker run --shm-size=4g)."
            )
        sizes = fits
    else:
        notes.append("This system shows its shared memory nowhere (Linux has /dev/shm): torch's segments were not looked at.")
    counted = sharing.copies()
    looked = sharing.segments()
    method = methods()[0]
    measured, through, in_order = sharing.throughput(sizes, size.seconds, size.rounds, method)
    after = _traces()

    tensor = torch.ones(64 * KIB)
    lengths = {nbytes: sharing.message_bytes(torch.ones(nbytes // 4)) for nbytes in sizes}
    by_torch, by_pickle = sharing.message_bytes(tensor), len(pickle.dumps(torch.ones(64 * KIB)))
    copies = {row["route"]: row["copies"] for row in counted}
    rate = {(row["route"], row["bytes"]): row["MB/s"] for row in measured}
    small, large = sizes[0], sizes[-1]
    quantities: dict[str, Any] = {
        LARGEST: rate["torch", large] / rate["pickle", large],
        SMALLEST: rate["torch", small] / rate["pickle", small],
        REUSED: rate["reused", large] / rate["torch", large],
        RING: rate["ring", small] / rate["torch", small],
        MESSAGE: max(lengths.values()),
    }
    crossover = sharing.crossover(measured)
    if crossover is not None:
        quantities[CROSSOVER] = crossover / 1e3
    claims = [
        Claim(
            "a handle is a message of less than 1000 bytes, whatever the tensor's size",
            max(lengths.values()) < 1000,
            f"{min(lengths.values())} to {max(lengths.values())} bytes",
        ),
        Claim(
            "torch.multiprocessing makes every multiprocessing queue send a tensor as a handle; pickle.dumps copies it",
            by_torch < 1000 and by_pickle > tensor.nbytes,
            f"{by_torch} and {by_pickle} bytes for a tensor of {tensor.nbytes}",
        ),
        Claim(
            "bytes through a pipe are copied at least four times, a new tensor once, a shared one and a ring's slot never",
            min(copies["pickle"], copies["bytes"]) >= 4 and copies["torch"] == 1 and copies["reused"] == copies["ring"] == 0,
            ", ".join(f"{route} {number}" for route, number in copies.items()),
        ),
        Claim(
            "what the consumer writes into a handed tensor or a slot the producer sees; into a pickled copy it does not",
            through == {"pickle": False, "bytes": False, "torch": True, "reused": True, "ring": True},
            ", ".join(f"{route} {'seen' if seen else 'not seen'}" for route, seen in through.items()),
        ),
        Claim(
            "every message arrived in order, with its number at both ends, on every route",
            in_order and len(measured) == len(sizes) * len(sharing.ROUTES),
            f"{sum(row['messages'] for row in measured)} messages",
        ),
        Claim(
            "each kind of shared segment is seen while it is in use, and is gone afterwards",
            all(row["while in use"] and not row["afterwards"] for row in looked),
            ", ".join(f"{row['segment']}: {row['seen as']}" for row in looked),
        ),
        Claim(NOTHING_LEFT, after == before, f"{len(after[0] - before[0])} and {len(after[1] - before[1])}"),
        Claim(
            "at the smallest size a handle is slower than a pickled array",
            quantities[SMALLEST] < 1,
            f"{quantities[SMALLEST]:.2f} times as fast",
            exact=False,
        ),
        Claim(
            "at the largest size handles are faster, and buffers that come back are faster still",
            quantities[LARGEST] > 1 and quantities[REUSED] > 1,
            f"{quantities[LARGEST]:.1f} and again {quantities[REUSED]:.1f} times as fast",
            exact=False,
        ),
    ]
    table = [
        {
            "route": row["route"],
            "KB": row["bytes"] / 1e3,
            "copies": copies[row["route"]],
            "messages/s": row["messages/s"],
            "µs per message": row["µs per message"],
            "MB/s": row["MB/s"],
        }
        for row in measured
    ]
    return Result(table, claims, quantities, notes, {"copies": counted, "segments": looked, "method": method})


# ---- producer-consumer --------------------------------------------------------------------------------------------------

COLOURS = {relay.FILLS: style.BLUE, relay.READS: style.GREEN, relay.WAITS_FREE: style.ORANGE, relay.WAITS_ITEM: style.YELLOW}
FAST_PRODUCER, FAST_CONSUMER, UNEVEN_1, UNEVEN = "fast producer", "fast consumer", "uneven, 1 slot", "uneven"


def draw_producer_consumer(result: Result):
    """When the producer filled slots, when the consumer read them, and when each waited for the other. Top to bottom: a fast
    producer is held back as soon as all slots are full; a fast consumer waits for each item; with uneven times one slot makes
    both wait, and more slots let one side run ahead of the other.
    """
    panels = result.arrays["timelines"]
    figure = style.new_figure(9, 1.25 * len(panels) + 1)
    all_axes = figure.subplots(len(panels), 1, sharex=True)
    longest = max(row["end"] for panel in panels for row in panel["rows"])
    scale, unit = (1e3, "ms") if longest < 2 else (1.0, "s")
    for axes, panel in zip(all_axes, panels, strict=True):
        gantt(axes, panel["rows"], COLOURS, (relay.PRODUCER, relay.CONSUMER))
        axes.set(title=panel["title"], xlabel="")
    all_axes[-1].set(xlabel=f"time in {unit}", xlim=(0, longest * scale * 1.01))
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def alone_with_a_ring(slots: int, seconds: float = 0.05) -> dict[str, str]:
    """The errors of a side whose partner never comes: a take from an empty ring, and one put more than there are slots."""
    told = {}
    with Ring(slots, (1,), deadline_seconds=seconds, start_seconds=seconds) as ring:
        for what, work in (("take", ring.take), ("put", lambda: [ring.put(number) for number in range(slots + 1)])):
            try:
                work()
                told[what] = "no error"
            except TimeoutError as error:
                told[what] = str(error)
    return told


def thread_local_demo(threads: int) -> tuple[list[int], list[int], str]:
    """What each thread reads back after all have written: from an attribute that they share, and from a threading.local.

    And what the calling thread, which wrote nothing, gets when it reads the threading.local.
    """

    class Shared:
        x = -1

    shared, mine, written = Shared(), threading.local(), threading.Barrier(threads)
    seen = [(-1, -1)] * threads

    def work(number: int) -> None:
        shared.x = mine.x = number
        written.wait(10)  # nobody reads before all have written
        seen[number] = (shared.x, mine.x)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    try:
        own = f"{mine.x}"
    except AttributeError as error:
        own = f"AttributeError: {error}"
    return [one for one, _ in seen], [one for _, one in seen], own


@experiment(
    "producer-consumer",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_producer_consumer,
    quick=dict(items=16, seconds=0.016, slots=4, kib=256, methods=("fork", "spawn")),
    full=dict(items=40, seconds=0.05, slots=4, kib=1024, methods=("fork", "spawn", "forkserver")),
)
def producer_consumer(size: Size) -> Result:
    """A ring of shared tensors between a producer and a consumer.

    The lecture: shared memory, and the producer-consumer pattern on it.
    """
    before = _traces()
    method, known = methods()[0], multiprocessing.get_all_start_methods()
    n, fast, slow = size.items, size.seconds / 4, size.seconds
    shape = (size.kib * KIB // 4,)
    uneven = [[2 * slow if (number // 2) % 2 == side else 0.0 for number in range(n)] for side in range(2)]
    cases = {
        FAST_PRODUCER: ([fast] * n, [slow] * n, size.slots),
        FAST_CONSUMER: ([slow] * n, [fast] * n, size.slots),
        UNEVEN_1: (*uneven, 1),
        UNEVEN: (*uneven, size.slots),
    }
    runs = {}
    with suppress_fork_warning():
        for name, (make, use, slots) in cases.items():
            runs[name] = relay.run(make, use, slots=slots, shape=shape, method=method)
        started = {
            one: relay.run([0.0] * n, [0.0] * n, slots=size.slots, shape=(1024,), method=one)
            for one in size.methods
            if one in known and (one != "fork" or "fork" in methods())
        }
    alone = alone_with_a_ring(size.slots)
    after = _traces()
    right, small = relay.checksum(n, shape), relay.checksum(n, (1024,))

    table, timelines = [], []
    for name, (make, use, slots) in cases.items():
        run = runs[name]
        serial = sum(make) + sum(use)
        table.append(
            {
                "case": name,
                "slots": slots,
                "made in, s": sum(make),
                "used in, s": sum(use),
                "took, s": run.seconds,
                "in turn, s": serial,
                "times faster": serial / run.seconds,
                "producer waits, s": busy(run.of(relay.WAITS_FREE)),
                "consumer waits, s": busy(run.of(relay.WAITS_ITEM)),
                "most in the ring": max(run.ahead),
            }
        )
        timelines.append({"title": f"{name}, {slots} slots" if slots > 1 else name, "rows": rows(run.spans)})
    by_case = {row["case"]: row for row in table}
    shared, own, main = thread_local_demo(4)
    not_early = all(
        fill.start >= read.end
        for name, run in runs.items()
        for fill, read in zip(run.of(relay.FILLS)[cases[name][2] :], run.of(relay.READS), strict=False)
    )
    quantities = {
        "producer waits where the consumer is slow, %": 100 * _share(runs[FAST_PRODUCER], relay.WAITS_FREE, relay.FILLS),
        "consumer waits where the producer is slow, %": 100 * _share(runs[FAST_CONSUMER], relay.WAITS_ITEM, relay.READS),
        "uneven work, more slots over one slot, times": by_case[UNEVEN_1]["took, s"] / by_case[UNEVEN]["took, s"],
    }
    everything = [*runs.values(), *started.values()]
    claims = [
        Claim(
            "the consumer's bytes are those of the producer, all of them in order: the checksums agree",
            all(run.put == run.taken == right for run in runs.values())
            and all(run.order == list(range(n)) for run in everything),
            f"CRC-32 {right:08x}",
        ),
        Claim(
            "the ring passes the same bytes however the processes are started",
            len(started) > 0 and all(run.put == run.taken == small for run in started.values()),
            ", ".join(started),
        ),
        Claim(
            "no slot is filled again before its item was read",
            not_early,
            f"{sum(max(0, n - slots) for _, _, slots in cases.values())} slots used again",
        ),
        Claim(
            "back-pressure: no run ever has more items in the ring than slots",
            all(max(runs[name].ahead) <= case[2] for name, case in cases.items()),
            ", ".join(f"{name}: {max(run.ahead)}" for name, run in runs.items()),
        ),
        Claim(
            "where one side is gone, the other's wait ends at its deadline, with an error that names the side that is missing",
            "consumer" in alone["put"] and "producer" in alone["take"],
            f"{alone['put']} {alone['take']}",
        ),
        Claim(
            "threads that share an object read the last value written; from a threading.local each reads its own",
            len(set(shared)) == 1 and own == list(range(4)) and main.startswith("AttributeError"),
            f"shared {shared}, local {own}; the thread that wrote nothing: {main}",
        ),
        Claim(NOTHING_LEFT, after == before, f"{len(after[0] - before[0])} and {len(after[1] - before[1])}"),
        Claim(
            "the faster side waits more than the slower one",
            by_case[FAST_PRODUCER]["producer waits, s"] > by_case[FAST_PRODUCER]["consumer waits, s"]
            and by_case[FAST_CONSUMER]["consumer waits, s"] > by_case[FAST_CONSUMER]["producer waits, s"],
            f"{quantities['producer waits where the consumer is slow, %']:.0f} % and "
            f"{quantities['consumer waits where the producer is slow, %']:.0f} % of its time",
            exact=False,
        ),
        Claim(
            "a run takes little longer than its slower side alone",
            all(
                by_case[name]["took, s"] < 1.25 * max(by_case[name]["made in, s"], by_case[name]["used in, s"])
                for name in (FAST_PRODUCER, FAST_CONSUMER)
            ),
            ", ".join(f"{name} {by_case[name]['times faster']:.2f}" for name in (FAST_PRODUCER, FAST_CONSUMER))
            + " times faster than in turn",
            exact=False,
        ),
        Claim(
            "with uneven work, more slots are faster than one",
            quantities["uneven work, more slots over one slot, times"] > 1.05,
            f"{quantities['uneven work, more slots over one slot, times']:.2f} times as fast",
            exact=False,
        ),
    ]
    missing = [one for one in size.methods if one not in started]
    notes = [f"Not run here: {', '.join(missing)}, which this system does not offer or not safely."] if missing else []
    return Result(table, claims, quantities, notes, {"timelines": timelines, "segment": runs[UNEVEN].segment})


def _share(run: relay.Relay, waits: str, works: str) -> float:
    """The part of its own time that a side waited."""
    waited = busy(run.of(waits))
    return waited / (waited + busy(run.of(works)))
