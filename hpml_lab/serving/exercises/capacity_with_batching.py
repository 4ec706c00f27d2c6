"""capacity-with-batching: the rate that batches serve, and the batch limit that a rate needs, where service takes a + b·n."""

import contextlib
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import plain, same
from hpml_lab.core.judge.time_limit import TimeLimitReached, time_limit

SEARCH_SECONDS = 0.5  # of the processor; a search that ends takes a hundredth


def right(rate: float, a: float, b: float, limit: int) -> Any:
    capacity = limit / (a + b * limit)
    needed = None if rate * b >= 1 else first_above(rate, a, b)
    return capacity, needed


def first_above(rate: float, a: float, b: float) -> int:
    """The first whole number above λ·a / (1 − λ·b), exactly."""
    return math.floor(share(Fraction(rate), Fraction(a), Fraction(b))) + 1


def first_from(rate: float, a: float, b: float) -> int:
    return max(1, math.ceil(share(Fraction(rate), Fraction(a), Fraction(b))))


def share(rate: float, a: float, b: float) -> float:
    return rate * a / (1 - rate * b)


def power_of_two(rate: float, a: float, b: float) -> int:
    limit = 1
    while limit / (a + b * limit) <= rate and limit < 2**20:  # no limit is enough for some rates
        limit *= 2
    return limit


_STEADY = (
    "At a rate equal to the capacity there is no steady state: a server that was once idle never catches up. The capacity must "
    "be above the rate."
)
_NONE = "Batches of any size serve less than 1 / b: from rate = 1 / b on no limit is enough, and None is asked for."
RUBRIC = Rubric(
    right,
    """
limit / (a + b * limit)
    one-at-a-time :: 1 / (a + b) :: In a batch, a is paid once for all of its requests, and not for one request at a time.
    without-the-cost-of-each :: limit / a :: Your batches take a, however many requests they hold. A batch of n takes a + b·n.
rate * b >= 1
    no-limit-is-enough :: rate * b > 1 :: $NONE
first_above(rate, a, b)
    equal-is-not-enough :: first_from(rate, a, b) :: $STEADY
    powers-of-two :: power_of_two(rate, a, b) :: You try powers of two only; a smaller limit between two of them may be enough.
None if
    no-limit-is-enough :: limit if :: $NONE
    no-limit-is-enough :: -1 if :: $NONE
    no-limit-is-enough :: 0 if :: $NONE
None if rate * b >= 1 else first_above(rate, a, b)
    no-limit-is-enough :: first_above(rate, a, b) if rate * b != 1 else 0 :: $NONE
    begins-at-the-limit :: limit if capacity > rate else None :: You only ask whether `limit` is enough. A smaller one may be,
        or a larger one has to be: $ANY
    batches-instead-of-requests :: 1 if rate * (a + b) < 1 else None :: You compare the rate with 1 / (a + b·n), the batches of
        a unit of time. Each of them has n requests.
error
    no-limit-is-enough :: float infinity to integer :: $NONE
    no-limit-is-enough :: float NaN to integer :: $NONE
    no-limit-is-enough :: division by zero :: $NONE
""",
    STEADY=_STEADY,
    NONE=_NONE,
    ANY="the second number does not depend on `limit`.",
)


