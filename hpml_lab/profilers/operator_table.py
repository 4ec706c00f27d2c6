"""Traces of torch's profiler, as Chrome's tracing reads them, summed up as one table of operators."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.readers import RECORD, TRACE, reader, text_of
from hpml_lab.profilers.trace_calls import GPU, nested, of_categories


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
            lasted, calls = read_trace(path)
        except LabError:
            continue
        seconds += lasted
        for call in calls:
            events += 1
            host.add(call, call["self"], {call["name"]: call["dur"]} if call["name"] not in call["around"] else {})
            device.add(call, call["on_device"], dict.fromkeys({*call["around"], call["name"]}, call["on_device"]))
    used = device if sum(device.self_us.values()) else host
    return OperatorTable(used.rows(), seconds, events, used is device)


@reader("a profile's operators", "Run the profile again.")
def read_operators(path: Path | str) -> list[OperatorShare]:
    """The operators that `hpml-lab profile` wrote beside its page."""
    rows = json.loads(text_of(path, RECORD))
    times = ("self_ms", "percent", "total_ms")
    return [OperatorShare(str(row["operator"]), int(row["calls"]), *(float(row[name]) for name in times)) for row in rows]


@reader("a trace of torch's profiler", "Record it again, and let the program end by itself.")
def read_trace(path: Path) -> tuple[float, list[dict[str, Any]]]:
    """How many seconds a trace covers, and its calls of operators as `nested` has them, with the µs `on_device` of each."""
    found = json.loads(text_of(path, TRACE), strict=False)["traceEvents"]
    seconds = sum(event["dur"] / 1e6 for event in of_categories(found, ("Trace",)))
    on_device: dict[Any, float] = defaultdict(float)
    for event in of_categories(found, GPU):
        on_device[event["args"].get("External id")] += event["dur"]
    calls = nested(of_categories(found, ("cpu_op",)))
    for call in calls:
        call["on_device"] = on_device.get(call.get("args", {}).get("External id"), 0.0)
        if not isinstance(call["name"], str):
            raise ValueError(f"an operator is called {call['name']!r}")
    return seconds, calls


class _Sums:
    """Times by operator, in microseconds."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.self_us: dict[str, float] = defaultdict(float)
        self.total_us: dict[str, float] = defaultdict(float)

    def add(self, call: dict[str, Any], own: float, totals: dict[str, float]) -> None:
        """Add a call: its own time, and what it adds to its operator's total and to those around it."""
        self.calls[call["name"]] += 1
        self.self_us[call["name"]] += own
        for name, total in totals.items():
            self.total_us[name] += total

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
