"""Two prefetchers from scratch: threads that load batches ahead, and a CUDA stream that copies the next batch ahead."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import torch


class ThreadPrefetcher:
    """Loads batches in threads, up to `depth` ahead of the loop that consumes them, and gives them in order.

    fetch     fetch(request) loads one batch; threads overlap where it waits or releases the GIL (files, sockets, decoders)
    requests  what to fetch, e.g. the lists of indices of a BatchSampler
    threads   how many batches are loaded at once
    depth     how many batches are loaded or being loaded ahead; more than `threads` only smooths uneven times
    An error of `fetch` is raised at its batch's place. Leaving the loop early waits for the fetches under way, no longer.
    """

    def __init__(
        self, fetch: Callable[[Any], Any], requests: Sequence[Any], *, threads: int = 1, depth: int | None = None
    ) -> None:
        depth = threads if depth is None else depth
        if threads < 1 or depth < threads:
            raise ValueError(f"threads={threads}, depth={depth}: at least one thread, and a batch ahead for each")
        self.fetch, self.requests, self.threads, self.depth = fetch, requests, threads, depth

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Any]:
        requests = iter(self.requests)
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="thread")
        try:
            ahead = deque(pool.submit(self.fetch, request) for request in islice(requests, self.depth))
            while ahead:
                batch = ahead.popleft().result()
                # The place of the batch that leaves is filled before the consumer gets to work on it.
                ahead.extend(pool.submit(self.fetch, request) for request in islice(requests, 1))
                yield batch
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class DevicePrefetcher:
    """Copies the next batch to the GPU on a stream of its own, while the current stream computes on this one.

    batches  host batches: a tensor, or a tuple or list of them; pinned, or the copy does not overlap
    device   a CUDA device; on any other the batches are only moved, nothing overlaps
    """

    def __init__(self, batches: Iterable[Any], device: torch.device) -> None:
        self.batches, self.device = batches, torch.device(device)
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.batches)
        upcoming = self._copy(batches)
        while upcoming is not None:
            batch = self._arrived(upcoming)
            upcoming = self._copy(batches)  # queued now, before the consumer queues its work on `batch`
            yield batch

    def _copy(self, batches: Iterator[Any]) -> Any:
        batch = next(batches, None)
        if batch is None or self.stream is None:
            return None if batch is None else _each(batch, lambda tensor: tensor.to(self.device))
        with torch.cuda.stream(self.stream):
            return _each(batch, lambda tensor: tensor.to(self.device, non_blocking=True))

    def _arrived(self, batch: Any) -> Any:
        if self.stream is None:
            return batch
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self.stream)  # the GPU waits, not the processor
        # The batch's memory belongs to the side stream: without this it could be filled again before `current` has read it.
        return _each(batch, lambda tensor: (tensor.record_stream(current), tensor)[1])


def _each(batch: Any, work: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(batch, torch.Tensor):
        return work(batch)
    moved = [work(tensor) for tensor in batch]
    return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)  # a named tuple takes them one by one
