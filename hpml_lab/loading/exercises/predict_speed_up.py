"""predict-speed-up: how much faster an epoch becomes with 2, 4, 8 and 16 workers."""

from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric

# One epoch: seconds of loading and of computing when nothing overlaps, and the number of batches.
LOAD, COMPUTE, BATCHES, WORKERS = 120.0, 20.0, 60, (2, 4, 8, 16)


def speed_ups(load: float, compute: float, batches: int, workers: tuple[int, ...]) -> tuple[float, ...]:
    """The first batch, then the slower of workers and compute."""
    alone = load + compute
    epochs = [load / batches + max(compute, load / n) for n in workers]
    return tuple(alone / epoch for epoch in epochs)


RUBRIC = Rubric(
    speed_ups,
    """
alone / epoch for
    share-saved :: 1 - epoch / alone for :: A speed-up is seconds without workers over seconds with them, not the share of the
        time that is saved.
    seconds-instead :: epoch for :: These are the epoch's seconds. A speed-up is a ratio: seconds without workers over seconds
        with them.
    in-percent :: 100 * alone / epoch for :: These are percentages. A speed-up is the ratio itself: 2 means twice as fast.
    gain-instead :: alone / epoch - 1 for :: You subtracted 1. A speed-up of 1 means equally fast.
    upside-down :: epoch / alone for :: Turn your ratio around: a speed-up above 1 means faster.
    compute-left-out-of-the-base :: load / epoch for :: Without workers the epoch takes load and compute, one after the other.
in epochs)
    largest-first :: in epochs[::-1]) :: The order is that of 2, 4, 8 and 16 workers, the fewest first.
load / batches + max(compute, load / n)
    compute-divided-too :: (load + compute) / n :: (load + compute) / N is the lecture's formula: a speed-up of N. Which of the
        two do the workers not take over?
    compute-bound-ignored :: load / batches + load / n :: Right for few workers. With many of them your epoch is shorter than
        its compute alone.
    first-batch-ignored :: max(compute, load / n) :: Almost: what does the compute do until the first batch is there, and how
        long does one worker load that batch?
    nothing-overlaps :: compute + load / n :: $AFTER
    compute-added :: load / batches + compute + load / n :: $AFTER
    the-faster-decides :: load / batches + min(compute, load / n) :: Of two stages that run at the same time, does the faster or
        the slower one decide when the epoch ends?
""",
    given=(LOAD, COMPUTE, BATCHES, WORKERS),
    AFTER="You let the compute wait until all is loaded. Workers load the next batches meanwhile.",
)


@exercise("predict-speed-up", notebook="08_loading", returns=(float, float, float, float))
def judge_predict_speed_up(answer: Any) -> None:
    """(load + compute) / (load / batches + max(compute, load / N)) for N = 2, 4, 8, 16, within 3 %: `simulate` has 4.47."""
    RUBRIC.expect_value(answer, case="2, 4, 8 and 16 workers", tolerance=0.03)
