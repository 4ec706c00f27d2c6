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
    ("upside-down", lambda profile, part, times: 1 / solution(profile, part, times)),
    ("new-time", lambda profile, part, times: sum(profile.values()) - profile[part] * (1 - 1 / times)),
    ("gain-not-speed-up", lambda profile, part, times: 1 - 1 / solution(profile, part, times)),
    ("shares-times-factors", lambda profile, part, times: 1 + share(profile, part) * (times - 1)),
    ("equal-parts", lambda profile, part, times: 1 / (1 - 1 / len(profile) + 1 / len(profile) / times)),
    ("wrong-value", lambda profile, part, times: 1.0),
    ("returns-nothing", lambda profile, part, times: None),
]
