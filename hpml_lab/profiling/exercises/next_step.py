"""Exercise: which part of a loop to fix next."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric

Rows = list[dict[str, Any]]
CALLERS = ("train", "epoch")
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


def loop_profile(seed: int) -> tuple[Rows, frozenset[str]]:
    """The profile of a training loop in seconds, and the parts that are fixed already.

    Some rows only call others: nearly all their time is spent in the parts. What is fixed may still be the largest.
    """
    rng = random.Random(seed)
    parts = rng.sample(["load images", "augment", "copy to the device", "forward", "backward", "optimizer step", "log"], 5)
    times = sorted((hundredths / 100 for hundredths in rng.sample(range(50, 900), len(parts))), reverse=True)  # no two alike
    calls = rng.sample(range(10, 5000), len(parts))
    rows = [{"part": p, "calls": c, "self": t, "total": t} for p, c, t in zip(parts, calls, times, strict=True)]
    rows[2]["total"] += rows[4]["self"]  # the third calls the last
    whole = sum(row["self"] for row in rows)
    most = max(rows, key=lambda row: row["calls"])
    most["calls"], rows[3]["calls"] = rows[3]["calls"], most["calls"]  # what is called most is nearly the cheapest
    own = times[4] + 0.05
    rows += [{"part": "epoch", "calls": 1, "self": own, "total": whole + own}]
    rows += [{"part": "train", "calls": 1, "self": own, "total": whole + 2 * own}]
    rng.shuffle(rows)
    return rows, frozenset(parts[:3:2] if seed % 6 == 5 else parts[: seed % 3])  # not always the largest


def part_to_fix(rows: Rows, fixed: frozenset[str]) -> str:
    """The part with the most self time of those that are not fixed yet."""
    left = [row for row in rows if row["part"] not in fixed]
    return max(left, key=lambda row: row["self"])["part"]


RUBRIC = Rubric(
    part_to_fix,
    """
row["self"]
    cumulative-time :: row["total"] :: $TOTAL
    cumulative-time :: row["total"] * (row["part"] not in CALLERS) :: $TOTAL
    cumulative-time :: row["total"] - row["self"] :: $TOTAL
    most-calls :: row["calls"] :: $CALLS
    most-calls :: row["calls"] * (row["part"] not in CALLERS) :: $CALLS
    time-per-call :: row["self"] / row["calls"] :: $EACH
    time-per-call :: row["total"] / row["calls"] * (row["part"] not in CALLERS) :: $EACH
    times-calls :: row["self"] * row["calls"] :: You multiplied by the calls. The seconds are those of all calls already.
    smallest :: -row["self"] :: It has the least time: there is nothing to gain.
    last-by-name :: (row["part"] not in CALLERS) * row["part"] :: $NAMES
    compared-as-text :: str(row["self"]) :: As text '9.84' comes after '10.12': compare numbers.
max(left, key=lambda row: row["self"])
    first-row :: left[0] :: The rows are in no order: the first is not always the largest.
    last-row :: left[-1] :: You took the last row; the rows are in no order.
    first-by-name :: min((row for row in left if row["part"] not in CALLERS), key=lambda row: row["part"]) :: $NAMES
[row for row in rows if row["part"] not in fixed]
    already-fixed :: rows :: What was fixed already may still be the largest: go on with the rest.
""",
    TOTAL="The most total time tells little, for it counts what a part calls: which column does not?",
    CALLS="It is called most, but costs little in all.",
    EACH="It takes the most time per call. What counts is the time of all calls: the column self as it is.",
    NAMES="You compared the parts by their names, not by their times.",
)


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


@exercise("next-step", notebook="10_profiling", takes="rows, fixed", returns=str, changes="rows")
def judge_next_step(answer: Callable) -> None:
    """The name of the part to fix next, on loops that are made from a seed."""
    first = LOOPS * drawn().randint(0, 999)
    loops = [loop_profile(seed) for seed in range(first, first + LOOPS)]
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
    for name, (function, hint) in RUBRIC.items():
        if given == [function(*loop) for loop in loops]:
            raise Mistake(name, f"{stories[wrong[0]]}You choose {got!r}. {hint}")
    for seed in wrong:
        if given[seed] in loops[seed][1]:
            hint = f"You choose {given[seed]!r} again. It was fixed already: go on with the rest."
            raise Mistake("already-fixed", stories[seed] + hint)
    if got in CALLERS:
        raise Mistake("caller", f"{stories[wrong[0]]}{got!r} only calls others: by itself it takes {seconds:.2f} s.")
    raise Mistake("not-the-largest", f"{stories[wrong[0]]}{got!r} takes {seconds:.2f} s; another part takes more.")
