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
    ("wrong-type", lambda rows, fixed: most("self", rows, fixed)),
    ("wrong-type", lambda rows, fixed: most("self", rows, fixed)["self"]),
    ("already-fixed", lambda rows, fixed: sorted(without_callers(rows), key=lambda row: -row["self"])[1]["part"]),
    ("unknown-part", lambda rows, fixed: "everything"),
    ("returns-nothing", lambda rows, fixed: None),
]


# ---- more wrong answers, and right ones that choose in another way ---------------------------------------------------------


def best(figure, rows, fixed):
    return max((row for row in rows if row["part"] not in fixed), key=figure)["part"]


WRONG += [
    ("time-per-call", lambda rows, fixed: best(lambda row: row["self"] / row["calls"], rows, fixed)),
    ("time-per-call", lambda rows, fixed: best(lambda row: row["total"] / row["calls"], without_callers(rows), fixed)),
    ("times-calls", lambda rows, fixed: best(lambda row: row["self"] * row["calls"], rows, fixed)),
    ("first-row", lambda rows, fixed: next(row["part"] for row in rows if row["part"] not in fixed)),
    ("last-row", lambda rows, fixed: [row["part"] for row in rows if row["part"] not in fixed][-1]),
    ("smallest", lambda rows, fixed: min((r for r in rows if r["part"] not in fixed), key=lambda row: row["self"])["part"]),
    ("first-by-name", lambda rows, fixed: min(row["part"] for row in without_callers(rows) if row["part"] not in fixed)),
    ("last-by-name", lambda rows, fixed: best(lambda row: row["part"], without_callers(rows), fixed)),
    ("not-the-largest", lambda rows, fixed: sorted((r["self"], r["part"]) for r in rows if r["part"] not in fixed)[-2][1]),
    ("most-calls", lambda rows, fixed: best(lambda row: row["calls"], without_callers(rows), fixed)),
    ("unknown-part", lambda rows, fixed: solution(rows, fixed).upper()),
]


def with_pandas(rows, fixed):
    import pandas as pd

    table = pd.DataFrame(rows).set_index("part")
    return table.drop(index=list(fixed))["self"].idxmax()


def numpy_string(rows, fixed):
    import numpy as np

    names, times = np.array([row["part"] for row in rows]), np.array([row["self"] for row in rows])
    return names[np.where(np.isin(names, list(fixed)), -1.0, times).argmax()]


def by_loop(rows, fixed):
    name, most = None, 0
    for row in rows:
        if row["part"] in fixed:
            continue
        if row["self"] >= most:
            name, most = row["part"], row["self"]
    return name


def sorts_in_place(rows, fixed):
    rows.sort(key=lambda row: row["self"], reverse=True)
    return next(row["part"] for row in rows if row["part"] not in fixed)


def by_dict(rows, fixed):
    times = {row["part"]: row["self"] for row in rows}
    return max(times.keys() - fixed, key=times.get)


ALSO_RIGHT = [with_pandas, numpy_string, by_loop, sorts_in_place, by_dict]


def throws_rows_away(rows, fixed):
    rows.sort(key=lambda row: row["self"])
    while rows[-1]["part"] in fixed:
        rows.pop()
    return rows[-1]["part"]


WRONG += [("inputs-changed", throws_rows_away)]

WRONG += [
    (
        "compared-as-text",
        lambda rows, fixed: max((r for r in rows if r["part"] not in fixed), key=lambda r: str(r["self"]))["part"],
    ),
    (
        "not-the-largest",
        lambda rows, fixed: max((r for r in rows if not any(name in r["part"] for name in fixed)), key=lambda r: r["self"])[
            "part"
        ],
    ),
]


WRONG += []
