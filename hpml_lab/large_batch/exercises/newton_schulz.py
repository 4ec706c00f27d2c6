"""Exercise: TODO: the idea of a right answer in a line, which is the first hint."""

from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric


def right(values: list[float]) -> float:
    total = sum(values)
    return total / len(values)


# TODO: the right answer above, and here what students write instead: `name :: what stands there instead :: a rule as a hint`.
RUBRIC = Rubric(
    right,
    """
sum(values)
    first-left-out :: sum(values[1:]) :: TODO: a rule that leads on and does not give the answer away: every value counts.
total / len(values)
    not-divided :: total :: TODO: the same for this mistake: a mean is no sum.
""",
)


@exercise("newton-schulz", notebook="15_large_batch")
def judge_newton_schulz(answer: Callable) -> None:
    """TODO: other sizes, other options, ties: a judge sees more than the usual case."""
    cases = {"values = [1, 2, 6]": ([1.0, 2.0, 6.0],), "values = [4]": ([4.0],), "values = [-3, 5]": ([-3.0, 5.0],)}
    RUBRIC.expect(answer, cases)
