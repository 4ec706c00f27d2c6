"""The judges of notebook 06's exercises."""

import math
from collections.abc import Callable

from hpml_lab.core.exercises import Mistake, exercise, expect

NOTEBOOK = "06_race"


# ---- warm-up-and-cosine ----------------------------------------------------------------------------------------------


@exercise("warm-up-and-cosine", notebook=NOTEBOOK)
def judge_warm_up_and_cosine(answer: Callable) -> None:
    def curve(one: Callable, T: int, peak: float) -> list[float]:
        return [one(t, T, peak) for t in range(T)]

    def wave(part: float) -> float:
        return (1 + math.cos(math.pi * part)) / 2

    def known(warm: Callable, down: Callable) -> Callable:
        """A schedule from its two parts; each is given (t, T, number of warm-up steps)."""
        return lambda t, T, peak: peak * (warm if t < T // 10 else down)(t, T, T // 10)

    def climb(t, T, W):
        return (t + 1) / W

    def fall(t, T, W):
        return wave((t - W) / (T - W))

    right = known(climb, fall)
    wrong = {
        "no-warm-up": (
            lambda t, T, peak: peak * wave(t / T),
            "The rate falls from the first step on: where are the first T // 10 steps?",
        ),
        "warm-up-left-out": (
            known(lambda t, T, W: 1.0, fall),
            "In the first T // 10 steps the rate should climb; yours is the peak at once.",
        ),
        "starts-at-zero": (
            known(lambda t, T, W: t / W, fall),
            "Your first step has the rate 0 and does nothing: count the climb's steps from 1.",
        ),
        "clock-not-reset": (
            known(climb, lambda t, T, W: wave(t / T)),
            "The wave should begin when the climb ends. Yours has been running since step 0, so the rate jumps down there.",
        ),
        "quarter-wave": (
            known(climb, lambda t, T, W: math.cos(math.pi / 2 * (t - W) / (T - W))),
            "Yours is a quarter of a wave: it falls fastest at the end. Half a wave goes from cos 0 = 1 to cos π = -1.",
        ),
        "not-halved": (
            known(climb, lambda t, T, W: 2 * fall(t, T, W)),
            "1 + cos goes from 2 to 0: your rate jumps to twice the peak.",
        ),
        "below-zero": (
            known(climb, lambda t, T, W: math.cos(math.pi * (t - W) / (T - W))),
            "cos goes down to -1, and with a rate below 0 the optimizer climbs the loss. Shift and halve it.",
        ),
        "rises": (
            known(climb, lambda t, T, W: 1 - fall(t, T, W)),
            "After the climb your rate drops to 0 and rises again: mind the sign of the cosine.",
        ),
        "straight-down": (
            known(climb, lambda t, T, W: 1 - (t - W) / (T - W)),
            "That is a straight line; half a cosine wave is flat at both ends.",
        ),
    }
    for T, peak in ((100, 0.1), (57, 3.0)):
        expect(
            curve(answer, T, peak),
            curve(right, T, peak),
            case=f"T = {T}, peak = {peak}, all steps",
            mistakes={
                "peak-forgotten": (curve(right, T, 1.0), "The highest rate is 1 for every peak: where is `peak`?"),
                **{name: (curve(one, T, peak), hint) for name, (one, hint) in wrong.items()},
            },
        )


# ---- unfair-comparison -----------------------------------------------------------------------------------------------

FAULTS = ("fair", "one tuned only", "chosen on the test set", "different seeds", "different budgets")
PROTOCOLS = {
    "A": {
        "rates of SGD": "0.01, 0.03, 0.1, 0.3",
        "rates of Adam": "0.001, 0.003, 0.01, 0.03",
        "rate chosen by": "accuracy on the test images",
        "seeds of SGD": "0-7",
        "seeds of Adam": "0-7",
        "iterations, batch": "20 000, 128 for both",
        "shown": "median and band, test images",
    },
    "B": {
        "rates of SGD": "0.1",
        "rates of Adam": "0.0003, 0.001, 0.003, 0.01",
        "rate chosen by": "accuracy on 5 000 validation images",
        "seeds of SGD": "0-7",
        "seeds of Adam": "0-7",
        "iterations, batch": "20 000, 128 for both",
        "shown": "median and band, test images",
    },
    "C": {
        "rates of SGD": "0.03, 0.1, 0.3, 1",
        "rates of Adam": "0.0003, 0.001, 0.003, 0.01",
        "rate chosen by": "loss on 5 000 validation images",
        "seeds of SGD": "0-7",
        "seeds of Adam": "0-7",
        "iterations, batch": "20 000, 128 for both",
        "shown": "median and band, test images",
    },
    "D": {
        "rates of SGD": "0.03, 0.1, 0.3, 1",
        "rates of Adam": "0.0003, 0.001, 0.003, 0.01",
        "rate chosen by": "loss on 5 000 validation images",
        "seeds of SGD": "0-7",
        "seeds of Adam": "the best 8 of 0-31",
        "iterations, batch": "20 000, 128 for both",
        "shown": "median and band, test images",
    },
    "E": {
        "rates of SGD": "0.03, 0.1, 0.3, 1",
        "rates of Adam": "0.0003, 0.001, 0.003, 0.01",
        "rate chosen by": "loss on 5 000 validation images",
        "seeds of SGD": "0-7",
        "seeds of Adam": "0-7",
        "iterations, batch": "42 epochs each; SGD with batch 512, Adam with batch 128",
        "shown": "median and band, test images",
    },
}
_RIGHT = {"A": FAULTS[2], "B": FAULTS[1], "C": FAULTS[0], "D": FAULTS[3], "E": FAULTS[4]}
_HINTS = {
    "A": ("overlooks-the-test-set", "Look at A again: which images chose the rate, and which are shown?"),
    "B": ("overlooks-the-tuning", "Look at B again: how many chances did each of the two get?"),
    "C": ("accuses-the-fair-one", "Look at C again: is there a line in which the two are treated differently?"),
    "D": ("overlooks-the-seeds", "Look at D again: how did the seeds of each come about?"),
    "E": ("overlooks-the-budget", "Look at E again: how many steps does each take in 42 epochs?"),
}


@exercise("unfair-comparison", notebook=NOTEBOOK)
def judge_unfair_comparison(answer: dict) -> None:
    if not isinstance(answer, dict) or set(answer) != set(_RIGHT):
        raise Mistake("not-all-five", f"Give a dict with one word for each of {', '.join(_RIGHT)}.")
    for letter, said in answer.items():
        if said not in FAULTS:
            raise Mistake("no-such-fault", f"{letter}: {said!r} is not on the list. Choose from: {', '.join(FAULTS)}.")
    if len(set(answer.values())) == 1:
        raise Mistake("all-alike", "Each of the five words fits exactly one comparison.")
    for letter, (name, hint) in _HINTS.items():
        if answer[letter] != _RIGHT[letter]:
            raise Mistake(name, hint)


# ---- winner-by-seeds -------------------------------------------------------------------------------------------------


@exercise("winner-by-seeds", notebook=NOTEBOOK)
def judge_winner_by_seeds(answer: Callable) -> None:
    nan = math.nan
    cases = [  # (a, b, right answer, {wrong answer: (mistake, hint)})
        (
            [0.10, 0.20, 0.30, 0.40],
            [0.11, 0.22, 0.33, 0.44],
            "a",
            {
                "undecided": (
                    "bands-must-not-touch",
                    "The bands overlap, but in each single seed a is lower, and a "
                    "seed's start and batches are the same for both: compare pair by pair.",
                ),
                "b": ("higher-wins", "These are losses: the lower one is better."),
            },
        ),
        (
            [0.50, 0.50, 0.01, 0.50],
            [0.30, 0.30, 0.30, 0.30],
            "undecided",
            {
                "a": ("best-seed", "One lucky seed does not win: a is lower in the third only."),
                "b": (
                    "majority-or-mean",
                    "b is lower in three seeds and at the median, but not in the third: the rule asks for every seed.",
                ),
            },
        ),
        (
            [0.10, 0.10, 0.10, 0.50],
            [0.40, 0.40, 0.40, 0.49],
            "undecided",
            {
                "a": (
                    "majority-or-mean",
                    "a is lower in three seeds and on average, but not in the fourth: the rule asks for every seed.",
                ),
                "b": ("worst-seed", "Only in the last seed is b lower."),
            },
        ),
        (
            [0.30, 0.30, 0.30],
            [0.20, 0.10, 0.29],
            "b",
            {
                "a": ("higher-wins", "These are losses: the lower one is better."),
                "undecided": ("only-a-can-win", "b is lower in every seed: the rule works both ways."),
            },
        ),
        (
            [0.30, 0.30, nan],
            [0.40, 0.40, 0.40],
            "undecided",
            {
                "a": (
                    "nan-wins",
                    "In the third seed a diverged. Every comparison with nan is False, so ask "
                    "which one is lower, not which one is not higher; or drop no seeds.",
                )
            },
        ),
        (
            [0.30, 0.30, 0.30],
            [0.40, nan, 0.40],
            "a",
            {
                "undecided": (
                    "nan-is-no-loss",
                    "In the second seed b diverged: a finite loss is better "
                    "than none. 0.3 < nan is False, so treat nan as infinite.",
                ),
                "b": ("nan-wins", "In the second seed b diverged, and in the others it is higher."),
            },
        ),
        (
            [nan, 0.30],
            [nan, 0.40],
            "undecided",
            {"a": ("both-diverged", "In the first seed both diverged: there nobody is lower.")},
        ),
        (
            [0.30, 0.30],
            [0.30, 0.40],
            "undecided",
            {"a": ("equal-counts-as-lower", "In the first seed both are equal: a is not lower there.")},
        ),
    ]
    for a, b, right, known in cases:
        expect(
            answer(list(a), list(b)),
            right,
            case=f"a = {a}, b = {b}",
            mistakes={name: (value, hint) for value, (name, hint) in known.items()},
        )


# ---- cost-of-a-sparse-step -------------------------------------------------------------------------------------------


@exercise("cost-of-a-sparse-step", notebook=NOTEBOOK)
def judge_cost_of_a_sparse_step(answer: Callable) -> None:
    for words, vocabulary, dim in (([3, 7, 3, 3, 9, 7], 1000, 16), ([0, 1, 2, 2], 50, 4)):
        rows, dense = len(set(words)), 3 * vocabulary * dim
        expect(
            answer(list(words), vocabulary, dim),
            (dense, 3 * rows * dim),
            case=f"words = {words}, vocabulary = {vocabulary}, dim = {dim}",
            mistakes={
                "counts-repeats": (
                    (dense, 3 * len(words) * dim),
                    "A word that comes twice has one row: its gradients are added before the step.",
                ),
                "forgets-the-moments": (
                    (vocabulary * dim, rows * dim),
                    "Those are the weights alone. Which tensors does Adam keep besides, and change in every step?",
                ),
                "forgets-the-weights": (
                    (2 * vocabulary * dim, 2 * rows * dim),
                    "Those are the two moments; the weights are written, too.",
                ),
                "moments-stay-dense": (
                    (dense, (2 * vocabulary + rows) * dim),
                    "SparseAdam leaves the moments of absent words alone, too: that is where it differs from Adam.",
                ),
                "rows-not-numbers": ((3 * vocabulary, 3 * rows), "Those are rows; each has `dim` numbers."),
                "swapped": ((3 * rows * dim, dense), "Both are right, but dense comes first."),
                "both-dense": ((dense, dense), "A sparse step writes only the rows of the words in the batch."),
            },
        )
