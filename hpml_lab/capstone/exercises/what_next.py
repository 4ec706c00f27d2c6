"""what-next: which part of a pipeline to improve next, and what that can gain at most, where lanes of parts overlap."""

import copy
import math
from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import plain, same

Profile, Lanes, Workers = dict[str, float], dict[str, list[str]], dict[str, int]
TOLERANCE = 1e-6


def right(profile: Profile, lanes: Lanes, workers: Workers) -> Any:
    def seconds(of: Profile) -> float:
        return max(sum(of[part] for part in parts) / workers[name] for name, parts in lanes.items())

    gain = {part: speed_up(seconds(profile), seconds(profile | {part: 0.0})) for part in profile}
    best = max(profile, key=lambda part: (gain[part], profile[part]))
    before, after = seconds(profile), seconds(profile | {best: 0.0})
    return best, speed_up(before, after)


def speed_up(before: float, after: float) -> float:
    return before / after if after else math.inf


def lane_times(profile: Profile, lanes: Lanes, workers: Workers) -> dict[str, float]:
    return {name: sum(profile[part] for part in parts) / workers[name] for name, parts in lanes.items()}


def longest(profile: Profile, lanes: Lanes, workers: Workers) -> list[str]:
    times = lane_times(profile, lanes, workers)
    return lanes[max(times, key=times.get)]


