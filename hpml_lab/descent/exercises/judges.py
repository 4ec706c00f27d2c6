"""The checks of notebook 04's exercises."""

import math
from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.landscape import largest_stable_rate
from hpml_lab.optim_exercises.judge import judge_rule
from hpml_lab.optim_exercises.rules import as_rule
from hpml_lab.optim_exercises.velocity_mistakes import LOOK_AHEAD_MISTAKES, MOMENTUM_MISTAKES

NOTEBOOK = "04_descent"


@exercise("momentum-step", notebook=NOTEBOOK)
def judge_momentum_step(answer: Callable) -> None:
    """b = γ b + g, θ = θ − α b, for every parameter, in place."""
    judge_rule(answer, as_rule("momentum"), MOMENTUM_MISTAKES, lr=0.16, momentum=0.8)


@exercise("look-ahead-step", notebook=NOTEBOOK)
def judge_look_ahead_step(answer: Callable) -> None:
    """v = γ v + α ∇J(θ − γ v), θ = θ − v, for every parameter, in place."""
    right = as_rule("lecture_nesterov", look_ahead=True)
    judge_rule(answer, right, LOOK_AHEAD_MISTAKES, look_ahead=True, lr=0.16, momentum=0.8)


ORDER = "Right only if the eigenvalues are sorted: they are in no particular order."

RATE_MISTAKES: dict[str, tuple[Callable, str]] = {
    "fixed-position": (lambda e, m: 2 * (1 + m) / e[-1], ORDER),
    "fixed-position, first": (lambda e, m: 2 * (1 + m) / e[0], ORDER),
    "momentum-hard-coded": (lambda e, m: 2 * 1.9 / max(e), "Your γ is always 0.9: use the argument."),
    "sum-of-eigenvalues": (
        lambda e, m: 2 * (1 + m) / sum(e),
        "Each eigendirection moves independently: the sum of the eigenvalues belongs to none of them.",
    ),
    "root-of-momentum": (
        lambda e, m: (1 + m**0.5) ** 2 / max(e),
        "There the roots z stop being complex, which still converges. It diverges where a root reaches -1.",
    ),
    "range-of-eigenvalues": (
        lambda e, m: 2 * (1 + m) / (max(e) - min(e)) if max(e) > min(e) else math.inf,
        "The smallest eigenvalue plays no part: the steepest direction diverges first.",
    ),
    "both-ends": (
        lambda e, m: 2 * (1 + m) / (max(e) + min(e)),
        "2 / (λmax + λmin) is the best rate of gradient descent. The largest stable one depends on λmax alone.",
    ),
    "momentum-as-factor": (lambda e, m: 2 * m / max(e), "At γ = 0 your formula gives 0; it must give 2 / λmax."),
    "momentum-twice": (
        lambda e, m: 2 * (1 + 2 * m) / max(e),
        "Set z = -1 in z² - (1 + γ - αλ) z + γ = 0 and count the γ: there is one in each of two terms, and a factor 2.",
    ),
    "momentum-forgotten": (
        lambda e, m: 2 / max(e),
        "That is the boundary of plain gradient descent. With γ = 0.9 the map above reaches almost twice as far to the right.",
    ),
    "smallest-eigenvalue": (
        lambda e, m: 2 * (1 + m) / min(e),
        "That is the boundary of the flattest direction. Which direction is the first to diverge?",
    ),
    "nesterovs-boundary": (
        lambda e, m: 2 * (1 + m) / (1 + 2 * m) / max(e),
        "That is Nesterov's boundary; the exercise asks for classical momentum's.",
    ),
    "no-overshooting": (
        lambda e, m: (1 + m) / max(e),
        "That is half of the boundary. A step may overshoot the minimum, as long as it ends nearer than before.",
    ),
    "momentum-slows": (
        lambda e, m: 2 * (1 - m) / max(e),
        "In your formula a larger γ allows a smaller rate, as if momentum were a brake. "
        "Set z = -1 in z² - (1 + γ - αλ) z + γ = 0.",
    ),
    "momentum-divides": (
        lambda e, m: 2 / (max(e) * (1 - m)),
        "1 / (1 - γ) is the factor for a constant gradient. At the boundary the gradient changes its sign in each step.",
    ),
    "polyaks-best": (
        lambda e, m: (2 / (max(e) ** 0.5 + min(e) ** 0.5)) ** 2,
        "That is the best rate for the best γ. The exercise asks for the largest stable rate for the given γ.",
    ),
    "momentum-squared": (
        lambda e, m: 2 * (1 + m) ** 2 / max(e),
        "Set z = -1 in z² - (1 + γ - αλ) z + γ = 0: 1 + γ enters once, with a factor of 2.",
    ),
    "momentum-not-doubled": (
        lambda e, m: (2 + m) / max(e),
        "Set z = -1 in z² - (1 + γ - αλ) z + γ = 0: γ is there twice, as 1 is.",
    ),
    "one-rate-for-each": (
        lambda e, m: [2 * (1 + m) / x for x in e],
        "That is the boundary of each direction. One rate serves all of them: which of these is safe for all?",
    ),
    "mean-eigenvalue": (
        lambda e, m: 2 * (1 + m) / (sum(e) / len(e)),
        "Each eigendirection moves independently: an average of the eigenvalues belongs to none of them.",
    ),
}


