"""One-hot vectors or an embedding: the same rows and gradients, at very different prices in memory and time.

Time and memory of a look-up by vocabulary; then what the optimizer makes of a gradient that has few rows with numbers in them.
"""

import math

import torch

from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.show.progress import progress
from hpml_lab.targets.experiments.one_hot_vs_embedding.lookup import LookUp, fits, free_bytes, look_up
from hpml_lab.targets.experiments.one_hot_vs_embedding.sparse_optimizers import (
    BASE,
    SPARSE_ADAM,
    SPARSE_MOMENTUM,
    EmbeddingStep,
    UnseenRow,
    embedding_steps,
    needed_bytes,
    sparse_refusals,
    unseen_rows,
)
from hpml_lab.targets.lessons.one_hot import one_hot_bytes

QUICK = dict(
    vocabularies=(100, 1_000, 10_000, 100_000, 1_000_000),
    one_hot_to=100_000,
    trained=(1_000, 100_000),
    gpu_trained=(),
    width=32,
    batch=256,
    samples=SAMPLES,
    unseen_steps=100,
)
FULL = QUICK | dict(one_hot_to=1_000_000, trained=(1_000, 10_000, 100_000, 1_000_000))
FULL |= dict(gpu_trained=(10_000_000,))  # a fast GPU goes through a table of a million rows while a few kernels are launched
COMPARED = 100_000  # words: the largest vocabulary of both sizes with one-hot vectors and training
ROUNDED = 1 << 22  # a GPU's allocator hands out whole blocks: what it counts may be larger by this


# ---- drawing ---------------------------------------------------------------------------------------------------------

WAYS = (
    ("one_hot_us", "one-hot and product", style.ORANGE, "o", "-"),
    ("product_us", "product alone", style.PURPLE, "s", "--"),
    ("embedding_us", "embedding", style.BLUE, "^", "-."),
)


def draw(result: Result):
    """The rows for one batch of ids, by size of the vocabulary, both axes logarithmic. Left: time. Right: memory at its peak;
    the lines are formulas, the filled markers are counted, the open ones are what was not run would need, the gray line is the
    table itself, which both ways need. Look for what grows with the vocabulary, and what does not."""
    figure = style.new_figure(9.5, 4.2)
    times, memory = figure.subplots(1, 2)
    rows = result.rows(LookUp)
    for name, label, color, marker, line in WAYS:
        found = [(row.vocabulary, getattr(row, name)) for row in rows if getattr(row, name) is not None]
        times.plot(*zip(*found, strict=True), color=color, marker=marker, linestyle=line, label=label)
    times.set(ylabel="time of a look-up (µs)", title="Time")
    sizes = [row.vocabulary for row in rows]
    memory.plot(sizes, [row.one_hot_bytes / 1e6 for row in rows], color=style.ORANGE, label="one-hot")
    for row in rows:
        filled = row.counted_bytes is not None
        value = row.counted_bytes if filled else row.one_hot_bytes
        face = style.ORANGE if filled else "none"
        memory.plot(row.vocabulary, value / 1e6, "o", color=style.ORANGE, markerfacecolor=face, zorder=3)
    memory.plot(sizes, [row.weight_bytes / 1e6 for row in rows], color=style.GREY, linestyle=":", label="the table itself")
    embedding = [row.embedding_bytes / 1e6 for row in rows]
    memory.plot(sizes, embedding, color=style.BLUE, marker="^", linestyle="-.", label="embedding")
    memory.set(ylabel="memory (MB)", title="Memory")
    for axes in (times, memory):
        axes.set(xscale="log", yscale="log", xlabel="vocabulary (rows)")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=20)
        axes.minorticks_off()
        axes.legend(fontsize=9, loc="upper left")
    return figure


