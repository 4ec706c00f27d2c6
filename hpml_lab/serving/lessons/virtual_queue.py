"""A queue on a virtual clock: nothing sleeps, and time is counted in whole ticks, so that theory can be checked exactly.

One server takes what waits, up to a batch limit, and needs a + b·n ticks for n requests. Requests arrive as a Poisson process
or at any moments. A tick is what you like; here it is a microsecond.

    Little's law      L = λ·W: the mean number of requests in the system is the rate times the mean time each spends there
    M/D/1             W = S·(1 + ρ / (2·(1 − ρ))) for Poisson arrivals, one server and a fixed service of S ticks, ρ = λ·S
    capacity          n / (a + b·n) requests per tick with batches of n; never more than 1 / b
Source: L. Kleinrock, Queueing Systems I (1975), sections 2.1 and 5.6.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hpml_lab.core.system.errors import LabError
from hpml_lab.serving.lessons.traffic import due_times

TICKS_PER_SECOND = 1_000_000


def ticks(seconds: float) -> int:
    """Seconds as whole ticks."""
    return round(seconds * TICKS_PER_SECOND)


def poisson_ticks(rate: float, count: int, seed: int = 0) -> np.ndarray:
    """Arrivals (count,) of a Poisson process in ticks, int64; `rate` in requests per tick."""
    return np.rint(due_times(rate, count, seed)).astype(np.int64)


@dataclass(frozen=True)
class QueueTrace:
    """What became of each request, in ticks and in the order of arrival, and the sizes of the batches in their order."""

    arrivals: np.ndarray
    starts: np.ndarray
    departures: np.ndarray
    batches: np.ndarray

    @property
    def sojourns(self) -> np.ndarray:
        """Ticks from arrival to departure: the latencies."""
        return self.departures - self.arrivals

    @property
    def span(self) -> int:
        """Ticks from the first arrival to the last departure."""
        return int(self.departures.max() - self.arrivals.min())


def simulate(arrivals: Sequence[int], base: int, per_request: int, *, limit: int = 1, window: int = 0) -> QueueTrace:
    """Serve requests in the order of arrival: a batch of n takes base + per_request·n ticks.

    arrivals  ticks, whole numbers that do not fall
    limit     the most requests in a batch
    window    the ticks that the first request waits for others while the batch is not full
    A free server starts at once when the batch is full, or when its first request has waited `window` ticks.
    """
    times = _whole("arrivals", arrivals)
    if len(times) == 0 or (np.diff(times) < 0).any():
        raise LabError("these arrivals are not a trace.", "Give at least one, in an order that does not fall.")
    for name, value, least in (("base", base, 0), ("per_request", per_request, 0), ("limit", limit, 1), ("window", window, 0)):
        if _whole(name, [value])[0] < least:
            raise LabError(f"{name} is {value}.", f"Use a whole number from {least} on.")
    if base + per_request < 1:
        raise LabError("service that takes no time has no queue.", "Give base or per_request at least one tick.")
    if limit == 1:
        return _one_at_a_time(times, base + per_request)
    arrived, count = times.tolist(), len(times)
    starts, departures, batches = [], [], []
    free = first = 0
    while first < count:
        start = max(free, arrived[first])
        if window:
            full = first + limit - 1  # the request that fills the batch
            latest = arrived[first] + window
            start = max(start, min(latest, arrived[full]) if full < count else latest)
        size = min(bisect.bisect_right(arrived, start, first, min(first + limit, count)) - first, limit)
        free = start + base + per_request * size
        starts += [start] * size
        departures += [free] * size
        batches.append(size)
        first += size
    return QueueTrace(times, *(np.array(values, dtype=np.int64) for values in (starts, departures, batches)))


def _one_at_a_time(arrivals: np.ndarray, service: int) -> QueueTrace:
    """Lindley's recursion D_i = max(A_i, D_i−1) + S without a loop: D_i − S·(i + 1) is the largest A_j − S·j up to i."""
    before = service * np.arange(len(arrivals), dtype=np.int64)
    starts = before + np.maximum.accumulate(arrivals - before)
    return QueueTrace(arrivals, starts, starts + service, np.ones(len(arrivals), dtype=np.int64))


def _whole(name: str, values: Sequence[int]) -> np.ndarray:
    """int64, without rounding: a fraction of a tick would make exact statements wrong."""
    found = np.asarray(values)
    if found.ndim != 1 or not (np.issubdtype(found.dtype, np.integer) or found.size == 0):
        raise LabError(f"{name} must be whole ticks.", "Convert seconds with virtual_queue.ticks.")
    return found.astype(np.int64)


