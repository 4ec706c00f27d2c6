"""Exercise `largest-rate`: on a quadratic each eigenvalue has a largest rate of its own, and γ moves it: where is z = −1?"""

from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric


def largest_rate(eigenvalues: list[float], momentum: float) -> float:
    return 2 * (1 + momentum) / max(eigenvalues)


RUBRIC = Rubric(
    largest_rate,
    """
max(eigenvalues)
    fixed-position :: eigenvalues[-1] :: $ORDER
    fixed-position :: eigenvalues[0] :: $ORDER
    mean-eigenvalue :: (sum(eigenvalues) / len(eigenvalues)) :: Each eigendirection moves independently: an average of the
        eigenvalues belongs to none of them.
    smallest-eigenvalue :: min(eigenvalues) :: That is the boundary of the flattest direction. Which direction is the first to
        diverge?
2 * (1 + momentum)
    nesterovs-boundary :: 2 * (1 + momentum) / (1 + 2 * momentum) :: That is Nesterov's boundary; the exercise asks for
        classical momentum's.
    momentum-divides :: 2 / (1 - momentum) :: 1 / (1 - γ) is the factor for a constant gradient. At the boundary the gradient
        changes its sign in each step.
2 * (1 + momentum) / max(eigenvalues)
    polyaks-best :: (2 / (max(eigenvalues) ** 0.5 + min(eigenvalues) ** 0.5)) ** 2 :: The exercise asks for the largest stable
        rate for the given γ, not for the best rate for the best γ.
""",
    ORDER="The eigenvalues are in no particular order: the first or the last is not always the one that counts.",
)


@exercise("largest-rate", notebook="04_descent", takes="eigenvalues, momentum", returns=float)
def judge_largest_rate(answer: Callable) -> None:
    """2 (1 + γ) / λmax."""
    settings = (
        ([1.0, 25.0], 0.9),
        ([0.5, 3.0, 1234.5], 0.5),
        ([8.0, 2.0], 0.0),
        ([3.0, 7.0, 0.1], 0.25),
        ([0.4], 0.6),
        ([3e-4, 2e-5], 0.8),
    )  # on these, all mistakes differ, and so do text order, fp16, a rate kept below 1 and an ε in the denominator
    RUBRIC.expect(
        answer, {f"eigenvalues {e} and γ = {m:g}": (e, m) for e, m in settings}, but=("zero",)
    )  # a bowl has none of 0