@picture
def dense_and_sparse_steps(result: Result):
    """Training one embedding, at the largest vocabulary that was trained. Left: time of a step; the markers are open where the
    gradient is sparse, which takes a small part of a MB. Right: memory next to the table itself, gradient and state.
    Look at SparseAdam on both sides: what does it save?"""
    figure = style.new_figure(9.5, 4.0)
    times, memory = figure.subplots(1, 2, sharey=True)
    rows = result.rows(EmbeddingStep)
    rows = [row for row in rows if row.vocabulary == rows[-1].vocabulary][::-1]
    for y, row in enumerate(rows):
        if row.step_ms is not None:
            times.plot(row.step_ms, y, "o", color=style.BLUE, markersize=9, fillstyle="none" if row.sparse else "full")
        else:
            times.text(
                0.5, y, "no time: each step takes longer", transform=times.get_yaxis_transform(), ha="center", va="center"
            )
        gradient = row.gradient_bytes / 1e6
        names = ("gradient", "state") if y == 0 else (None, None)
        memory.barh(y, gradient, color=style.ORANGE, label=names[0])
        memory.barh(y, row.state_bytes / 1e6, left=gradient, color=style.GREEN, label=names[1])
        words = f"{gradient:,.2g} + {row.state_bytes / 1e6:,.2g}" if row.sparse else ""
        memory.annotate(
            words, (gradient + row.state_bytes / 1e6, y), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    times.set_yticks(range(len(rows)), [row.optimizer for row in rows])
    times.set(
        xscale="log", ylim=(-0.6, len(rows) - 0.4), xlabel="time of a step (ms)", title=f"Vocabulary {rows[0].vocabulary:,}"
    )
    memory.set(xlabel="MB", title="Memory next to the table")
    memory.legend(loc="lower right")
    memory.margins(x=0.12)
    for axes in (times, memory):
        axes.set_axisbelow(True)
    memory.grid(visible=False, axis="y")
    return figure


@picture
def way_of_an_unseen_row(result: Result):
    """How far a row of the table has gone from its start, in units of its first step. It is in the batch in step 1 only; all
    later batches hold other words. Look at which optimizers stop with it, and which carry on."""
    figure = style.new_figure(7.5, 3.8)
    axes = figure.subplots()
    rows = {row.optimizer: row for row in result.rows(UnseenRow)}
    shown = (BASE, SPARSE_ADAM, "SGD with momentum", SPARSE_MOMENTUM)
    for name, color, line in zip(shown, style.CYCLE, ("-", "-.", "--", ":"), strict=False):
        way = rows[name].by_step
        axes.plot(range(1, len(way) + 1), way, color=color, linestyle=line, label=name, linewidth=4 if line == ":" else 2)
    axes.set(xlabel="step", ylabel="distance from the start (in first steps)", ylim=(0, None))
    axes.legend(fontsize=9, loc="center right", bbox_to_anchor=(1, 0.36))
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


def adams_way(steps: int, beta1: float = 0.9, beta2: float = 0.999) -> float:
    """How far Adam moves what had a gradient in its first step only, in units of that step: bias-corrected m / √v, summed."""
    ratios = (
        beta1 ** (t - 1) * (1 - beta1) / (1 - beta1**t) / math.sqrt(beta2 ** (t - 1) * (1 - beta2) / (1 - beta2**t))
        for t in range(1, steps + 1)
    )
    return sum(ratios)


def momentums_way(steps: int, momentum: float = 0.9) -> float:
    """The same for SGD with momentum: a geometric series."""
    return (1 - momentum**steps) / (1 - momentum)


def judge_look_ups(result: Result, rows: list[LookUp], gains: list[SpeedUp | None], params: Params) -> None:
    """Add what both ways share, and what they cost."""
    ran = [row for row in rows if row.counted_bytes is not None]
    allowed = ROUNDED if params.device.is_cuda else 0
    many = rows[-1].vocabulary
    result.key_figure(f"one-hot at {many:,} words, peak", one_hot_bytes(params.batch, many) / 1e6, "MB")
    if not ran:
        return
    result.claim(
        "A one-hot product gives bitwise the rows that a look-up reads, and bitwise the same gradient where no sum is rounded",
        all(row.equal_rows and row.equal_gradients for row in ran),
    )
    result.claim(
        "One-hot vectors take 12 bytes × batch × vocabulary at their peak: 8 of them for the int64 that F.one_hot makes first",
        all(0 <= row.counted_bytes - row.one_hot_bytes <= allowed for row in ran),
    )
    longer = {row.vocabulary: gain for row, gain in zip(rows, gains, strict=True) if gain and row.vocabulary >= 1_000}
    result.measured(
        "From 1,000 words on, one-hot vectors take longer than a look-up",
        bool(longer) and all(gain.slower for gain in longer.values()),
        "; ".join(f"{vocabulary:,}: {gain.slowdown_text}" for vocabulary, gain in longer.items()),
    )
    result.key_figure("the largest vocabulary with one-hot vectors", ran[-1].vocabulary, "words")
    for row in ran:
        if row.vocabulary == COMPARED:
            result.key_figure(f"one-hot next to a look-up, {COMPARED:,} words", row.times_as_long, "slowdown")


def judge_training(
    result: Result, steps: list[EmbeddingStep], gains: dict[str, SpeedUp] | None, unseen: list[UnseenRow]
) -> None:
    """Add what happens to rows that are not in the batch, and what a step costs."""
    by_name = {row.optimizer: row for row in unseen}
    adam, sparse, momentum = (by_name[name] for name in (BASE, SPARSE_ADAM, "SGD with momentum"))
    result.claim(
        "Adam moves rows that are not in the batch, and changes their statistics; SparseAdam leaves both bitwise as they were",
        (adam.moves, adam.statistics, sparse.moves, sparse.statistics) == (True, True, False, False),
    )
    n = len(adam.by_step)
    result.claim(
        f"In {n} steps a row seen once goes {adams_way(n):.2f} first steps by Adam, {momentums_way(n):.2f} by momentum",
        math.isclose(adam.path, adams_way(n), rel_tol=1e-5) and math.isclose(momentum.path, momentums_way(n), rel_tol=1e-5),
    )
    result.key_figure("way of a row seen once, Adam", adam.path, "first steps")
    if gains is None:
        return
    words = f"{steps[-1].vocabulary:,} words"
    gain = gains[SPARSE_ADAM]
    result.measured(f"At {words} a step of SparseAdam is faster than Adam's", gain.faster, str(gain))
    for row in steps:
        if (row.vocabulary, row.optimizer) == (COMPARED, SPARSE_ADAM):
            result.key_figure(f"a step of SparseAdam next to Adam, {COMPARED:,} words", row.gain, "speed-up")


@experiment("one-hot-vs-embedding", lecture="L3", notebook="18_targets", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def one_hot_vs_embedding(params: Params) -> Result:
    """Never one-hot: the same rows and gradients from an embedding, by vocabulary, and optimizers for its sparse gradients."""
    device = params.device.torch
    made = torch.Generator().manual_seed(0)
    table = torch.randn(max(params.vocabularies), params.width, generator=made).to(device)  # smaller ones are its first rows
    rows, gains, notes = [], [], []
    for vocabulary in progress(params.vocabularies, "vocabularies"):
        ids = torch.randint(vocabulary, (params.batch,), generator=made).to(device)
        row, slower = look_up(ids, table[:vocabulary], params.one_hot_to, params.samples)
        rows.append(row)
        gains.append(slower)
        if row.not_run:
            notes.append(f"One-hot vectors for {vocabulary:,} words were not run: {row.not_run}.")
    gpu = device if device.type == "cuda" else None
    steps, step_gains = [], None
    trained = params.trained + params.gpu_trained if params.device.is_cuda else params.trained
    for vocabulary in progress(trained, "optimizers"):
        needed = needed_bytes(vocabulary, params.width)
        if not fits(needed, device):
            free = free_bytes(device) / 1e9
            notes.append(f"Training {vocabulary:,} words needs {needed / 1e9:.3g} GB; {free:.3g} GB are free: not run.")
            continue
        weight = table[:vocabulary] if vocabulary <= len(table) else torch.randn(vocabulary, params.width, device=device)
        found, step_gains = embedding_steps(weight, params.batch, params.samples, gpu)
        steps += found
    unseen = unseen_rows(params.unseen_steps)
    result = Result(
        [
            Table(f"Rows for {params.batch} ids, {params.width} numbers each", rows),
            Table("One training step of an embedding", steps),
            Table(f"A row after it was seen: {params.unseen_steps} steps on other words", unseen),
            Table("Gradients of the other kind", sparse_refusals()),
        ],
        notes=notes,
    )
    judge_look_ups(result, rows, gains, params)
    judge_training(result, steps, step_gains, unseen)
    return result
