"""The slow trainer and its ladder: what a change may alter, what the check must see, and how the next step is chosen."""

import contextlib
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch

from hpml_lab.core.system.device import Device, choose_device
from hpml_lab.core.timing.ladder import next_change
from hpml_lab.core.timing.laps import Lap
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.timing.threads import one_thread
from hpml_lab.data import load
from hpml_lab.profiling import rung_checks
from hpml_lab.profiling.experiments.profile_loop import TOTAL, RungRow, averaged, rung_row
from hpml_lab.profiling.experiments.profile_loop.trainer_changes import BITS, CHANGES, ROUNDING, SIXTEEN
from hpml_lab.profiling.experiments.profile_loop.trainer_ladder import LadderPlan, TrainerLadder, TrainerRung, part_gain
from hpml_lab.profiling.lessons.slow_and_fast import write_folder
from hpml_lab.profiling.lessons.slow_trainer import (
    PARTS,
    WRONG,
    SlowTrainer,
    TrainerSwitches,
    TrainingHistory,
    largest_difference,
)
from hpml_lab.profiling.tools import part_clock
from hpml_lab.profiling.tools.part_clock import PartClock

CPU = torch.device("cpu")
BEST = dict(
    decode_once=True,
    batch_transform=True,
    prepare_once=True,
    late_log=True,
    batch_evaluation=True,
    debug_off=True,
    library_layers=True,
    drop_gradients=True,
    fused_adam=True,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("images"), load("digits"), 96, 12)


@pytest.fixture(scope="module")
def after(folder):
    """(switches) -> the history of six iterations with them."""

    @one_thread()
    def run(clock=None, **switches):
        return SlowTrainer(folder, TrainerSwitches(**switches), CPU, batch=32, look=3).run(6, clock)

    return run


@pytest.fixture(scope="module")
def slow(after):
    return after()


def test_the_slow_trainer_logs_each_iteration_and_looks_at_the_test_images(slow):
    assert len(slow.losses) == len(slow.rights) == 6 and len(slow.tests) == 2
    assert slow.losses[0] > 1.5 and all(0 <= right <= 32 for right in slow.rights)
    assert len(set(slow.losses)) == 6


@pytest.mark.parametrize("step", [change for change in CHANGES if not change.needs], ids=lambda change: change.switch)
def test_each_change_alone_leaves_the_losses_as_they_were(after, slow, step):
    switches = {step.switch: True} | ({step.on: True} if step.on else {})
    assert largest_difference(slow, after(**switches)) <= step.bound


def test_the_best_trainer_has_the_slow_one_s_losses(after, slow):
    assert 0 < largest_difference(slow, after(**BEST)) <= ROUNDING


def test_16_bits_stay_within_their_bound_and_outside_the_one_for_rounding_in_32(after, slow):
    assert ROUNDING / 10 < largest_difference(slow, after(**BEST, bfloat16=True)) <= SIXTEEN


@pytest.mark.parametrize("wrong", WRONG)
def test_the_check_sees_every_tempting_mistake(after, slow, wrong):
    assert largest_difference(slow, after(wrong=wrong)) > ROUNDING
    assert largest_difference(slow, after(**BEST, wrong=wrong)) > ROUNDING


def test_evaluation_in_training_mode_is_seen_in_the_test_losses_though_training_goes_on_unharmed(after, slow):
    found = after(wrong="evaluate in training mode", batch_evaluation=True)
    assert found.losses == slow.losses and found.tests != slow.tests


def test_the_difference_of_histories_is_0_only_for_equal_bits():
    one = TrainingHistory([2.0, 1.0], [3, 4], [1.5])
    assert largest_difference(one, TrainingHistory([2.0, 1.0], [3, 4], [1.5])) == BITS
    assert largest_difference(one, TrainingHistory([2.0, 1.5], [3, 4], [1.25])) == 0.5
    assert largest_difference(one, TrainingHistory([2.0], [3], [1.5])) == float("inf")
    assert largest_difference(one, TrainingHistory([2.0, 1.0], [3, 5], [1.5])) == float("inf"), "equal losses, other answers"
    assert not largest_difference(one, TrainingHistory([2.0, float("nan")], [3, 4], [1.5])) <= SIXTEEN
    assert not largest_difference(one, TrainingHistory([float("nan"), 1.0], [3, 4], [1.5])) <= SIXTEEN


