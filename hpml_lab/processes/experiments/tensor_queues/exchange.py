"""A consumer in a process of its own, five routes to it, and how many messages and bytes each carries in a second."""

import contextlib
import queue
from dataclasses import dataclass
from multiprocessing import resource_sharer
from statistics import median
from types import TracebackType
from typing import Any

import numpy as np
import torch
import torch.multiprocessing

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.children import START_SECONDS, child_process
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.processes.lessons.messages import ROUTES
from hpml_lab.processes.lessons.shared_memory_ring import Ring

DEADLINE_SECONDS = 30.0  # that either side waits for the other
WAITING = 2  # messages that may wait in a queue, and buffers that go back and forth
AGAIN = {"pickle": "pickle, again", "torch": "torch, again"}  # routes that others are compared with, and their placebos
GONE = (EOFError, ConnectionError, FileNotFoundError)  # from the pipes and sockets of a consumer that has ended
WRITTEN = -7.0  # what the consumer writes into an item to see whose memory it is


@dataclass
class RouteRate(Row):
    """Messages of one size over one route: medians over the rounds, in each of which all routes take their turn.

    gain, interval  speed-up over a pickled array of that size
    """

    route: str = column("route")
    kilobytes: float = column("size", "KB")
    messages: int = column("messages sent")
    per_second: float = column("messages/s")
    microseconds: float = column("time of a message", "µs")
    megabytes_per_second: float = column("MB/s")
    gain: float = column("speed-up over pickled")
    interval: str = column("90 % interval")


@dataclass(frozen=True)
class Throughput:
    """The rates of all routes at all sizes; on which routes the producer sees what the consumer writes; whether every message
    was the expected one.

    samples  {bytes of a message: {route, or one of AGAIN: seconds of a message, round by round}}
    """

    rates: list[RouteRate]
    writes_through: dict[str, bool]
    right: bool
    samples: dict[int, dict[str, list[float]]]

    def gain(self, nbytes: int, changed: str, base: str) -> SpeedUp:
        """The speed-up of the route `changed` over `base`, a route of AGAIN, for messages of `nbytes`."""
        times = self.samples[nbytes]
        return speed_up_of(times[base], times[changed], times[AGAIN[base]])


