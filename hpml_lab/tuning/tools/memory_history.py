"""The history that torch's CUDA allocator keeps of itself, as memory in use over time."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

Event = dict[str, Any]  # an entry of torch.cuda.memory._snapshot()["device_traces"][device]


@contextlib.contextmanager
def memory_history(device: torch.device | str) -> Iterator[list[Event]]:
    """Collect each allocation and free on a CUDA GPU within a block; the list is filled when the block ends."""
    device = torch.device(device)
    events: list[Event] = []
    torch.cuda.synchronize(device)
    torch.cuda.memory._record_memory_history(context=None, clear_history=True)  # no tracebacks
    try:
        yield events
        torch.cuda.synchronize(device)
        index = torch.cuda.current_device() if device.index is None else device.index
        events += torch.cuda.memory._snapshot()["device_traces"][index]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def in_use(events: Iterable[Event], kinds: Mapping[int, str], rest: str = "other") -> tuple[list[float], dict[str, list[int]]]:
    """Bytes in use after each allocation and free: (ms from the first on, {kind: bytes}).

    kinds  {bytes asked for: what has that size}; all else is `rest`
    What was allocated before the history began is not counted. A block counts until its memory can be used again
    ("free_completed"), not only until its tensor is gone ("free_requested").
    """
    held, times, total = set(), [], dict.fromkeys([*kinds.values(), rest], 0)
    found = {kind: [] for kind in total}
    for event in events:
        if event["action"] == "alloc":
            held.add(event["addr"])
        elif event["action"] == "free_completed" and event["addr"] in held:
            held.remove(event["addr"])
        else:
            continue
        total[kinds.get(event["size"], rest)] += event["size"] * (1 if event["action"] == "alloc" else -1)
        times.append(event["time_us"] / 1e3)
        for kind, amount in total.items():
            found[kind].append(amount)
    return [time - times[0] for time in times], found