def test_a_difference_after_the_start_of_a_run_is_not_taken_for_the_same_bits(folder):
    ladder = TrainerLadder(
        folder, choose_device("cpu"), LadderPlan(iterations=4, profiled=2, batch=32, look=2, turns=1), compile=False
    )
    one = TrainingHistory([2.0, 1.5, 1.25, 1.0], [1, 2, 3, 4], [1.5, 1.0])
    late = TrainingHistory([2.0, 1.5, 1.25, 0.5], [1, 2, 3, 4], [1.5, 1.0])
    early = TrainingHistory([2.0, 1.25, 1.0, 0.25], [1, 2, 3, 4], [1.5, 1.0])
    assert ladder.off(one, one) == BITS
    assert ladder.off(one, late) == 0.5
    assert ladder.off(one, early) == 0.25, "later, rounding differences grow"


def test_the_clock_fills_every_part_and_changes_nothing(after, slow):
    clock = PartClock(CPU, PARTS)
    assert after(clock) == slow
    assert set(clock.seconds) == set(PARTS)
    assert all(clock.seconds[part] > 0 for part in PARTS)


def test_a_clock_takes_parts_of_any_name_and_counts_inner_time_for_the_inner_one(monkeypatch):
    readings = iter([0, 2, 7, 8, 10, 11])
    monkeypatch.setattr(part_clock, "time", SimpleNamespace(perf_counter=lambda: next(readings)))
    clock = PartClock()
    with clock.timed("mine"), clock.timed("theirs"):
        pass
    with pytest.raises(ZeroDivisionError), clock.timed("fails"):
        1 / 0  # noqa: B018
    assert clock.seconds == {"mine": 3, "theirs": 5, "fails": 1}


def test_the_next_step_is_the_largest_part_s_first_that_can_be_taken():
    steps = [change for change in CHANGES if not change.needs]
    profile = dict.fromkeys(PARTS, 1.0) | {"transform": 5.0, "logging": 3.0}
    assert next_change(profile, steps, TrainerSwitches()).switch == "batch_transform"
    left = [change for change in steps if change.switch != "batch_transform"]
    assert next_change(profile, left, TrainerSwitches()).switch == "late_log", "prepare_once needs decode_once"
    assert next_change(profile, left, TrainerSwitches(decode_once=True)).switch == "prepare_once"
    assert next_change(profile, [], TrainerSwitches()) is None


def test_gain_and_total_are_how_many_times_as_fast_a_trainer_is(folder, monkeypatch):
    ladder = TrainerLadder(
        folder, choose_device("cpu"), LadderPlan(iterations=2, profiled=2, batch=32, look=2, turns=2), compile=False
    )
    with one_thread():
        slow, fast = ladder.make(TrainerSwitches()), ladder.make(TrainerSwitches(debug_off=True))
        below = ladder.assess(slow, None, None, None)
        seconds = {TrainerSwitches(): 6.0, TrainerSwitches(debug_off=True): 2.0}

        def timed(made, clock=None):
            if clock:
                clock.seconds = dict.fromkeys(PARTS, 1.0)
            return Lap(seconds[made.switches]), below.history

        monkeypatch.setattr(ladder, "timed", timed)
        found = ladder.assess(fast, next(change for change in CHANGES if change.switch == "debug_off"), slow, below)
        assert (found.gain.ratio, found.gain.noise) == (3, 0) and found.gain.faster
        assert found.seconds == below.seconds / 3, "as it compares in turns"
        assert found.part_gain.ratio == 1 and found.profile == dict.fromkeys(PARTS, 0.5), "of two iterations"
        assert ladder.total(found).ratio == 3


def test_a_change_is_kept_only_where_it_gains_and_is_right():
    sure, within = SpeedUp(1.1, 1.08, 1.12, 0.01), SpeedUp(1.03, 1.02, 1.04, 0.05)
    change = next(change for change in CHANGES if change.switch == "drop_gradients")
    rung = TrainerRung(change, TrainerSwitches(drop_gradients=True), {}, 1.0, sure)
    assert replace(rung, gain=within, part_gain=sure).kept, "its part became faster"
    assert rung.kept and not replace(rung, gain=within).kept and not replace(rung, difference=0.1).kept
    digits = next(change for change in CHANGES if change.switch == "bfloat16")
    assert replace(rung, change=digits).kept
    few = replace(rung, change=digits, gain=replace(sure, low=1.04), part_gain=sure)
    assert not few.kept, "digits are given up for 5 % of the whole at least"


