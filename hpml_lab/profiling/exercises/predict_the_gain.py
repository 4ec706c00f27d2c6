"""Exercise: what a faster part is worth (Amdahl's law)."""

from collections.abc import Callable

from hpml_lab.core.exercises import exercise, expect_function

Profile = dict[str, float]
LOOPS = (
    ({"load": 6.0, "forward": 3.0, "backward": 5.0, "step": 2.0}, "load", 4.0),
    ({"load": 1.0, "forward": 30.0, "backward": 60.0, "step": 9.0}, "step", 10.0),
    ({"load": 9.0, "forward": 1.0}, "load", float("inf")),
)


def whole(profile: Profile) -> float:
    return sum(profile.values())


def new_time(profile: Profile, part: str, times: float) -> float:
    return whole(profile) - profile[part] + profile[part] / times


def right_gain(profile: Profile, part: str, times: float) -> float:
    return whole(profile) / new_time(profile, part, times)


def _amdahl(share: float, times: float) -> float:
    return 1 / (1 - share + share / times)


def _share(profile: Profile, part: str) -> float:
    return profile[part] / whole(profile)


MISTAKES = {
    "factor-of-the-part": (
        lambda profile, part, times: times,
        "Only this part becomes that much faster. The rest stays as it is: add it.",
    ),
    "fraction-inverted": (
        lambda profile, part, times: _amdahl(1 - _share(profile, part), times),
        "You made the rest faster and left the part as it was: the shares are swapped.",
    ),
    "part-gone": (
        lambda profile, part, times: whole(profile) / (whole(profile) - profile[part]),
        "You took the part away altogether. It still takes 1/times of its time.",
    ),
    "rest-ignored": (
        lambda profile, part, times: whole(profile) / (profile[part] / times),
        "The other parts take as long as before: add them.",
    ),
    "upside-down": (
        lambda profile, part, times: 1 / right_gain(profile, part, times),
        "You return new time / old time. Speed-up is old / new.",
    ),
    "new-time": (new_time, "That is the new time in seconds. Speed-up is old time / new time."),
    "gain-not-speed-up": (
        lambda profile, part, times: 1 - 1 / right_gain(profile, part, times),
        "That is the share of the time that is saved. Speed-up is old / new.",
    ),
    "shares-times-factors": (
        lambda profile, part, times: 1 - _share(profile, part) + _share(profile, part) * times,
        "Times add, not speeds: divide the part's time by its factor.",
    ),
    "equal-parts": (
        lambda profile, part, times: _amdahl(1 / len(profile), times),
        "You gave each part the same share. Take its seconds over the sum of all.",
    ),
}


@exercise("predict-the-gain", notebook="09_profiling")
def judge_predict_the_gain(answer: Callable) -> None:
    """Amdahl's law from a profile of seconds a part."""
    for profile, part, times in LOOPS:
        # Case by case: some mistakes divide by zero where a part becomes infinitely fast.
        case = f"{profile}, {part} {times:g} times as fast"
        expect_function(answer, right_gain, {case: (profile, part, times)}, mistakes=MISTAKES)
