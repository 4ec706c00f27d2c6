"""seed-the-workers: a worker_init_fn, called here as a worker would call it: no worker is started."""

import contextlib
import inspect
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import torch

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.loading.lessons.sampling import BIG, Draws

MANY = 100  # epochs, of which no two workers draw the same
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")


@exercise("seed-the-workers", notebook="08_loading", takes="worker_id", returns=None)
def judge_seed_the_workers(answer: Callable) -> None:
    """dataset.rng = default_rng(base_seed + worker_id), called in this process as a worker would: none is started."""
    first = 0x1234_5678_9ABC_DEF0  # the loader draws a base seed an epoch, up to 63 bits long
    alike = first + 2**16 * 5**6  # the same last six digits and the same last two bytes, but not the same 32 bits
    bases = (first, _unlike(first), alike)
    kept = _kept(answer)
    with _jumping_clocks():
        seen = {(epoch, worker): _worker(answer, base, worker) for epoch, base in enumerate(bases) for worker in range(3)}
        again = {key: _worker(answer, bases[key[0]], key[1]) for key in seen}
    if not any(touched for touched, _ in seen.values()):
        raise Mistake(
            "the-datasets-generator-untouched",
            "Every worker still draws what the Dataset's own generator was made with. || A seed for np.random or torch does "
            "not reach that generator: the worker's copy of the Dataset is get_worker_info().dataset.",
        )
    if again != seen and _kept(answer) != kept:
        raise Mistake(
            "counts-its-calls",
            "Your function keeps something from call to call, and its seed depends on it. || In each epoch a new worker "
            "starts with a new copy of the function: a count begins anew. What does differ in each epoch is in "
            "get_worker_info().",
        )
    if again != seen:
        raise Mistake(
            "depends-on-time",
            "With the same base seed the numbers must be the same the second time: a seed from a clock, a process id or the "
            "system's entropy repeats no run.",
        )
    draws = {key: numbers for key, (_, numbers) in seen.items()}
    if all(numbers == draws[0, 0] for numbers in draws.values()):
        raise Mistake("one-seed-for-all", "A seed that is a constant gives all workers the same numbers, in each epoch.")
    for epoch, (one, other) in itertools.product(range(3), itertools.combinations(range(3), 2)):
        if draws[epoch, one] == draws[epoch, other]:
            raise Mistake(
                "same-in-all-workers",
                f"Workers {one} and {other} of the same epoch draw the same numbers: their seeds differ in the last "
                "digits alone, by the worker's number. Does yours keep it?",
            )
    old = [worker for worker in range(3) if draws[0, worker] == draws[1, worker]]
    if old:
        who = "each" if len(old) == 3 else f"worker {old[0]}"
        raise Mistake("same-in-every-epoch", f"Workers differ, but in the next epoch {who} draws its old numbers again.")
    if any(draws[0, worker] == draws[2, worker] for worker in range(3)):
        raise Mistake(
            "too-few-seeds",
            "Only some digits or bits of the seed count in yours: two epochs whose seeds agree in them draw the same numbers. "
            "default_rng takes whole seeds, and np.random.seed 32 bits of them.",
        )
    if len({tuple(numbers) for numbers in draws.values()}) < len(draws):
        raise Mistake(
            "seeds-meet",
            "Two workers of different epochs have the same seed. || How do epoch and worker combine, so that no two are "
            "the same?",
        )
    draw = drawn()
    streams = {tuple(_worker(answer, draw.getrandbits(62), worker)[1]) for _ in range(MANY) for worker in range(3)}
    if len(streams) < 3 * MANY:
        raise Mistake(
            "too-few-seeds",
            f"In {MANY} epochs the {3 * MANY} workers draw only {len(streams)} different sequences: how many seeds can yours"
            " be? default_rng takes whole ones.",
        )


def _unlike(first: int) -> int:
    """A base seed, drawn for this check, with another remainder than `first` by each number up to 1000.

    What takes a remainder of the seed is then not taken for what ignores it.
    """
    draw = drawn()
    while True:
        base = 2**62 + draw.getrandbits(61)
        if all((base - first) % divisor for divisor in range(2, 1001)):
            return base


def _worker(init: Callable, base: int, number: int) -> tuple[bool, list[int]]:
    """Act as worker `number` of an epoch with the seed `base`, with all that torch sets before it calls worker_init_fn.

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
        try:
            returned = init(number)
        except ValueError as error:
            if "2**32" not in str(error):
                raise
            raise Mistake(
                "seed-too-long",
                "A worker's seed has more than 32 bits. np.random.default_rng takes whole seeds, of any length.",
            ) from None
    rng = info.dataset.rng
    if not hasattr(rng, "integers"):
        kind, package = type(rng).__name__, type(rng).__module__.split(".")[0]
        kind = rng.__name__ if kind == "module" else f"{kind} of {package}"
        raise Mistake(
            "not-a-generator", f"dataset.rng is now {kind}. Make a generator of NumPy's: np.random.default_rng(seed)."
        )
    touched = rng is not before or rng.bit_generator.state != state
    if not touched and isinstance(returned, np.random.Generator):
        raise Mistake(
            "returned-instead", "Nobody takes what worker_init_fn returns, a generator for example: set the rng of the Dataset."
        )
    return touched, [int(rng.integers(BIG)) for _ in range(4)]


def _kept(init: Callable) -> str:
    """What the function can keep from call to call: default arguments, attributes, and the variables around it."""
    init = inspect.unwrap(init)
    if not inspect.isfunction(init):
        return repr(getattr(init, "__dict__", None))
    around = inspect.getclosurevars(init)
    return repr((init.__defaults__, init.__dict__, around.globals, around.nonlocals))


@contextlib.contextmanager
def _jumping_clocks() -> Iterator[None]:
    """In this thread each look at a clock finds it far ahead, so that a seed taken from it differs from call to call."""
    ticks, here = itertools.count(1_000_003, 1_000_003), threading.get_ident()

    def jumping(clock: Callable) -> Callable:
        return lambda: next(ticks) if threading.get_ident() == here else clock()

    with contextlib.ExitStack() as stack:
        for name in _CLOCKS:
            stack.enter_context(mock.patch.object(time, name, jumping(getattr(time, name))))
        stack.enter_context(mock.patch.object(os, "getpid", jumping(os.getpid)))  # as different as in another run
        yield