class Exchange:
    """A consumer in a process of its own, and the five routes to it. Use it in a `with` block.

    largest  bytes of the largest message
    method   how the consumer is started
    """

    def __init__(self, largest: int, method: str) -> None:
        context = torch.multiprocessing.get_context(method)
        self.right = True  # every message so far was the one expected, with its stamp at both ends
        self._buffers: list[torch.Tensor] = []
        with contextlib.ExitStack() as undo:
            self._ring = undo.enter_context(Ring(WAITING, (largest // 4,), context=context, deadline_seconds=DEADLINE_SECONDS))
            self._plain, self._handles, self._back = (context.Queue(WAITING) for _ in range(3))
            undo.callback(self._close_queues)
            arguments = (self._plain, self._handles, self._back, self._ring)
            child = undo.enter_context(child_process(_consume, *arguments, context=context, duplex=True))
            self._consumer, self._control = child.process, child.connection
            self._answer(START_SECONDS)  # it has imported torch: from here on it only works
            self._undo = undo.pop_all()

    def __enter__(self) -> "Exchange":
        return self

    def send(self, route: str, source: torch.Tensor, count: int) -> float:
        """Seconds in which `count` tensors like `source` are made, sent over `route`, and checked by the consumer."""
        if route == "reused" and (not self._buffers or self._buffers[0].shape != source.shape):
            self._buffers = [torch.empty_like(source).share_memory_() for _ in range(WAITING)]
        put = getattr(self, f"_put_{route}")
        begin = CLOCK()
        with contextlib.suppress(queue.Full, queue.Empty, TimeoutError, *GONE):  # there is no answer then
            self._control.send((route, count, source.numel(), False))
            begin = CLOCK()
            for number in range(count):
                put(source, number)
        right = self._answer()
        seconds = CLOCK() - begin
        self.right &= right
        return seconds

    def writes_through(self, route: str) -> bool:
        """True if the producer sees what the consumer writes into the item that it received."""
        source = torch.zeros(1024)
        if route == "reused":
            self._buffers = [torch.empty_like(source).share_memory_() for _ in range(WAITING)]
        self._control.send((route, 1, source.numel(), True))
        sent = getattr(self, f"_put_{route}")(source, 0)
        self._answer()
        return bool(sent[0] == WRITTEN)

    def _answer(self, deadline_seconds: float | None = None) -> Any:
        seconds = deadline_seconds or DEADLINE_SECONDS
        try:
            if self._control.poll(seconds):
                return self._control.recv()
        except GONE:
            self._consumer.join(DEADLINE_SECONDS)  # the end of the pipe comes first
        raise LabError(
            f"The consumer sent no answer within {seconds:g} s (exit code {self._consumer.exitcode}).",
            "Is /dev/shm full? `df -h /dev/shm` shows it.",
        )

    # Each makes an item in one pass over its memory, stamps it with its number at both ends, sends it, and returns it.

    def _put_pickle(self, source: torch.Tensor, number: int) -> Any:
        item = _stamp(source.clone(), number).numpy()
        self._plain.put(item, timeout=DEADLINE_SECONDS)
        return item

    def _put_bytes(self, source: torch.Tensor, number: int) -> Any:
        item = _stamp(source.clone(), number)
        self._plain.put(item.numpy().tobytes(), timeout=DEADLINE_SECONDS)
        return item

    def _put_torch(self, source: torch.Tensor, number: int) -> Any:
        item = _stamp(source.clone(), number)
        self._handles.put(item, timeout=DEADLINE_SECONDS)
        return item

    def _put_reused(self, source: torch.Tensor, number: int) -> Any:
        item = self._buffers[number] if number < WAITING else self._back.get(timeout=DEADLINE_SECONDS)
        _stamp(item.copy_(source), number)
        self._handles.put(item, timeout=DEADLINE_SECONDS)
        return item

    def _put_ring(self, source: torch.Tensor, number: int) -> Any:
        with self._ring.filling() as slot:
            item = torch.from_numpy(slot)[: source.numel()]
            _stamp(item.copy_(source), number)
        return item

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._undo:
            if kind is None:
                with contextlib.suppress(OSError, ValueError):  # it has ended already
                    self._control.send(None)
                    self._consumer.join(DEADLINE_SECONDS)

    def _close_queues(self) -> None:
        self._buffers.clear()
        for route in (self._plain, self._handles, self._back):
            route.cancel_join_thread()  # nobody reads what was not sent
            route.close()
        resource_sharer.stop(timeout=5)  # the thread that hands out files, and the handles that were not fetched


def _stamp(item: torch.Tensor, number: int) -> torch.Tensor:
    item[0] = item[-1] = number
    return item


def _consume(control: Any, plain: Any, handles: Any, back: Any, ring: Ring) -> None:
    torch.set_num_threads(1)  # a forked child has lost the parent's other threads
    control.send("ready")
    while (task := control.recv()) is not None:
        route, count, elements, write = task
        right = True
        for number in range(count):
            if route == "ring":
                with ring.reading() as slot:
                    right &= _check(slot[:elements], number, write)
                continue
            item = (plain if route in ("pickle", "bytes") else handles).get(timeout=DEADLINE_SECONDS)
            if route == "bytes":
                item = np.frombuffer(bytearray(item) if write else item, np.float32)
            right &= _check(item, number, write)
            if route == "reused" and number < count - WAITING:  # the last ones are not needed again
                back.put(item, timeout=DEADLINE_SECONDS)
        item = None
        control.send(right)


def _check(item: Any, number: int, write: bool) -> bool:
    right = bool(item[0] == number and item[-1] == number)
    if write:
        item[0] = WRITTEN
    return right


def measure_throughput(sizes: list[int], seconds: float, rounds: int, method: str) -> Throughput:
    """Send messages of each size in bytes over every route.

    seconds  of one sample, of which each route has `rounds`, in turns; those of AGAIN have as many once more
    method   how the consumer is started
    """
    turns = {**{route: route for route in ROUTES}, **{name: route for route, name in AGAIN.items()}}
    samples: dict[int, dict[str, list[float]]] = {}
    sent: dict[tuple[int, str], int] = {}
    with Exchange(max(sizes), method) as exchange:
        through = {route: exchange.writes_through(route) for route in ROUTES}
        for nbytes in sizes:
            source = torch.ones(nbytes // 4)
            first = {route: exchange.send(route, source, 3) / 3 for route in ROUTES}  # warms up too
            count = {route: max(3, min(2000, int(seconds / first[route]))) for route in ROUTES}
            times = samples[nbytes] = {name: [] for name in turns}
            for _ in range(rounds):
                for name, route in turns.items():
                    times[name].append(exchange.send(route, source, count[route]) / count[route])
            sent |= {(nbytes, route): rounds * number for route, number in count.items()}
    found = Throughput([], through, exchange.right, samples)
    for (nbytes, route), messages in sent.items():
        time, gain = median(samples[nbytes][route]), found.gain(nbytes, route, "pickle")
        fields = (1 / time, 1e6 * time, nbytes / time / 1e6, gain.ratio, gain.interval)
        found.rates.append(RouteRate(route, nbytes / 1e3, messages, *fields))
    return found


def crossover_kilobytes(rates: list[RouteRate], slow: str = "pickle", fast: str = "torch") -> float | None:
    """The message size from which `fast` beats `slow` at every larger size, or None if it does not.

    Between two measured sizes it is interpolated in the logarithms. If `fast` wins at all measured sizes, the smallest of them.
    """
    sizes = sorted({rate.kilobytes for rate in rates})
    times = {(rate.route, rate.kilobytes): rate.microseconds for rate in rates}
    ratios = [np.log(times[slow, size] / times[fast, size]) for size in sizes]
    if ratios[-1] < 0:
        return None
    losing = [index for index, ratio in enumerate(ratios) if ratio < 0]
    if not losing:
        return float(sizes[0])
    last = losing[-1]
    share = -ratios[last] / (ratios[last + 1] - ratios[last])
    return float(np.exp(np.log(sizes[last]) + share * (np.log(sizes[last + 1]) - np.log(sizes[last]))))
