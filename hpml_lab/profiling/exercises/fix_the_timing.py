"""Exercise: fix a wrong timing. The devices that judge the answer have clocks of their own, the same on every machine."""

import copy
import weakref
from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.mistake import Mistake

JITTER = (0.010, 0.008, 0.010, 0.012)  # seconds; the median of any three or more calls in a row is 10 ms
OUTLIERS = (0.010, 0.010, 0.010, 0.300, 0.010, 0.010, 0.010, 0.010)


class Handle:
    """What a call returns; a lazy device drops the work of a handle that nobody holds."""


class ScriptedDevice:
    """A device with a clock of its own, which only calls and waits move forward.

    cycle     seconds of the calls' work, again and again
    first     seconds of the very first call's work, where it differs
    queued    calls return after `launch` seconds, and the work is done one after the other
    backlog   seconds of work that the queue holds from before
    lazy      work is done at the next synchronize, and only where its result is still held
    """

    def __init__(
        self,
        cycle: tuple[float, ...],
        first: float | None = None,
        *,
        queued: bool = False,
        backlog: float = 0.0,
        lazy: bool = False,
    ) -> None:
        self._cycle, self._first, self._queued, self._lazy = cycle, first, queued, lazy
        self._now, self._free = 100.0, 100.0 + backlog
        self._held: list[tuple[Any, float]] = []
        self.calls, self.read, self.synchronized, self.dropped = 0, 0, 0, 0

    def clock(self) -> float:
        """Seconds, as the host sees them."""
        self.read += 1
        return self._now

    def synchronize(self) -> None:
        """Wait until all is done."""
        self.synchronized += 1
        for handle, seconds in self._held:
            if handle() is None:
                self.dropped += 1
            else:
                self._free = max(self._free, self._now) + seconds
        self._held.clear()
        self._now = max(self._now, self._free)

    def work(self) -> Handle:
        """Hand in one piece of work."""
        if self.calls >= 10_000:
            raise Mistake("never-ends", "work() was called 10 000 times. || Make a fixed number of calls, say 10.")
        first = self._first is not None and self.calls == 0
        seconds = self._first if first else self._cycle[(self.calls - (self._first is not None)) % len(self._cycle)]
        self.calls += 1
        handle = Handle()
        if self._lazy:
            self._held.append((weakref.ref(handle), seconds))
            self._now += 1e-5
        elif self._queued:
            self._free = max(self._free, self._now) + seconds
            self._now += 1e-5
        else:
            self._now += seconds
        return handle


def _close(got: float, right: float) -> bool:
    return abs(got - right) <= 0.06 * abs(right)


_LATER = "On a device that works later, your clock stops when the call has returned, not when the work is done."
_BUSY = "On a device that works later, your answer is too long: when your clock started, the queue still held earlier calls, "
_BUSY += "such as your warm-up. Synchronize before you start."
_BEHIND = "On a device that still had 2 s of others' work in its queue, you timed that too. Synchronize before you start."
_COMPILES = "On a device whose first call compiles for 3 s, your answer is too long. The first call is no sample."


def _expect(got: float, right: float, case: str, device: ScriptedDevice) -> None:
    """Raise a Mistake unless the answer is close enough. `device` is one that has not been used, to try the answer with."""
    expect(got, right, case=case, tolerance=0.06 * right, given=(device.work, device))


def _timed(answer: Callable, device: ScriptedDevice) -> float:
    got = answer(device.work, device)
    if device.calls == 0:
        raise Mistake("never-called", "Your function never calls work(). || Call work() between two readings of the clock.")
    if device.read == 0:
        raise Mistake("another-clock", "Your function never reads device.clock(). || No device knows another time.")
    return float(got)


