"""Answers to `copy-share`: the time of all host-to-device copies over the time of all GPU activities."""

from edited_source import wrong_answers


def solution(rows):
    on_gpu = [row for row in rows if row["type"] == "GPU activities"]
    copied = sum(row["time"] for row in on_gpu if "HtoD" in row["name"])
    return copied / sum(row["time"] for row in on_gpu)


def total(rows, word="", kind="GPU activities"):
    return sum(row["time"] for row in rows if row["type"] == kind and word in row["name"])


def breaks_without_copies(rows):
    [row["time"] for row in rows if "HtoD" in row["name"]][0]
    return solution(rows)


def takes_the_rows_out(rows):
    copies = [rows.pop(index) for index in reversed(range(len(rows))) if rows[index]["name"] == "[CUDA memcpy HtoD]"]
    copied = sum(row["time"] for row in copies)
    return copied / (copied + sum(row["time"] for row in rows if row["type"] == "GPU activities"))


WRONG = wrong_answers(solution, [("wrong-value", ('row["time"]', 'int(1000 * row["time"])'))])
WRONG += [
    ("fails-without-copies", breaks_without_copies),
    ("never-found", lambda rows: total(rows, "cudaMemcpy", "API calls") / (total(rows, "", "API calls") or 1)),
    ("upside-down", lambda rows: 1 / (solution(rows) or 1)),
    ("inputs-changed", takes_the_rows_out),
    ("another-unit", lambda rows: solution(rows) / 100),
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
