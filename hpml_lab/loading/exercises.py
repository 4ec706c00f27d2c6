"""The checks of notebook 08's exercises. Nothing here sleeps, starts a worker or looks at a clock."""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.exercises import Mistake, exercise, expect, same
from hpml_lab.loading import planted
from hpml_lab.loading.samplers import BIG, Draws, Indices

NOTEBOOK = "08_loading"


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


# ---- predict-speed-up --------------------------------------------------------------------------------------

# One epoch: seconds of loading and of computing when nothing overlaps, and the number of batches.
LOAD, COMPUTE, BATCHES, WORKERS = 120.0, 20.0, 60, (2, 4, 8, 16)


def _speed_ups(seconds: Callable[[int], float]) -> tuple[float, ...]:
    return tuple((LOAD + COMPUTE) / seconds(n) for n in WORKERS)


def _epoch(n: int) -> float:
    """Seconds of an epoch with n workers: the first batch, then whichever is slower, the workers or the compute."""
    return LOAD / BATCHES + max(COMPUTE, LOAD / n)


_SPEED_UP_MISTAKES: dict[str, tuple[tuple[float, ...], str]] = {
    "compute-divided-too": (
        _speed_ups(lambda n: (LOAD + COMPUTE) / n),
        "That is the lecture's formula, (load + compute) / N: a speed-up of N. Which of the two do the workers not take over?",
    ),
    "compute-bound-ignored": (
        _speed_ups(lambda n: LOAD / BATCHES + LOAD / n),
        "Right for few workers. With many of them your epoch is shorter than its compute alone.",
    ),
    "first-batch-ignored": (
        _speed_ups(lambda n: max(COMPUTE, LOAD / n)),
        "Almost: what does the compute do until the first batch is there?",
    ),
    "nothing-overlaps": (
        _speed_ups(lambda n: COMPUTE + LOAD / n),
        "You let the compute wait until all is loaded. Workers load the next batches meanwhile.",
    ),
    "the-faster-decides": (
        _speed_ups(lambda n: LOAD / BATCHES + min(COMPUTE, LOAD / n)),
        "Of two stages that run side by side, does the faster or the slower one decide when the epoch ends?",
    ),
    "seconds-instead": (
        tuple(_epoch(n) for n in WORKERS),
        "These are the epoch's seconds. A speed-up is a ratio: seconds without workers over seconds with them.",
    ),
    "upside-down": (
        tuple(_epoch(n) / (LOAD + COMPUTE) for n in WORKERS),
        "Turn your ratio around: a speed-up above 1 means faster.",
    ),
    "compute-left-out-of-the-base": (
        tuple(LOAD / _epoch(n) for n in WORKERS),
        "Without workers the epoch takes load and compute, one after the other.",
    ),
}


@exercise("predict-speed-up", notebook=NOTEBOOK)
def judge_predict_speed_up(answer: Any) -> None:
    """(load + compute) / (load / batches + max(compute, load / N)) for N = 2, 4, 8, 16, within 2 %."""
    if callable(answer):
        raise TypeError("asked are four numbers, not a function")
    if isinstance(answer, tuple | list) and len(answer) != len(WORKERS):
        raise Mistake("wrong-count", f"Asked are four numbers, for {WORKERS} workers; yours are {len(answer)}.")
    right = _speed_ups(_epoch)
    expect(answer, right, case="2, 4, 8 and 16 workers", mistakes=_SPEED_UP_MISTAKES, tolerance=0.02)


# ---- block-sampler -----------------------------------------------------------------------------------------

BLOCK_CASES = ((24, 4), (23, 5))  # the second has a smaller last block