def _check_plain(got: float, right: float, device: ScriptedDevice) -> None:
    """Raise the Mistake of an answer for a device whose calls all take `right` seconds."""
    if (device.calls, device.read, device.synchronized) == (10, 2, 0):
        raise Mistake(
            "the-original", "This is the function of the text. || What does the clock of the function in the text not see?"
        )
    if _close(got, right):
        return
    if _close(got / 1e3, right):
        raise Mistake("milliseconds", "Your answer is in milliseconds. || Return seconds.")
    if _close(got / 1e6, right) or _close(got / 1e9, right):
        raise Mistake("microseconds", "Your answer is in micro- or nanoseconds. || Return seconds.")
    if _close(got, -right):
        raise Mistake("negative", "Your answer is negative. || Subtract the beginning from the end.")
    if device.calls > 1 and any(_close(got, right * n) for n in (device.calls, device.calls - 1)):
        raise Mistake("total-not-per-call", "Your answer is the time of all calls together. || Return the time of one call.")
    ratios = [n / (n + 1) for n in (device.calls, device.calls - 1) if n > 0]
    if any(_close(got, right * ratio) or _close(got, right / ratio) for ratio in ratios):
        raise Mistake("wrong-count", "You count one call too many or too few. || Divide by the calls between the two readings.")
    _expect(got, right, "a device whose calls all take 10 ms", ScriptedDevice((right,)))


@exercise("fix-the-timing", notebook="10_profiling", takes="work, device", returns=float)
def judge_fix_the_timing(answer: Callable) -> None:
    """Median seconds of one call on devices that each punish one mistake: 10 ms on all of them but one, where it is 25 ms."""
    right = 0.010
    plain = ScriptedDevice((right,))
    _check_plain(_timed(answer, plain), right, plain)
    if plain.calls < 4:
        raise Mistake(
            "too-few-samples", f"You call work() {plain.calls} times. One to warm up and at least 3 to be timed are needed."
        )

    lazy = ScriptedDevice((right,), lazy=True)
    got = _timed(answer, lazy)
    if lazy.dropped and not _close(got, right):
        raise Mistake(
            "optimized-away",
            "Your answer is too short on a device that works only when it must. || Where nobody holds the result of work(), "
            "such a device never does the work. Keep the result until the device is synchronized.",
        )
    if not _close(_timed(answer, ScriptedDevice((2.5 * right,))), 2.5 * right):
        raise Mistake("constant", "Not 25 ms where calls take 25 ms. || Devices differ: return what is measured.")
    queued = ScriptedDevice((right,), queued=True)
    for seconds in (got, _timed(answer, queued)):
        if not _close(seconds, right):
            raise Mistake("starts-on-a-busy-device", _BUSY) if seconds > right else Mistake("no-synchronize", _LATER)
    behind, compiling = ScriptedDevice((right,), queued=True, backlog=2.0), ScriptedDevice((right,), first=3.0)
    for device, mistake, hint in ((behind, "starts-on-a-busy-device", _BEHIND), (compiling, "warm-up-counted", _COMPILES)):
        if not _close(_timed(answer, device), right):
            raise Mistake(mistake, hint)
    noisy = ScriptedDevice(OUTLIERS)
    got = _timed(answer, noisy)
    if _close(got, max(OUTLIERS)):
        raise Mistake("maximum-not-median", "You return the longest call. || The longest call may be a disturbed one.")
    if not _close(got, right):
        raise Mistake(
            "mean-not-median",
            "Some calls are disturbed and take 30 times as long. The mean carries them; which figure does not?",
        )
    for uneven in (JITTER, (*JITTER[2:], *JITTER[:2])):  # three calls in a row may lack the shortest, or the longest
        got = _timed(answer, ScriptedDevice(uneven))
        if not _close(got, right):
            low, high = min(JITTER), max(JITTER)
            if _close(got, low):
                raise Mistake("minimum-not-median", "You return the shortest call. || The shortest is possible, not usual.")
            if _close(got, high):
                raise Mistake("maximum-not-median", "You return the longest call. || The longest call may be a disturbed one.")
            _expect(got, right, "calls of 10, 8, 10 and 12 ms in turns", ScriptedDevice(uneven))
    if not _close(_timed(answer, ScriptedDevice((max(OUTLIERS), *OUTLIERS[4:]), first=3.0)), right):
        hint = "A first call compiles, and the next one is disturbed and takes 30 times as long. Yours is not the usual time."
        raise Mistake("mean-not-median", f"{hint} || Take enough samples, however long the first call takes.")
    draw = drawn()
    right = draw.uniform(0.002, 0.05)
    hidden = ScriptedDevice((right,), first=draw.uniform(1, 5), queued=True, backlog=draw.uniform(0.5, 3))
    unused = copy.deepcopy(hidden)
    case = f"a device drawn for this check, which compiles first, works later, and takes {1e3 * right:.3g} ms"
    _expect(_timed(answer, hidden), right, case, unused)
