"""Answers to `predict-the-gain`: Amdahl's law from seconds a part."""


def solution(profile, part, times):
    before = sum(profile.values())
    return before / (before - profile[part] + profile[part] / times)


def share(profile, part):
    return profile[part] / sum(profile.values())


WRONG = [
    ("factor-of-the-part", lambda profile, part, times: times),
    ("fraction-inverted", lambda profile, part, times: 1 / (share(profile, part) + (1 - share(profile, part)) / times)),
    ("part-gone", lambda profile, part, times: 1 / (1 - share(profile, part))),
    ("rest-ignored", lambda profile, part, times: sum(profile.values()) / (profile[part] / times)),
    ("new-time", lambda profile, part, times: sum(profile.values()) - profile[part] * (1 - 1 / times)),
    ("shares-times-factors", lambda profile, part, times: 1 + share(profile, part) * (times - 1)),
    ("equal-parts", lambda profile, part, times: 1 / (1 - 1 / len(profile) + 1 / len(profile) / times)),
    ("wrong-value", lambda profile, part, times: 1.0),
    ("returns-nothing", lambda profile, part, times: None),
]


# ---- more wrong answers, and right ones that compute in another way --------------------------------------------------------


def speeds_the_rest(profile, part, times):
    before = sum(profile.values())
    return before / (profile[part] + (before - profile[part]) / times)


WRONG += [
    ("fraction-inverted", speeds_the_rest),
    ("seconds-saved", lambda profile, part, times: profile[part] - profile[part] / times),
    ("times-not-divided", lambda profile, part, times: sum(profile.values()) / (sum(profile.values()) + profile[part] * times)),
    ("share-not-speed-up", lambda profile, part, times: share(profile, part)),
    ("share-not-speed-up", lambda profile, part, times: share(profile, part) * times),
    ("part-added-twice", lambda p, part, times: sum(p.values()) / (sum(p.values()) + p[part] / times)),
    ("saving-divided", lambda p, part, times: 1 / (1 - share(p, part) / times)),
    ("mean-of-the-factors", lambda p, part, times: (times + len(p) - 1) / len(p)),
]


def with_numpy(profile, part, times):
    import numpy as np

    before = np.array(list(profile.values()))
    after = np.array([seconds / times if name == part else seconds for name, seconds in profile.items()])
    return before.sum() / after.sum()


def by_share(profile, part, times):
    p = profile[part] / sum(profile.values())
    return 1 / ((1 - p) + p / times)


def with_torch(profile, part, times):
    import torch

    seconds = torch.tensor(list(profile.values()), dtype=torch.float64)
    faster = torch.tensor([times if name == part else 1.0 for name in profile], dtype=torch.float64)
    return seconds.sum() / (seconds / faster).sum()


def copied(profile, part, times):
    after = dict(profile)
    after[part] /= times
    return sum(profile.values()) / sum(after.values())


def in_fractions(profile, part, times):
    from fractions import Fraction
    from math import isinf

    before = sum(map(Fraction, profile.values()))
    left = Fraction(0) if isinf(times) else Fraction(profile[part]) / Fraction(times)
    return before / (before - Fraction(profile[part]) + left)


ALSO_RIGHT = [with_numpy, by_share, with_torch, copied, in_fractions]


def a_rule_of_its_own_for_infinity(profile, part, times):
    return 1 / share(profile, part) if times == float("inf") else solution(profile, part, times)


def whole_numbers_only(profile, part, times):
    return solution(profile, part, int(times))


WRONG += [("infinitely-fast", a_rule_of_its_own_for_infinity), ("infinitely-fast", whole_numbers_only)]


def every_part_with_this_word(profile, part, times):
    after = sum(seconds / times if part in name else seconds for name, seconds in profile.items())
    return sum(profile.values()) / after


WRONG += [("wrong-value", every_part_with_this_word)]


# ---- Amdahl's formula with the seconds, or with percent, in place of the share ---------------------------------------------


def seconds_for_shares(profile, part, times):
    p = profile[part]
    return 1 / ((1 - p) + p / times)


def percent_for_shares(profile, part, times):
    p = 100 * share(profile, part)
    return 1 / ((1 - p) + p / times)


WRONG += [("seconds-for-shares", seconds_for_shares), ("percent-for-shares", percent_for_shares)]
