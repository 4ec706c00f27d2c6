"""Exercise: what each of five comparisons of SGD and Adam did wrong, or that it did not."""

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_keys
from hpml_lab.core.judge.mistake import Mistake

FAULTS = ("fair", "only one tuned", "chosen on the test set", "different seeds", "different budgets")
_FAIR = {
    "rates of SGD": "0.03, 0.1, 0.3, 1",
    "rates of Adam": "0.0003, 0.001, 0.003, 0.01",
    "rate chosen by": "loss on 5 000 validation images",
    "seeds of SGD": "0-7",
    "seeds of Adam": "0-7",
    "iterations, batch": "20 000, 128 for both",
    "shown": "median and band, test images",
}
PROTOCOLS = {
    "A": _FAIR
    | {
        "rates of SGD": "0.01, 0.03, 0.1, 0.3",
        "rates of Adam": "0.001, 0.003, 0.01, 0.03",
        "rate chosen by": "accuracy on the test images",
    },
    "B": _FAIR | {"rates of SGD": "0.1", "rate chosen by": "accuracy on 5 000 validation images"},
    "C": _FAIR,
    "D": _FAIR | {"seeds of Adam": "the best 8 of 0-31"},
    "E": _FAIR | {"iterations, batch": "42 epochs each; SGD with batch 512, Adam with batch 128"},
}
_RIGHT = {"A": FAULTS[2], "B": FAULTS[1], "C": FAULTS[0], "D": FAULTS[3], "E": FAULTS[4]}
_HINTS = {
    "A": ("overlooks-the-test-set", "Look at A again: which images chose the rate, and which are shown?"),
    "B": ("overlooks-the-tuning", "Look at B again: how many chances did each of the two get?"),
    "C": ("accuses-the-fair-one", "Look at C again: is there a line in which the two are treated differently?"),
    "D": ("overlooks-the-seeds", "Look at D again: how did the seeds of each come about?"),
    "E": ("overlooks-the-budget", "Look at E again: how many steps does each take in 42 epochs?"),
}


@exercise("unfair-comparison", notebook="06_race", returns={str: str})
def judge_unfair_comparison(answer: dict) -> None:
    answer = {letter: fault.strip().lower() for letter, fault in expect_keys(answer, _RIGHT).items()}
    for letter, fault in answer.items():
        if fault not in FAULTS:
            raise Mistake(
                "no-such-fault", f"{letter}: {fault!r} is not one of the descriptions. Choose from: {', '.join(FAULTS)}."
            )
    if len(set(answer.values())) == 1:
        raise Mistake("all-alike", "Each of the five descriptions fits exactly one comparison.")
    for letter, (name, hint) in _HINTS.items():
        if answer[letter] != _RIGHT[letter]:
            raise Mistake(name, hint)
