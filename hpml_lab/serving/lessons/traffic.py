"""Traffic for a server: requests that arrive at random and do not wait for each other, and their latency.

Requests of many users arrive independently: the gaps between them are exponential (a Poisson process), and nobody waits for
another's answer (an open loop), as in the Server scenario of MLPerf Inference. A latency counts from the moment at which a
request was due. Counted from the moment at which the client came to send it, a late client hides the waiting that it caused:
"coordinated omission" (Gil Tene, 2015).
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from hpml_lab.core.system.errors import LabError

CLOCK = time.perf_counter  # seconds
SHARES = (50, 95, 99)  # the percentiles that are reported


@dataclass(frozen=True)
class Request:
    """One request: when it was due, when it was sent and when its answer arrived, in seconds from the start of the traffic.

    error  what went wrong, in one line; empty for a request that was answered
    """

    due: float
    sent: float
    done: float
    error: str = ""

    @property
    def latency(self) -> float:
        """Seconds from due to done: what a user waits."""
        return self.done - self.due


def due_times(rate: float, count: int, seed: int = 0) -> np.ndarray:
    """The moments (count,) at which requests of a Poisson process are due, in seconds: the gaps have the mean 1 / rate."""
    if not (math.isfinite(rate) and rate > 0):
        raise LabError(f"a rate of {rate} requests a second is no traffic.", "Use a number above 0.")
    if isinstance(count, bool) or count != int(count) or count < 1:
        raise LabError(f"{count} requests are no traffic.", "Use a whole number from 1 on.")
    return np.random.default_rng(seed).exponential(1 / rate, int(count)).cumsum()


def open_loop(submit: Callable[[int], Future], due: Sequence[float], *, timeout_seconds: float = 30.0) -> list[Request]:
    """Send request i at the moment due[i], without waiting for answers, and return the requests in the order of `due`.

    submit           (index) -> a Future; it returns at once. For a client that waits for its answer: the `submit` of a thread
                     pool with a thread for each request that may be under way
    due              seconds from the start, increasing; a request whose moment has passed is sent at once
    timeout_seconds  after the last request was sent: what has no answer by then has the error "no answer within … s"

    A request that fails, also in `submit`, has an error; the others go on.
    """
    done: dict[int, float] = {}
    futures: list[Future] = []
    sent: list[float] = []
    stamped = threading.Semaphore(0)
    start = CLOCK()

    def stamp(index: int, _future: Future) -> None:
        done[index] = CLOCK() - start
        stamped.release()

    for index, moment in enumerate(due):
        if (seconds := start + moment - CLOCK()) > 0:
            time.sleep(seconds)
        sent.append(CLOCK() - start)
        try:
            future = submit(index)
        except Exception as error:  # a server that takes no more requests, for example
            future = Future()
            future.set_exception(error)
        future.add_done_callback(partial(stamp, index))
        futures.append(future)
    deadline = CLOCK() + timeout_seconds
    for _ in futures:  # each stamp, not each future: a future is done a little before its callbacks run
        if not stamped.acquire(timeout=max(deadline - CLOCK(), 0)):
            break
    end, done = CLOCK() - start, dict(done)  # what is answered from here on comes too late
    return [
        Request(float(due[index]), sent[index], done.get(index, end), _error(future, index in done, timeout_seconds))
        for index, future in enumerate(futures)
    ]


def _error(future: Future, answered: bool, timeout_seconds: float) -> str:
    if not answered:
        return f"no answer within {timeout_seconds:g} s"
    if future.cancelled():
        return "cancelled"
    error = future.exception()
    return "" if error is None else f"{type(error).__name__}: {' '.join(str(error).split())}"


def closed_loop(call: Callable[[int], object], due: Sequence[float]) -> list[Request]:
    """The same requests from one client that waits for each answer before it sends the next one, so that it falls behind."""
    requests, start = [], CLOCK()
    for index, moment in enumerate(due):
        if (seconds := start + moment - CLOCK()) > 0:
            time.sleep(seconds)
        sent, error = CLOCK() - start, ""
        try:
            call(index)
        except Exception as raised:
            error = f"{type(raised).__name__}: {' '.join(str(raised).split())}"
        requests.append(Request(float(moment), sent, CLOCK() - start, error))
    return requests


def percentiles(latencies: Iterable[float], shares: Sequence[float] = SHARES) -> tuple[float, ...]:
    """For each share p the smallest latency that at least p % of the requests do not exceed (nearest rank), in their unit."""
    latencies = np.asarray(list(latencies))
    if not latencies.size:
        raise LabError("there are no latencies to take percentiles of.", "Send at least one request that is answered.")
    if np.isnan(latencies).any():
        raise LabError("some latencies are NaN.", "Leave out the requests without an answer, and count them apart.")
    ordered = np.sort(latencies)
    return tuple(ordered[nearest_rank(share, ordered.size) - 1].item() for share in shares)


def nearest_rank(share: float, count: int) -> int:
    """The smallest rank k from 1 on with k ≥ share % of `count`; in fractions, because 7 / 100 · 100 is above 7 in floats."""
    if not 0 <= share <= 100:
        raise LabError(f"{share} is not a percentile.", "Use numbers from 0 to 100.")
    return max(math.ceil(Fraction(str(share)) * count / 100), 1)


@dataclass(frozen=True)
class TrafficSummary:
    """What the users of a server saw: answers per second, latency from the moment due in seconds, and failures.

    late  the share of the requests that were sent more than a millisecond after they were due: if it is large, the client was
          too slow, and the traffic is less random than it should be
    """

    requests: int
    failed: int
    throughput: float
    p50: float
    p95: float
    p99: float
    late: float


def summary(requests: Sequence[Request]) -> TrafficSummary:
    """Throughput and percentiles of the requests that were answered; the others are counted in `failed`.

    Throughput is answers / (last answer − first moment due). Without any answer it is 0 and the latencies are infinite.
    """
    answered = [request for request in requests if not request.error]
    late = sum(request.sent - request.due > 1e-3 for request in requests) / max(len(requests), 1)
    failed = len(requests) - len(answered)
    if not answered:
        return TrafficSummary(len(requests), failed, 0.0, math.inf, math.inf, math.inf, late)
    seconds = max(request.done for request in answered) - min(request.due for request in requests)
    found = percentiles(request.latency for request in answered)
    return TrafficSummary(len(requests), failed, len(answered) / seconds, *found, late)
