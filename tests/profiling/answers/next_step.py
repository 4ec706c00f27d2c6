"""Answers to `next-step`: the most self time among what is not yet fixed."""


def solution(rows, fixed):
    remaining = [row for row in rows if row["part"] not in fixed]
    remaining.sort(key=lambda row: row["self"])
    return remaining[-1]["part"]


def most(key, rows, fixed=()):
    return max((row for row in rows if row["part"] not in fixed), key=lambda row: row[key])


def without_callers(rows):
    return [row for row in rows if row["part"] not in ("train", "epoch")]


WRONG = [
    ("already-fixed", lambda rows, fixed: most("self", rows)["part"]),
    ("cumulative-time", lambda rows, fixed: most("total", rows, fixed)["part"]),
    ("cumulative-time", lambda rows, fixed: most("total", without_callers(rows), fixed)["part"]),
    ("most-calls", lambda rows, fixed: most("calls", rows, fixed)["part"]),
    ("smallest", lambda rows, fixed: min(rows, key=lambda row: row["self"])["part"]),
    ("row-not-name", lambda rows, fixed: most("self", rows, fixed)),
    ("time-not-name", lambda rows, fixed: most("self", rows, fixed)["self"]),
    ("not-the-largest", lambda rows, fixed: sorted(without_callers(rows), key=lambda row: -row["self"])[1]["part"]),
    ("unknown-part", lambda rows, fixed: "everything"),
    ("unknown-part", lambda rows, fixed: [most("self", rows, fixed)["part"]]),
    ("returns-nothing", lambda rows, fixed: None),
]