@exercise("largest-rate", notebook=NOTEBOOK)
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
    cases = {f"eigenvalues {e} and γ = {m:g}": (e, m) for e, m in settings}
    expect_function(answer, lambda e, m: largest_stable_rate("momentum", m, max(e)), cases, mistakes=RATE_MISTAKES)


def drops(at: Callable[[int, int], tuple[int, int]], by: tuple[float, float] = (10, 100)) -> Callable:
    """A schedule that divides the rate by `by` after the two steps that `at(first, then)` returns."""

    def rate(t: int, lr: float, first: int, then: int) -> float:
        first_drop, second_drop = at(first, then)
        return lr if t <= first_drop else lr / by[0] if t <= second_drop else lr / by[1]

    return rate


right_schedule = drops(lambda first, then: (first, first + then))

SCHEDULE_MISTAKES: dict[str, tuple[Callable, str]] = {
    "drops-in-every-step": (
        lambda t, lr, first, then: lr * 0.1 ** (max(0, t - first) + max(0, t - first - then)),
        "As in the code that you were given, the rate falls by 10 in every step after the first drop. How often should it drop"
        " in all?",
    ),
    "drops-in-every-step, the first repaired": (
        lambda t, lr, first, then: lr * 0.1 ** ((t > first) + max(0, t - first - then)),
        "The first drop is right, but after the second one the rate falls in every step.",
    ),
    "drops-in-every-step, the second repaired": (
        lambda t, lr, first, then: lr * 0.1 ** (max(0, t - first) + (t > first + then)),
        "The second drop happens once, but after the first one the rate falls in every step.",
    ),
    "second-drop-late": (
        drops(lambda first, then: (first, first + then + 1)),
        "The first drop is right, the second comes one step late.",
    ),
    "second-drop-early": (
        drops(lambda first, then: (first, first + then - 1)),
        "The first drop is right, the second comes one step early.",
    ),
    "first-drop-late": (
        drops(lambda first, then: (first + 1, first + then)),
        "The second drop is right, the first comes one step late.",
    ),
    "first-drop-early": (
        drops(lambda first, then: (first - 1, first + then)),
        "The second drop is right, the first comes one step early.",
    ),
    "first-and-then-swapped": (
        drops(lambda first, then: (then, first + then)),
        "You wait `then` steps for the first drop and `first` steps for the second: it is the other way round.",
    ),
    "never-drops": (lambda t, lr, first, then: lr, "Your rate never drops."),
    "factor-without-lr": (
        lambda t, lr, first, then: right_schedule(t, 1.0, first, then),
        "That is the factor 1, 1/10, 1/100. The rate is lr times the factor.",
    ),
    "lr-hard-coded": (
        lambda t, lr, first, then: right_schedule(t, 0.1, first, then),
        "Your rates are those of lr = 0.1, whatever `lr` is.",
    ),
    "drops-to-zero": (
        lambda t, lr, first, then: lr if t <= first else lr // 10,
        "// drops the fraction, so that the rate becomes 0: divide by /.",
    ),
    "second-drop-by-hundred": (
        drops(lambda first, then: (first, first + then), (10, 1000)),
        "The second drop is by 10, too: to a hundredth of `lr`, not to a thousandth.",
    ),
    "second-drop-counted-from-zero, before the first": (
        lambda t, lr, first, then: lr if t <= first else lr / 10 if t <= then else lr / 100,
        "The second drop comes `then` steps after the first one, not `then` steps after the start.",
    ),
    "back-after-one-step": (
        lambda t, lr, first, then: lr / 10 if t == first + 1 else lr / 100 if t == first + then + 1 else lr,
        "Your rate drops for one step, then it is `lr` again: a drop holds for all steps after it.",
    ),
    "multiplied": (lambda t, lr, first, then: lr**2 / right_schedule(t, lr, first, then), "Your rate rises: divide by 10."),
    "drops-subtract": (
        lambda t, lr, first, then: lr - lr / 10 * ((t > first) + (t > first + then)),
        "You take a tenth away: nine tenths remain. To a tenth means divided by 10.",
    ),
    "drops-for-ever, every `then` steps": (
        lambda t, lr, first, then: lr if t <= first else lr * 0.1 ** (1 + (t - first - 1) // then),
        "The rate goes on dropping every `then` steps. There are two drops: to a tenth, and to a hundredth from then on.",
    ),
    "second-drop-counted-from-zero": (
        lambda t, lr, first, then: lr / 10 ** ((t > first) + (t > then)),
        "The second drop comes `then` steps after the first one, not `then` steps after the start.",
    ),
    "one-step-early": (
        drops(lambda first, then: (first - 1, first + then - 1)),
        "Right but for one step: after 5 steps means that step 5 still has the old rate.",
    ),
    "one-step-late": (
        drops(lambda first, then: (first + 1, first + then + 1)),
        "Right but for one step: after 5 steps means that step 6 has the new rate.",
    ),
    "second-drop-missing": (
        drops(lambda first, then: (first, first + then), (10, 10)),
        "The first drop is right. The lecture drops again, to a hundredth.",
    ),
    "rate-rises-again": (
        drops(lambda first, then: (first, first + then), (10, 1)),
        "After the second drop your rate is the first one again.",
    ),
    "drops-add": (
        drops(lambda first, then: (first, first + then), (10, 20)),
        "Two drops by 10 give a hundredth: they multiply.",
    ),
    "drops-by-two": (
        drops(lambda first, then: (first, first + then), (2, 4)),
        "Your rate is halved; the lecture's drops by a factor of 10.",
    ),
    "drops-for-ever": (
        lambda t, lr, first, then: lr * 0.1 ** ((t - 1) // first),
        "You drop every `first` steps for ever, as StepLR does. Here there are two drops, each at a step of its own.",
    ),
}


@exercise("fix-the-schedule", notebook=NOTEBOOK)
def judge_fix_the_schedule(answer: Callable) -> None:
    """α up to step N, α / 10 up to step N + M, α / 100 from then on."""
    settings = ((0.1, 5, 3), (0.4, 4, 9), (0.0237, 2, 2))
    cases = {
        f"step {t} with lr = {lr:g}, first = {first} and then = {then}": (t, lr, first, then)
        for lr, first, then in settings
        for t in (1, first, first + 1, first + then, first + then + 1, *range(first + then + 7, 1, -1))  # in no order
    }
    expect_function(answer, right_schedule, cases, mistakes=SCHEDULE_MISTAKES)
