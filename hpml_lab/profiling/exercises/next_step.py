"""Exercise: which part of a loop to fix next."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.profiling.exercise_profiles import CALLERS, loop_profile, part_to_fix

Rows = list[dict[str, Any]]
LOOPS = 12
# Names within names, times that differ in the second decimal, and more digits in the larger ones.
CLOSE = (
    [
        {"part": part, "calls": 100, "self": seconds, "total": seconds}
        for part, seconds in {
            "decode": 9.84,
            "load": 12.0,
            "augment": 10.08,
            "load images": 10.12,
            "preload images": 11.0,
        }.items()
    ],
    frozenset({"load", "preload images"}),
)
CLOSE_STORY = "Of decode 9.84 s, load 12.0 s (fixed), augment 10.08 s, load images 10.12 s and preload images 11.0 s (fixed): "


def left(rows: Rows, fixed: frozenset[str]) -> Rows:
    return [row for row in rows if row["part"] not in fixed]


def parts(rows: Rows, fixed: frozenset[str]) -> Rows:
    """Those of `left` that do not only call others."""
    return [row for row in left(rows, fixed) if row["part"] not in CALLERS]


def everything(rows: Rows, fixed: frozenset[str]) -> Rows:
    return rows


def most(figure: Callable[[dict[str, Any]], Any], *choices: Callable) -> list[Callable[[Rows, frozenset[str]], str]]:
    """Rules that take the part with the most of a figure, among different rows."""
    return [lambda rows, fixed, among=among: max(among(rows, fixed), key=figure)["part"] for among in choices]


def at(index: int, *choices: Callable) -> list[Callable[[Rows, frozenset[str]], str]]:
    """Rules that take the row at an index."""
    return [lambda rows, fixed, among=among: among(rows, fixed)[index]["part"] for among in choices]


def second(rows: Rows, fixed: frozenset[str]) -> str:
    return sorted(left(rows, fixed), key=lambda row: -row["self"])[1]["part"]


ALL = (left, parts, everything)
MISTAKES: dict[str, tuple[list[Callable[[Rows, frozenset[str]], str]], str]] = {
    "already-fixed": (
        most(lambda row: row["self"], everything),
        "You choose {got!r} again. It was fixed already: go on with the rest.",
    ),
    "cumulative-time": (
        most(lambda row: row["total"], *ALL) + most(lambda row: row["total"] - row["self"], *ALL),
        "{got!r} has the most total time, but that counts what it calls.",
    ),
    "most-calls": (most(lambda row: row["calls"], *ALL), "{got!r} is called most, but costs {seconds:.2f} s in all."),
    "time-per-call": (
        most(lambda row: row["self"] / row["calls"], *ALL) + most(lambda row: row["total"] / row["calls"], *ALL),
        "{got!r} takes the most time per call. What counts is the time of all calls: the column self as it is.",
    ),
    "times-calls": (
        most(lambda row: row["self"] * row["calls"], *ALL) + most(lambda row: row["total"] * row["calls"], *ALL),
        "You multiplied by the calls. The seconds are those of all calls already.",
    ),
    "smallest": (
        most(lambda row: -row["self"], *ALL) + most(lambda row: -row["total"], *ALL),
        "{got!r} has the least time: there is nothing to gain.",
    ),
    "first-row": (at(0, *ALL), "You took the first row; the rows are in no order."),
    "last-row": (at(-1, *ALL), "You took the last row; the rows are in no order."),
    "last-by-name": (most(lambda row: row["part"], *ALL), "You compared the parts by their names, not by their times."),
    "first-by-name": (
        [lambda rows, fixed, among=among: min(row["part"] for row in among(rows, fixed)) for among in ALL],
        "You compared the parts by their names, not by their times.",
    ),
    "compared-as-text": (most(lambda row: str(row["self"]), *ALL), "As text '9.84' comes after '10.12': compare numbers."),
    "not-the-largest": ([second], "{got!r} takes {seconds:.2f} s; another part takes more."),
}


def check_type(got: Any, names: set[str], story: str) -> None:
    """Raise the Mistake of an answer that is not the name of a part."""
    if got is None:
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if isinstance(got, dict):
        raise Mistake("row-not-name", f"{story}Return the name of the part, not its row.")
    if isinstance(got, int | np.integer) and 0 <= got < len(names):
        raise Mistake("index-not-name", f"{story}Return the name of the part, not the place of its row.")
    if isinstance(got, int | float | np.number):
        raise Mistake("time-not-name", f"{story}Return the name of the part, not a number.")
    if isinstance(got, list | tuple | set) and set(map(str, got)) & names:
        raise Mistake("name-in-a-list", f"{story}Return the name by itself, not in a {type(got).__name__}.")
    if not isinstance(got, str) or got not in names:
        raise Mistake("unknown-part", f"{story}{got!r} is no part of the profile.")


@exercise("next-step", notebook="10_profiling")
def judge_next_step(answer: Callable) -> None:
    """The name of the part to fix next, on loops that are made from a seed."""
    loops = [loop_profile(seed) for seed in range(LOOPS)]
    stories = [f"Loop {seed}, fixed so far: {', '.join(sorted(fixed)) or 'nothing'}. " for seed, (_, fixed) in enumerate(loops)]
    loops.append(CLOSE)
    stories.append(CLOSE_STORY)
    given, changed = [], []
    for (rows, fixed), story in zip(loops, stories, strict=True):
        handed = [dict(row) for row in rows], set(fixed)
        given.append(answer(*handed))
        if (sorted(handed[0], key=str), handed[1]) != (sorted(rows, key=str), set(fixed)):  # in another order they are the same
            changed.append(story)
        check_type(given[-1], {row["part"] for row in rows}, story)
    wrong = [seed for seed, loop in enumerate(loops) if given[seed] != part_to_fix(*loop)]
    if not wrong and not changed:
        return
    if not wrong:
        raise Mistake("inputs-changed", f"{changed[0]}The name is right, but your function changed its arguments.")
    got, (rows, fixed) = given[wrong[0]], loops[wrong[0]]
    seconds = next(row["self"] for row in rows if row["part"] == got)
    for name, (rules, hint) in MISTAKES.items():
        if any(given == [rule(*loop) for loop in loops] for rule in rules):
            raise Mistake(name, stories[wrong[0]] + hint.format(got=got, seconds=seconds))
    for seed in wrong:
        if given[seed] in loops[seed][1]:
            hint = f"You choose {given[seed]!r} again. It was fixed already: go on with the rest."
            raise Mistake("already-fixed", stories[seed] + hint)
    if got in CALLERS:
        raise Mistake("caller", f"{stories[wrong[0]]}{got!r} only calls others: by itself it takes {seconds:.2f} s.")
    raise Mistake("not-the-largest", f"{stories[wrong[0]]}{got!r} takes {seconds:.2f} s; another part takes more.")