def test_the_gain_of_a_part_is_infinite_where_nothing_is_left_of_it():
    had, has = [(Lap(1.0), {"copy": 4.0, "forward": 0.0})] * 9, [(Lap(1.0), {"copy": 2.0, "forward": 1.0})] * 8
    assert part_gain("copy", had, has).ratio == 2 and part_gain("forward", had, has) is None
    gone = part_gain("copy", had, [(Lap(1.0), {"copy": 0.0})] * 8)
    assert gone.faster and gone.ratio == float("inf")


def test_a_profile_is_of_one_iteration(folder, monkeypatch):
    ladder = TrainerLadder(
        folder, choose_device("cpu"), LadderPlan(iterations=4, profiled=2, batch=32, look=2, turns=3), compile=False
    )

    class SixSeconds(PartClock):
        def _turn(self):
            self.seconds = dict.fromkeys(PARTS, 6.0)

    with one_thread():
        made = ladder.make(TrainerSwitches(**BEST))
        start = made.run(2)
        monkeypatch.setattr("hpml_lab.profiling.experiments.profile_loop.trainer_ladder.PartClock", SixSeconds)
        monkeypatch.setattr(ladder, "timed", lambda _: (Lap(0.02), start))
        rung = ladder.assess(made, None, None, None)
        assert rung.repeats
        monkeypatch.setattr(ladder, "timed", lambda _: (Lap(0.02), replace(start, losses=[0.0, 0.0])))
        assert not ladder.assess(made, None, None, None).repeats, "a run left other bits"
    assert rung.profile == dict.fromkeys(PARTS, 3.0) and rung.share("input") == 1 / len(PARTS)
    assert rung.seconds == 0.02 and rung.once == made.once > 0


def test_a_tempting_mistake_is_reported_with_how_much_faster_it_looks(folder, monkeypatch):
    ladder = TrainerLadder(
        folder, choose_device("cpu"), LadderPlan(iterations=2, profiled=2, batch=32, look=2, turns=3), compile=False
    )
    best = TrainerRung(None, TrainerSwitches(**BEST), {}, 1.0, history=TrainingHistory([2.0, 1.5], [3, 4], [1.5]))
    wrong = TrainingHistory([2.25, 1.0], [3, 4], [1.5])
    timed = lambda made: (Lap(0.5), wrong) if made.switches.wrong else (Lap(2.0), best.history)  # noqa: E731
    monkeypatch.setattr(ladder, "timed", timed)
    monkeypatch.setattr(SlowTrainer, "run", lambda made, iterations: wrong if made.switches.wrong else best.history)
    with one_thread():
        rows = ladder.try_mistakes(best)
    assert [row.mistake for row in rows] == list(WRONG)
    for row in rows:
        assert (row.gain, row.difference, row.losses, row.tests) == (4, 0.5, [2.25, 1.0], [1.5])
        assert row.allowed == (ROUNDING if row.mistake == "half a batch" else BITS)


def test_a_row_says_the_most_that_the_part_alone_could_give():
    step = next(change for change in CHANGES if change.switch == "batch_transform")
    history = TrainingHistory([2.0], [3], [1.5])
    before, fixed = (dict.fromkeys(PARTS, 0.0) | {"transform": seconds, "input": 0.1} for seconds in (0.3, 0.05))
    below = TrainerRung(None, TrainerSwitches(), before, 0.5, history=history)
    gain = SpeedUp(2.5, 2.4, 2.6, 0.01)
    after = TrainerRung(step, TrainerSwitches(batch_transform=True), fixed, 0.2, gain, SpeedUp(6, 5, 7, 0), history, 0.25)
    row = rung_row(after, below)
    assert (row.gain, row.interval, row.verdict) == (2.5, "2.4 to 2.6", "faster")
    assert (row.part_gain, row.part_interval) == (6, "5 to 7")
    nothing = SpeedUp(float("inf"), float("inf"), float("inf"), 0)
    assert rung_row(replace(after, part_gain=nothing), below).part_interval == "nothing of it is left"
    assert row.most_by_part == pytest.approx(4), "three quarters gone: a quarter is left"
    assert (row.part_ms_before, row.part_ms_after, row.ms) == pytest.approx((300, 50, 200))
    assert row.largest_before == "transform" and row.once_seconds == after.once == 0.25


