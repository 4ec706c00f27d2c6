"""Reading torch's traces: calls within calls, self times, lanes to draw, memory over time, and a kernel table as nvprof has it.

Events are those of `core.counting.trace_events`: dicts in Chrome's trace format, with ts and dur in µs.
"""

import re
from collections.abc import Iterable
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.profiler import record_function

from hpml_lab.core import style
from hpml_lab.core.timeline import gantt

HOST = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
COLOURS = {
    "region": style.GREY,
    "convolution": style.BLUE,
    "normalisation": style.GREEN,
    "activation": style.ORANGE,
    "pooling": style.PURPLE,
    "copying": style.RED,
    "other": style.SKY,
}
_KINDS = (
    ("copying", ("memcpy", "memset", "aten::cat", "copy")),
    ("convolution", ("conv", "cudnn", "xmma", "winograd")),
    ("normalisation", ("norm", "bn_")),
    ("activation", ("relu", "clamp")),
    ("pooling", ("pool",)),
)


def kind(event: dict[str, Any]) -> str:
    """What an event does, by its name, as the colour of its bar: a key of COLOURS."""
    if event["cat"] == "user_annotation":
        return "region"
    name = event["name"].lower()
    return next((kind for kind, words in _KINDS if any(word in name for word in words)), "other")


