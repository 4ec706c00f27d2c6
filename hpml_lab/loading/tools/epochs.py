"""How long an epoch does take, and the parts of its time: the loop's own clock, and time stamps of its workers."""

import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import shutdown_workers, sleep_until
from hpml_lab.core.timing.timeline import Span, span
from hpml_lab.loading.tools.next_batch import faults_are_errors, load_batch

PARTS = ("compute", "waiting", "collate", "queue", "start-up", "end")
_END = object()
DEADLINE = 120.0  # seconds after which a loader that gives no batch raises


def lane() -> str:
    """Who runs this line: "main", "worker 3" of a DataLoader, or a thread's name."""
    if (info := get_worker_info()) is not None:
        return f"worker {info.id}"
    thread = threading.current_thread()
    return "main" if thread is threading.main_thread() else thread.name.replace("_", " ")


class Stamped(Dataset):
    """Any map-style data set, with time stamps: DataLoader's workers fetch a whole batch through `__getitems__`.

    Use it with `collate_fn=StampedCollate()`; the loader then gives (batch, spans), the spans by the worker's own clock.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, indices: Sequence[int]) -> tuple[Any, list[Span]]:
        spans: list[Span] = []
        with span(spans, lane(), "load"):
            fetch = getattr(self.dataset, "__getitems__", None)
            samples = fetch(indices) if fetch else [self.dataset[index] for index in indices]
        return samples, spans


@dataclass(frozen=True)
class StampedCollate:
    """Collates what `Stamped` fetched and stamps it: a class of a module, so that spawned workers find it."""

    collate: Callable[[Any], Any] = default_collate

    def __call__(self, fetched: tuple[Any, list[Span]]) -> tuple[Any, list[Span]]:
        samples, spans = fetched
        with span(spans, lane(), "collate"):
            batch = self.collate(samples)
        return batch, spans


@dataclass(frozen=True)
class Fetch:
    """Loads and collates one batch in whatever thread calls it: fetch(indices) gives (batch, spans)."""

    dataset: Any
    collate: Callable[[Any], Any] = default_collate

    def __call__(self, indices: Sequence[int]) -> tuple[Any, list[Span]]:
        return StampedCollate(self.collate)(Stamped(self.dataset).__getitems__(indices))


def stamped_loader(
    dataset: Any, batch_size: int, workers: int, *, collate: Callable = default_collate, **options
) -> DataLoader:
    """A DataLoader of (batch, spans) in the order of the data set, which raises rather than hangs."""
    if workers:
        options.setdefault("timeout", DEADLINE)
    return DataLoader(Stamped(dataset), batch_size, num_workers=workers, collate_fn=StampedCollate(collate), **options)


@dataclass(frozen=True)
class Accelerator:
    """Stands for a GPU: a step takes `seconds` during which the processor is free. Notes a checksum of every batch."""

    seconds: float
    checksums: list[int] = field(default_factory=list)

    def __call__(self, batch: Any) -> None:
        end = CLOCK() + self.seconds
        self.checksums.append(checksum(batch))
        sleep_until(end)


def checksum(batch: Any) -> int:
    """CRC-32 of the tensors of a batch: equal for equal bits."""
    total = 0
    for tensor in batch if isinstance(batch, list | tuple) else [batch]:
        total = zlib.crc32(torch.as_tensor(tensor).detach().cpu().contiguous().numpy().tobytes(), total)
    return total


@dataclass(frozen=True)
class Epoch:
    """One pass over the data: the main loop's `seconds`, its `parts` (they add up to it), and all spans, workers' too.

    parts["compute"]   the step, until its device has done it
    parts["waiting"]   the loop waits while its batch is loaded, or while that batch's worker loads an earlier one
    parts["collate"]   … while its batch is collated
    parts["queue"]     … while its batch is sent: pickled, piped, mapped
    parts["start-up"]  … while workers start: until a worker that has given nothing yet begins to load
    parts["end"]       after the last batch
    """

    seconds: float
    parts: dict[str, float]
    spans: list[Span]


@faults_are_errors()  # also during a step: a loader may load ahead in a thread of its own
def run_epoch(batches: Iterable[Any], step: Callable[[Any], object]) -> Epoch:
    """Run `step(batch)` over a loader and account for every moment of the loop.

    A stamped loader gives (batch, spans): a moment of waiting is named by what happened to the batch that was waited for, from
    its worker's time stamps. Of any other loader nobody knows that: all of the wait counts as "waiting".
    On a GPU a step ends when all that was launched is done; otherwise its time would count as waiting for a later batch.
    An error of the loader or the step ends the workers before it is passed on. A StopIteration of the data set is a LabError.
    """
    parts = dict.fromkeys(PARTS, 0.0)
    spans: list[Span] = []
    known: set[str] = set()
    wall = CLOCK()
    iterator = load_batch(0, iter, batches)
    now = CLOCK()
    parts["start-up"] = now - wall
    try:
        for number in count():
            asked = now
            if (batch := load_batch(number, next, iterator, _END)) is _END:
                break
            got = CLOCK()
            if _is_stamped(batch):
                batch, stamps = batch
                load, collate = stamps
                ends = {
                    "start-up": load.start if load.lane not in known else asked,
                    "waiting": collate.start,
                    "collate": collate.end,
                    "queue": got,
                }
                known.add(load.lane)
            else:
                stamps, ends = [], {"waiting": got}
            reached = asked
            for part, end in ends.items():
                end = min(max(end, reached), got)
                parts[part] += end - reached
                reached = end
            step(batch)
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            now = CLOCK()
            parts["compute"] += now - got
            spans += [*stamps, Span("main", "compute", got, now)]
    except BaseException:
        shutdown_workers(iterator)
        raise
    end = CLOCK()
    parts["end"] = end - now
    return Epoch(end - wall, parts, spans)


def _is_stamped(batch: Any) -> bool:
    """Whether a loader gave (batch, spans), as `stamped_loader` does."""
    pair = isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], list)
    return bool(pair and batch[1] and all(isinstance(stamp, Span) for stamp in batch[1]))
