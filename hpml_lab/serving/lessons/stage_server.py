"""A server of threads and queues: each stage takes what waits, up to its batch limit, and hands its results to the next stage.

    submit -> queue -> [preprocess] -> queue -> [models, up to 8 at once] -> queue -> [postprocess] -> Future

With one stage it is a plain server with batching. With several, a request is preprocessed while the models work on the one
before it: PyTorch, NumPy and SciPy let other threads run while they compute.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.timeline import Span, span

_END = object()  # what follows the last request through all stages


@dataclass(frozen=True)
class ServerStage:
    """One stage: a thread that works on what waits before it.

    work            (items) -> results, one for each item in their order
    limit           the most items that it takes at once
    window_seconds  how long the first item of a batch waits for others while the batch is not full
    """

    name: str
    work: Callable[[list], Sequence]
    limit: int = 1
    window_seconds: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.limit, bool) or self.limit != int(self.limit) or self.limit < 1:
            raise LabError(f"a batch limit of {self.limit} is not valid.", "Use a whole number from 1 on.")
        if not 0 <= self.window_seconds < float("inf"):
            raise LabError(f"a batching window of {self.window_seconds} s is not valid.", "Use 0 or more seconds.")


class StageServer:
    """Serves requests through `stages`, one thread each, until it is closed; also a context manager.

    A request whose work raises gets that error, a LabError that names the stage; the others of its batch are worked on again
    one by one, and all others go on.
    spans  if a list is given, each piece of work is appended: lane = the stage, what = "n requests"
    """

    def __init__(self, stages: Sequence[ServerStage], spans: list[Span] | None = None) -> None:
        if not stages:
            raise LabError("a server without a stage cannot answer.", "Give it at least one ServerStage.")
        self.batches: list[list[int]] = [[] for _ in stages]  # the sizes of the batches that each stage took
        self._spans = [] if spans is None else spans
        self._queues: list[queue.SimpleQueue] = [queue.SimpleQueue() for _ in stages]
        self._closed, self._lock = False, threading.Lock()
        self._threads = [
            threading.Thread(target=self._serve, args=(index, stage), name=f"stage {stage.name}", daemon=True)
            for index, stage in enumerate(stages)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, item: Any) -> Future:
        """Hand over a request; the future gets its result, or its error. Raises LabError once the server is closed."""
        future: Future = Future()
        with self._lock:  # so that no request can arrive behind the end
            if self._closed:
                raise LabError("this server is closed.", "Make a new one.")
            self._queues[0].put((item, future))
        return future

    def close(self) -> None:
        """Take no more requests, answer those that were taken, and end the threads."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queues[0].put(_END)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> "StageServer":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _serve(self, index: int, stage: ServerStage) -> None:
        """One stage's thread."""
        is_last = index + 1 == len(self._queues)
        ended = False
        while not ended:
            batch, ended = self._take(self._queues[index], stage)
            if index == 0:  # left out: requests cancelled while they waited; from here on that is not possible
                batch = [(item, future) for item, future in batch if future.set_running_or_notify_cancel()]
            if batch:
                self.batches[index].append(len(batch))
                with span(self._spans, stage.name, _requests(len(batch))):
                    done = _worked(stage, batch)
                for result, future in done:
                    if is_last:
                        future.set_result(result)
                    else:
                        self._queues[index + 1].put((result, future))
        if not is_last:
            self._queues[index + 1].put(_END)

    @staticmethod
    def _take(waiting: queue.SimpleQueue, stage: ServerStage) -> tuple[list, bool]:
        """What waits, up to the limit, for a full batch at most as long as the window; and whether it was the last."""
        batch: list = []
        deadline = None
        while len(batch) < stage.limit:
            try:
                if deadline is None:
                    found = waiting.get()  # the first: as long as it takes
                else:
                    remaining = deadline - time.monotonic()
                    found = waiting.get(timeout=remaining) if remaining > 0 else waiting.get_nowait()
            except queue.Empty:
                break
            if found is _END:
                return batch, True
            batch.append(found)
            if deadline is None:
                deadline = time.monotonic() + stage.window_seconds
        return batch, False


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def _worked(stage: ServerStage, batch: list[tuple[Any, Future]]) -> list[tuple[Any, Future]]:
    """(result, future) of the requests of a batch that succeeded; the others' futures have their errors."""
    try:
        results = stage.work([item for item, _ in batch])
        if len(results) != len(batch):
            raise LabError(f"it gave {len(results)} results for {len(batch)} requests.", "Return one result for each item.")
    except BaseException as error:  # also SystemExit: a thread that ends here would leave everyone waiting
        if len(batch) > 1:  # which of them was it?
            return [done for alone in batch for done in _worked(stage, [alone])]
        problem = f"stage {stage.name!r} failed for this request: {type(error).__name__}: {error}".rstrip(" .:")
        failure = LabError(f"{problem}.", "The other requests are not affected.")
        failure.__cause__ = error
        batch[0][1].set_exception(failure)
        return []
    return [(result, future) for result, (_, future) in zip(results, batch, strict=True)]
