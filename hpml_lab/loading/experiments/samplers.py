"""samplers: which samples each sampler draws, and what the workers' seeds do to random numbers."""

import math
from dataclasses import dataclass

import numpy as np

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.data.lengths import padding
from hpml_lab.loading.lessons.sampling import (
    BUCKETS,
    RARE,
    SAMPLERS,
    draw_numbers,
    drawn_indices,
    imbalanced,
    make_sampler,
    repeats,
    seed_numpy_by_number,
    seed_own,
)

NOTEBOOK = "08_loading"
QUICK = dict(count=120, batch=8, many=4000, draws=8)
FULL = dict(count=240, batch=16, many=100_000, draws=64)


@dataclass
class SamplerDraws(Row):
    """What one sampler draws."""

    sampler: str = column("sampler")
    draws: int = column("draws an epoch")
    different: int = column("different indices")
    same_order: bool = column("second epoch in the same order")
    rare: float = column("rare class", "% of draws")
    padding: float = column("padding", "%")


@dataclass
class WorkerNumbers(Row):
    """Random numbers that two workers draw in two epochs."""

    source: str = column("random numbers in workers")
    across_workers: bool = column("repeat across workers")
    across_epochs: bool = column("repeat across epochs")


def draw_samplers(result: Result):
    """The index drawn over the position, for three epochs one after another, with samples of the rare class as orange
    triangles and the others as blue dots.

    Sequential is a straight line three times, random a cloud, subset a cloud in the upper half. Weighted is a cloud with many
    triangles: the few rare samples come again and again. Length buckets, a sampler of our own, are a cloud like random.
    """
    figure = style.new_figure(9.0, 5.6)
    rare = set(result.arrays["rare"])
    panels = figure.subplots(2, 3).ravel()
    for axes, name in zip(panels, SAMPLERS, strict=False):
        start = 0
        for epoch in result.arrays["epochs"][name]:
            positions, order = np.arange(start, start + len(epoch)), np.array(epoch)
            is_rare = np.array([index in rare for index in epoch])
            common, seldom = ("common", "rare") if not start else (None, None)
            axes.plot(positions[~is_rare], order[~is_rare], "o", markersize=2, color=style.BLUE, label=common)
            axes.plot(positions[is_rare], order[is_rare], "^", markersize=4, color=style.ORANGE, label=seldom)
            start += len(epoch)
            axes.axvline(start - 0.5, color=style.GREY, linewidth=1)
        axes.set(title=name, xlabel="position, three epochs", ylabel="index", ylim=(-2, result.arrays["count"] + 1))
        axes.set_xlim(-1, start)
    panels[-1].set_axis_off()  # there are five samplers
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center", title="class", markerscale=2)
    return figure


@picture
def lengths_in_batches(result: Result):
    """The length of each sample in the order of one epoch, random and in length buckets; grey lines separate the batches.

    In a bucketed batch all samples are about as long as the longest, so little is filled up.
    """
    figure = style.new_figure(9.0, 3.0)
    lengths, batch = result.arrays["lengths"], result.arrays["batch"]
    for axes, name in zip(figure.subplots(1, 2, sharey=True), ("random", BUCKETS), strict=True):
        order = result.arrays["epochs"][name][0]
        axes.plot([lengths[index] for index in order], "o", markersize=3, color=style.BLUE)
        for start in range(0, len(order), batch):
            axes.axvline(start - 0.5, color=style.GREY, linewidth=0.5)
            axes.hlines(
                max(lengths[i] for i in order[start : start + batch]), start - 0.5, start + batch - 0.5, color=style.ORANGE
            )
        axes.set(title=f"{name} (orange: what the batch is filled up to)", xlabel="position in the epoch", ylabel="length")
        axes.title.set_fontsize(9)
        axes.grid(False)
    return figure


