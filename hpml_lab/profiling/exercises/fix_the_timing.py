"""Exercise: fix a wrong timing. The devices that judge the answer have clocks of their own, the same on every machine."""

from collections.abc import Callable
from typing import Any

from hpml_lab.core.exercises import Mistake, exercise, expect, same
from hpml_lab.profiling.scripted_device import JITTER, OUTLIERS, ScriptedDevice


def _close(got: Any, right: float) -> bool:
    return same(got, right, tolerance=0.06 * right)


def _timed(answer: Callable, device: ScriptedDevice) -> Any:
    got = answer(device.work, device)
    if got is None:
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if device.calls == 0:
        raise Mistake("never-called", "Your function never calls work(): what does it time?")
    if device.read == 0:
        raise Mistake(
            "another-clock", "Your function never reads device.clock(): the devices of this check know no other time."
        )
    return got


@exercise("fix-the-timing", notebook="09_profiling")
def judge_fix_the_timing(answer: Callable) -> None:
    """Median seconds of one call on devices that each punish one mistake: 10 ms on all of them."""
    right = 0.010
    plain = ScriptedDevice((right,))
    got = _timed(answer, plain)
    if not _close(got, right):
        if same(got, right * 1e3, tolerance=0.6):
            raise Mistake("milliseconds", "Your answer is in milliseconds. Return seconds.")
        if plain.calls > 1 and any(_close(got, right * n) for n in (plain.calls, plain.calls - 1)):
            raise Mistake("total-not-per-call", "Your answer is the time of all calls together. Return the time of one.")
        expect(got, right, case="a device whose calls all take 10 ms", tolerance=0.06 * right)
    if plain.calls < 4:
        raise Mistake(
            "too-few-samples", f"You call work() {plain.calls} times. One to warm up and at least 3 to be timed are needed."
        )

    lazy = ScriptedDevice((right,), lazy=True)
    got = _timed(answer, lazy)
    if lazy.dropped and not _close(got, right):
        raise Mistake(
            "optimised-away",
            "On a device that works only when it must, your answer is too short: nobody held the result of work(), so the work"
            " was never done. Keep the result until you have synchronised.",
        )
    if not _close(got, right):
        raise Mistake(
            "no-synchronise",
            "On a device that works later, your clock stops when the call has returned, not when the work is done.",
        )

    queued = ScriptedDevice((right,), queued=True)
    if not _close(_timed(answer, queued), right):
        raise Mistake(
            "no-synchronise",
            "On a device that works later, your clock stops when the call has returned, not when the work is done.",
        )
    behind = ScriptedDevice((right,), queued=True, backlog=2.0)
    if not _close(_timed(answer, behind), right):
        raise Mistake(
            "starts-on-a-busy-device",
            "On a device that still had 2 s of others' work in its queue, you timed that too. Synchronise before you start.",
        )
    compiling = ScriptedDevice((right,), first=3.0)
    got = _timed(answer, compiling)
    if not _close(got, right):
        raise Mistake(
            "warm-up-counted",
            "On a device whose first call compiles for 3 s, your answer is too long. The first call is no sample.",
        )
    noisy = ScriptedDevice(OUTLIERS)
    got = _timed(answer, noisy)
    if not _close(got, right):
        raise Mistake(
            "mean-not-median",
            "Some calls were disturbed and took 30 times as long. The mean carries them; which figure does not?",
        )
    for uneven in (JITTER, (*JITTER[2:], *JITTER[:2])):  # three calls in a row may lack the shortest, or the longest
        got = _timed(answer, ScriptedDevice(uneven))
        if not _close(got, right):
            low, high = min(JITTER), max(JITTER)
            if _close(got, low):
                raise Mistake(
                    "minimum-not-median", "You return the shortest call. It says what is possible, not what is usual."
                )
            if _close(got, high):
                raise Mistake("maximum-not-median", "You return the longest call, which may be a disturbed one.")
            expect(got, right, case="calls of 10, 8, 10 and 12 ms in turns", tolerance=0.06 * right)
