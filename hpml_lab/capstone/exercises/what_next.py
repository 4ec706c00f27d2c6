"""what-next: which part of a pipeline to improve next, and what that can gain at most, where lanes of parts overlap."""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hpml_lab.capstone.exercises.lane_cases import ALONE, BALANCED, CASES, LIMITED, Lanes, Profile, Workers
from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.same import numbers, plain

Answer = Callable[[Profile, Lanes, Workers], Any]
TOLERANCE = 1e-6


# ---- the right answer, in parts that a mistake may replace ---------------------------------------------------------------


def _lane_time(profile: Profile, parts: list[str], workers: int) -> float:
    return sum(profile[part] for part in parts) / workers


def _item(times: list[float]) -> float:
    return max(times)


def _without(profile: Profile, part: str) -> Profile:
    return profile | {part: 0.0}


def _speed_up(old: float, new: float) -> float:
    return old / new if new else math.inf


def _best(profile: Profile, lanes: Lanes, workers: Workers, gain: Callable[[str], float]) -> str:
    """The part with the largest gain; of equal ones the larger part."""
    return max(profile, key=lambda part: (gain(part), profile[part]))


def _build(
    lane: Callable[[Profile, list[str], int], float] = _lane_time,
    item: Callable[[list[float]], float] = _item,
    changed: Callable[[Profile, str], Profile] = _without,
    result: Callable[[float, float], float] = _speed_up,
    choose: Callable[..., str] = _best,
) -> Answer:
    def what_next(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
        def seconds(of: Profile) -> float:
            return item([lane(of, parts, workers[name]) for name, parts in lanes.items()])

        def gain(part: str) -> float:
            return _speed_up(seconds(profile), seconds(changed(profile, part)))

        part = choose(profile, lanes, workers, gain)
        return part, result(seconds(profile), seconds(changed(profile, part)))

    return what_next


right = _build()


def _longest_lane(profile: Profile, lanes: Lanes, workers: Workers) -> list[str]:
    return lanes[max(lanes, key=lambda name: _lane_time(profile, lanes[name], workers[name]))]


def _of_that_lane(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """Amdahl's law within the longest lane, whatever the others take."""
    parts = _longest_lane(profile, lanes, workers)
    part = max(parts, key=profile.get)
    whole = sum(profile[each] for each in parts)
    return part, _speed_up(whole, whole - profile[part])


def _lane_gone(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """The whole longest lane takes no time."""
    times = sorted(_lane_time(profile, parts, workers[name]) for name, parts in lanes.items())
    part = max(_longest_lane(profile, lanes, workers), key=profile.get)
    return part, _speed_up(times[-1], times[-2] if len(times) > 1 else 0.0)


def _not_divided(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """Lanes divided by their threads, and all of a part's seconds subtracted."""
    times = {name: _lane_time(profile, parts, workers[name]) for name, parts in lanes.items()}

    def without(part: str) -> float:
        return max(seconds - profile[part] * (part in lanes[name]) for name, seconds in times.items())

    part = min(profile, key=lambda part: (max(without(part), 0.0), -profile[part]))
    return part, _speed_up(max(times.values()), max(without(part), 0.0))


def _next_lane(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """As far as the second lane, as if a part of the first had no limit; a single lane is right."""
    part, most = right(profile, lanes, workers)
    return part, most if len(lanes) == 1 else _lane_gone(profile, lanes, workers)[1]


def _mixed(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """The right part, and Amdahl's gain."""
    part, whole = right(profile, lanes, workers)[0], sum(profile.values())
    return part, _speed_up(whole, whole - profile[part])


def _sequence_before(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """From the sum of all parts to the lanes without the part."""
    part, most = right(profile, lanes, workers)
    now = max(_lane_time(profile, parts, workers[name]) for name, parts in lanes.items())
    return part, most * sum(profile.values()) / now


def _parts_as_stages(profile: Profile, lanes: Lanes, workers: Workers) -> tuple[str, float]:
    """Each part as if it had a thread of its own: the largest over the second."""
    first, *rest = sorted(profile, key=profile.get, reverse=True)
    return first, _speed_up(profile[first], profile[rest[0]] if rest else 0.0)


_LANES = "Lanes work at the same time, on different patients: a further patient costs what the slowest lane takes."
_WORKERS = "k threads of a lane take k patients at once: a further patient costs the lane its seconds divided by k."
_RATIO = "Give how many times as fast: seconds a patient before, divided by seconds after."
_OTHERS = "The part is right. But once it takes no time, another lane may be the slowest one: look at all lanes again."
MISTAKES: dict[str, tuple[Answer, str]] = {
    "lanes-added": (
        _build(item=sum),
        f"You add the lanes up, as if one waited for the other (Amdahl's law for a sequence). {_LANES}",
    ),
    "lanes-added, largest part": (
        lambda profile, lanes, workers: (
            (part := max(profile, key=profile.get)),
            _speed_up(sum(profile.values()), sum(profile.values()) - profile[part]),
        ),
        f"You took the largest part of the sum (Amdahl's law for a sequence). {_LANES}",
    ),
    "largest-part": (
        _build(choose=lambda profile, *_: max(profile, key=profile.get)),
        "You choose the largest part of all. If it is not in the slowest lane, nothing becomes faster when it does.",
    ),
    "workers-ignored": (_build(lane=lambda profile, parts, k: _lane_time(profile, parts, 1)), _WORKERS),
    "workers-ignored, in the choice": (
        _build(choose=lambda profile, lanes, workers, gain: right(profile, lanes, dict.fromkeys(workers, 1))[0]),
        f"You choose the part as if each lane had a single thread; only then you divide. {_WORKERS}",
    ),
    **{
        f"threads-in-whole-numbers, {of_equal_gains}": (
            _build(lane=lambda profile, parts, k: _lane_time(profile, parts, 1) // k, choose=choose),
            "// cuts the fraction off: 1 second in two threads is half a second a patient. Divide with /.",
        )
        for of_equal_gains, choose in {
            "the largest part": _best,
            "the first part": lambda profile, lanes, workers, gain: max(profile, key=gain),
        }.items()
    },
    "workers-multiplied": (
        _build(lane=lambda profile, parts, k: _lane_time(profile, parts, 1) * k),
        f"You multiply by the number of threads. {_WORKERS}",
    ),
    "fastest-lane": (_build(item=min), f"You took the fastest lane. {_LANES}"),
    "parts-overlapped": (
        _build(lane=lambda profile, parts, k: max(profile[part] for part in parts) / k),
        "The parts of one lane follow one another in the same thread: a lane takes their sum, not its largest part.",
    ),
    "parts-overlapped, without threads": (
        _parts_as_stages,
        "You compare single parts, as if each had a thread of its own. The parts of a lane follow one another: add them up.",
    ),
    "only-its-own-lane": (_of_that_lane, _OTHERS),
    "part-not-divided": (
        _not_divided,
        "You divide a lane by its threads, but subtract the part as if there were one thread. Its share is divided, too.",
    ),
    "whole-lane-gone, to the next lane": (
        _next_lane,
        "You divide by the second lane. Without the part, the rest of its own lane stays, and may still be the slowest.",
    ),
    "lanes-added, gain alone": (_mixed, f"The part is right. Your number is Amdahl's, for a sequence. {_LANES}"),
    "sequence-before": (
        _sequence_before,
        "Your number begins with the sum of all parts, a pipeline without lanes. How long does a patient take now, with them?",
    ),
    "whole-lane-gone": (
        _lane_gone,
        "You took the whole lane away. Only one of its parts takes no time any more; the rest of the lane stays.",
    ),
    "smallest-gain": (
        _build(choose=lambda profile, lanes, workers, gain: min(profile, key=lambda part: (gain(part), profile[part]))),
        "That part gains least. Look for the one with which a patient costs least afterwards.",
    ),
    "first-part": (
        _build(choose=lambda profile, *_: next(iter(profile))),
        "You took the first part of the profile; its parts are in no order.",
    ),
    "upside-down": (_build(result=lambda old, new: new / old), f"You return seconds after / seconds before. {_RATIO}"),
    "minus-one": (_build(result=lambda old, new: _speed_up(old, new) - 1), f"You subtracted 1. {_RATIO} No gain is 1."),
    "percent": (_build(result=lambda old, new: 100 * _speed_up(old, new)), f"That is in %. {_RATIO}"),
    "percent, of the gain": (_build(result=lambda old, new: 100 * (_speed_up(old, new) - 1)), f"That is in %. {_RATIO}"),
    "seconds-saved": (_build(result=lambda old, new: old - new), f"That is how many seconds are saved. {_RATIO}"),
    "share-saved": (_build(result=lambda old, new: 1 - new / old), f"That is the share of the time that is saved. {_RATIO}"),
    "old-time": (_build(result=lambda old, new: old), f"These are the seconds of a patient now. {_RATIO}"),
    "new-time": (_build(result=lambda old, new: new), f"These are the seconds of a patient afterwards. {_RATIO}"),
    "twice-as-fast": (
        _build(changed=lambda profile, part: profile | {part: profile[part] / 2}),
        "You made the part twice as fast. The most that is possible is that it takes no time at all.",
    ),
    **{
        f"rounded, to {digits}": (
            _build(result=lambda old, new, digits=digits: round(_speed_up(old, new), digits)),
            "Your number is rounded; return it as it is, and round where you print it.",
        )
        for digits in (0, 1, 2, 3)
    },
    "rounded, down": (
        _build(result=lambda old, new: old // new if new else math.inf),
        "Your number is rounded down; return it as it is, and round where you print it.",
    ),
}


# ---- judging -------------------------------------------------------------------------------------------------------------


def _gains(profile: Profile, lanes: Lanes, workers: Workers) -> dict[str, float]:
    """{part: how many times as fast without it}."""

    def seconds(of: Profile) -> float:
        return max(_lane_time(of, parts, workers[name]) for name, parts in lanes.items())

    return {part: _speed_up(seconds(profile), seconds(_without(profile, part))) for part in profile}


def _pair(got: Any, case: str, profile: Profile, lanes: Lanes) -> tuple[str, float]:
    """The answer as (name, number); raises the Mistake of one that is neither."""
    got = plain(got)
    if got is None:
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if isinstance(got, Mapping):
        raise Mistake("not-a-pair", "Return two values, the part and the number: `return part, most`.")
    if isinstance(got, str) or not isinstance(got, tuple | list | np.ndarray) or len(got) != 2:
        raise Mistake("not-a-pair", f"For {case} yours is {got!r}. Return two values, the part and the number.")
    part, most = (plain(value) for value in got)
    if isinstance(most, str) and not isinstance(part, str):
        raise Mistake("order-swapped", "Return the part first, then the number.")
    if isinstance(part, str) and part in lanes and part not in profile:
        raise Mistake("lane-not-part", f"{part!r} is a lane. Which of its parts is to be improved?")
    if isinstance(part, list | tuple | set):
        raise Mistake("several-parts", f"For {case} you return {part!r}; return one name, also if several are right.")
    if part is None:
        raise Mistake("no-part", f"For {case} you return no part. Where none gains more than another, each of them is right.")
    if not isinstance(part, str) or part not in profile:
        raise Mistake("unknown-part", f"For {case}, {part!r} is no part of the profile.")
    number = None if isinstance(most, bool) else numbers(most)
    if number is None or number.ndim:
        raise Mistake("wrong-type", f"For {case} the second value should be one number; yours is {most!r}.")
    return part, float(number)


def _near(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=TOLERANCE)


@exercise("what-next", notebook="19_capstone")
def judge_what_next(answer: Callable) -> None:
    """(the part whose time gains most, max over lanes of sum / workers before / the same without that part)."""
    given, changed = {}, ""
    for case, arguments in CASES.items():
        handed = copy.deepcopy(arguments)
        given[case] = _pair(answer(*handed), case, arguments[0], arguments[1])
        changed = changed or ("" if handed == arguments else case)
    gains = {case: _gains(*arguments) for case, arguments in CASES.items()}
    wrong = [
        case for case, (part, most) in given.items()
        if not _near(gains[case][part], max(gains[case].values())) or not _near(most, max(gains[case].values()))
    ]  # fmt: skip
    if wrong:
        for name, (function, hint) in MISTAKES.items():
            known = {case: function(*copy.deepcopy(arguments)) for case, arguments in CASES.items()}
            if all(known[case][0] == part and _near(known[case][1], most) for case, (part, most) in given.items()):
                raise Mistake(name.split(",")[0], hint)
        if changed:
            hint = "Your function changes the profile that it is given, and what it tries next is without the parts before."
            raise Mistake("inputs-changed", f"For {changed}: {hint} Try each part on a copy.")
        _explain(wrong[0], given[wrong[0]], gains[wrong[0]])
    _special(answer, "two lanes that take equally long", BALANCED, "balanced", "Then no single part gains anything: 1.")
    _special(answer, "a part that the other lane hides", LIMITED, "another-lane-limits", "The other lane sets the limit.")
    _special(answer, "one part alone", ALONE, "nothing-is-left", "Without it nothing is left to do: float('inf').")
    if changed:
        raise Mistake("inputs-changed", f"For {changed} the result is right, but your function changed its arguments.")


def _special(answer: Callable, case: str, arguments: tuple, name: str, hint: str) -> None:
    """Judge a case in which several parts may be right, or nothing is left."""
    try:
        part, most = _pair(answer(*copy.deepcopy(arguments)), case, arguments[0], arguments[1])
    except (ArithmeticError, ValueError) as error:
        raise Mistake(name, f"For {case} yours raises {type(error).__name__}. {hint}") from error
    gains = _gains(*arguments)
    if not _near(gains[part], max(gains.values())) or not _near(most, max(gains.values())):
        raise Mistake(name, f"For {case} yours is {part!r}, {most:.6g}. {hint}")


def _explain(case: str, got: tuple[str, float], gains: dict[str, float]) -> None:
    """Raise the Mistake that says which of the two values is wrong."""
    part, most = got
    if not _near(gains[part], max(gains.values())):
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
