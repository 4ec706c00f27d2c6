"""Exercise: what a faster part is worth (Amdahl's law)."""

import copy
from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import same

LOOPS = (
    ({"load": 6.0, "forward": 3.0, "backward": 5.0, "step": 2.0}, "load", 4.0),
    ({"step size": 1.0, "forward": 30.0, "backward": 60.0, "step": 9.0}, "step", 10.0),
)
INFINITELY_FAST = ({"load": 9.0, "forward": 1.0}, "load", float("inf"))


def right(profile: dict[str, float], part: str, times: float) -> float:
    before = sum(profile.values())
    after = before - profile[part] + profile[part] / times
    return before / after


RUBRIC = Rubric(
    right,
    """
after = before - profile[part] + profile[part] / times
    part-gone :: after = before - profile[part] :: A part that is sped up does not go away altogether: it still takes 1/times of
        its time.
    rest-ignored :: after = profile[part] / times :: The other parts take as long as before: add them.
    fraction-inverted :: after = profile[part] + (before - profile[part]) / times :: You made the rest faster and left the part
        as it was: the shares are swapped.
    part-added-twice :: after = before + profile[part] / times :: The part still takes its old time too: take that away before
        you add the new one.
    times-not-divided :: after = before + profile[part] * times :: $DIVIDE Take the old seconds away, too.
    times-not-divided :: after = before - profile[part] + profile[part] * times :: $DIVIDE
    saving-divided :: after = before - profile[part] / times :: You save share / times. What is left of the part is
        share / times: all of its share goes, and that comes back.
return before / after
    upside-down :: return after / before :: Speed-up is old time / new time, not new / old.
    new-time :: return after :: That is the new time in seconds. Speed-up is old time / new time.
    seconds-saved :: return before - after :: That is how many seconds are saved. Speed-up is old time / new time.
    share-not-speed-up :: return profile[part] / before :: That is the part's share. Speed-up is old time / new time.
    share-not-speed-up :: return profile[part] / before * times :: The share times the factor is no speed-up: add up the new
        time of all parts.
    seconds-for-shares :: return 1 / (1 - profile[part] + profile[part] / times) :: Amdahl's p is a share of the whole, from 0
        to 1, and the profile has seconds: divide by the sum of all parts.
    percent-for-shares :: return 1 / (1 - 100 * profile[part] / before + 100 * profile[part] / before / times) :: Amdahl's p is
        a share of the whole, from 0 to 1, not in percent.
    shares-times-factors :: return 1 + profile[part] / before * (times - 1) :: Times add, not speeds: divide the part's time by
        its factor.
    factor-of-the-part :: return times :: Only this part becomes that much faster. The rest stays as it is: add it.
    mean-of-the-factors :: return (times + len(profile) - 1) / len(profile) :: You took the mean of the parts' factors. The
        parts differ in their seconds: add new times.
    rounded :: return round(before / after, 1) :: $ROUNDED
    rounded :: return round(before / after, 2) :: $ROUNDED
    rounded :: return round(before / after, 3) :: $ROUNDED
profile[part]
    another-part :: max(profile.values()) :: What becomes faster is `part`, and that need not be the largest one.
    equal-parts :: before / len(profile) :: You gave each part the same share. Take its seconds over the sum of all.
""",
    DIVIDE="A part with a speed-up of `times` takes 1/times of its seconds: divide.",
    ROUNDED="Your answer is rounded. Return it as it is, and round where you print it.",
)


@exercise("predict-the-gain", notebook="10_profiling", takes="profile, part, times", returns=float)
def judge_predict_the_gain(answer: Callable) -> None:
    """Amdahl's law from a profile of seconds a part."""
    RUBRIC.expect(answer, {f"{loop[0]}, {loop[1]} with a speed-up of {loop[2]:g}": loop for loop in LOOPS})
    try:
        got = answer(*copy.deepcopy(INFINITELY_FAST))
    except (ArithmeticError, ValueError) as error:
        got = f"{type(error).__name__}: {error}"
    if not same(got, right(*INFINITELY_FAST)):
        case = f"{INFINITELY_FAST[0]} and an infinite speed-up of {INFINITELY_FAST[1]}"
        hint = f"For {case} yours gives {got}. The part then takes no time at all, and the rest as long as before."
        raise Mistake("infinitely-fast", hint)
