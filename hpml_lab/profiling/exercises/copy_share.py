"""Exercise: read the share of host-to-device copies from a kernel table."""

import itertools
from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function

Rows = list[dict[str, Any]]
GPU, API = "GPU activities", "API calls"


def _row(kind: str, name: str, time: float, calls: int) -> dict[str, Any]:
    return {"type": kind, "name": name, "time": time, "calls": calls, "avg": time / calls}


TABLES = {
    "one HtoD row of 4.7 s among 20 s of GPU activities": [
        _row(GPU, "gemm", 11.9, 600),
        _row(GPU, "relu", 1.8, 900),
        _row(GPU, "[CUDA memcpy HtoD]", 4.7, 400),
        _row(GPU, "[CUDA memcpy DtoH]", 1.1, 100),
        _row(GPU, "[CUDA memcpy DtoD]", 0.3, 30),
        _row(GPU, "[CUDA memset]", 0.2, 70),
    ],
    "the same with the host's API calls below": [
        _row(GPU, "gemm", 12.3, 600),
        _row(GPU, "relu", 6.1, 900),
        _row(GPU, "[CUDA memcpy HtoD]", 2.9, 400),
        _row(API, "cudaMemcpyAsync", 30.0, 500),
        _row(API, "cudaLaunchKernel", 10.0, 1500),
    ],
    "a log of two GPUs, each with its own HtoD row": [
        _row(GPU, "[CUDA memcpy HtoD]", 3.1, 300),
        _row(GPU, "gemm", 5.3, 200),
        _row(GPU, "[CUDA memcpy HtoD]", 1.7, 100),
    ],
    "a short run, with the driver's calls in between": [
        _row(GPU, "[CUDA memcpy HtoD]", 0.0019, 40),
        _row(API, "cuMemcpyHtoD_v2", 0.05, 40),
        _row(GPU, "gemm", 0.0123, 60),
    ],
    "a run without any copy": [_row(GPU, "gemm", 5.0, 200)],
}


def _share(rows: Rows, *words: str, of: str = "time", kinds: tuple[str, ...] = (GPU,)) -> float:
    """The share of `of` in the rows of these kinds that falls on names with one of the words."""
    kept = [row for row in rows if row["type"] in kinds]
    return sum(row[of] for row in kept if any(word in row["name"] for word in words)) / sum(row[of] for row in kept)


def right_share(rows: Rows) -> float:
    return _share(rows, "HtoD")


def _copies(rows: Rows) -> list[float]:
    return [row["time"] for row in rows if row["type"] == GPU and "HtoD" in row["name"]] or [0.0]


def _whole(rows: Rows) -> float:
    return sum(row["time"] for row in rows if row["type"] == GPU)