@experiment("samplers", lecture="L0", notebook=NOTEBOOK, draw=draw_samplers, quick=QUICK, full=FULL, same_picture=True)
def samplers(params: Params) -> Result:
    """What each sampler draws, and what the workers' seeds do to random numbers."""
    labels, lengths = imbalanced(params.count)
    many, _ = imbalanced(params.many)
    epochs, rows = {}, []
    for name in SAMPLERS:
        epochs[name] = drawn_indices(make_sampler(name, labels, lengths, params.batch), params.count, params.batch, 3)
        # The share is taken over many draws, so that chance plays little part.
        order = list(make_sampler(name, many, [1] * params.many, params.batch))
        first, second, _ = epochs[name]
        rare, wasted = many[order].double().mean().item(), padding(lengths, first, params.batch)
        rows.append(SamplerDraws(name, len(first), len(set(first)), first == second, 100 * rare, 100 * wasted))
    numbers = _worker_numbers(params.draws)
    tables = [Table("What each sampler draws", rows), Table("Random numbers of two workers in two epochs", numbers)]
    arrays = {"epochs": epochs, "rare": labels.nonzero().ravel().tolist(), "count": params.count}
    result = Result(tables, arrays=arrays | {"lengths": lengths, "batch": params.batch})
    _claim_draws(result, params, rows, epochs)
    _claim_numbers(result, numbers)
    return result


NUMPY, TORCH, OWN = "NumPy's global generator", "torch's generator", "Generator kept in the Dataset"
OWN_SEEDED, BY_NUMBER = "the same, seeded in worker_init_fn", "np.random.seed(worker_id)"
REMADE = "loader's generator made anew each epoch"


def _worker_numbers(draws: int) -> list[WorkerNumbers]:
    cases = {
        NUMPY: draw_numbers("numpy", draws, 2),
        TORCH: draw_numbers("torch", draws, 2),
        OWN: draw_numbers("own", draws, 2),
        OWN_SEEDED: draw_numbers("own", draws, 2, seed_own),
        BY_NUMBER: draw_numbers("numpy", draws, 2, seed_numpy_by_number),
        REMADE: draw_numbers("torch", draws, 2, remake=True),
    }
    found = {source: repeats(numbers) for source, numbers in cases.items()}
    return [WorkerNumbers(source, repeated["across workers"], repeated["across epochs"]) for source, repeated in found.items()]


def _claim_draws(result: Result, params: Params, rows: list[SamplerDraws], epochs: dict[str, list[list[int]]]) -> None:
    by_name = {row.sampler: row for row in rows}
    complete = {name: [sorted(epoch) == list(range(params.count)) for epoch in epochs[name]] for name in SAMPLERS}
    bound = 4 * math.sqrt(0.25 / params.many)  # four standard deviations of a share of `many` draws at one half
    weighted = by_name["weighted"].rare / 100
    result.key_figure("rare class with weights", by_name["weighted"].rare, "% of draws")
    result.key_figure("rare class in random order", by_name["random"].rare, "% of draws")
    upper_half = [index >= params.count // 2 for index in range(params.count)]
    once = [*(complete[name] for name in ("sequential", "random", BUCKETS))]
    subset = [[index in set(epoch) for index in range(params.count)] == upper_half for epoch in epochs["subset"]]
    result.claim(
        "Sequential, random and length buckets draw each index once an epoch; subset draws each of its own once",
        all(all(found) for found in once) and all(subset) and by_name["subset"].draws == sum(upper_half),
        f"3 epochs of {params.count}",
    )
    result.claim(
        "Weighted draws both classes equally often, within four standard deviations; the others leave the rare class rare",
        abs(weighted - 0.5) < bound
        and not any(complete["weighted"])
        and all(abs(row.rare / 100 - RARE) < bound for row in rows if row.sampler != "weighted"),
        f"{100 * weighted:.2f} % of {params.many} draws, bound ± {100 * bound:.2f} %",
    )
    result.claim(
        "Length buckets need less than half the padding of a random order",
        by_name[BUCKETS].padding < by_name["random"].padding / 2,
        f"{by_name[BUCKETS].padding:.1f} % and {by_name['random'].padding:.1f} %",
    )


def _claim_numbers(result: Result, numbers: list[WorkerNumbers]) -> None:
    repeated = {row.source: (row.across_workers, row.across_epochs) for row in numbers}
    never = (False, False)
    result.claim(
        "Today's torch seeds NumPy's global generator in each worker: no numbers repeat",
        repeated[NUMPY] == repeated[TORCH] == never,
    )
    result.claim(
        "A Generator kept in the Dataset repeats across workers and epochs; seeded with base_seed + worker_id, in neither",
        repeated[OWN] == (True, True) and repeated[OWN_SEEDED] == never,
    )
    result.claim(
        "A seed made of the worker's number alone repeats across epochs, and so does a loader's generator made anew in each",
        repeated[BY_NUMBER] == repeated[REMADE] == (False, True),
    )
