"""Answers to `what-next`: the part whose time gains most where lanes overlap, and how much at most."""

import math
from fractions import Fraction

import numpy as np
import torch


def solution(profile, lanes, workers):
    def a_patient(seconds):
        return max(sum(seconds[part] for part in parts) / workers[lane] for lane, parts in lanes.items())

    left = {part: a_patient({**profile, part: 0}) for part in profile}
    part = min(left, key=left.get)
    return part, a_patient(profile) / left[part] if left[part] else float("inf")


# ---- wrong ----------------------------------------------------------------------------------------------------


def amdahl_of_everything(profile, lanes, workers):
    whole = sum(profile.values())
    part = max(profile, key=profile.get)
    rest = whole - profile[part]
    return part, whole / rest if rest else math.inf


def lanes_one_after_the_other(profile, lanes, workers):
    def a_patient(seconds):
        return sum(sum(seconds[part] for part in parts) / workers[lane] for lane, parts in lanes.items())

    left = {part: a_patient({**profile, part: 0}) for part in profile}
    part = min(left, key=left.get)
    return part, a_patient(profile) / left[part] if left[part] else math.inf


def largest_of_all(profile, lanes, workers):
    def a_patient(seconds):
        return max(sum(seconds[part] for part in parts) / workers[lane] for lane, parts in lanes.items())

    part = max(profile, key=profile.get)
    return part, a_patient(profile) / (a_patient({**profile, part: 0}) or math.nan)


def without_workers(profile, lanes, workers):
    times = {lane: sum(profile[part] for part in parts) for lane, parts in lanes.items()}
    lane = max(times, key=times.get)
    part = max(lanes[lane], key=lambda part: profile[part])
    after = max(times[other] - (profile[part] if other == lane else 0) for other in times)
    return part, times[lane] / after if after else math.inf


def workers_as_a_factor(profile, lanes, workers):
    def a_patient(seconds):
        return max(sum(seconds[part] for part in parts) * workers[lane] for lane, parts in lanes.items())

    left = {part: a_patient({**profile, part: 0}) for part in profile}
    part = min(left, key=left.get)
    return part, a_patient(profile) / left[part] if left[part] else math.inf


def each_part_a_thread(profile, lanes, workers):
    ordered = sorted(profile.items(), key=lambda item: item[1], reverse=True)
    return ordered[0][0], ordered[0][1] / ordered[1][1] if len(ordered) > 1 else math.inf


def largest_parts_overlap(profile, lanes, workers):
    def a_patient(seconds):
        return max(max(seconds[part] for part in parts) / workers[lane] for lane, parts in lanes.items())

    left = {part: a_patient({**profile, part: 0}) for part in profile}
    part = min(left, key=lambda part: (left[part], -profile[part]))
    return part, a_patient(profile) / left[part] if left[part] else math.inf


def amdahl_in_the_slowest_lane(profile, lanes, workers):
    lane = max(lanes, key=lambda lane: sum(profile[part] for part in lanes[lane]) / workers[lane])
    whole = sum(profile[part] for part in lanes[lane])
    part = max(lanes[lane], key=profile.get)
    return part, whole / (whole - profile[part]) if whole > profile[part] else math.inf


def the_lane_vanishes(profile, lanes, workers):
    times = {lane: sum(profile[part] for part in parts) / workers[lane] for lane, parts in lanes.items()}
    lane = max(times, key=times.get)
    others = [seconds for other, seconds in times.items() if other != lane]
    return max(lanes[lane], key=profile.get), times[lane] / max(others) if others else math.inf


def the_fast_lane(profile, lanes, workers):
    def a_patient(seconds):
        return min(sum(seconds[part] for part in parts) / workers[lane] for lane, parts in lanes.items())

    left = {part: a_patient({**profile, part: 0}) for part in profile}
    part = min(left, key=lambda part: (left[part], -profile[part]))
    return part, a_patient(profile) / left[part] if left[part] else math.inf


def after_by_before(profile, lanes, workers):
    part, most = solution(profile, lanes, workers)
    return part, 1 / most


def in_percent(profile, lanes, workers):
    part, most = solution(profile, lanes, workers)
    return part, 100 * (most - 1)


def gained_on_top(profile, lanes, workers):
    part, most = solution(profile, lanes, workers)
    return part, most - 1


def saved(profile, lanes, workers):
    part, most = solution(profile, lanes, workers)
    seconds = max(sum(profile[part] for part in parts) / workers[lane] for lane, parts in lanes.items())
    return part, seconds - seconds / most


def halved(profile, lanes, workers):
    def a_patient(seconds):
        return max(sum(seconds[part] for part in parts) / workers[lane] for lane, parts in lanes.items())

    left = {part: a_patient({**profile, part: profile[part] / 2}) for part in profile}
    part = min(left, key=left.get)
    return part, a_patient(profile) / left[part]


def rounded(profile, lanes, workers):
    part, most = solution(profile, lanes, workers)
    return part, round(most, 2)


def the_lane(profile, lanes, workers):
    part, most = solution(profile, lanes, workers)
    return next(lane for lane, parts in lanes.items() if part in parts), most


def number_first(profile, lanes, workers):
    return solution(profile, lanes, workers)[::-1]


def only_the_part(profile, lanes, workers):
    return solution(profile, lanes, workers)[0]


def prints(profile, lanes, workers):
    print(*solution(profile, lanes, workers))


def least(profile, lanes, workers):
    part = min(profile, key=profile.get)
    return part, 1.0


def no_division_by_zero(profile, lanes, workers):
    def a_patient(seconds):
        return max(sum(seconds[part] for part in parts) / workers[lane] for lane, parts in lanes.items())

    left = {part: a_patient({**profile, part: 0}) for part in profile}
    part = min(left, key=left.get)
    return part, a_patient(profile) / left[part]


