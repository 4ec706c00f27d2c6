"""predict-speed-up: how much faster an epoch becomes with 2, 4, 8 and 16 workers."""

from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.same import numbers, shown

NOTEBOOK = "08_loading"

# One epoch: seconds of loading and of computing when nothing overlaps, and the number of batches.
LOAD, COMPUTE, BATCHES, WORKERS = 120.0, 20.0, 60, (2, 4, 8, 16)


def _speed_ups(seconds: Callable[[int], float]) -> tuple[float, ...]:
    return tuple((LOAD + COMPUTE) / seconds(n) for n in WORKERS)


def _epoch(n: int) -> float:
    """Seconds of an epoch with n workers: the first batch, then the slower of workers and compute."""
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
        "Almost: what does the compute do until the first batch is there, and how long does one worker load that batch?",
    ),
    "compute-divided-too, with the first batch": (
        _speed_ups(lambda n: LOAD / BATCHES + (LOAD + COMPUTE) / n),
        "You divide load + compute by N. Which of the two do the workers not take over?",
    ),
    "compute-divided-too, but at least the compute": (
        _speed_ups(lambda n: max(COMPUTE, (LOAD + COMPUTE) / n)),
        "You divide load + compute by N. Which of the two do the workers not take over?",
    ),
    "compute-ignored": (
        _speed_ups(lambda n: LOAD / n),
        "You divide the whole epoch without workers by the loading alone: where is the compute of the epoch with workers?",
    ),
    "first-batch-of-each-worker": (
        _speed_ups(lambda n: n * LOAD / BATCHES + max(COMPUTE, LOAD / n)),
        "You wait for a first batch of each worker, one after the other. They load at the same time.",
    ),
    "one-worker-too-many": (
        _speed_ups(lambda n: LOAD / BATCHES + max(COMPUTE, LOAD / (n + 1))),
        "You divide the loading by N + 1. With workers the main process loads nothing itself.",
    ),
    "rounded-too-much": ((2.0, 4.0, 6.0, 6.0), "Whole numbers are too coarse: give one decimal."),
    "share-saved": (
        tuple(1 - _epoch(n) / (LOAD + COMPUTE) for n in WORKERS),
        "That is the share of the time that is saved. A speed-up is seconds without workers over seconds with them.",
    ),
    "seconds-instead, without the first batch": (
        tuple(max(COMPUTE, LOAD / n) for n in WORKERS),
        "These are seconds. A speed-up is a ratio: seconds without workers over seconds with them.",
    ),
    "nothing-overlaps": (
        _speed_ups(lambda n: COMPUTE + LOAD / n),
        "You let the compute wait until all is loaded. Workers load the next batches meanwhile.",
    ),
    "the-faster-decides": (
        _speed_ups(lambda n: LOAD / BATCHES + min(COMPUTE, LOAD / n)),
        "Of two stages that run at the same time, does the faster or the slower one decide when the epoch ends?",
    ),
    "compute-added": (
        _speed_ups(lambda n: LOAD / BATCHES + COMPUTE + LOAD / n),
        "You let the compute wait until all is loaded. Workers load the next batches meanwhile.",
    ),
    "loading-alone": (
        tuple(float(n) for n in WORKERS[:-1]) + (LOAD / COMPUTE,),
        "N workers load N times as fast; but an epoch is loading and computing, and the speed-up that of both.",
    ),
    "seconds-saved": (
        tuple(LOAD + COMPUTE - _epoch(n) for n in WORKERS),
        "These are the seconds saved. A speed-up is a ratio: seconds without workers over seconds with them.",
    ),
    "in-percent": (
        _speed_ups(lambda n: _epoch(n) / 100),
        "These are percentages. A speed-up is the ratio itself: 2 means twice as fast.",
    ),
    "gain-instead": (
        tuple((LOAD + COMPUTE) / _epoch(n) - 1 for n in WORKERS),
        "You subtracted 1. A speed-up of 1 means equally fast.",
    ),
    "largest-first": (
        tuple((LOAD + COMPUTE) / _epoch(n) for n in reversed(WORKERS)),
        "These belong to 16, 8, 4 and 2 workers: the order is the other way round.",
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
    given = numbers(answer)
    if given is None or given.ndim != 1:
        raise Mistake("not-four-numbers", f"Give four numbers, for {WORKERS} workers; yours is {shown(answer)}.")
    if len(given) != len(WORKERS):
        raise Mistake("wrong-count", f"Give four numbers, for {WORKERS} workers; yours are {len(given)}.")
    right = _speed_ups(_epoch)
    expect(answer, right, case="2, 4, 8 and 16 workers", mistakes=_SPEED_UP_MISTAKES, tolerance=0.02, reveal=False)
