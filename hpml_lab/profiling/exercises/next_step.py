"""Exercise: which part of a loop to fix next."""

from collections.abc import Callable

from hpml_lab.core.exercises import Mistake, exercise
from hpml_lab.profiling.exercise_profiles import CALLERS, loop_profile, part_to_fix


@exercise("next-step", notebook="09_profiling")
def judge_next_step(answer: Callable) -> None:
    """The name of the part to fix next, on loops that are made from a seed."""
    for seed in range(12):
        rows, fixed = loop_profile(seed)
        right = part_to_fix(rows, fixed)
        got = answer([dict(row) for row in rows], set(fixed))
        if got == right:
            continue
        left = [row for row in rows if row["part"] not in fixed]
        by = {row["part"]: row for row in rows}
        story = f"Loop {seed}, fixed so far: {', '.join(sorted(fixed)) or 'nothing'}. "
        if got is None:
            raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
        if isinstance(got, dict):
            raise Mistake("row-not-name", f"{story}Return the name of the part, not its row.")
        if isinstance(got, (int, float)):
            raise Mistake("time-not-name", f"{story}Return the name of the part, not a number.")
        if not isinstance(got, str) or got not in by:
            raise Mistake("unknown-part", f"{story}{got!r} is no part of the profile.")
        if got in fixed:
            raise Mistake("already-fixed", f"{story}You choose {got!r} again. It was fixed already: go on with the rest.")
        if (
            got in CALLERS
            or got == max((row for row in left if row["part"] not in CALLERS), key=lambda row: row["total"])["part"]
        ):
            raise Mistake("cumulative-time", f"{story}{got!r} has the most total time, but that is the time of what it calls.")
        if got in (max(rows, key=lambda row: row["calls"])["part"], max(left, key=lambda row: row["calls"])["part"]):
            raise Mistake("most-calls", f"{story}{got!r} is called most, but costs {by[got]['self']:.2f} s in all.")
        if got == min(left, key=lambda row: row["self"])["part"]:
            raise Mistake("smallest", f"{story}{got!r} has the least self time: there is nothing to gain.")
        if got == left[0]["part"]:
            raise Mistake("first-row", f"{story}You took the first row; the rows are in no order.")
        raise Mistake("not-the-largest", f"{story}{got!r} takes {by[got]['self']:.2f} s; another part takes more.")