def takes_it_out_of_the_profile(profile, lanes, workers):
    answer = solution(profile, lanes, workers)
    for part in list(profile):
        profile[part] = 0.0
    return answer


def mean_of_the_lanes(profile, lanes, workers):
    part, most = solution(profile, lanes, workers)
    return part, most / len(lanes) if len(lanes) > 2 else most


def network_always(profile, lanes, workers):
    _, most = solution(profile, lanes, workers)
    return "network", most


def the_sequences_gain(profile, lanes, workers):
    part, whole = solution(profile, lanes, workers)[0], sum(profile.values())
    return part, whole / (whole - profile[part]) if whole > profile[part] else math.inf


def seconds_without(profile, lanes, workers):
    part = solution(profile, lanes, workers)[0]
    after = max(sum(profile[each] for each in parts if each != part) / workers[lane] for lane, parts in lanes.items())
    return after or math.nan


def subtracts_all_seconds(profile, lanes, workers):
    """A lane's seconds are divided by its threads, those of the part are not."""
    times = {lane: sum(profile[part] for part in parts) / workers[lane] for lane, parts in lanes.items()}
    best = ("", 0.0)
    for lane, parts in lanes.items():
        for part in parts:
            after = max([times[lane] - profile[part], 0.0, *(times[other] for other in lanes if other != lane)])
            gain = max(times.values()) / after if after else math.inf
            best = max(best, (part, gain), key=lambda found: found[1])
    return best


def sets_parts_to_0_and_leaves_them(profile, lanes, workers):
    def seconds():
        return max(sum(profile[part] for part in parts) / workers[lane] for lane, parts in lanes.items())

    before, best = seconds(), ("", 0.0)
    for part in profile:
        profile[part] = 0.0
        gain = before / seconds() if seconds() else math.inf
        best = max(best, (part, gain), key=lambda found: found[1])
    return best


def lane_chosen_without_threads(profile, lanes, workers):
    slowest = max(lanes.values(), key=lambda parts: sum(profile[part] for part in parts))
    part = max(slowest, key=profile.get)

    def a_patient(seconds):
        return max(sum(seconds[each] for each in parts) / workers[lane] for lane, parts in lanes.items())

    left = a_patient({**profile, part: 0})
    return part, a_patient(profile) / left if left else math.inf


def threads_by_floor_division(profile, lanes, workers):
    def a_patient(seconds):
        return max(sum(seconds[part] for part in parts) // workers[lane] for lane, parts in lanes.items())

    left = {part: a_patient({**profile, part: 0}) for part in profile}
    part = min(left, key=left.get)
    return part, a_patient(profile) / left[part] if left[part] else math.inf


WRONG = [
    ("threads-in-whole-numbers", threads_by_floor_division),
    ("workers-ignored", lane_chosen_without_threads),
    ("lanes-added", amdahl_of_everything),
    ("lanes-added", lanes_one_after_the_other),
    ("largest-part", largest_of_all),
    ("workers-ignored", without_workers),
    ("workers-multiplied", workers_as_a_factor),
    ("parts-overlapped", each_part_a_thread),
    ("parts-overlapped", largest_parts_overlap),
    ("only-its-own-lane", amdahl_in_the_slowest_lane),
    ("whole-lane-gone", the_lane_vanishes),
    ("fastest-lane", the_fast_lane),
    ("upside-down", after_by_before),
    ("percent", in_percent),
    ("minus-one", gained_on_top),
    ("seconds-saved", saved),
    ("twice-as-fast", halved),
    ("rounded", rounded),
    ("lane-not-part", the_lane),
    ("order-swapped", number_first),
    ("not-a-pair", only_the_part),
    ("returns-nothing", prints),
    ("smallest-gain", least),
    ("nothing-is-left", no_division_by_zero),
    ("inputs-changed", takes_it_out_of_the_profile),
    ("below-1", mean_of_the_lanes),
    ("not-the-most", network_always),
    ("part-not-divided", subtracts_all_seconds),
    ("inputs-changed", sets_parts_to_0_and_leaves_them),
    ("lanes-added", the_sequences_gain),
    ("sequence-before", lambda *given: (solution(*given)[0], sum(given[0].values()) / seconds_without(*given))),
    ("old-time", lambda *given: (solution(*given)[0], seconds_without(*given) * solution(*given)[1])),
    ("rounded", lambda *given: (solution(*given)[0], np.floor(solution(*given)[1]))),
    ("several-parts", lambda *given: ([solution(*given)[0]], solution(*given)[1])),
    ("no-part", lambda *given: solution(*given) if solution(*given)[1] > 1 else (None, 1.0)),
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


def as_a_list_of_numpys_numbers(profile, lanes, workers):
    part, most = solution(profile, lanes, workers)
    return [np.str_(part), np.float64(most)]


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


ALSO_RIGHT = [by_hand, as_a_list_of_numpys_numbers, by_torch, in_fractions, last_of_equal_ones, trial_and_error, rates]


def time_of_the_first_call(profile, lanes, workers, kept=[]):  # noqa: B006
    part, most = solution(profile, lanes, workers)
    now = max(sum(profile[each] for each in parts) / workers[lane] for lane, parts in lanes.items())
    kept.append(now)
    return part, most / now * kept[0]


WRONG += [
    ("remembers-calls", time_of_the_first_call),
    ("rounded", lambda *given: (solution(*given)[0], float(np.float16(solution(*given)[1])))),
    ("nothing-is-left", lambda *given: (solution(*given)[0], min(solution(*given)[1], 1e308))),
]
