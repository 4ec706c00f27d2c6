"""The checks of notebook 04's exercises."""

from collections.abc import Callable

import torch

from hpml_lab.core.exercises import Mistake, exercise, expect
from hpml_lab.landscape.stability import largest_stable_rate
from hpml_lab.optim_exercises.judge import judge_rule
from hpml_lab.optim_exercises.rules import as_rule
from hpml_lab.optim_exercises.velocity_mistakes import LOOK_AHEAD_MISTAKES, MOMENTUM_MISTAKES

NOTEBOOK = "04_descent"


@exercise("momentum-step", notebook=NOTEBOOK)
def judge_momentum_step(answer: Callable) -> None:
    """b = γ b + g, θ = θ − α b, for every parameter, in place."""
    judge_rule(answer, as_rule("momentum"), MOMENTUM_MISTAKES, lr=0.1, momentum=0.9)


@exercise("look-ahead-step", notebook=NOTEBOOK)
def judge_look_ahead_step(answer: Callable) -> None:
    """v = γ v + α ∇J(θ − γ v), θ = θ − v, for every parameter, in place."""
    right = as_rule("lecture_nesterov", look_ahead=True)
    judge_rule(answer, right, LOOK_AHEAD_MISTAKES, look_ahead=True, lr=0.1, momentum=0.9)


# Settings in which the mistakes below give numbers of their own.
RATE_CASES = (((1.0, 25.0), 0.9), ((0.5, 3.0, 40.0), 0.5), ((8.0, 2.0), 0.0))

_RATE_MISTAKES: dict[str, tuple[Callable, str]] = {
    "momentum-forgotten": (
        lambda e, m: 2 / max(e),
        "That is plain gradient descent's boundary. With γ = 0.9 the map above goes on almost twice as far to the right.",
    ),
    "smallest-eigenvalue": (
        lambda e, m: 2 * (1 + m) / min(e),
        "At this rate the flattest direction just holds. Which direction is the first to diverge?",
    ),
    "nesterovs-boundary": (
        lambda e, m: 2 * (1 + m) / (1 + 2 * m) / max(e),
        "That is Nesterov's boundary; asked is classical momentum's.",
    ),
    "no-overshooting": (
        lambda e, m: (1 + m) / max(e),
        "Half of the boundary. A step may overshoot the minimum, as long as it ends nearer than before.",
    ),
    "momentum-slows": (
        lambda e, m: 2 * (1 - m) / max(e),
        "You take momentum for a brake: in your formula a larger γ allows less. Set z = -1 in z² - (1 + γ - αλ) z + γ = 0.",
    ),
    "momentum-divides": (
        lambda e, m: 2 / (max(e) * (1 - m)),
        "1 / (1 - γ) is how far a constant gradient carries. At the boundary the gradient changes its sign in each step.",
    ),
    "polyaks-best": (
        lambda e, m: (2 / (max(e) ** 0.5 + min(e) ** 0.5)) ** 2,
        "That is the best rate for the best γ. Asked is the largest stable rate for the γ given.",
    ),
    "mean-eigenvalue": (
        lambda e, m: 2 * (1 + m) / (sum(e) / len(e)),
        "Each eigendirection moves by itself: an average of the eigenvalues belongs to none of them.",
    ),
}


@exercise("largest-rate", notebook=NOTEBOOK)
def judge_largest_rate(answer: Callable) -> None:
    """2 (1 + γ) / λmax."""
    for eigenvalues, momentum in RATE_CASES:
        right = largest_stable_rate("momentum", momentum, max(eigenvalues))
        expect(
            answer(list(eigenvalues), momentum),
            right,
            case=f"eigenvalues {list(eigenvalues)} and γ = {momentum:g}",
            mistakes={name: (wrong(eigenvalues, momentum), hint) for name, (wrong, hint) in _RATE_MISTAKES.items()},
        )


SCHEDULE_CASES = ((0.1, 5, 3), (0.4, 4, 9))


def _rates(rule: Callable, lr: float, first: int, then: int) -> list:
    return [rule(t, lr, first, then) for t in range(1, first + then + 8)]


def _right_rate(t: int, lr: float, first: int, then: int) -> float:
    return lr if t <= first else lr / 10 if t <= first + then else lr / 100


def _drops(at: Callable[[int, int], tuple[int, int]], by: tuple[float, float] = (10, 100)) -> Callable:
    """A schedule that divides the rate by `by` after the two steps that `at(first, then)` gives."""

    def rate(t: int, lr: float, first: int, then: int) -> float:
        one, two = at(first, then)
        return lr if t <= one else lr / by[0] if t <= two else lr / by[1]

    return rate


_SCHEDULE_MISTAKES: dict[str, tuple[Callable, str]] = {
    "drops-in-every-step": (
        lambda t, lr, first, then: lr * 0.1 ** (max(0, t - first) + max(0, t - first - then)),
        "Your rate falls by 10 in every step after the first drop. How often does it drop in all?",
    ),
    "second-drop-counted-from-zero": (
        lambda t, lr, first, then: lr / 10 ** ((t > first) + (t > then)),
        "The second drop comes `then` steps after the first one, not `then` steps after the start.",
    ),
    "one-step-early": (
        _drops(lambda first, then: (first - 1, first + then - 1)),
        "Right but for one step: after 5 steps means that step 5 still has the old rate.",
    ),
    "one-step-late": (
        _drops(lambda first, then: (first + 1, first + then + 1)),
        "Right but for one step: after 5 steps means that step 6 has the new rate.",
    ),
    "second-drop-missing": (
        _drops(lambda first, then: (first, first + then), (10, 10)),
        "The first drop is right. The lecture drops again, to a hundredth.",
    ),
    "rate-rises-again": (
        _drops(lambda first, then: (first, first + then), (10, 1)),
        "After the second drop your rate is the first one again.",
    ),
    "drops-add": (
        _drops(lambda first, then: (first, first + then), (10, 20)),
        "Two drops by 10 make a hundredth: they multiply.",
    ),
    "drops-by-two": (_drops(lambda first, then: (first, first + then), (2, 4)), "Your rate halves; the lecture's drops by 10."),
    "drops-for-ever": (
        lambda t, lr, first, then: lr * 0.1 ** ((t - 1) // first),
        "You drop every `first` steps for ever, as StepLR does. Here there are two drops, at steps of their own.",
    ),
}


@exercise("mend-the-schedule", notebook=NOTEBOOK)
def judge_mend_the_schedule(answer: Callable) -> None:
    """α up to step N, α / 10 up to step N + M, α / 100 from then on."""
    for case in SCHEDULE_CASES:
        got, right = _rates(answer, *case), _rates(_right_rate, *case)
        if any(rate is None for rate in got):
            raise Mistake("returns-nothing", f"For step {got.index(None) + 1} your function returns None.")
        if _close(got, right):
            continue
        for name, (wrong, hint) in _SCHEDULE_MISTAKES.items():
            if _close(got, _rates(wrong, *case)):
                raise Mistake(name, hint)
        step = next(t for t, (a, b) in enumerate(zip(got, right, strict=True), 1) if not _close([a], [b]))
        raise Mistake(
            "wrong-value",
            f"With lr = {case[0]:g}, {case[1]} steps and then {case[2]} steps, step {step} should have the rate "
            f"{right[step - 1]:g}; yours is {got[step - 1]}.",
        )


def _close(a: list, b: list) -> bool:
    """Equal up to float32's rounding: rates shrink over many powers of ten, so that an absolute tolerance would not do."""
    try:
        a, b = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    except (TypeError, ValueError):
        return False
    return torch.allclose(a, b, rtol=1e-6, atol=0)
