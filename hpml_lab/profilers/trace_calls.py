"""Reading torch's traces: calls within calls, and the time that each spent itself.

Events are those of `core.timing.counting.trace_events`: dicts in Chrome's trace format, with ts and dur in µs.
"""

from collections.abc import Iterable
from typing import Any

HOST = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def nested(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The host's calls, each with its `depth` (0: nobody called it), the operators `around` it, from the outermost inwards, and
    its `self`: the µs that it did not spend in a call of its own. A call lies within another where it ran in the same thread
    and in that one's time."""
    calls = sorted(
        (dict(e, depth=0, around=(), self=e["dur"]) for e in of_categories(events, HOST)),
        key=lambda e: (e["tid"], e["ts"], -e["dur"]),
    )
    open_calls: list[dict[str, Any]] = []
    for call in calls:
        while open_calls and not _within(call, open_calls[-1]):
            open_calls.pop()
        if open_calls:
            open_calls[-1]["self"] -= call["dur"]
            call["depth"] = open_calls[-1]["depth"] + 1
            call["around"] = tuple(outer["name"] for outer in open_calls if outer["cat"] == "cpu_op")
        open_calls.append(call)
    return calls


def of_categories(events: Iterable[dict[str, Any]], categories: Iterable[str]) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") in categories and "dur" in event]


def _within(call: dict[str, Any], other: dict[str, Any]) -> bool:
    slack = 0.01  # µs: starts and durations are rounded each on its own
    return call["tid"] == other["tid"] and call["ts"] + call["dur"] <= other["ts"] + other["dur"] + slack