def of_that_lane(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """Amdahl's law within the longest lane, whatever the others take."""
    parts = longest(profile, lanes, workers)
    part = max(parts, key=profile.get)
    whole = sum(profile[each] for each in parts)
    return part, speed_up(whole, whole - profile[part])


def lane_gone(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """The whole longest lane takes no time."""
    times = sorted(lane_times(profile, lanes, workers).values())
    part = max(longest(profile, lanes, workers), key=profile.get)
    return part, speed_up(times[-1], times[-2] if len(times) > 1 else 0.0)


def not_divided(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """Lanes divided by their threads, and all of a part's seconds subtracted."""
    times = lane_times(profile, lanes, workers)

    def without(part: str) -> float:
        return max(seconds - profile[part] * (part in lanes[name]) for name, seconds in times.items())

    part = min(profile, key=lambda part: (max(without(part), 0.0), -profile[part]))
    return part, speed_up(max(times.values()), max(without(part), 0.0))


def of_the_sum(profile: Profile, part: str) -> tuple[str, float]:
    whole = sum(profile.values())
    return part, speed_up(whole, whole - profile[part])


def parts_as_stages(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """Each part as if it had a thread of its own: the largest over the second."""
    first, *rest = sorted(profile, key=profile.get, reverse=True)
    return first, speed_up(profile[first], profile[rest[0]] if rest else 0.0)


_LANES = "Lanes work at the same time, on different patients: a further patient costs what the slowest lane takes."
_RATIO = "Give the speed-up: seconds a patient before, divided by seconds after."
RUBRIC = Rubric(
    right,
    """
return max(
    lanes-added :: return sum( :: You add the lanes up, as if one waited for the other (Amdahl's law for a sequence). || $LANES
max(profile, key=lambda part: (gain[part], profile[part]))
    largest-part :: max(profile, key=profile.get) :: The largest part of all may be in another than the slowest lane: then
        nothing becomes faster when it does.
    smallest-gain :: min(profile, key=lambda part: (gain[part], profile[part])) :: That part gains least. Look for the one with
        which a patient costs least afterwards.
/ workers[name]
    workers-ignored :: / 1 :: $WORKERS
sum(of[part] for part in parts)
    parts-overlapped :: max(of[part] for part in parts) :: The parts of one lane follow one another in the same thread: a lane
        takes their sum, not its largest part.
whole answer
    lanes-added :: lambda profile, *rest: of_the_sum(profile, max(profile, key=profile.get)) :: You took the largest part of the
        sum (Amdahl's law for a sequence). $LANES
    parts-overlapped :: parts_as_stages :: You compare single parts, as if each had a thread of its own. The parts of a lane
        follow one another: add them up.
    only-its-own-lane :: of_that_lane :: The part is right. But once it takes no time, another lane may be the slowest one: look
        at all lanes again.
    part-not-divided :: not_divided :: You divide a lane by its threads, but subtract the part as if there were one thread. Its
        share is divided, too.
    whole-lane-gone :: lane_gone :: You took the whole lane away. Only one of its parts takes no time any more; the rest of the
        lane stays.
""",
    LANES=_LANES,
    WORKERS="k threads of a lane take k patients at once: a further patient costs the lane its seconds divided by k.",
)

# In seconds a patient. Names of parts are no hint: the largest is neither always the first nor always the network.
_TWO = {"thread": ["resample", "closing"], "main": ["network", "boxes"]}
CASES: dict[str, tuple[Profile, Lanes, Workers]] = {
    "all in one thread": (
        {"read": 0.2, "resample": 5.0, "closing": 9.0, "network": 4.0, "boxes": 0.3},
        {"main": ["read", "resample", "closing", "network", "boxes"]},
        {"main": 1},
    ),
    "a thread ahead": (
        {"network": 8.0, "closing": 4.0, "resample": 6.0, "boxes": 0.5, "read": 5.0},
        {"thread": ["read", "resample", "closing"], "main": ["network", "boxes"]},
        {"thread": 1, "main": 1},
    ),
    "three threads ahead": (
        {"network": 8.0, "closing": 4.0, "resample": 6.0, "boxes": 0.5, "read": 5.0},
        {"thread": ["read", "resample", "closing"], "main": ["network", "boxes"]},
        {"thread": 3, "main": 1},
    ),
    "two threads ahead": ({"closing": 7.0, "resample": 15.0, "network": 4.0, "boxes": 3.0}, _TWO, {"thread": 2, "main": 1}),
    "three lanes": (
        {"boxes": 2.0, "network": 0.9, "read": 3.0, "closing": 1.5, "resample": 1.0},
        {"disk": ["read"], **_TWO},
        {"disk": 1, "thread": 1, "main": 1},
    ),
    "two closings": (
        {"closing": 12.0, "boxes": 1.0, "resample": 8.0, "network": 2.0, "read": 4.0},
        {"prepare": ["read", "resample", "closing"], "detect": ["network", "boxes"]},
        {"prepare": 2, "detect": 1},
    ),
    "four networks": (
        {"network": 0.060, "resample": 0.004, "closing": 0.009, "boxes": 0.001},
        {"prepare": ["closing", "resample"], "detect": ["network", "boxes"]},
        {"prepare": 1, "detect": 4},
    ),
}
BALANCED = ({"resample": 2.0, "closing": 4.0, "network": 5.0, "boxes": 1.0}, _TWO, {"thread": 1, "main": 1})
# Whichever part of the thread vanishes, the other lane's 5 s are left.
LIMITED = ({"resample": 5.0, "closing": 4.0, "network": 4.5, "boxes": 0.5}, _TWO, {"thread": 1, "main": 1})
ALONE = ({"network": 2.0}, {"main": ["network"]}, {"main": 1})


def _gains(profile: Profile, lanes: Lanes, workers: Workers) -> dict[str, float]:
    """{part: how many times as fast without it}."""

    def seconds(of: Profile) -> float:
        return max(lane_times(of, lanes, workers).values())

    return {part: speed_up(seconds(profile), seconds(profile | {part: 0.0})) for part in profile}


def _near(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=TOLERANCE)


@exercise("what-next", notebook="19_capstone", takes="profile, lanes, workers", returns=(str, float))
def judge_what_next(answer: Callable) -> None:
    """(the part whose time gains most, max over lanes of sum / workers before / the same without that part)."""

    def pair(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
        part, most = map(plain, answer(profile, lanes, workers))
        if part in lanes and part not in profile:
            raise Mistake("lane-not-part", f"{part!r} is a lane. Which of its parts is to be improved?")
        if part not in profile:
            raise Mistake("unknown-part", f"{part!r} is no part of the profile.")
        return part, float(most)

    RUBRIC.expect(pair, CASES, explain=_explain)
    _special(pair, "two lanes that take equally long", BALANCED, "balanced", "Then no single part gains anything: 1.")
    _special(pair, "a part that the other lane hides", LIMITED, "another-lane-limits", "The other lane sets the limit.")
    _special(pair, "one part alone", ALONE, "nothing-is-left", "Without it nothing is left to do: float('inf').")


def _special(answer: Callable, case: str, arguments: tuple, name: str, hint: str) -> None:
    """Judge a case in which several parts may be right, or nothing is left."""
    try:
        part, most = answer(*copy.deepcopy(arguments))
    except ArithmeticError as error:
        raise Mistake(name, f"For {case} yours raises {type(error).__name__}. {hint}") from error
    gains = _gains(*arguments)
    if not _near(gains[part], max(gains.values())) or not _near(most, max(gains.values())):
        raise Mistake(name, f"For {case} yours is {part!r}, {most:.6g}. {hint}")


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says which of the two values is wrong."""
    case, given, (part, most), wanted = next(row for row in judged if not same(row.got, row.wanted))
    handed, gains = copy.deepcopy(given), _gains(*given)
    answer(*handed)
    if handed != given:
        hint = "Your function changes the profile that it is given, and what it tries next is without the parts before."
        raise Mistake("inputs-changed", f"For {case}: {hint} Try each part on a copy.")
    if part != wanted[0]:
        if _near(gains[part], 1.0):
            raise Mistake("gains-nothing", f"For {case}, without {part!r} nothing is faster. Which lane is slowest? {_LANES}")
        raise Mistake("not-the-most", f"For {case} another part than {part!r} gains more.")
    if most < 1 - TOLERANCE:
        raise Mistake("below-1", f"For {case} your number is {most:.6g}: without a part nothing becomes slower. {_RATIO}")
    if math.isclose(most, gains[part], rel_tol=1e-2):
        raise Mistake("rounded", f"For {case} the part is right; {most:.8g} is near the right number. Is it rounded?")
    if most > (1 + TOLERANCE) * gains[part]:
        raise Mistake("above-the-limit", f"For {case} the part is right; {most:.6g} times is more than can be. {_LANES}")
    raise Mistake("wrong-limit", f"For {case} the part is right; the number {most:.6g} is not. {_LANES} {_RATIO}")
