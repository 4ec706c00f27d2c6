"""Profiles, lanes and threads for the exercise what-next, in seconds a patient."""

Profile, Lanes, Workers = dict[str, float], dict[str, list[str]], dict[str, int]

# Names of parts are no hint: the largest is neither always the first nor always the network.
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
    "two threads ahead": (
        {"closing": 7.0, "resample": 15.0, "network": 4.0, "boxes": 3.0},
        {"thread": ["resample", "closing"], "main": ["network", "boxes"]},
        {"thread": 2, "main": 1},
    ),
    "three lanes": (
        {"boxes": 2.0, "network": 0.9, "read": 3.0, "closing": 1.5, "resample": 1.0},
        {"disk": ["read"], "thread": ["resample", "closing"], "main": ["network", "boxes"]},
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
BALANCED = (
    {"resample": 2.0, "closing": 4.0, "network": 5.0, "boxes": 1.0},
    {"thread": ["resample", "closing"], "main": ["network", "boxes"]},
    {"thread": 1, "main": 1},
)
LIMITED = (  # whichever part of the thread vanishes, the other lane's 5 s are left
    {"resample": 5.0, "closing": 4.0, "network": 4.5, "boxes": 0.5},
    {"thread": ["resample", "closing"], "main": ["network", "boxes"]},
    {"thread": 1, "main": 1},
)
ALONE = ({"network": 2.0}, {"main": ["network"]}, {"main": 1})
