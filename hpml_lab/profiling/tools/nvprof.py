"""The kernel table as nvprof has it: from a trace of torch.profiler, or from an nvprof log."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.timing.counting import short_kernel_names
from hpml_lab.profilers.trace_calls import GPU, nested, of_categories


@dataclass
class KernelRow(Row):
    """All calls of one kernel, copy or operator: its share of the time, and the mean and range of a call."""

    name: str = column("name")
    percent: float = column("share of the time", "%")
    time_us: float = column("time", "µs")
    calls: int = column("calls")
    mean_us: float = column("mean", "µs")
    least_us: float = column("least", "µs")
    most_us: float = column("most", "µs")


def kernel_rows(events: Iterable[dict[str, Any]], gpu: bool) -> list[KernelRow]:
    """The rows of a trace, the most expensive first.

    gpu  what ran on the GPU (kernels, copies, fills); otherwise the operators, by the time that they spent themselves
    """
    times: dict[str, list[float]] = {}
    if gpu:
        for event in of_categories(events, GPU):
            times.setdefault(nvprof_name(event), []).append(event["dur"])
    else:
        for call in nested(events):
            if call["cat"] == "cpu_op":
                times.setdefault(call["name"], []).append(max(0.0, call["self"]))
    whole = sum(map(sum, times.values()))
    rows = [
        KernelRow(name, 100 * sum(us) / whole, sum(us), len(us), sum(us) / len(us), min(us), max(us))
        for name, us in times.items()
    ]
    return sorted(rows, key=lambda row: -row.time_us)


def nvprof_name(event: dict[str, Any]) -> str:
    """The name as nvprof wrote it: `Memcpy HtoD (Pageable -> Device)` is [CUDA memcpy HtoD]."""
    copy = re.match(r"Memcpy (\w+)", event["name"])
    if event["cat"] == "gpu_memcpy" and copy:
        return f"[CUDA memcpy {copy[1]}]"
    return "[CUDA memset]" if event["cat"] == "gpu_memset" else event["name"]


def short_names(rows: Iterable[KernelRow], most: int = 64) -> list[KernelRow]:
    """The rows with names that fit into a table, cut where they agree with others and not where they differ."""
    rows = list(rows)
    names = short_kernel_names([row.name for row in rows], most)
    return [replace(row, name=name) for row, name in zip(rows, names, strict=True)]


def htod_rows(rows: Iterable[KernelRow]) -> list[KernelRow]:
    """The rows of copies from host to device."""
    return [row for row in rows if row.name.startswith("[CUDA memcpy HtoD]")]


def htod_percent(rows: Iterable[KernelRow]) -> float:
    """Host-to-device copies' share of a table's time in %."""
    return sum(row.percent for row in htod_rows(rows))


_LINE = re.compile(r"([\d.]+)%\s+([\d.]+[mun]?s)\s+(\d+)\s+([\d.]+[mun]?s)\s+([\d.]+[mun]?s)\s+([\d.]+[mun]?s)\s+(\S.*)$")
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


def read_nvprof(log: str) -> list[KernelRow]:
    """The rows of an nvprof log's "GPU activities"; the host's "API calls" are left out."""
    rows = []
    for line in log.splitlines():
        if "API calls:" in line:
            break
        if match := _LINE.search(line):
            percent, time, calls, mean, least, most, name = match.groups()
            spread = map(_microseconds, (mean, least, most))
            rows.append(KernelRow(name.strip(), float(percent), _microseconds(time), int(calls), *spread))
    return rows


def _microseconds(text: str) -> float:
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
