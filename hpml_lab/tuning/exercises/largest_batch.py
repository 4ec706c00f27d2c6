"""The largest batch that fits, found by doubling and bisection in about 2·log₂ tries."""

import math
import operator
from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake

LIMITS = (0, 1, 2, 3, 7, 8, 1000, 4097)
LARGE = 1_000_003  # for searches with an upper end of their own
MOST_TRIES = 10_000
CAP = "It has an upper end of its own: double until a batch fails."


class TooManyTries(Exception):
    """Raised inside a search that does not end."""


def counted_search(answer: Callable[[Callable[[int], bool]], int], limit: int) -> tuple[int, list[int]]:
    """What the student's search returns where batches up to `limit` fit, and the batches that it tries, as whole numbers."""
    tried: list[int] = []

    def fits(batch: int) -> bool:
        tried.append(whole(batch))
        if len(tried) > MOST_TRIES:
            raise TooManyTries
        return tried[-1] <= limit

    try:
        found = answer(fits)
    except TooManyTries:
        raise Mistake("never-ends", f"If {limit} fit, your search is still trying after {MOST_TRIES} tries.") from None
    if isinstance(found, bool):
        raise Mistake("not-a-number", f"If {limit} fit, your search returns {found!r}. Return one whole number.")
    return int(found), tried


def whole(batch: Any) -> int:
    """A batch as Python's integer, also one of NumPy's or torch's; Mistake if it is not a whole number of at least 1."""
    try:
        size = operator.index(batch)
    except TypeError:
        size = 0
    if size < 1:
        hint = " Use //." if isinstance(batch, float) else ""
        raise Mistake("asks-nonsense", f"Your search tries {batch!r}, but a batch is a whole number of at least 1.{hint}")
    return size


@exercise("largest-batch", notebook="11_tuning", takes="fits", returns=int)
def judge_largest_batch(answer: Callable[[Callable[[int], bool]], int]) -> None:
    """The largest batch that fits, found by doubling and bisection in about 2·log₂ tries."""
    searches = {limit: counted_search(answer, limit) for limit in LIMITS}
    explain(searches)
    expect_few_tries(searches)
    batch, tried = counted_search(answer, LARGE)
    if batch != LARGE:
        raise Mistake("stops-at-a-cap", f"If {LARGE} fit, your search returns {batch}. {CAP}")
    expect_few_tries({LARGE: (batch, tried)})
    hidden = drawn().randint(10, 5000)
    batch, tried = counted_search(answer, hidden)
    if batch != hidden:
        raise Mistake("wrong-value", f"If {hidden} fit, a limit that was drawn for this check, your search returns {batch}.")
    expect_few_tries({hidden: (batch, tried)})


def explain(searches: dict[int, tuple[int, list[int]]]) -> None:
    """Raise the Mistake that explains wrong results: {limit: (result, tries)}."""
    found = {limit: batch for limit, (batch, _) in searches.items()}
    wrong = [limit for limit, batch in found.items() if batch != limit]
    if not wrong:
        return
    if not any(tried for _, tried in searches.values()):
        raise Mistake("never-tries", "Only a try can tell what fits: the search has to call fits.")
    positive = {limit: batch for limit, batch in found.items() if limit}
    if all(batch == 1 << limit.bit_length() - 1 for limit, batch in positive.items()):
        hint = "Doubling only brackets the limit. Now halve the gap between the two ends."
        raise Mistake("stops-at-a-power-of-two", hint)
    if all(batch == limit + 1 for limit, batch in positive.items()):
        raise Mistake("first-that-fails", "The answer fits: it is not the smallest batch that does not, one too many.")
    if all(batch == limit - 1 for limit, batch in positive.items()):
        raise Mistake("one-too-few", "The answer is the largest batch that fits, not one less.")
    cap = max(found.values())
    if cap > 1 and all(
        batch == min(limit, cap) and (batch == limit or max(searches[limit][1], default=0) == cap)
        for limit, batch in found.items()
    ):
        raise Mistake("stops-at-a-cap", f"If {wrong[-1]} fit, your search returns {cap}, without a try that failed. {CAP}")
    if wrong == [0]:
        raise Mistake("nothing-fits", "If not even one sample fits, the answer is 0.")
    if wrong == [1]:
        raise Mistake("one-forgotten", "If one sample fits and two do not, the answer is 1.")
    if all(batch == len(tried) for batch, tried in searches.values()):
        raise Mistake("counts-tries", "Return the largest batch that fits, not how many were tried.")
    if all(tried and tried[-1] == batch for batch, tried in (searches[limit] for limit in wrong)):
        raise Mistake("last-tried", "The last batch that was tried may not have fitted: return the largest that did.")
    limit, (batch, tried) = wrong[-1], searches[wrong[-1]]
    result = f"If {limit} fit, your search returns {batch}."
    if batch in tried and batch < limit and batch + 1 not in tried:
        raise Mistake("stops-too-early", f"{result} That fits, but it did not try whether {batch + 1} does.")
    if batch in tried and batch > limit:
        raise Mistake("returns-what-failed", f"{result} It had tried that, and it did not fit.")
    if (fitted := max((size for size in tried if size <= limit), default=0)) > batch:
        raise Mistake("forgets-what-fitted", f"{result} It had tried {fitted}, which fits.")
    raise Mistake("wrong-limit", f"If {wrong[0]} fit, your search returns {found[wrong[0]]}.")


def expect_few_tries(searches: dict[int, tuple[int, list[int]]]) -> None:
    for limit, (_, tried) in searches.items():
        if len(tried) > 2 * math.log2(limit + 2) + 3:
            raise Mistake(
                "too-many-tries",
                f"Right, but if {limit} fit, it takes {len(tried)} tries, and each is a training step. Double, then bisect.",
            )
