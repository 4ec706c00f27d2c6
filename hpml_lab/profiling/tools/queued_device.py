"""A simulated device that takes work as a GPU does: calls return at once, a queue does the work later, in order.

It computes nothing: a piece of work is a sleep. What it shows is true of any such device: a clock on the host
sees how long a call took to be queued, not how long its work took.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.timeline import Span

DEADLINE = 30.0  # seconds: nobody waits for ever


class QueuedDevice:
    """An in-order queue with one thread that does its work; use it in a `with` block, which ends the thread.

    submitted, completed  how many pieces of work were handed in, and are done
    done                  the names of the finished pieces, in the order in which they were done
    spans                 when each was under way

    held  True: the device begins only when somebody waits for it. So slow a device shows, without any timing, what was not
          yet done when a call came back.
    """

    def __init__(self, held: bool = False) -> None:
        self.submitted = self.completed = 0
        self.done: list[str] = []
        self.spans: list[Span] = []
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._go = threading.Event()
        if not held:
            self._go.set()
        self._thread = threading.Thread(target=self._work, name="queued-device", daemon=True)

    def __enter__(self) -> "QueuedDevice":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._go.set()
        self._queue.put(None)
        self._thread.join(DEADLINE)

    def launch(self, name: str, seconds: float, work: Callable[[], Any] = lambda: None) -> Future:
        """Hand in work that takes `seconds` and return at once; the future will have what `work()` gives."""
        self.submitted += 1
        result: Future = Future()
        self._queue.put((name, seconds, work, result))
        return result

    def record(self) -> Future:
        """An event: the future will have the device's time at which all work handed in so far was done."""
        return self._mark(CLOCK)

    def item(self, result: Future) -> Any:
        """Wait for a result and give it, as `tensor.item()` does."""
        self._go.set()
        return result.result(DEADLINE)

    def synchronize(self) -> None:
        """Wait until all that was handed in is done."""
        self.item(self._mark(lambda: None))

    def _mark(self, work: Callable[[], Any]) -> Future:
        result: Future = Future()
        self._queue.put((None, 0.0, work, result))
        return result

    def _work(self) -> None:
        while (one := self._queue.get()) is not None:
            name, seconds, work, result = one
            self._go.wait()
            start = CLOCK()
            time.sleep(seconds)
            try:
                value = work()
            except Exception as error:  # whatever it is, it belongs to the one who waits for the result
                result.set_exception(error)
                continue
            if name is not None:
                self.spans.append(Span("device (simulated)", name, start, CLOCK()))
                self.done.append(name)
                self.completed += 1
            result.set_result(value)
