"""block-sampler: blocks of neighbors in random order, shuffled within, each index once an epoch."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.system.random_states import seed_everything
from hpml_lab.loading.lessons.sampling import Indices

BLOCK_CASES = ((24, 4), (23, 5), (24, 6))  # the second has a smaller last block, the third the first one's size
EDGES = ((3, 5), (6, 1), (1, 1), (11, 5), (9, 20))
EPOCHS = 120  # enough that what is never different is not a matter of chance
UNEVEN = 130.0  # χ² of up to 6 × 6 places: by chance once in 10¹⁵ checks


@exercise("block-sampler", notebook="08_loading", takes="size, block", returns=Iterable)
def judge_block_sampler(answer: Callable) -> None:
    """Blocks of neighbors in random order, shuffled within, anew in each epoch; each index once; a length."""
    for size, block in BLOCK_CASES:
        seed_everything(size)
        case = f"{size} samples in blocks of {block}"
        sampler = answer(size, block)
        epochs = [_drawn(sampler, size, block, epoch) for epoch in range(1, EPOCHS + 1)]
        for epoch in epochs:
            _each_once(epoch, size, block, case)
        if all(epoch == sorted(epoch) for epoch in epochs):
            raise Mistake("not-shuffled", f"For {case} the order is 0, 1, 2, …: nothing is random.")
        if all(epoch == epochs[0] for epoch in epochs):
            raise Mistake(
                "same-order-every-epoch",
                "All epochs have the same order if it is drawn only once, before __iter__, or if __iter__ seeds its "
                "generator each time.",
            )
        _in_blocks(epochs, block, case)
        if any(epoch == after for epoch, after in itertools.pairwise(epochs)):
            raise Mistake("same-order-again", "Two epochs in a row have different orders: each iter(sampler) draws a new one.")
        _has_length(sampler, size, block, case)
        loader = DataLoader(Indices(size), batch_size=4, sampler=sampler)
        loaded = [i for batch in itertools.islice(loader, size) for i in batch.tolist()]
        if len(loaded) > size:
            raise Mistake(
                "starts-again",
                "A DataLoader calls iter() on the iterator again for each batch. Where that starts a new epoch, none ever "
                "ends: let __iter__ return an iterator of its own, as with `yield`.",
            )
        _each_once(loaded, size, block, f"{case}, through a DataLoader")
    for size, block in EDGES:
        sampler, case = answer(size, block), f"{size} samples in blocks of {block}"
        _each_once(_drawn(sampler, size, block, 1), size, block, case)
        if size > 5 and all(_drawn(sampler, size, block, epoch) == list(range(size)) for epoch in (2, 3)):
            raise Mistake("edge-in-order", f"For {case} two epochs are in order: shuffle a single block, too.")
        _has_length(sampler, size, block, case)
    _leaves_generators(answer)


def _leaves_generators(answer: Callable) -> None:
    """An epoch draws from Python's, NumPy's or torch's generator, or from one of its own; it seeds none for everybody."""
    after = []
    for seed in (1, 2):
        seed_everything(seed)
        sampler = answer(24, 4)
        for epoch in (1, 2):
            _drawn(sampler, 24, 4, epoch)
        after.append({"random": random.random(), "np.random": np.random.random(), "torch": torch.rand(1).item()})
    for name, number in after[0].items():
        if number == after[1][name]:
            raise Mistake(
                "seeds-for-everybody",
                f"After an epoch {name} draws the same as in any other run: you have seeded the generator that everything else"
                " draws from, dropout for example. Draw from it, or make one of your own: torch.Generator().",
            )


def _drawn(sampler: Any, size: int, block: int, epoch: int) -> list[int]:
    """One epoch's indices; taking stops after more than enough, so that a sampler without an end is noticed."""
    if not hasattr(given := sampler.__iter__(), "__next__"):
        raise Mistake(
            "no-iterator",
            f"__iter__ returns a {type(given).__name__}, which is no iterator: return iter(…) of it, or use `yield`.",
        )
    drawn = list(itertools.islice(given, 4 * size + 4 * block))
    if epoch > 1 and not drawn:
        raise Mistake(
            "empty-second-epoch",
            "The second epoch is as long as the first. An iterator is used up after one pass: __iter__ starts a new one each"
            " time.",
        )
    if drawn and all(isinstance(item, list | tuple) or getattr(item, "ndim", 0) > 0 for item in drawn):
        raise Mistake("yields-blocks", "A sampler yields single indices, not whole blocks: `yield from block`.")
    return [int(index) for index in drawn]


def _each_once(drawn: list[int], size: int, block: int, case: str) -> None:
    if len(drawn) > size + 2 * block:
        raise Mistake("never-ends", f"For {case} the sampler gives far more indices than there are samples: when does it end?")
    outside = [index for index in drawn if not 0 <= index < size]
    if outside:
        raise Mistake("index-out-of-range", f"For {case} you draw {outside[0]}; the samples are numbered 0 to {size - 1}.")
    again = [index for index in range(size) if drawn.count(index) > 1]
    never = [index for index in range(size) if drawn.count(index) == 0]
    if again:
        also = f" and {never[0]} never" if never else ""
        raise Mistake("repeats-indices", f"For {case} an epoch draws {again[0]} more than once{also}.")
    if never:
        where = (
            "look at the last block."
            if never[0] >= (size - 1) // block * block
            else "does the range of your blocks depend on `size`?"
        )
        raise Mistake(
            "drops-indices", f"For {case} an epoch never draws {never[0]} ({len(never)} of {size} are missing): {where}"
        )


