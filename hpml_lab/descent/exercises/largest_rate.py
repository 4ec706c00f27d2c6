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
    sum-of-eigenvalues :: sum(eigenvalues) :: Each eigendirection moves independently: the sum of the eigenvalues belongs to
        none of them.
    mean-eigenvalue :: (sum(eigenvalues) / len(eigenvalues)) :: Each eigendirection moves independently: an average of the
        eigenvalues belongs to none of them.
    both-ends :: (max(eigenvalues) + min(eigenvalues)) :: 2 / (λmax + λmin) is the best rate of gradient descent. The largest
        stable one depends on λmax alone.
    smallest-eigenvalue :: min(eigenvalues) :: That is the boundary of the flattest direction. Which direction is the first to
        diverge?
2 * (1 + momentum)
    momentum-hard-coded :: 2 * 1.9 :: γ is the argument `momentum`, not always 0.9.
    root-of-momentum :: (1 + momentum**0.5) ** 2 :: There the roots z stop being complex, which still converges. It diverges
        where a root reaches -1.
    momentum-as-factor :: 2 * momentum :: At γ = 0 your formula gives 0; it must give 2 / λmax.
    momentum-twice :: 2 * (1 + 2 * momentum) :: $SET_Z and count the γ: there is one in each of two terms, and a factor 2.
    momentum-forgotten :: 2 :: That is the boundary of plain gradient descent. With γ = 0.9 the map above reaches almost twice
        as far to the right.
    nesterovs-boundary :: 2 * (1 + momentum) / (1 + 2 * momentum) :: That is Nesterov's boundary; the exercise asks for
        classical momentum's.
    no-overshooting :: (1 + momentum) :: That is half of the boundary. A step may overshoot the minimum, as long as it ends
        nearer than before.
    momentum-slows :: 2 * (1 - momentum) :: In your formula a larger γ allows a smaller rate, as if momentum were a brake.
        $SET_Z.
    momentum-divides :: 2 / (1 - momentum) :: 1 / (1 - γ) is the factor for a constant gradient. At the boundary the gradient
        changes its sign in each step.
    momentum-squared :: 2 * (1 + momentum) ** 2 :: $SET_Z: 1 + γ enters once, with a factor of 2.
    momentum-not-doubled :: (2 + momentum) :: $SET_Z: γ is there twice, as 1 is.
2 * (1 + momentum) / max(eigenvalues)
    polyaks-best :: (2 / (max(eigenvalues) ** 0.5 + min(eigenvalues) ** 0.5)) ** 2 :: The exercise asks for the largest stable
        rate for the given γ, not for the best rate for the best γ.
    one-rate-for-each :: [2 * (1 + momentum) / value for value in eigenvalues] :: That is the boundary of each direction. One
        rate serves all of them: which of these is safe for all?
""",
    ORDER="The eigenvalues are in no particular order: the first or the last is not always the one that counts.",
    SET_Z="Set z = -1 in z² - (1 + γ - αλ) z + γ = 0",
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
    RUBRIC.expect(answer, {f"eigenvalues {e} and γ = {m:g}": (e, m) for e, m in settings})