@exercise("block-sampler", notebook=NOTEBOOK)
def judge_block_sampler(answer: Callable) -> None:
    """Blocks of neighbours in random order, shuffled within, anew in each epoch; each index once; a length."""
    for size, block in BLOCK_CASES:
        _seed(size)
        case = f"{size} samples in blocks of {block}"
        sampler = answer(size, block)
        if sampler is None:
            raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
        epochs = [_drawn(sampler, size, block, epoch) for epoch in (1, 2, 3)]
        for epoch in epochs:
            _each_once(epoch, size, block, case)
        if all(epoch == sorted(epoch) for epoch in epochs):
            raise Mistake("not-shuffled", f"For {case} the order is 0, 1, 2, …: nothing is random.")
        if epochs[0] == epochs[1] == epochs[2]:
            raise Mistake(
                "same-order-every-epoch",
                "Three epochs have the same order: it is drawn in __init__, or __iter__ seeds its generator each time.",
            )
        _in_blocks(epochs, block, case)
        _has_length(sampler, size, block, case)
        loaded = [i for batch in DataLoader(Indices(size), batch_size=4, sampler=sampler) for i in batch.tolist()]
        _each_once(loaded, size, block, f"{case}, through a DataLoader")


def _drawn(sampler: Any, size: int, block: int, epoch: int) -> list[int]:
    """One epoch's indices; more than enough of them end the epoch, so that a sampler without an end is noticed."""
    if not hasattr(sampler, "__iter__"):
        raise Mistake("not-iterable", "A sampler has __iter__, which gives an epoch's indices one by one.")
    drawn = list(itertools.islice(iter(sampler), 4 * size + 4 * block))
    if epoch > 1 and not drawn:
        raise Mistake(
            "empty-second-epoch",
            "The second epoch is empty: an iterator is used up after one pass. __iter__ starts a new one each time.",
        )
    if drawn and all(isinstance(item, list | tuple) or getattr(item, "ndim", 0) > 0 for item in drawn):
        raise Mistake("yields-blocks", "Your sampler yields whole blocks. A sampler yields single indices: `yield from block`.")
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
        raise Mistake(
            "drops-indices",
            f"For {case} an epoch never draws {never[0]} ({len(never)} of {size} are missing): look at the last block.",
        )


