"""Answers to `what-next`: the part whose time gains most where lanes overlap, and how much at most."""

import math
from fractions import Fraction

import numpy as np
import torch
from edited_source import wrong_answers


def solution(profile, lanes, workers):
    def a_patient(seconds):
        return max(sum(seconds[part] for part in parts) / workers[lane] for lane, parts in lanes.items())

    left = {part: a_patient({**profile, part: 0}) for part in profile}
    part = min(left, key=left.get)
    return part, a_patient(profile) / left[part] if left[part] else float("inf")


# ---- wrong ----------------------------------------------------------------------------------------------------


def sets_parts_to_0_and_leaves_them(profile, lanes, workers):
    def seconds():
        return max(sum(profile[part] for part in parts) / workers[lane] for lane, parts in lanes.items())

    before, best = seconds(), ("", 0.0)
    for part in profile:
        profile[part] = 0.0
        gain = before / seconds() if seconds() else math.inf
        best = max(best, (part, gain), key=lambda found: found[1])
    return best


MOST = 'a_patient(profile) / left[part] if left[part] else float("inf")'
WRONG = [
    *wrong_answers(
        solution,
        [
            ("below-1", ("left[part] if", "left[part] / (len(lanes) if len(lanes) > 2 else 1) if")),
            ("rounded", (MOST, f"float(np.float16({MOST}))")),
            ("nothing-is-left", (' if left[part] else float("inf")', "")),
            ("above-the-limit", (MOST, f"2 * ({MOST})")),
            ("wrong-limit", (MOST, f"({MOST}) ** 0.5")),
            ("gains-nothing", ("return part", "part = part if len(lanes) == 1 else max(left, key=left.get)\n    return part")),
            ("unknown-part", ("return part", "return part.title()")),
            ("lane-not-part", ("return part", "return next(lane for lane, parts in lanes.items() if part in parts)")),
            ("not-the-most", ("return part", 'return "network"')),
        ],
    ),
    ("inputs-changed", sets_parts_to_0_and_leaves_them),
]


# ---- right, and unusual ----------------------------------------------------------------------------------------


def by_hand(profile, lanes, workers):
    slowest, second = None, 0.0
    times = {}
    for lane in lanes:
        times[lane] = 0.0
        for part in lanes[lane]:
            times[lane] += profile[part] / workers[lane]
    slowest = max(times, key=times.get)
    for lane in times:
        if lane != slowest:
            second = max(second, times[lane])
    part = max(lanes[slowest], key=lambda part: profile[part])
    after = max(second, times[slowest] - profile[part] / workers[slowest])
    if after < 1e-12:
        return part, float("inf")
    return part, times[slowest] / after


def by_torch(profile, lanes, workers):
    part, _ = solution(profile, lanes, workers)
    before, after = (
        torch.stack(
            [
                torch.tensor([0.0 if zero == each else profile[each] for each in parts], dtype=torch.float64).sum()
                / workers[lane]
                for lane, parts in lanes.items()
            ]
        ).max()
        for zero in (None, part)
    )
    return part, before / after


def in_fractions(profile, lanes, workers):
    exact = {part: Fraction(seconds) for part, seconds in profile.items()}
    part, most = solution(exact, lanes, workers)
    return part, most


def last_of_equal_ones(profile, lanes, workers):
    turned = dict(reversed(profile.items()))
    return solution(turned, dict(reversed(lanes.items())), workers)


def trial_and_error(profile, lanes, workers):
    best = ("", 0.0)
    for part in profile:
        new = dict(profile)
        new[part] = 1e-300
        old_seconds, seconds = (
            max(sum(of[each] for each in parts) / workers[lane] for lane, parts in lanes.items()) for of in (profile, new)
        )
        gain = old_seconds / seconds if seconds > 1e-200 else np.inf
        if gain > best[1]:
            best = part, gain
    return best


def rates(profile, lanes, workers):
    """Patients a second, and how many there would be."""
    rate = {
        zero: min(
            (workers[lane] / total if (total := sum(profile[part] for part in parts if part != zero)) else math.inf)
            for lane, parts in lanes.items()
        )
        for zero in (None, *profile)
    }
    part = max(profile, key=lambda part: rate[part])
    return part, rate[part] / rate[None]


ALSO_RIGHT = [by_hand, by_torch, in_fractions, last_of_equal_ones, trial_and_error, rates]
