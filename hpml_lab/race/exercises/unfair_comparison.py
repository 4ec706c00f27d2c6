"""Exercise: what each of five comparisons of SGD and Adam did wrong, or that it did not."""

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake

FAULTS = ("fair", "only one tuned", "chosen on the test set", "different seeds", "different budgets")
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
    if not isinstance(answer, dict) or set(answer) != set(_RIGHT):
        raise Mistake("not-all-five", f"Give a dict with one description for each of {', '.join(_RIGHT)}.")
    answer = {letter: fault.strip().lower() if isinstance(fault, str) else fault for letter, fault in answer.items()}
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
