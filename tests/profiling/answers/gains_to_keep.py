"""Answers to `gains-to-keep`: faster beyond noise, the same training, and more saved than the start costs."""


def solution(report, steps):
    names = set()
    for row in report:
        if not (row["low"] > 1.0 and row["gain"] - 1 > row["noise"]):
            continue
        if row["training"] not in {"bitwise", "rounding"}:
            continue
        if row["first"] >= (row["before"] - row["after"]) * steps:
            continue
        names.add(row["change"])
    return names


def chosen(report, *, faster, trained=("bitwise", "rounding"), pays=lambda row: True):
    return {row["change"] for row in report if faster(row) and row["training"] in trained and pays(row)}


def by_the_ladder(report, steps):
    """The fastest three, whatever they are."""
    return {row["change"] for row in sorted(report, key=lambda row: -row["gain"])[:3]}


def by_two_percent(report, steps):
    def pays(row):
        return row["first"] < steps * (row["before"] - row["after"])

    return chosen(report, faster=lambda row: row["gain"] >= 1.02, pays=pays)


def at_break_even_too(report, steps):
    def pays(row):
        return steps * (row["before"] - row["after"]) >= row["first"]

    return chosen(report, faster=lambda r: r["low"] > 1 and r["gain"] > 1 + r["noise"], pays=pays)


WRONG = [
    ("another-training", lambda report, steps: {r["change"] for r in report if r["low"] > 1 and r["gain"] > 1 + r["noise"]}),
    ("argument-ignored", by_the_ladder),
    ("any-gain", by_two_percent),
    ("start-for-free", lambda report, steps: chosen(report, faster=lambda r: r["low"] > 1 and r["gain"] > 1 + r["noise"])),
    ("wrong-value", lambda report, steps: solution(report, steps) | {"together"}),
    ("wrong-value", at_break_even_too),
    ("wrong-type", lambda report, steps: len(solution(report, steps))),
]


def as_list_in_order(report, steps):
    return [row["change"] for row in report if row["change"] in solution(report, steps)]


def with_pandas(report, steps):
    import pandas as pd

    if not report:
        return []
    table = pd.DataFrame(report)
    faster = (table["low"] > 1) & (table["gain"] > 1 + table["noise"])
    pays = steps * (table["before"] - table["after"]) > table["first"]
    return set(table.loc[faster & pays & table["training"].isin(["bitwise", "rounding"]), "change"])


def break_even(report, steps):
    """By the steps after which the start is paid for."""

    def after(row):
        saved = row["before"] - row["after"]
        return row["first"] / saved if saved > 0 else float("inf")

    return chosen(report, faster=lambda r: min(r["low"], r["gain"] - r["noise"]) > 1, pays=lambda r: after(r) < steps)


ALSO_RIGHT = [as_list_in_order, with_pandas, break_even]