@exercise("capacity-with-batching", notebook="20_serving", takes="rate, a, b, limit", returns=(float, int | None))
def judge_capacity_with_batching(answer: Callable) -> None:
    """(limit / (a + b·limit), the first n above rate·a / (1 − rate·b), or None)."""
    cases = {
        "rate 0.3, a 8, b 1, limit 8": (0.3, 8.0, 1.0, 8),
        "rate 0.5, a 8, b 1, limit 32": (0.5, 8.0, 1.0, 32),
        "rate 0.05, a 8, b 1, limit 1": (0.05, 8.0, 1.0, 1),
        "rate 0.625, a 8, b 1, limit 4": (0.625, 8.0, 1.0, 4),
        "rate 0.9375, a 8, b 1, limit 8": (0.9375, 8.0, 1.0, 8),
        "rate 0.984375, a 40, b 1, limit 16": (0.984375, 40.0, 1.0, 16),
        "rate 0.998046875, a 8, b 1, limit 20,000": (0.998046875, 8.0, 1.0, 20_000),
        "rate 0.49999, a 8, b 1, limit 8": (0.49999, 8.0, 1.0, 8),
        "rate 0.7, a 8, b 1, limit 2": (0.7, 8.0, 1.0, 2),
        "rate 1, a 8, b 1, limit 8": (1.0, 8.0, 1.0, 8),
        "rate 1.5, a 8, b 1, limit 16": (1.5, 8.0, 1.0, 16),
        "rate 3, a 2, b 0.25, limit 6": (3.0, 2.0, 0.25, 6),
        "rate 250, a 0.004, b 0.001, limit 5": (250.0, 0.004, 0.001, 5),
        "rate 0.3, a 1, b 1, limit 4": (0.3, 1.0, 1.0, 4),
        "rate 0.2, a 1, b 2, limit 3": (0.2, 1.0, 2.0, 3),
        "rate 0.25, a 1, b 3, limit 2": (0.25, 1.0, 3.0, 2),
    }
    _expect_an_end(answer, cases)
    RUBRIC.expect(answer, cases, but=("mixed",), explain=_explain)


def _expect_an_end(answer: Callable, cases: dict[str, tuple]) -> None:
    """Raise Mistake for a search that goes on and on where no limit is enough, long before the check's own time limit."""
    for case, arguments in cases.items():
        if right(*arguments)[1] is None:
            try:
                with contextlib.suppress(Exception), time_limit(SEARCH_SECONDS, wall_seconds=None):  # the rubric says
                    answer(*arguments)
            except TimeLimitReached as reached:
                hint = f"For {case} your search had not ended after {SEARCH_SECONDS:g} s. {_NONE}"
                raise Mistake("does-not-end", hint) from reached


def _expect_a_whole_search(judged: list[Judged]) -> None:
    """Raise Mistake for a search that finds small limits, and none where the right one is larger."""
    found, missed = [], []
    for _, arguments, (_, own), (_, needed) in judged:
        if needed is not None:
            (missed if own is None else found).append((needed, arguments[3]))
    if not missed or not found:
        return
    if all(needed > limit for needed, limit in missed) and all(needed <= limit for needed, limit in found):
        hint = "You look for a limit up to `limit` only. That is the one of the first number; the rate may need a larger one."
        raise Mistake("search-ends-early", hint)
    if 1 < (last := max(found)[0]) < min(missed)[0]:
        hint = f"You find limits up to {last}, and return None where a larger one is needed. Up to 1 / b any rate has a limit."
        raise Mistake("search-ends-early", hint)


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says which of the two numbers is wrong, and what the limit's capacity is."""
    for case, (rate, a, b, limit), got, (capacity, needed) in judged:
        own = plain(got[1])
        if isinstance(own, bool):
            raise Mistake("not-a-limit", f"For {case} your second value is {own}; a batch limit is asked for.")
        if not same(got[0], capacity) and needed is not None and same(got[0], needed / (a + b * needed)):
            hint = "Your capacity is that of the limit that you found; that of the limit handed over is asked for."
            raise Mistake("capacity-of-the-other-limit", f"For {case} the limit is {limit}. {hint}")
        if not same(got[0], capacity):
            hint = f"For {case} a full batch of {limit} takes {a + b * limit:g} units of time; your capacity is {got[0]}."
            raise Mistake("other-capacity", f"{hint} How many requests are served per unit of time?")
        if own == needed:
            continue
        if needed is None:
            raise Mistake("no-limit-is-enough", f"For {case} your limit is {own}. {_NONE}")
        if own is None:
            _expect_a_whole_search(judged)
            hint = f"For {case} you find no limit. 1 / b is {1 / b:g}, above the rate: a batch that is large enough will do."
            raise Mistake("none-though-one-is-enough", hint)
        served = own / (a + b * own) if own > 0 else 0.0
        if served <= rate:
            hint = _STEADY if same(served, rate) else "That is below the rate: such a server falls ever further behind."
            raise Mistake("limit-too-small", f"For {case} your limit {own} has the capacity {served:g}. {hint}")
        raise Mistake("limit-too-large", f"For {case} your limit {own} is enough, but a smaller one is too.")
