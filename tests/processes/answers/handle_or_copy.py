"""Answers to `handle-or-copy`: the fixed cost that a handle must win back, over the copies that it saves."""


def solution(pickled, handed, copies, rate, shared):
    moved = 0 if shared else 1
    return (handed - pickled) * rate / (copies - moved)


WRONG = [
    ("first-copy-forgotten", lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate / copies),
    ("always-copied", lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate / (copies - 1)),
    ("shared-upside-down", lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate / (copies - int(shared))),
    ("one-copy-only", lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate),
    ("pickling-costs-nothing", lambda pickled, handed, copies, rate, shared: handed * rate / (copies - (not shared))),
    ("costs-add", lambda pickled, handed, copies, rate, shared: (handed + pickled) * rate / (copies - (not shared))),
    ("upside-down", lambda pickled, handed, copies, rate, shared: (copies - (not shared)) / (rate * (handed - pickled))),
    ("seconds-for-bytes", lambda pickled, handed, copies, rate, shared: (handed - pickled) / (copies - (not shared))),
    ("wrong-sign", lambda pickled, handed, copies, rate, shared: (pickled - handed) * rate / (copies - (not shared))),
    ("wrong-value", lambda pickled, handed, copies, rate, shared: 1e6),
    ("returns-nothing", lambda pickled, handed, copies, rate, shared: None),
]
