"""Epochs of cheap images, such as MNIST's: a worker costs more than it saves, and whole batches need none."""

from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from hpml_lab.core import style
from hpml_lab.core.findings import column
from hpml_lab.core.picture import picture
from hpml_lab.core.render import plural
from hpml_lab.core.result import Result
from hpml_lab.core.timeline import CLOCK
from hpml_lab.core.workers import shutdown_workers
from hpml_lab.loading.pipeline import DEADLINE
from hpml_lab.loading.storage import BatchedImages, CheapImages, ready_made

IN_THE_LECTURE = {1: "6.7 (MNIST, with training, pinned memory)", 4: "4.1", 8: "4.5"}  # seconds by the number of workers


@dataclass
class CheapEpoch:
    """An epoch of cheap images, fetched one by one and in whole batches."""

    workers: int = column("workers")
    one_by_one: float = column("one by one", "s")
    whole_batches: float = column("whole batches", "s")


def cheap_epoch(images: CheapImages, batch_size: int, workers: int) -> tuple[float, int]:
    """Seconds of one epoch of DataLoader over `images`, start of its workers included, and the number of images seen."""
    batched = isinstance(images, BatchedImages)
    options: dict[str, Any] = {"timeout": DEADLINE} if workers else {}
    start = CLOCK()
    loader = DataLoader(images, batch_size, num_workers=workers, collate_fn=ready_made if batched else None, **options)
    iterator = iter(loader)
    try:
        seen = sum(len(labels) for _, labels in iterator)
        return CLOCK() - start, seen
    finally:
        shutdown_workers(iterator)


@picture
def cheap_images(result: Result):
    """Seconds of an epoch of cheap images by the number of workers, fetched one by one and in whole batches.

    One by one, workers cost more than they save; whole batches in the main process need none.
    """
    figure = style.new_figure(7, 3)
    axes = figure.subplots()
    rows = result.rows(CheapEpoch)
    ways = {
        "one by one": (-0.2, [row.one_by_one for row in rows], style.SKY, None),
        "whole batches": (0.2, [row.whole_batches for row in rows], style.GREEN, "///"),
    }
    for way, (shift, heights, color, hatch) in ways.items():
        where = [index + shift for index in range(len(rows))]
        axes.bar_label(
            axes.bar(where, heights, 0.36, color=color, hatch=hatch, edgecolor="white", label=way), fmt="%.2g", fontsize=8
        )
    axes.set_xticks(range(len(rows)), [str(row.workers) for row in rows])
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.15)
    axes.set_axisbelow(True)
    axes.set(xlabel="workers", ylabel="seconds of an epoch")
    axes.legend(fontsize=8, loc="upper left")
    return figure


def compare_cheap(result: Result, cheap: list[CheapEpoch]) -> None:
    """Add the key figures and the claims on cheap images."""
    by_workers = {row.workers: row for row in cheap}
    none, single, most = cheap[0], by_workers[1], cheap[-1]
    for row in cheap:
        label = f"cheap images, {plural(row.workers, 'worker')}"
        result.key_figure(label, row.one_by_one, "s", lecture=IN_THE_LECTURE.get(row.workers))
    result.key_figure(f"cheap images, {most.workers} workers, whole batches", most.whole_batches, "s")
    result.measured(
        "A worker makes cheap images slower",
        single.one_by_one > none.one_by_one,
        f"{none.one_by_one:.2f} → {single.one_by_one:.2f} s",
    )
    fastest = min(row.one_by_one for row in cheap)
    result.measured(
        "Whole batches in the main process beat every number of workers that fetch one by one",
        none.whole_batches < fastest,
        f"{fastest / none.whole_batches:.0f} times faster",
    )