def _in_blocks(epochs: list[list[int]], block: int, case: str) -> None:
    """Each block's indices follow one another; blocks and their insides are both in random order."""
    orders, blocks = [], []
    for drawn in epochs:
        runs = [(key, list(run)) for key, run in itertools.groupby(drawn, key=lambda index: index // block)]
        order = [key for key, _ in runs]
        if len(order) != len(set(order)):
            raise _torn(runs, block, case)
        orders.append(order)
        blocks += [run for _, run in runs]
    if all(order == sorted(order) for order in orders):
        raise Mistake("blocks-in-order", "The blocks themselves are shuffled, too: they do not come in the order of the disk.")
    if all(run == sorted(run) for run in blocks):
        raise Mistake("not-shuffled-inside", "The indices within a block are shuffled, too: they do not stay sorted.")
    if len({tuple(order) for order in orders}) == 1:
        raise Mistake("same-order-every-epoch", "The blocks come in a new order in each epoch.")
    for key in orders[0]:
        places = {order.index(key) for order in orders}
        if len(places) == 1:
            raise Mistake("block-in-a-fixed-place", f"For {case}, block {key} is number {places.pop() + 1} in each epoch.")
    inside = [[index % block for index in run] for run in blocks]
    if all(map(_turned, orders)) or all(map(_turned, inside)):
        raise Mistake(
            "only-rotated",
            "Each block, and each index of one, is drawn at random: after the first, the others do not follow as on the disk.",
        )
    full = [tuple(run) for run in inside if len(run) == block]
    per_epoch = len(full) // len(epochs)
    groups = [full[at : at + per_epoch] for at in range(0, len(full), per_epoch)]
    if all(len(set(group)) == 1 for group in groups):
        raise Mistake(
            "same-shuffle-in-every-block",
            "No two blocks of an epoch are shuffled in the same way, except by chance: draw an order for each.",
        )
    by_block: dict[int, set[tuple[int, ...]]] = {}
    for run in blocks:
        by_block.setdefault(run[0] // block, set()).add(tuple(run))
    if any(len(seen) == 1 for key, seen in by_block.items() if len(next(iter(seen))) > 2):
        raise Mistake("same-order-inside-every-epoch", "Within a block the order is new in each epoch: draw it in __iter__.")
    for what, seen in (("The blocks", set(map(tuple, orders))), ("Within a block, the indices", set(full))):
        if len(seen) <= 2 * len(next(iter(seen))):  # no more than by turning it and reading it backwards
            raise Mistake("few-orders", f"{what} come in only {len(seen)} orders: any order should be possible.")
    for what, drawn in (("block {}", orders), ("index {} of a block", list(map(list, full)))):
        _in_any_place(what, drawn, case)


def _in_any_place(what: str, orders: list[list[int]], case: str) -> None:
    """Each of what is ordered is as often in one place as in another, within what chance does."""
    count = len(orders[0])
    places = Counter((item, place) for order in orders for place, item in enumerate(order))
    expected = len(orders) / count
    seen = {pair: places[pair] for pair in itertools.product(range(count), repeat=2)}
    if sum((found - expected) ** 2 for found in seen.values()) / expected > UNEVEN:
        (item, place), found = max(seen.items(), key=lambda pair: abs(pair[1] - expected))
        often = f"in {len(orders)} orders {what.format(item)} is number {place + 1} {found} times, not about {expected:.0f}"
        raise Mistake("not-any-order", f"For {case}, {often}: all orders should be equally likely, as of torch.randperm.")


def _torn(runs: list[tuple[int, list[int]]], block: int, case: str) -> Mistake:
    """The first block that another one interrupts."""
    keys = [key for key, _ in runs]
    at = next(at for at, key in enumerate(keys) if key in keys[at + 1 :])
    (key, run), (_, other) = runs[at : at + 2]
    return Mistake(
        "blocks-torn",
        f"For {case}, {run[-1]} is followed by {other[0]} before block {key} is at its end. The blocks are "
        f"0 … {block - 1}, {block} … {2 * block - 1} and so on: draw each to its end before the next.",
    )


def _turned(order: list[int]) -> bool:
    """True for 0, 1, 2 … or a rotation of it."""
    start = order.index(min(order))
    return order[start:] + order[:start] == sorted(order)


def _has_length(sampler: Any, size: int, block: int, case: str) -> None:
    try:
        length = len(sampler)
    except (TypeError, NotImplementedError):
        raise Mistake(
            "no-length", "len(sampler) has to work: a DataLoader needs __len__ to tell its number of batches."
        ) from None
    if length == size:
        return
    if length == -(-size // block) or length == size // block:
        raise Mistake("length-counts-blocks", f"For {case} len(sampler) is {length}: count the indices, not the blocks.")
    raise Mistake("wrong-length", f"For {case} len(sampler) should be {size}; yours is {length}.")
