"""What the loops and devices of notebook 10's exercises are."""

from statistics import median

import pytest

from hpml_lab.core.judge.exercises import check
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.profiling.exercises.fix_the_timing import ScriptedDevice
from hpml_lab.profiling.exercises.next_step import CALLERS, loop_profile, part_to_fix


@pytest.mark.parametrize("seed", range(12))
def test_a_loop_is_the_same_each_time_and_every_wrong_way_is_wrong_on_it(seed):
    rows, fixed = loop_profile(seed)
    assert (rows, fixed) == loop_profile(seed)
    right = part_to_fix(rows, fixed)
    left = [row for row in rows if row["part"] not in fixed]
    assert right not in fixed and right not in CALLERS
    assert right != max(left, key=lambda row: row["total"])["part"] != max(left, key=lambda row: row["calls"])["part"] != right
    assert sum(row["self"] == max(row["self"] for row in left) for row in left) == 1, "no doubt about the largest"
    if fixed:
        assert max(rows, key=lambda row: row["self"])["part"] in fixed


def test_a_queued_device_returns_at_once_and_a_lazy_one_drops_what_nobody_holds():
    queued, lazy = ScriptedDevice((1.0,), queued=True), ScriptedDevice((1.0,), lazy=True)
    start = queued.clock()
    queued.work()
    assert queued.clock() - start < 1e-3
    queued.synchronize()
    assert queued.clock() - start == pytest.approx(1.0)
    lazy.work()
    lazy.synchronize()
    assert lazy.dropped == 1
    held = lazy.work()
    start = lazy.clock()
    lazy.synchronize()
    assert lazy.dropped == 1 and lazy.clock() - start == pytest.approx(1.0, abs=1e-3)
    del held


@pytest.mark.parametrize("calls", [3, 4, 5, 6, 7, 8, 10, 30])
@pytest.mark.parametrize("warm", [1, 2, 3, 4])
def test_a_median_is_right_however_many_calls_it_is_of_and_the_shortest_call_never(warm, calls):
    def timed_by(figure):
        def timed(work, device):
            kept, samples = [work() for _ in range(warm)], []
            for _ in range(calls):
                device.synchronize()
                begin = device.clock()
                kept.append(work())
                device.synchronize()
                samples.append(device.clock() - begin)
            return figure(samples)

        return timed

    assert check("fix-the-timing", timed_by(median)).state == "right"
    assert check("fix-the-timing", timed_by(min)).mistake == "minimum-not-median"


def test_a_timing_that_calls_without_end_is_stopped():
    device = ScriptedDevice((1.0,))
    with pytest.raises(Mistake, match="never-ends"):
        while True:
            device.work()
