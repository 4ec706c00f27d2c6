"""Answers to `copy-share`: the time of all host-to-device copies over the time of all GPU activities."""

from edited_source import wrong_answers


def solution(rows):
    on_gpu = [row for row in rows if row["type"] == "GPU activities"]
    copied = sum(row["time"] for row in on_gpu if "HtoD" in row["name"])
    return copied / sum(row["time"] for row in on_gpu)


def share(rows, words=("HtoD",), of="time", kinds=("GPU activities",)):
    rows = [row for row in rows if row["type"] in kinds]
    return sum(row[of] for row in rows if any(word in row["name"] for word in words)) / sum(row[of] for row in rows)


HTOD = "[CUDA memcpy HtoD]"
BOTH = ("GPU activities", "API calls")


def first_found(rows):
    on_gpu = [row for row in rows if row["type"] == "GPU activities"]
    found = [row["time"] for row in on_gpu if "HtoD" in row["name"]]
    return (found[0] if found else 0.0) / sum(row["time"] for row in on_gpu)


def over_the_others(rows):
    return share(rows) / (1 - share(rows))


def breaks_without_copies(rows):
    [row["time"] for row in rows if "HtoD" in row["name"]][0]
    return share(rows)


WRONG = wrong_answers(solution, [("wrong-value", ('row["time"]', 'int(1000 * row["time"])'))])
WRONG += [
    ("percent-for-fraction", lambda rows: 100 * share(rows)),
    ("api-copies-counted", lambda rows: share(rows, ("HtoD", "cudaMemcpy"), kinds=BOTH)),
    ("share-of-the-others", over_the_others),
    ("one-row-only", first_found),
    ("fails-without-copies", breaks_without_copies),
    ("wrong-value", lambda rows: 0.5),
    ("returns-nothing", lambda rows: None),
]


# ---- more wrong answers, and right ones that compute in another way --------------------------------------------------------


def total(rows, word="", kind="GPU activities", of="time"):
    return sum(row[of] for row in rows if row["type"] == kind and word in row["name"])


def takes_the_rows_out(rows):
    copies = [rows.pop(index) for index in reversed(range(len(rows))) if rows[index]["name"] == HTOD]
    copied = sum(row["time"] for row in copies)
    return copied / (copied + sum(row["time"] for row in rows if row["type"] == "GPU activities"))


WRONG += [
    ("rounded", lambda rows: round(share(rows), 1)),
    ("rounded", lambda rows: round(share(rows), 2)),
    ("percent-for-fraction", lambda rows: round(100 * share(rows), 1)),
    ("share-of-the-copies", lambda rows: total(rows, "HtoD") / (total(rows, "memcpy") or 1)),
    ("share-of-the-kernels", lambda rows: total(rows, "HtoD") / (total(rows) - total(rows, "[CUDA"))),
    ("share-of-rows", lambda rows: share([{**row, "one": 1} for row in rows], of="one")),
    ("share-of-the-largest", lambda rows: total(rows, "HtoD") / max(row["time"] for row in rows)),
    ("api-calls-counted", lambda rows: total(rows, "HtoD") / sum(row["time"] for row in rows)),
    ("never-found", lambda rows: total(rows, "cudaMemcpy", "API calls") / (total(rows, "", "API calls") or 1)),
    ("upside-down", lambda rows: 1 / (share(rows) or 1)),
    ("inputs-changed", takes_the_rows_out),
    ("wrong-value", lambda rows: 0.3),
]


def with_pandas(rows):
    import pandas as pd

    table = pd.DataFrame(rows)
    table = table[table["type"] == "GPU activities"]
    return table.loc[table["name"].str.contains("HtoD"), "time"].sum() / table["time"].sum()


def in_fractions(rows):
    from fractions import Fraction

    gpu = [(row["name"], Fraction(row["time"])) for row in rows if row["type"] != "API calls"]
    return float(sum(time for name, time in gpu if "HtoD" in name) / sum(time for _, time in gpu))


def calls_times_mean(rows):
    whole = copied = 0.0
    for row in rows:
        if row["type"] == "GPU activities":
            seconds = row["calls"] * row["avg"]
            whole += seconds
            if row["name"].find("HtoD") >= 0:
                copied += seconds
    return copied / whole


def with_numpy(rows):
    import numpy as np

    times = np.array([row["time"] for row in rows])
    gpu = np.array([row["type"] == "GPU activities" for row in rows])
    return times[gpu & np.array(["HtoD" in row["name"] for row in rows])].sum() / times[gpu].sum()


def with_torch(rows):
    import torch

    gpu = [row for row in rows if row["type"].startswith("GPU")]
    times = torch.tensor([row["time"] for row in gpu], dtype=torch.float64)
    return (times * torch.tensor([row["name"] == "[CUDA memcpy HtoD]" for row in gpu])).sum() / times.sum()


ALSO_RIGHT = [with_pandas, in_fractions, calls_times_mean, with_numpy, with_torch]


def by_name_in_a_dictionary(rows):
    times = {row["name"]: row["time"] for row in rows if row["type"] == "GPU activities"}
    return times.get("[CUDA memcpy HtoD]", 0) / sum(times.values())


WRONG += [("last-row-only", by_name_in_a_dictionary)]


def until_the_first_call(rows):
    total = copied = 0.0
    for row in rows:
        if row["type"] != "GPU activities":
            break
        total += row["time"]
        copied += row["time"] * ("HtoD" in row["name"])
    return copied / total


WRONG += [
    ("api-copies-counted", lambda rows: sum(row["time"] for row in rows if "HtoD" in row["name"]) / total(rows)),
    ("stops-too-early", until_the_first_call),
    ("example-only", lambda rows: 0.1),
]
WRONG += [("another-unit", lambda rows: solution(rows) / 100)]