def _in_blocks(epochs: list[list[int]], block: int, case: str) -> None:
    """Each block's indices follow one another; blocks and their insides are both in random order."""
    orders, blocks = [], []
    for drawn in epochs:
        runs = [(key, list(run)) for key, run in itertools.groupby(drawn, key=lambda index: index // block)]
        order = [key for key, _ in runs]
        if len(order) != len(set(order)):
            raise Mistake(
                "blocks-torn", f"For {case}, neighbours on the disk are scattered: draw a block to its end before the next."
            )
        orders.append(order)
        blocks += [run for _, run in runs]
    if all(order == sorted(order) for order in orders):
        raise Mistake(
            "blocks-in-order", "You shuffle within the blocks, but the blocks themselves come in the order of the disk."
        )
    if all(run == sorted(run) for run in blocks):
        raise Mistake(
            "not-shuffled-inside", "The blocks come in random order, but within a block the indices are still sorted."
        )
    if len({tuple(order) for order in orders}) == 1:
        raise Mistake("same-order-every-epoch", "The blocks come in the same order in each epoch.")


def _has_length(sampler: Any, size: int, block: int, case: str) -> None:
    try:
        length = len(sampler)
    except (TypeError, NotImplementedError):
        raise Mistake("no-length", "len(sampler) raises: a DataLoader needs __len__ to tell its number of batches.") from None
    if length == -(-size // block) or length == size // block:
        raise Mistake("length-counts-blocks", f"For {case} len(sampler) is {length}: count the indices, not the blocks.")
    if length != size:
        raise Mistake("wrong-length", f"For {case} len(sampler) should be {size}; yours is {length}.")


# ---- flip-together -----------------------------------------------------------------------------------------

FLIP_PAIRS = ((0, 1), (3, 4))


def _flip(image: torch.Tensor, points: torch.Tensor, pairs: tuple) -> tuple[torch.Tensor, torch.Tensor]:
    """x → W − 1 − x for both, then left and right rows change places."""
    moved = _mirrored(points, image.shape[-1] - 1)
    return image.flip(-1), _swapped(moved, pairs)


def _mirrored(points: torch.Tensor, around: float, axis: int = 0) -> torch.Tensor:
    points = points.clone()
    points[:, axis] = around - points[:, axis]
    return points


def _swapped(points: torch.Tensor, pairs: tuple) -> torch.Tensor:
    rows = list(range(len(points)))
    for left, right in pairs:
        rows[left], rows[right] = right, left
    return points[rows]


def _flip_mistakes(image: torch.Tensor, points: torch.Tensor, pairs: tuple) -> dict[str, tuple[Any, str]]:
    """Each mistake's (image, points): with and without the exchange of left and right where that is another matter."""
    height, width = image.shape[-2:]
    across, down = image.flip(-1), image.flip(-2)
    right = _mirrored(points, width - 1)
    twice = _mirrored(points, height - 1, axis=1)
    table = {
        "image-only": (
            across,
            (points, _swapped(points, pairs)),
            "The image is mirrored, and its landmarks stayed where they were.",
        ),
        "points-only": (image, (right, _swapped(right, pairs)), "The landmarks moved, and the image stayed as it was."),
        "nothing-moved": (image, (points,), "Image and landmarks are as they were."),
        "upside-down": (
            down,
            (twice, _swapped(twice, pairs)),
            "You mirror from top to bottom. The last dimension of an image (C, H, W) is its width.",
        ),
        "wrong-axis": (
            across,
            (twice, _swapped(twice, pairs)),
            "The image is mirrored from left to right, the landmarks from top to bottom: column 0 of `points` is x.",
        ),
        "wrong-axis-of-the-image": (
            down,
            (right, _swapped(right, pairs)),
            "The landmarks are mirrored from left to right, the image from top to bottom: its last dimension is the width.",
        ),
        "off-by-one": (
            across,
            (_mirrored(points, width), _swapped(_mirrored(points, width), pairs)),
            "Off by one pixel: columns are numbered 0 to W − 1. Where does column 0 go?",
        ),
        "height-for-width": (
            across,
            tuple(_swapped(p, q) for h in (height - 1, height) for p in [_mirrored(points, h)] for q in ((), pairs)),
            "You mirror x about the image's height. The image is (C, H, W).",
        ),
        "sign-only": (
            across,
            (_mirrored(points, 0), _swapped(_mirrored(points, 0), pairs)),
            "Your x is negative: outside the image. A mirror image lies in the same frame.",
        ),
        "left-and-right-not-exchanged": (
            across,
            (right,),
            "Each point is where it belongs, but the mirror makes the left eye the right one: exchange the rows of `pairs`.",
        ),
    }
    lost = right.clone()
    for left, other in pairs:
        lost[left] = lost[other]
    table["rows-lost-in-the-exchange"] = (
        across,
        (lost,),
        "Both rows of a pair are now the same. points[left] is a view: one row is overwritten before it is read.",
    )
    return {name: ([(picture, p) for p in places], hint) for name, (picture, places, hint) in table.items()}


@exercise("flip-together", notebook=NOTEBOOK)
def judge_flip_together(answer: Callable) -> None:
    """(image mirrored, points at W − 1 − x with left and right exchanged), both new."""
    generator = torch.Generator().manual_seed(0)
    for channels, height, width in ((3, 8, 14), (1, 11, 6)):
        image = torch.rand(channels, height, width, generator=generator)
        points = torch.rand(5, 2, generator=generator) * torch.tensor([width - 1.0, height - 1.0])
        right = _flip(image, points, FLIP_PAIRS)
        given = image.clone(), points.clone()
        got = answer(*given, FLIP_PAIRS)
        changed = [
            name for name, a, b in zip(("image", "points"), given, (image, points), strict=True) if not torch.equal(a, b)
        ]
        if changed:
            raise Mistake(
                "changed-in-place",
                f"Your function changes the `{changed[0]}` it is given: who asks again gets the mirror image of a mirror "
                "image. Work on a copy.",
            )
        if got is None:
            raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
        if not isinstance(got, tuple | list) or len(got) != 2:
            raise Mistake("returns-one", "Return two things: the image and its points.")
        if same(got, right, 1e-5):
            continue
        for name, (values, hint) in _flip_mistakes(image, points, FLIP_PAIRS).items():
            if any(same(got, value, 1e-5) for value in values):
                raise Mistake(name, hint)
        wrong = "image" if not same(got[0], right[0], 1e-5) else "points"
        ask = (
            f"x = {points[2, 0]:.2f} goes to {right[1][2, 0]:.2f}" if wrong == "points" else "its columns come in reverse order"
        )
        raise Mistake("wrong-value", f"With an image of {width} × {height} pixels your {wrong} should be others: {ask}.")


# ---- find-the-bottleneck -----------------------------------------------------------------------------------


@exercise("find-the-bottleneck", notebook=NOTEBOOK)
def judge_find_the_bottleneck(answer: Callable) -> None:
    """The table is parsed once a data set; each picture is read when its sample is asked for, and augmented anew."""
    count = 24
    stores = [planted.Store(count, side=6, seed=seed) for seed in (0, 1)]
    twins = [planted.Store(count, side=6, seed=seed) for seed in (0, 1)]  # their counts are nobody's matter
    right = [(twin.table(), [planted.decode(twin.read(index)) for index in range(count)]) for twin in twins]
    datasets = []
    for store in stores:
        dataset = answer(store)
        if dataset is None:
            raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise Mistake("not-a-dataset", "Return a Dataset: an object with __len__ and __getitem__.")
        if store.reads:
            raise Mistake(
                "reads-all-at-the-start",
                f"{len(store.reads)} pictures are read before the first sample is asked for. A data set that does not "
                "fit into memory dies here. Was reading the slow stage?",
            )
        datasets.append(dataset)
    _seed(0)
    frozen = False
    for number, (dataset, store) in enumerate(zip(datasets, stores, strict=True)):
        labels, pictures = right[number]
        mirrored: list[set[bool]] = [set() for _ in range(count)]  # of this data set: another one may have drawn otherwise
        if len(dataset) != count:
            raise Mistake("wrong-length", f"len(dataset) should be {count}; yours is {len(dataset)}.")
        for epoch in range(8):
            before = len(store.reads)
            for index in np.random.permutation(count).tolist():
                image, label = dataset[index]
                flips = [
                    flip for flip in (False, True) if torch.equal(image, pictures[index].flip(-1) if flip else pictures[index])
                ]
                if not flips:
                    other = any(torch.equal(image, p) or torch.equal(image, p.flip(-1)) for p in pictures)
                    raise Mistake(
                        "wrong-picture",
                        f"Sample {index} has {'the picture of another sample' if other else 'a picture of its own making'}: "
                        "it should be decode(store.read(index)), augmented.",
                    )
                if label != labels[index]:
                    of_other = number > 0 and label == right[0][0][index]
                    raise Mistake(
                        "shared-between-datasets" if of_other else "wrong-label",
                        f"Sample {index} should have the label {labels[index]}; yours is {label}."
                        + (
                            " It is the label of the data set that was made before: what is kept must belong to one data set."
                            * of_other
                        ),
                    )
                mirrored[index].update(flips)
            reads = store.reads[before:]
            if epoch and len(reads) < count and store.tables > count:
                raise Mistake(
                    "wrong-stage-mended",
                    "You keep pictures in memory, and the table is still parsed for each sample. Look at the bars.",
                )
            if epoch and len(reads) < count:
                raise Mistake(
                    "keeps-every-picture",
                    "In the second epoch no picture is read: all stay in memory, in each worker. Was reading the slow stage?",
                )
            if len(reads) > count:
                raise Mistake("reads-twice", f"{len(reads)} pictures are read for {count} samples.")
        if store.tables >= 8 * count:
            raise Mistake("still-parsed-for-each-sample", f"For {8 * count} samples the table is parsed {store.tables} times.")
        if store.tables > 1:
            raise Mistake(
                "parsed-more-than-once", f"The table is parsed {store.tables} times. Once is enough: where do you keep it?"
            )
        frozen |= all(len(seen) == 1 for seen in mirrored)
    if frozen:
        raise Mistake(
            "augmentation-frozen",
            "Over many epochs each picture looks the same: the random mirroring is gone, or was drawn once and kept.",
        )


# ---- seed-the-workers --------------------------------------------------------------------------------------

_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")


@exercise("seed-the-workers", notebook=NOTEBOOK)
def judge_seed_the_workers(answer: Callable) -> None:
    """dataset.rng = default_rng(base_seed + worker_id), here played in this process: no worker is started."""
    bases = (0x1234_5678_9ABC_DEF0, 0x0FED_CBA9_8765_4321)  # the loader draws one an epoch, up to 63 bits long
    with _jumping_clocks():
        played = {(epoch, worker): _worker(answer, base, worker) for epoch, base in enumerate(bases) for worker in range(3)}
        again = {key: _worker(answer, bases[key[0]], key[1]) for key in played}
    if not any(touched for touched, _ in played.values()):
        raise Mistake(
            "the-datasets-generator-untouched",
            "Every worker still draws what the Dataset's own generator was made with. A seed for np.random or torch does not "
            "reach it: the worker's copy of the Dataset is get_worker_info().dataset.",
        )
    code = getattr(answer, "__code__", None)
    if again != played or code is not None and {"getpid", "urandom", "uuid4"} & set(code.co_names):
        raise Mistake(
            "depends-on-time",
            "With the same base seed the numbers would be others the second time: a clock, a process id or the system's "
            "entropy is in your seed, and no run can be repeated.",
        )
    draws = {key: numbers for key, (_, numbers) in played.items()}
    if any(draws[epoch, 0] == draws[epoch, worker] for epoch in range(2) for worker in (1, 2)):
        if draws[0, 0] == draws[1, 0]:
            raise Mistake("one-seed-for-all", "All workers draw the same numbers, in each epoch: your seed is a constant.")
        raise Mistake(
            "same-in-all-workers",
            "Epochs differ, but all workers of an epoch draw the same numbers: what tells one from another?",
        )
    if draws[0, 1] == draws[1, 1]:
        raise Mistake("same-in-every-epoch", "Workers differ, but in the next epoch each draws its old numbers again.")
    if len({tuple(numbers) for numbers in draws.values()}) < len(draws):
        raise Mistake(
            "seeds-meet", "Two workers of different epochs have the same seed: how do epoch and worker go into yours?"
        )


def _worker(init: Callable, base: int, number: int) -> tuple[bool, list[int]]:
    """Play worker `number` of an epoch with the seed `base`, with all that torch sets before it calls worker_init_fn.

    Returns whether the data set's generator was changed, and what it draws.
    """
    from torch.utils.data._utils import worker  # there is no public way to be a worker without starting one

    dataset, seed = Draws(4, "own"), base + number
    before, state = dataset.rng, dataset.rng.bit_generator.state
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed([number, base % 2**32, base >> 32])
    info = worker.WorkerInfo(id=number, num_workers=3, seed=seed, dataset=dataset)
    with mock.patch.object(worker, "_worker_info", info):
        init(number)
    rng = info.dataset.rng
    if not hasattr(rng, "integers"):
        raise Mistake(
            "not-a-generator", f"dataset.rng is now a {type(rng).__name__}. Make a generator: np.random.default_rng(seed)."
        )
    touched = rng is not before or rng.bit_generator.state != state
    return touched, [int(rng.integers(BIG)) for _ in range(4)]


@contextlib.contextmanager
def _jumping_clocks() -> Iterator[None]:
    """In this thread each look at a clock finds it far ahead, so that a seed taken from it differs from call to call."""
    ticks, here = itertools.count(1_000_003, 1_000_003), threading.get_ident()

    def jumping(clock: Callable) -> Callable:
        return lambda: next(ticks) if threading.get_ident() == here else clock()

    with contextlib.ExitStack() as stack:
        for name in _CLOCKS:
            stack.enter_context(mock.patch.object(time, name, jumping(getattr(time, name))))
        yield
