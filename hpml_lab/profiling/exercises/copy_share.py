"""Exercise: read the share of host-to-device copies from a kernel table."""

from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same

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


def right(rows: Rows) -> float:
    on_gpu = [row for row in rows if row["type"] == "GPU activities"]
    copied = sum(row["time"] for row in on_gpu if "HtoD" in row["name"])
    whole = sum(row["time"] for row in on_gpu)
    return copied / whole


def until_an_api_call(rows: Rows) -> Rows:
    kinds = [row["type"] for row in rows]
    return rows[: kinds.index(API)] if API in kinds else rows


_NONE = "You found no such copy. The name contains HtoD, written like this, and the type of the row is 'GPU activities'."
RUBRIC = Rubric(
    right,
    """
return copied / whole
    percent-for-fraction :: return 100 * copied / whole :: $PERCENT
    percent-for-fraction :: return round(100 * copied / whole, 1) :: $PERCENT
    rounded :: return round(copied / whole, 1) :: $ROUNDED
    rounded :: return round(copied / whole, 2) :: $ROUNDED
    rounded :: return round(copied / whole, 3) :: $ROUNDED
    share-of-the-others :: return copied / (whole - copied) :: You divide by the time of all other rows. A share is of the
        whole, the copies included.
    upside-down :: return whole / copied :: A share is the part over the whole, not the reverse.
    share-of-the-largest :: return copied / max(row["time"] for row in rows) :: You divide by the largest row. Divide by the sum
        of all GPU activities.
    share-of-the-copies :: return copied / sum(row["time"] for row in on_gpu if "memcpy" in row["name"]) :: You divide by the
        time of all copies. The whole is all that the GPU did, kernels too.
    share-of-the-kernels :: return copied / sum(row["time"] for row in on_gpu if "[" not in row["name"]) :: You divide by the
        time of the kernels. The whole is all that the GPU did, copies and fills too.
    example-only :: return 0.1 :: 0.1 is the share in the example. Compute it from the rows.
"HtoD" in row["name"]
    all-copies :: "memcpy" in row["name"] :: You count every copy. Only host to device (HtoD) is asked for.
    never-found :: False :: $NONE
row["time"]
    mean-time :: row["avg"] :: You used the mean time of one call. The share needs the time of all calls.
    share-of-rows :: 1 :: You counted rows. Add their times.
[row for row in rows if row["type"] == "GPU activities"]
    api-calls-counted :: rows :: $WHOLE
    stops-too-early :: until_an_api_call(rows) :: You stop at the first row of the host's: rows of the GPU may come after it.
    last-row-only :: {row["name"]: row for row in rows if row["type"] == "GPU activities"}.values() :: A dictionary by name
        keeps only the last of several rows with one name: add them all.
copied = sum(row["time"] for row in on_gpu if "HtoD" in row["name"])
    one-row-only :: copied = [*[row["time"] for row in on_gpu if "HtoD" in row["name"]], 0.0][0] :: $MORE
    api-copies-counted :: copied = sum(row["time"] for row in rows if "HtoD" in row["name"]) :: The driver's call has HtoD in
        its name, too, but runs on the host. Use the GPU's own rows only.
whole = sum(row["time"] for row in on_gpu)
    api-calls-counted :: whole = sum(row["time"] for row in rows) :: $WHOLE
whole answer
    api-copies-counted :: lambda rows: right([{**row, "type": GPU, "name": row["name"].replace("cudaMemcpy", "HtoD")} for row
        in rows]) :: cudaMemcpyAsync is the call on the host, which may wait for anything. Use the GPU's own rows only.
""",
    PERCENT="Return a fraction from 0 to 1, not the share in %.",
    ROUNDED="Your answer is rounded. Return it as it is, and round where you print it.",
    WHOLE="The host's API calls run at the same time as the GPU, and are no part of the whole: leave out rows of that type.",
    NONE=_NONE,
    MORE="There can be more than one such row: add them all.",
)


@exercise("copy-share", notebook="10_profiling", takes="rows", returns=float)
def judge_copy_share(answer: Callable) -> None:
    """The share of GPU time that host-to-device copies take, as a fraction."""
    *with_copies, without = TABLES
    RUBRIC.expect(answer, {case: (TABLES[case],) for case in with_copies}, explain=_explain)
    try:
        RUBRIC.expect(answer, {without: (TABLES[without],)})
    except (IndexError, StopIteration, KeyError, ValueError) as error:
        raise Mistake("fails-without-copies", f"For {without} it raises {type(error).__name__}: the share is 0.") from error


def _explain(answer: Callable, judged: list[Judged]) -> None:
    if same(judged[0].got, 0.0):  # in the host's rows there may be some
        raise Mistake("never-found", _NONE)
