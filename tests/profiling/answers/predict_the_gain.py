"""Answers to `predict-the-gain`: Amdahl's law from seconds a part."""


def solution(profile, part, times):
    before = sum(profile.values())
    return before / (before - profile[part] + profile[part] / times)


def a_rule_of_its_own_for_infinity(profile, part, times):
    return sum(profile.values()) / profile[part] if times == float("inf") else solution(profile, part, times)


def every_part_with_this_word(profile, part, times):
    after = sum(seconds / times if part in name else seconds for name, seconds in profile.items())
    return sum(profile.values()) / after


WRONG = [
    ("argument-ignored", lambda profile, part, times: 1.0),
    ("wrong-value", every_part_with_this_word),
    ("seconds-saved", lambda profile, part, times: profile[part] - profile[part] / times),
    ("infinitely-fast", a_rule_of_its_own_for_infinity),
    ("infinitely-fast", lambda profile, part, times: solution(profile, part, int(times))),
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
