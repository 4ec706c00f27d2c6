"""Answers to `next-step`: the most self time among what is not yet mended."""


def solution(rows, mended):
    remaining = [row for row in rows if row["part"] not in mended]
    remaining.sort(key=lambda row: row["self"])
    return remaining[-1]["part"]


def most(key, rows, mended=()):
    return max((row for row in rows if row["part"] not in mended), key=lambda row: row[key])


def without_callers(rows):
    return [row for row in rows if row["part"] not in ("train", "epoch")]


WRONG = [
    ("already-mended", lambda rows, mended: most("self", rows)["part"]),
    ("cumulative-time", lambda rows, mended: most("total", rows, mended)["part"]),
    ("cumulative-time", lambda rows, mended: most("total", without_callers(rows), mended)["part"]),
    ("most-calls", lambda rows, mended: most("calls", rows, mended)["part"]),
    ("smallest", lambda rows, mended: min(rows, key=lambda row: row["self"])["part"]),
    ("row-not-name", lambda rows, mended: most("self", rows, mended)),
    ("time-not-name", lambda rows, mended: most("self", rows, mended)["self"]),
    ("not-the-largest", lambda rows, mended: sorted(without_callers(rows), key=lambda row: -row["self"])[1]["part"]),
    ("unknown-part", lambda rows, mended: "everything"),
    ("unknown-part", lambda rows, mended: [most("self", rows, mended)["part"]]),
    ("returns-nothing", lambda rows, mended: None),
]
