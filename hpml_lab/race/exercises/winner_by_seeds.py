"""Exercise: who won, judged by the final losses of two optimizers seed by seed."""

import re
from collections.abc import Callable
from itertools import product
from math import inf, isnan, nan
from typing import NamedTuple

from hpml_lab.core.judge.asked import copied
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.mistake import Mistake


class SeedCase(NamedTuple):
    """Final losses of two optimizers by seed, the right answer, and what each wrong one says about its author."""

    a: list[float]
    b: list[float]
    right: str
    mistakes: dict[str, tuple[str, str]]  # {name: (wrong answer, hint)}


def read_cases(table: str) -> list[SeedCase]:
    """Lines `right answer :: losses of a, losses of b`, and below each the lines `wrong answer :: mistake :: hint`."""
    cases: list[SeedCase] = []
    for line in re.sub(r"\n {8,}", " ", table.strip()).splitlines():
        answer, *parts = line.strip().split(" :: ")
        if not line.startswith(" "):
            cases.append(SeedCase(*eval(parts[0], {"nan": nan}), answer, {}))
        else:
            cases[-1].mistakes[parts[0]] = answer, parts[1]
    return cases


VERDICTS = ("a", "b", "undecided")
CASES = read_cases("""
a :: [0.10, 0.20, 0.30, 0.40], [0.11, 0.22, 0.33, 0.44]
    undecided :: bands-must-not-touch :: The bands overlap, but in each single seed a is lower, and both share the start and the
        batches of a seed: compare pair by pair.
    b :: higher-wins :: These are losses: the lower one is better.
undecided :: [0.50, 0.50, 0.01, 0.50], [0.30, 0.30, 0.30, 0.30]
    a :: best-seed :: One lucky seed does not win: a is lower in the third only.
    b :: majority-or-mean :: b is lower in three seeds and at the median, but not in the third: the rule asks for every seed.
undecided :: [0.10, 0.10, 0.10, 0.50], [0.40, 0.40, 0.40, 0.49]
    a :: majority-or-mean :: a is lower in three seeds and on average, but not in the fourth: the rule asks for every seed.
    b :: worst-seed :: Only in the last seed is b lower.
b :: [0.30, 0.30, 0.30], [0.20, 0.10, 0.29]
    a :: higher-wins :: These are losses: the lower one is better.
    undecided :: only-a-can-win :: b is lower in every seed: the rule works both ways.
undecided :: [0.30, 0.30, nan], [0.40, 0.40, 0.40]
    a :: nan-wins :: In the third seed a diverged. Every < or > with nan is False, so ask which one is lower, not which one is
        not higher; and drop no seeds.
a :: [0.30, 0.30, 0.30], [0.40, nan, 0.40]
    undecided :: nan-is-no-loss :: In the second seed b diverged, and a finite loss is better than nan. But 0.3 < nan is False,
        so treat nan as infinite.
    b :: nan-wins :: In the second seed b diverged, and in the others it is higher.
undecided :: [nan, 0.30], [nan, 0.40]
    a :: both-diverged :: In the first seed both diverged: neither is lower there.
b :: [nan, 0.50], [0.40, 0.40]
    undecided :: nan-is-no-loss :: In the first seed a diverged, and b did not: there b is lower.
    a :: nan-wins :: In the first seed a diverged, and in the second it is higher.
undecided :: [nan, 0.30], [1e300, 0.40]
    a :: nan-as-a-number :: In the first seed a diverged and b did not, but your number for nan is lower than b's 1e300. Which
        number is above all others?
undecided :: [0.10, 0.30], [0.40, 0.20]
    a :: pairing-lost :: In the second seed b is lower. Sorted, the losses no longer meet those of their own seed: the same
        index is the same seed.
undecided :: [0.30, 0.30], [0.30, 0.40]
    a :: equal-counts-as-lower :: In the first seed both are equal: a is not lower there.
a :: [0.3000001, 0.2000001], [0.3000002, 0.2000002]
    undecided :: rounded :: In both seeds a is lower, if only in the seventh digit: compare the losses as they are.
a :: [20.0, 3e9, 0.30], [30.0, 4e9, 0.40]
    undecided :: large-taken-for-nan :: a is lower in every seed. A loss of 20 or of 3e9 is large, and still a number: only nan
        stands for a training that diverged.
undecided :: [0.10] * 19 + [0.50], [0.40] * 20
    a :: majority-or-mean :: a is lower in 19 of 20 seeds, but not in the last: the rule asks for every seed.
""")


@exercise("winner-by-seeds", notebook="06_race", takes="a, b", returns=str)
def judge_winner_by_seeds(answer: Callable[[list[float], list[float]], str]) -> None:
    verdicts = [_verdict(answer(copied(case.a), copied(case.b)), case) for case in CASES]  # each nan an object of its own
    if set(verdicts) == {"undecided"}:
        raise Mistake("never-decides", "A race can have a winner: for a = [1, 2, 3] and b = [1.5, 2.5, 3.5] it is a.")
    for pick, worst in product((0, -1), (inf, nan)):
        if verdicts == [_by_one_seed(case, pick, worst) for case in CASES]:
            raise Mistake(
                "one-seed", f"You look at the {'last' if pick else 'first'} seed only; a winner is lower in every seed."
            )
    decided = [given == case.right for given, case in zip(verdicts, CASES, strict=True) if case.right != "undecided"]
    if all(decided) and set(verdicts) == {"a", "b"}:
        raise Mistake("always-a-winner", "A race can be undecided: what if a is lower in one seed and b in another?")
    for case, given in zip(CASES, verdicts, strict=True):
        expect(given, case.right, case=f"a = {case.a}, b = {case.b}", mistakes=case.mistakes, given=(case.a, case.b))


def _verdict(given: str, case: SeedCase) -> str:
    if given not in VERDICTS:
        hint = f"For a = {case.a}, b = {case.b} your function returns {given!r}: give one of {', '.join(map(repr, VERDICTS))}."
        raise Mistake("not-one-of-the-three", hint)
    return given


def _by_one_seed(case: SeedCase, index: int, worst: float) -> str:
    """The verdict of one seed, with `worst` in place of nan."""
    x, y = (worst if isnan(losses[index]) else losses[index] for losses in (case.a, case.b))
    return "a" if x < y else "b" if y < x else "undecided"