def nested(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The host's calls, each with its `depth` (0: nobody called it) and its `self`: the µs that it did not spend in a call
    of its own. A call lies within another where it ran in the same thread and in that one's time."""
    calls = sorted((dict(e, depth=0, self=e["dur"]) for e in _of(events, HOST)), key=lambda e: (e["tid"], e["ts"], -e["dur"]))
    open_calls: list[dict[str, Any]] = []
    for call in calls:
        while open_calls and not _within(call, open_calls[-1]):
            open_calls.pop()
        if open_calls:
            open_calls[-1]["self"] -= call["dur"]
            call["depth"] = open_calls[-1]["depth"] + 1
        open_calls.append(call)
    return calls


def _of(events: Iterable[dict[str, Any]], categories: Iterable[str]) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") in categories and "dur" in event]


def _within(call: dict[str, Any], other: dict[str, Any]) -> bool:
    slack = 0.01  # µs: starts and durations are rounded each on its own
    return call["tid"] == other["tid"] and call["ts"] + call["dur"] <= other["ts"] + other["dur"] + slack


@contextmanager
def named_regions(layers: Iterable[tuple[str, nn.Module]]):
    """Within the `with` block each layer's forward pass is a region of its name in every trace (`record_function`)."""
    handles, open_regions = [], []

    def enter(name: str):
        def begin(*_: object) -> None:
            open_regions.append(record_function(name))
            open_regions[-1].__enter__()

        return begin

    def leave(*_: object) -> None:
        open_regions.pop().__exit__(None, None, None)

    try:
        for name, layer in layers:
            handles += [layer.register_forward_pre_hook(enter(name)), layer.register_forward_hook(leave)]
        yield
    finally:
        for handle in handles:
            handle.remove()


def lanes(events: Iterable[dict[str, Any]], shortest: float = 0.001) -> list[dict[str, Any]]:
    """Rows for core.timeline.gantt: regions, operators by depth and, where there is a GPU, its kernels and copies.

    shortest  bars below this share of the whole are left out: nobody would see them
    """
    events = list(events)
    calls, gpu = nested(e for e in events if e.get("cat") in ("cpu_op", "user_annotation")), _of(events, GPU)
    if not calls:
        return []
    start = min(e["ts"] for e in (*calls, *gpu))
    whole = max(e["ts"] + e["dur"] for e in (*calls, *gpu)) - start
    rows, levels = [], _levels(calls)
    for event in (*calls, *gpu):
        if event["dur"] < shortest * whole:
            continue
        if event["cat"] in GPU:
            lane = "GPU: kernels" if event["cat"] == "kernel" else "GPU: copies"
        elif event["cat"] == "user_annotation":
            lane = "regions" if event["depth"] == 0 else "regions within"
        else:
            lane = ("operators", "called by them", "called by these")[min(2, levels[id(event)])]
        begin = (event["ts"] - start) / 1e6
        end = begin + event["dur"] / 1e6
        rows.append({"lane": lane, "what": kind(event), "name": event["name"], "start": begin, "end": end})
    return rows


def draw_lanes(axes, rows: Iterable[dict[str, Any]]) -> None:
    """Draw the rows of `lanes`: a lane calls what lies below it. The longer regions bear their names."""
    rows = list(rows)
    drawn = {row["lane"] for row in rows}
    gantt(axes, rows, COLOURS, [lane for lane in LANES if lane in drawn])
    whole = axes.get_xlim()[1]
    for bar in axes.patches:
        if bar.get_width() < 0.01 * whole:  # too narrow for an edge or a hatch: they would hide the colour
            bar.set(hatch=None, linewidth=0)
    scale = whole / max(row["end"] for row in rows)
    shown = [lane for lane in LANES if lane in drawn]
    for row in rows:
        if row["what"] == "region" and row["end"] - row["start"] > 0.09 * whole / scale:
            middle = scale * (row["start"] + row["end"]) / 2
            axes.text(middle, shown.index(row["lane"]), row["name"], ha="center", va="center", color="white", fontsize=8)


LANES = ("regions", "regions within", "operators", "called by them", "called by these", "GPU: kernels", "GPU: copies")


def _levels(calls: list[dict[str, Any]]) -> dict[int, int]:
    """How many operators are around each call; regions do not count."""
    levels, around = {}, []
    for call in calls:
        while around and not _within(call, around[-1]):
            around.pop()
        levels[id(call)] = sum(one["cat"] == "cpu_op" for one in around)
        around.append(call)
    return levels


# --- the kernel table --------------------------------------------------------------------------------------------------------


def kernel_rows(events: Iterable[dict[str, Any]], gpu: bool) -> list[dict[str, Any]]:
    """nvprof's list, the dearest first: share of the time in %, time, calls, mean, least and most, name; times in µs.

    With `gpu` what ran on the GPU (kernels, copies, fills), else the operators by the time that they spent themselves.
    """
    times: dict[str, list[float]] = {}
    if gpu:
        for event in _of(events, GPU):
            times.setdefault(nvprof_name(event), []).append(event["dur"])
    else:
        for call in nested(events):
            if call["cat"] == "cpu_op":
                times.setdefault(call["name"], []).append(max(0.0, call["self"]))
    whole = sum(map(sum, times.values()))
    rows = [
        {
            "time %": 100 * sum(one) / whole,
            "time, µs": sum(one),
            "calls": len(one),
            "avg, µs": sum(one) / len(one),
            "min, µs": min(one),
            "max, µs": max(one),
            "name": name,
        }
        for name, one in times.items()
    ]
    return sorted(rows, key=lambda row: -row["time, µs"])


def nvprof_name(event: dict[str, Any]) -> str:
    """The name as nvprof wrote it: `Memcpy HtoD (Pageable -> Device)` is [CUDA memcpy HtoD]."""
    copy = re.match(r"Memcpy (\w+)", event["name"])
    if event["cat"] == "gpu_memcpy" and copy:
        return f"[CUDA memcpy {copy[1]}]"
    return "[CUDA memset]" if event["cat"] == "gpu_memset" else event["name"]


def htod_share(rows: Iterable[dict[str, Any]]) -> float:
    """Host-to-device copies' share of a table's time in %."""
    return sum(row["time %"] for row in rows if row["name"].startswith("[CUDA memcpy HtoD]"))


_LINE = re.compile(r"([\d.]+)%\s+([\d.]+[mun]?s)\s+(\d+)\s+([\d.]+[mun]?s)\s+([\d.]+[mun]?s)\s+([\d.]+[mun]?s)\s+(\S.*)$")
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


def read_nvprof(log: str) -> list[dict[str, Any]]:
    """The rows of an nvprof log's "GPU activities", as `kernel_rows` gives them; the host's "API calls" are left out."""
    rows = []
    for line in log.splitlines():
        if "API calls:" in line:
            break
        found = _LINE.search(line)
        if found:
            share, time, calls, *spread, name = found.groups()
            mean, least, most = (_micros(one) for one in spread)
            rows.append(
                {
                    "time %": float(share),
                    "time, µs": _micros(time),
                    "calls": int(calls),
                    "avg, µs": mean,
                    "min, µs": least,
                    "max, µs": most,
                    "name": name.strip(),
                }
            )
    return rows


def _micros(text: str) -> float:
    value, unit = re.fullmatch(r"([\d.]+)([mun]?s)", text).groups()
    return float(value) * _UNITS[unit]


# Lines of the log that lecture L3 prints; it cuts the names of the kernels.
LECTURE_LOG = """\
==40242== Profiling result:
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   11.36%  19.0811s   1180113  16.168us     736ns  9.2059ms  void at::native::ve
                    9.08%  15.2482s     57720  264.18us  221.13us  6.3191ms  void cudnn::cnn::wg
                    6.57%  11.0269s     39000  282.74us  168.87us  7.4494ms  void cudnn::detail:
                    6.28%  10.5512s     61390  171.87us  151.21us  7.4208ms  maxwell_scudnn_wino
                    0.14%  236.76ms       780  303.54us  297.10us  313.52us  void cudnn::bn_fw_t
                    0.12%  204.61ms      2888  70.846us     672ns  869.67us  [CUDA memcpy HtoD]
"""
