"""Traces of torch's profiler, as Chrome's tracing reads them, summed up as one table of operators."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_lab.core.experiment.findings import Row, column

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass
class OperatorShare(Row):
    """One operator of torch in a recording: its own time, and with the operators that it called."""

    operator: str = column("operator")
    calls: int = column("calls")
    self_ms: float = column("self", "ms")
    percent: float = column("self", "%")
    total_ms: float = column("total", "ms")


@dataclass(frozen=True)
class OperatorTable:
    """The operators of some traces, the one with the most time of its own first.

    seconds    how long was recorded
    events     how many calls of operators were seen
    on_device  times are a GPU's, since it computed
    """

    rows: list[OperatorShare]
    seconds: float
    events: int
    on_device: bool


def operator_table(traces: Iterable[Path]) -> OperatorTable:
    """Sum up the trace files that are there; one that is not a trace, as a killed program leaves it, is left out."""
    seconds, events = 0.0, 0
    host, device = _Sums(), _Sums()
    for path in traces:
        try:
            found = json.loads(path.read_text(encoding="utf-8"), strict=False)["traceEvents"]
        except (ValueError, KeyError, TypeError):
            continue
        seconds += sum(event["dur"] / 1e6 for event in found if event.get("cat") == "Trace" and "dur" in event)
        calls = [event for event in found if event.get("cat") == "cpu_op" and "dur" in event]
        events += len(calls)
        on_device: dict[Any, float] = defaultdict(float)
        for event in found:
            if event.get("cat") in ON_DEVICE:
                on_device[event["args"].get("External id")] += event.get("dur", 0.0)
        threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for call in calls:
            threads[call["tid"]].append(call)
        for own in threads.values():
            own.sort(key=lambda call: (call["ts"], -call["dur"]))
            host.add(own)
            device.add(own, on_device)
    used = device if sum(device.self_us.values()) else host
    return OperatorTable(used.rows(), seconds, events, used is device)


class _Sums:
    """Times by operator, in microseconds."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = defaultdict(int)
        self.self_us: dict[str, float] = defaultdict(float)
        self.total_us: dict[str, float] = defaultdict(float)

    def add(self, calls: list[dict[str, Any]], on_device: dict[Any, float] | None = None) -> None:
        """Add one thread's calls in the order of their beginning, an outer one first; or what they did on a GPU."""
        open_calls: list[dict[str, Any]] = []
        for call in calls:
            name = call["name"]
            while open_calls and open_calls[-1]["ts"] + open_calls[-1]["dur"] <= call["ts"]:
                open_calls.pop()
            self.calls[name] += 1
            if on_device is not None:
                own = on_device.get(call["args"].get("External id"), 0.0)
                self.self_us[name] += own
                for outer in {outer["name"] for outer in open_calls} | {name}:
                    self.total_us[outer] += own
            else:
                self.self_us[name] += call["dur"]
                if open_calls:
                    self.self_us[open_calls[-1]["name"]] -= call["dur"]
                if all(outer["name"] != name for outer in open_calls):
                    self.total_us[name] += call["dur"]
            open_calls.append(call)

    def rows(self) -> list[OperatorShare]:
        whole = sum(self.self_us.values()) or 1.0
        rows = [
            OperatorShare(
                operator=name.removeprefix("aten::"),
                calls=self.calls[name],
                self_ms=own / 1e3,
                percent=100 * own / whole,
                total_ms=self.total_us[name] / 1e3,
            )
            for name, own in self.self_us.items()
        ]
        return sorted(rows, key=lambda row: -row.self_ms)
