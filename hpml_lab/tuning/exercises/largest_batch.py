"""The largest batch that fits, found by doubling and bisection in about 2·log₂ tries."""

import math
from collections.abc import Callable

from hpml_lab.core.exercises import Mistake, exercise

LIMITS = (0, 1, 2, 3, 7, 8, 1000, 4097)
MOST_TRIES = 10_000


class TooManyTries(Exception):
    """Raised inside a search that does not end."""


def counted_search(answer: Callable[[Callable[[int], bool]], int], limit: int) -> tuple[int, list[int]]:
    """What the student's search returns where batches up to `limit` fit, and the batches that it tries."""
    tried: list[int] = []

    def fits(batch: int) -> bool:
        tried.append(batch)
        if len(tried) > MOST_TRIES:
            raise TooManyTries
        return batch <= limit

    try:
        return answer(fits), tried
    except TooManyTries:
        raise Mistake("never-ends", f"If {limit} fit, your search is still trying after {MOST_TRIES} tries.") from None


@exercise("largest-batch", notebook="10_tuning")
def judge_largest_batch(answer: Callable[[Callable[[int], bool]], int]) -> None:
    """The largest batch that fits, found by doubling and bisection in about 2·log₂ tries."""
    searches = {limit: counted_search(answer, limit) for limit in LIMITS}
    found = {limit: batch for limit, (batch, _) in searches.items()}
    if any(batch is None for batch in found.values()):
        raise Mistake("returns-nothing", "Your function returns None: return the largest batch that fits.")
    if any(not isinstance(batch, int) or batch < 1 for _, tried in searches.values() for batch in tried):
        raise Mistake("asks-nonsense", "Your search tries a batch that is not a whole number of at least 1. Use //.")
    wrong = [limit for limit, batch in found.items() if batch != limit]
    if wrong:
        positive = {limit: batch for limit, batch in found.items() if limit}
        if all(batch == 1 << limit.bit_length() - 1 for limit, batch in positive.items()):
            hint = "Doubling only brackets the limit. Now halve the gap between the two ends."
            raise Mistake("stops-at-a-power-of-two", hint)
        if all(batch == limit + 1 for limit, batch in positive.items()):
            raise Mistake("first-that-fails", "You return the smallest batch that does not fit: one too many.")
        if wrong == [0]:
            raise Mistake("nothing-fits", "If not even one sample fits, the answer is 0.")
        raise Mistake("wrong-limit", f"If {wrong[0]} fit, your search returns {found[wrong[0]]}.")
    for limit, (_, tried) in searches.items():
        if len(tried) > 2 * math.log2(limit + 2) + 3:
            raise Mistake(
                "too-many-tries",
                f"Right, but if {limit} fit, it takes {len(tried)} tries, and each is a training step. Double, then bisect.",
            )
