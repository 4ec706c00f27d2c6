"""Two prefetchers from scratch: threads that load batches ahead, and a CUDA stream that copies the next batch ahead."""

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count, islice
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from hpml_lab.core.system.errors import LabError
from hpml_lab.loading.tools.next_batch import load_batch

_END = object()


def _to_the_end(items: Iterator[Any]) -> Iterator[Any]:
    """Once at its end a generator asks no more: some iterators, as DALI's, would begin anew."""
    while (item := next(items, _END)) is not _END:
        yield item


class ThreadPrefetcher:
    """Loads batches in threads, up to `depth` ahead of the loop that consumes them, and gives them in order.

        for batch in ThreadPrefetcher(loader): …                                a thread runs any loader or iterable ahead
        for batch in ThreadPrefetcher(list_of_indices, fetch, threads=4): …     threads call fetch(indices)

    batches  an iterable over batches; with `fetch`, over requests, such as the lists of indices of a BatchSampler
    fetch    fetch(request) loads one batch; threads overlap where it waits or releases the GIL (files, sockets, decoders)
    threads  how many batches are loaded at the same time; an iterable without `fetch` can be run by one thread only
    depth    how many batches are loaded or being loaded ahead (default: `threads`); more of them smooth uneven times
    An error is raised at its batch; a StopIteration of the data set is one, too, and not the end. Leaving the loop early waits
    for the batches under way, no longer. Batches are loaded under the consumer's gradient mode, which would otherwise be the
    thread's own.
    """

    def __init__(
        self, batches: Iterable[Any], fetch: Callable[[Any], Any] | None = None, *, threads: int = 1, depth: int | None = None
    ) -> None:
        depth = threads if depth is None else depth
        if threads < 1 or depth < threads:
            raise ValueError(f"threads={threads}, depth={depth}: at least one thread, and a batch ahead for each")
        if fetch is None and threads > 1:
            raise ValueError(f"threads={threads}: one thread runs an iterable; several need `fetch`")
        self.batches, self.fetch, self.threads, self.depth = batches, fetch, threads, depth

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        pool = ThreadPoolExecutor(self.threads, "thread", torch.set_grad_enabled, (torch.is_grad_enabled(),))
        loads = self._loads(pool)
        try:
            ahead = deque(islice(loads, self.depth))
            while ahead:
                batch = ahead.popleft().result()
                if batch is _END:
                    return
                ahead.extend(islice(loads, 1))  # the next batch is on its way before the consumer gets to work on this one
                yield batch
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _loads(self, pool: ThreadPoolExecutor) -> Iterator[Future]:
        """One load after the other, begun in a thread when it is asked for."""
        items = load_batch(0, iter, self.batches)
        if self.fetch is None:
            items = _to_the_end(items)
            for number in count():
                yield pool.submit(load_batch, number, next, items, _END)
        try:
            for number in count():
                if (request := load_batch(number, next, items, _END)) is _END:
                    return
                yield pool.submit(load_batch, number, self.fetch, request)
        except Exception as error:  # a request that cannot be made, which is an error at its batch, too
            failed: Future = Future()
            failed.set_exception(error)
            yield failed


class DevicePrefetcher:
    """Copies the next batch to the GPU on a stream of its own, while the current stream computes on this one.

    The next batch is taken from `batches` before the current one is given: the copy is queued before the step is, so that it
    overlaps even with a loop that waits for each step. Batches that take long to load should come from a loader with workers.

        for batch in DevicePrefetcher(loader, "cuda"): …

    batches  host batches: tensors, alone or nested in dicts, lists, tuples, named tuples and dataclasses; anything else in them
             passes unchanged. Pinned (`pin_memory=True`), or the copy does not overlap
    device   a CUDA device; on any other the batches are only moved, nothing overlaps
    """

    def __init__(self, batches: Iterable[Any], device: torch.device | str) -> None:
        self.batches, self.device = batches, torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise LabError(
                f"device={str(device)!r}, but torch sees no CUDA GPU here.", 'Use device="cpu": batches are only moved.'
            )
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        batches, numbers = load_batch(0, iter, self.batches), count()
        upcoming = self._copy(batches, next(numbers))
        while upcoming is not _END:
            batch = self._arrived(upcoming)
            try:
                upcoming = self._copy(batches, next(numbers))  # queued now, before the consumer queues its work on `batch`
            except Exception:  # of the next batch: this one is there
                yield batch
                raise
            yield batch

    def _copy(self, batches: Iterator[Any], number: int) -> Any:
        batch = load_batch(number, next, batches, _END)
        if batch is _END:
            return _END
        if self.stream is None:
            return map_tensors(lambda tensor: tensor.to(self.device), batch)
        with torch.cuda.stream(self.stream):
            return map_tensors(lambda tensor: tensor.to(self.device, non_blocking=True), batch)

    def _arrived(self, batch: Any) -> Any:
        if self.stream is None:
            return batch
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self.stream)  # the GPU waits, not the processor

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            # The memory belongs to the side stream: without this it could be filled again before `current` has read it.
            tensor.record_stream(current)
            return tensor

        return map_tensors(keep, batch)  # rebuilt with its own tensors: a dataclass may check its fields when it is made


def map_tensors(work: Callable[[Any], Any], batch: Any) -> Any:
    """The same structure with `work(tensor)` for each tensor in it; what is neither a tensor nor holds any stays as it is."""
    if isinstance(batch, torch.Tensor):
        return work(batch)
    if isinstance(batch, PackedSequence):  # its batch_sizes stay on the CPU
        return batch._replace(
            **{name: work(tensor) for name, tensor in batch._asdict().items() if name != "batch_sizes" and tensor is not None}
        )
    if isinstance(batch, Mapping):
        moved = {key: map_tensors(work, value) for key, value in batch.items()}
        if type(batch) is dict:
            return moved
        clone = copy.copy(batch)  # keeps what the class adds, such as a default factory
        clone.update(moved)
        return clone
    if isinstance(batch, list | tuple):
        moved = [map_tensors(work, value) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)  # a named tuple takes its fields
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        fields = {
            field.name: map_tensors(work, getattr(batch, field.name)) for field in dataclasses.fields(batch) if field.init
        }
        return dataclasses.replace(batch, **fields)
    return batch