@dataclass(frozen=True)
class ServiceModel:
    """What the virtual clock needs to know of a server, in seconds: a batch of n takes base + per_request·n."""

    base: float
    per_request: float
    limit: int

    def trace(self, arrivals: Sequence[int]) -> QueueTrace:
        """Serve the arrivals, in ticks."""
        return simulate(arrivals, ticks(self.base), max(ticks(self.per_request), 1), limit=self.limit)

    @property
    def capacity(self) -> float:
        """Requests a second."""
        return self.limit / (self.base + self.per_request * self.limit)


# ---- Little's law ----------------------------------------------------------------------------------------------------


def number_in_system(arrivals: np.ndarray, departures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ticks, numbers): from each of the ticks on, so many requests are in the system. Arrivals count before departures."""
    moments = np.concatenate([arrivals, departures])
    changes = np.repeat(np.array([1, -1], dtype=np.int64), [len(arrivals), len(departures)])
    order = np.argsort(moments, kind="stable")
    return moments[order], changes[order].cumsum()


def request_ticks(arrivals: np.ndarray, departures: np.ndarray) -> int:
    """Σ over all ticks of the number of requests in the system, counted from the outside; L is this divided by the ticks.

    Little's law in whole numbers: it equals Σ over all requests of departure − arrival, which is what they feel.
    """
    moments, numbers = number_in_system(arrivals, departures)
    return int((numbers[:-1] * np.diff(moments)).sum())


# ---- what the theory says --------------------------------------------------------------------------------------------


def utilization(rate: float, service: float) -> float:
    """ρ = λ·S; raises LabError from 1 on, where there is no steady state."""
    load = rate * service
    if not (load >= 0 and math.isfinite(load)):
        raise LabError(f"a rate of {rate} and a service of {service} give no load.", "Use numbers from 0 on.")
    if load >= 1:
        raise LabError(
            f"at a load of {load:.3g} there is no steady state: requests arrive as fast as one can be served, or faster, and "
            "the queue grows without end.",
            "Lower the rate, or serve faster, for example in batches.",
        )
    return load


def md1_sojourn(rate: float, service: float) -> float:
    """Mean time in the system of M/D/1, W = S·(1 + ρ / (2·(1 − ρ))), in the unit of `service`. LabError for ρ ≥ 1."""
    load = utilization(rate, service)
    return service * (1 + load / (2 * (1 - load)))


def _exact(value: float) -> Fraction:
    """A number as it is written: 0.6 is 3/5, and not the float next to it, so that boundaries are where you expect them."""
    return value if isinstance(value, Fraction) else Fraction(str(float(value)))


def batch_capacity(limit: int, base: float, per_request: float) -> Fraction:
    """What batches of up to `limit` serve: limit / (base + per_request·limit), requests per unit of time, exactly."""
    if limit < 1 or base < 0 or per_request < 0 or base + per_request <= 0:
        raise LabError(
            f"limit {limit}, base {base} and per_request {per_request} are no server.",
            "Use a limit from 1 on, and times above 0.",
        )
    return Fraction(int(limit)) / (_exact(base) + _exact(per_request) * int(limit))


def limit_needed(rate: float, base: float, per_request: float) -> int:
    """The smallest batch limit n with capacity n / (a + b·n) above `rate`: the first n above λ·a / (1 − λ·b).

    Raises LabError where no batch is enough, from λ = 1 / b on.
    """
    rate, base, per_request = map(_exact, (rate, base, per_request))
    if rate < 0 or base < 0 or per_request < 0:
        raise LabError("rates and times are not negative.", "Use numbers from 0 on.")
    if rate * per_request >= 1:
        raise LabError(
            f"no batch limit serves a rate of {float(rate):.4g}: even the largest batches have no steady state from "
            f"{float(1 / per_request):.4g} on.",
            "Lower the rate, or use several servers.",
        )
    return max(1, math.floor(rate * base / (1 - rate * per_request)) + 1)


def require_steady(rate: float, limit: int, base: float, per_request: float) -> None:
    """Raise LabError unless the capacity is above the rate; it names the limit that would be enough, if there is one."""
    capacity = batch_capacity(limit, base, per_request)
    if _exact(rate) < capacity:
        return
    if _exact(rate) * _exact(per_request) < 1:
        fix = f"A batch limit of {limit_needed(rate, base, per_request)} is enough."
    else:
        fix = "No batch limit is enough: lower the rate, or use several servers."
    problem = f"at a rate of {float(rate):.4g} and a capacity of {float(capacity):.4g}, in batches up to {limit},"
    raise LabError(f"{problem} there is no steady state: the queue grows without end.", fix)