MISTAKES = {
    "percent-for-fraction": (lambda rows: 100 * right_share(rows), "That is the share in %. Return a fraction from 0 to 1."),
    "share-of-calls": (
        lambda rows: _share(rows, "HtoD", of="calls"),
        "You added calls. A short copy and a long one are not alike: add times.",
    ),
    "both-directions": (
        lambda rows: _share(rows, "HtoD", "DtoH"),
        "You count copies from the device to the host too: DtoH is the other direction.",
    ),
    "all-copies": (lambda rows: _share(rows, "memcpy"), "You count every copy. Only host to device (HtoD) is asked for."),
    "all-copies-and-fills": (
        lambda rows: _share(rows, "[CUDA"),
        "You count every row in brackets, memset too. Only HtoD is asked for.",
    ),
    "api-calls-counted": (
        lambda rows: _share(rows, "HtoD", kinds=(GPU, API)),
        "Your whole contains the host's API calls. They run at the same time as the GPU: leave out rows of that type.",
    ),
    "api-copies-counted": (
        lambda rows: _share(rows, "HtoD", "cudaMemcpy", kinds=(GPU, API)),
        "cudaMemcpyAsync is the call on the host, which may wait for anything. Use the GPU's own rows only.",
    ),
    "api-copies-counted, in the part": (
        lambda rows: sum(row["time"] for row in rows if "HtoD" in row["name"]) / _whole(rows),
        "The driver's call has HtoD in its name, too, but runs on the host. Use the GPU's own rows only.",
    ),
    "stops-too-early": (
        lambda rows: _share(list(itertools.takewhile(lambda row: row["type"] == GPU, rows)), "HtoD"),
        "You stop at the first row of the host's: rows of the GPU may come after it.",
    ),
    "example-only": (lambda rows: 0.1, "0.1 is the share in the example. Compute it from the rows."),
    "share-of-the-others": (
        lambda rows: sum(_copies(rows)) / (_whole(rows) - sum(_copies(rows))),
        "You divide by the time of all other rows. A share is of the whole, the copies included.",
    ),
    "one-row-only": (lambda rows: _copies(rows)[0] / _whole(rows), "There is more than one such row: add them all."),
    "last-row-only": (lambda rows: _copies(rows)[-1] / _whole(rows), "There is more than one such row: add them all."),
    "last-row-only, also in the whole": (
        lambda rows: _share(list({row["name"]: row for row in rows if row["type"] == GPU}.values()), "HtoD"),
        "A dictionary by name keeps only the last of several rows with one name: add them all.",
    ),
    "times-calls": (
        lambda rows: _share([{**row, "product": row["time"] * row["calls"]} for row in rows], "HtoD", of="product"),
        "You multiplied by the calls. The time of a row is that of all its calls already.",
    ),
    "other-direction": (
        lambda rows: _share(rows, "DtoH"),
        "You count copies from the device to the host. HtoD is from the host to the device.",
    ),
    "share-of-the-copies": (
        lambda rows: sum(_copies(rows)) / sum(row["time"] for row in rows if "memcpy" in row["name"] and row["type"] == GPU),
        "You divide by the time of all copies. The whole is all that the GPU did, kernels too.",
    ),
    "share-of-the-kernels": (
        lambda rows: sum(_copies(rows)) / sum(row["time"] for row in rows if row["type"] == GPU and "[" not in row["name"]),
        "You divide by the time of the kernels. The whole is all that the GPU did, copies and fills too.",
    ),
    "share-of-the-largest": (
        lambda rows: sum(_copies(rows)) / max(row["time"] for row in rows),
        "You divide by the largest row. Divide by the sum of all GPU activities.",
    ),
    "share-of-rows": (
        lambda rows: _share([{**row, "rows": 1} for row in rows], "HtoD", of="rows"),
        "You counted rows. Add their times.",
    ),
    "all-but-the-copies": (lambda rows: 1 - right_share(rows), "That is the share of everything but these copies."),
    "upside-down": (lambda rows: _whole(rows) / sum(_copies(rows)), "A share is the part over the whole, not the reverse."),
    "never-found": (
        lambda rows: 0.0,
        "You found no such copy. The name contains HtoD, written like this, and the type of the row is 'GPU activities'.",
    ),
    **{
        f"rounded, to {digits}": (
            lambda rows, digits=digits: round(right_share(rows), digits),
            "Your answer is rounded. Return it as it is, and round where you print it.",
        )
        for digits in (1, 2, 3)
    },
    "percent-for-fraction, rounded": (
        lambda rows: round(100 * right_share(rows), 1),
        "That is the share in %. Return a fraction from 0 to 1.",
    ),
    "mean-time": (
        lambda rows: _share(rows, "HtoD", of="avg"),
        "You used the mean time of one call. The share needs the time of all calls.",
    ),
    "time-not-share": (
        lambda rows: sum(_copies(rows)),
        "That is the time of the copies. Divide by the time of all GPU activities.",
    ),
}


@exercise("copy-share", notebook="10_profiling")
def judge_copy_share(answer: Callable) -> None:
    """The share of GPU time that host-to-device copies take, as a fraction."""
    for case, rows in TABLES.items():
        try:
            # Case by case: a mistake shows only where the table has what it gets wrong.
            expect_function(answer, right_share, {case: (rows,)}, mistakes=MISTAKES)
        except (IndexError, StopIteration, KeyError, ValueError) as error:
            if right_share(rows):
                raise
            raise Mistake("fails-without-copies", f"For {case} it raises {type(error).__name__}: the share is 0.") from error
