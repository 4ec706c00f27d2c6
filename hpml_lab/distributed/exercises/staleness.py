"""Exercise: how many updates old each gradient of asynchronous SGD is, from the times that the workers take."""

from collections.abc import Callable
from itertools import accumulate

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric

Durations = list[list[float]]


def right(durations: Durations) -> list[int]:
    works = []
    for seconds in durations:
        ends = list(accumulate(seconds))
        works += zip([0.0, *ends], ends, strict=False)
    works.sort(key=lambda work: work[1])
    ages = []
    for begin, end in works:
        ages.append(sum(begin < other < end for _, other in works))
    return ages


RUBRIC = Rubric(
    right,
    """
list(accumulate(seconds))
    not-added-up :: list(seconds) :: A worker begins its second gradient when its first is done: its times add up.
zip([0.0, *ends], ends, strict=False)
    read-at-the-start :: zip([0.0] * len(ends), ends, strict=False) :: A worker reads the weights anew after each of its own
        updates.
    skips-the-first :: zip(ends, ends[1:], strict=False) :: Each worker's first gradient is an update, too; it began at 0.
works.sort(key=lambda work: work[1])
    by-worker :: pass :: The ages are asked in the order of the updates, not worker by worker.
    by-begin :: works.sort() :: Updates come in the order in which gradients *end*.
sum(begin < other < end for _, other in works)
    own-update-counted :: sum(begin <= other < end for _, other in works) :: A worker reads the weights *after* its own update:
        that one is in them.
    this-one-counted :: sum(begin < other <= end for _, other in works) :: The update that the gradient makes itself comes
        after it.
    always-fresh :: 0 :: Others may update the weights after a worker has read them, and before its gradient is done.
    always-the-others :: len(durations) - 1 :: That is the mean in the long run. Count, for each one.
    in-seconds :: round(end - begin) :: The age is counted in updates of the others, not in seconds.
    under-way :: sum(start < begin < stop for start, stop in works) :: Count the updates that *end* while this gradient is
        computed.
    begun-meanwhile :: sum(begin < start < end for start, _ in works) :: Count the updates that *end* while this gradient is
        computed.
return ages
    newest-first :: return ages[::-1] :: The first update comes first.
""",
)


def unequal(workers: int, each: int) -> Durations:
    """Times without a tie, in parts of 2⁻²⁰ of a second: however they are added up and taken apart, nothing is rounded."""
    rng = drawn()
    return [[1 + rng.randrange((1 + 3 * (worker == 0)) << 20) / (1 << 20) for _ in range(each)] for worker in range(workers)]


@exercise("staleness", notebook="13_distributed", takes="durations", returns=[int])
def judge_staleness(answer: Callable[[Durations], list[int]]) -> None:
    """For each update the number of updates between the reading of its weights and itself."""
    cases: dict[str, tuple[Durations]] = {
        "a fast and a slow worker": ([[1.0, 1.25, 0.75, 1.5], [2.5, 1.125]],),
        "three workers": ([[1.125, 1.25, 1.375], [0.75, 3.0625], [4.1875]],),
        "one worker": ([[1.0, 2.0, 0.5]],),
        "a worker without a gradient": ([[1.0, 1.5], []],),
        "four workers drawn for this check": (unequal(4, 5),),
    }
    RUBRIC.expect(answer, cases)
