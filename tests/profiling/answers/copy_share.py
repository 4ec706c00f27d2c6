"""Answers to `copy-share`: the time of all host-to-device copies over the time of all GPU activities."""


def solution(rows):
    on_gpu = [row for row in rows if row["type"] == "GPU activities"]
    copied = sum(row["time"] for row in on_gpu if "HtoD" in row["name"])
    return copied / sum(row["time"] for row in on_gpu)


def share(rows, words=("HtoD",), of="time", kinds=("GPU activities",)):
    rows = [row for row in rows if row["type"] in kinds]
    return sum(row[of] for row in rows if any(word in row["name"] for word in words)) / sum(row[of] for row in rows)


BOTH = ("GPU activities", "API calls")


def first_found(rows):
    on_gpu = [row for row in rows if row["type"] == "GPU activities"]
    found = [row["time"] for row in on_gpu if "HtoD" in row["name"]]
    return (found[0] if found else 0.0) / sum(row["time"] for row in on_gpu)


def last_found(rows):
    on_gpu = [row for row in rows if row["type"] == "GPU activities"]
    found = 0.0
    for row in on_gpu:
        if "HtoD" in row["name"]:
            found = row["time"]
    return found / sum(row["time"] for row in on_gpu)


def over_the_others(rows):
    return share(rows) / (1 - share(rows))


def breaks_without_copies(rows):
    [row["time"] for row in rows if "HtoD" in row["name"]][0]
    return share(rows)


WRONG = [
    ("percent-for-fraction", lambda rows: 100 * share(rows)),
    ("share-of-calls", lambda rows: share(rows, of="calls")),
    ("both-directions", lambda rows: share(rows, ("HtoD", "DtoH"))),
    ("all-copies", lambda rows: share(rows, ("memcpy",))),
    ("all-copies-and-fills", lambda rows: share(rows, ("[CUDA",))),
    ("api-calls-counted", lambda rows: share(rows, kinds=BOTH)),
    ("api-copies-counted", lambda rows: share(rows, ("HtoD", "cudaMemcpy"), kinds=BOTH)),
    ("share-of-the-others", over_the_others),
    ("one-row-only", first_found),
    ("last-row-only", last_found),
    ("mean-time", lambda rows: share(rows, of="avg")),
    ("time-not-share", lambda rows: sum(row["time"] for row in rows if "HtoD" in row["name"])),
    ("fails-without-copies", breaks_without_copies),
    ("wrong-value", lambda rows: 0.5),
    ("returns-nothing", lambda rows: None),
]
