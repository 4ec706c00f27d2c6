"""Exercise: what a faster part is worth (Amdahl's law)."""

import copy
from collections.abc import Callable

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.same import same

Profile = dict[str, float]
LOOPS = (
    ({"load": 6.0, "forward": 3.0, "backward": 5.0, "step": 2.0}, "load", 4.0),
    ({"step size": 1.0, "forward": 30.0, "backward": 60.0, "step": 9.0}, "step", 10.0),
)
INFINITELY_FAST = ({"load": 9.0, "forward": 1.0}, "load", float("inf"))


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
    "percent": (lambda *loop: 100 * right_gain(*loop), "That is in %. Return how many times as fast, 1 for no change."),
    "percent, of the gain": (
        lambda *loop: 100 * (right_gain(*loop) - 1),
        "That is what is gained, in %. Return how many times as fast, 1 for no change.",
    ),
    "gain-minus-one": (
        lambda *loop: right_gain(*loop) - 1,
        "That is what is gained on top. How many times as fast is 1 for no change: old time / new time.",
    ),
    "another-part, the largest": (
        lambda profile, part, times: right_gain(profile, max(profile, key=profile.get), times),
        "You made the largest part faster, whichever is asked for: use `part`.",
    ),
    "another-part, the first": (
        lambda profile, part, times: right_gain(profile, next(iter(profile)), times),
        "You made the first part faster, whichever is asked for: use `part`.",
    ),
    "seconds-saved": (
        lambda profile, part, times: profile[part] - profile[part] / times,
        "That is how many seconds are saved. Speed-up is old time / new time.",
    ),
    "part-added-twice": (
        lambda profile, part, times: whole(profile) / (whole(profile) + profile[part] / times),
        "The part still takes its old time too: take that away before you add the new one.",
    ),
    "times-not-divided": (
        lambda profile, part, times: whole(profile) / (whole(profile) + profile[part] * times),
        "A part that is `times` as fast takes 1/times of its seconds: divide, and take the old seconds away.",
    ),
    "times-not-divided, old seconds gone": (
        lambda profile, part, times: whole(profile) / (whole(profile) - profile[part] + profile[part] * times),
        "A part that is `times` as fast takes 1/times of its seconds: divide.",
    ),
    "share-not-speed-up": (
        lambda profile, part, times: _share(profile, part),
        "That is the part's share of the time. Speed-up is old time / new time.",
    ),
    "share-not-speed-up, times the factor": (
        lambda profile, part, times: _share(profile, part) * times,
        "The share times the factor is no speed-up: add up the new time of all parts.",
    ),
    "saving-divided": (
        lambda profile, part, times: 1 / (1 - _share(profile, part) / times),
        "You save share / times. What is left of the part is share / times: all of its share goes, and that comes back.",
    ),
    "mean-of-the-factors": (
        lambda profile, part, times: (times + len(profile) - 1) / len(profile),
        "You took the mean of the parts' factors. The parts differ in their seconds: add new times.",
    ),
    **{
        f"rounded, to {digits}": (
            lambda *loop, digits=digits: round(right_gain(*loop), digits),
            "Your answer is rounded. Return it as it is, and round where you print it.",
        )
        for digits in (1, 2, 3)
    },
    "equal-parts": (
        lambda profile, part, times: _amdahl(1 / len(profile), times),
        "You gave each part the same share. Take its seconds over the sum of all.",
    ),
}


@exercise("predict-the-gain", notebook="10_profiling")
def judge_predict_the_gain(answer: Callable) -> None:
    """Amdahl's law from a profile of seconds a part."""
    cases = {f"{loop[0]}, {loop[1]} {loop[2]:g} times as fast": loop for loop in (*LOOPS, INFINITELY_FAST)}
    *finite, infinite = cases
    expect_function(answer, right_gain, {case: cases[case] for case in finite}, mistakes=MISTAKES)
    try:
        got = answer(*copy.deepcopy(INFINITELY_FAST))
    except (ArithmeticError, ValueError) as error:
        got = f"{type(error).__name__}: {error}"
    if not same(got, right_gain(*INFINITELY_FAST)):
        hint = f"For {infinite} yours gives {got}. The part then takes no time at all, and the rest as long as before."
        raise Mistake("infinitely-fast", hint)