def test_every_switch_is_a_step_and_every_step_a_switch():
    assert sorted(change.switch for change in CHANGES) == sorted(
        field.name for field in fields(TrainerSwitches) if field.name != "wrong"
    )
    assert {change.part for change in CHANGES} <= set(PARTS)


def test_neighboring_rungs_differ_in_one_switch_and_a_wrong_step_would_be_taken_back(folder):
    plan = LadderPlan(iterations=4, profiled=4, batch=32, look=2, turns=1)
    with one_thread():
        rungs = list(TrainerLadder(folder, choose_device("cpu"), plan, compile=False).climb(TrainerSwitches()))
    below = rungs[0]
    for rung in rungs[1:]:
        changed = [
            field.name
            for field in fields(TrainerSwitches)
            if getattr(rung.switches, field.name) != getattr(below.switches, field.name)
        ]
        assert changed == [rung.change.switch]
        part = rung.part_gain is not None and rung.part_gain.faster and not rung.gain.slower
        assert rung.kept <= (rung.same and (rung.gain.faster or part))
        below = rung if rung.kept else below
    assert len(rungs) > 8


class AsOnGpu(Device):
    """The CPU, which takes itself for a GPU: the ladder then sets cuDNN."""

    is_cuda = True


def test_a_ladder_is_climbed_twice_and_judged_with_settings_that_can_be_entered_only_once(folder, monkeypatch):
    entered, inside = [], []

    @contextlib.contextmanager
    def flags(**settings):
        entered.append(settings)
        inside.append("flags")
        yield
        inside.pop()

    def run(trainer, iterations, clock=None):
        assert inside == ["flags"]
        return TrainingHistory([2.0] * iterations, [1] * iterations, [])

    monkeypatch.setattr(torch.backends.cudnn, "flags", flags)
    monkeypatch.setattr(SlowTrainer, "run", run)
    cpu = choose_device("cpu")
    plan = LadderPlan(iterations=2, profiled=2, batch=8, look=2, turns=1)
    ladder = TrainerLadder(folder, AsOnGpu(cpu.torch, cpu.reason, cpu.dtype, cpu.dtype_reason), plan, compile=False)
    ladder.changes = [step for step in CHANGES if not step.needs]
    for _ in range(2):
        best = list(ladder.climb(TrainerSwitches()))[-1]
    assert ladder.total(best).ratio > 0 and len(ladder.try_mistakes(best)) == len(WRONG)
    assert ladder.floor(best) == 0 and inside == []
    assert entered == [dict(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)] * 5


def test_the_experiment_is_sound_and_shows_at_least_six_steps(sound, ran):
    result = ran("profile-loop")
    sound(result)
    rows = result.rows(RungRow)
    assert len(rows) >= 6 and result.here(TOTAL) > 1
    assert all(row.verdict == "faster" or row.part_gain > 1 and row.verdict != "slower" for row in rows if row.kept)
    assert len(rung_checks(result).figure.axes) == 2
    assert averaged([4.0, 2.0, 3.0, 1.0, 5.0], points=2) == ([1.5, 3.5, 5.0], [3.0, 2.0, 5.0])
    assert any("No CUDA GPU" in note for note in result.notes)


@pytest.mark.cuda
def test_on_a_gpu_the_steps_for_it_are_tried_and_right(folder):
    plan = LadderPlan(iterations=4, profiled=4, batch=32, look=2, turns=1)
    with one_thread():
        rungs = list(TrainerLadder(folder, choose_device("cuda"), plan, compile=False).climb(TrainerSwitches()))
    tried = {rung.change.switch: rung for rung in rungs[1:]}
    kept = {switch for switch, rung in tried.items() if rung.kept}
    assert "pinned_copy" in tried
    for switch, on in (("channels_last", "library_layers"), ("stay_on_device", "prepare_once")):
        assert (switch in tried) == (on in kept)
    assert all(rung.same and rung.repeats for rung in rungs)
