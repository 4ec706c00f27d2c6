"""The ladder: which change is next, what is kept, when the turns end, and a compiler that fails."""

from dataclasses import dataclass

import pytest

from hpml_lab.core.system.device import choose_device
from hpml_lab.core.timing.ladder import Change, Ladder, Rung, gain_in_turns, in_turns
from hpml_lab.core.timing.laps import Lap
from hpml_lab.core.timing.noise import SpeedUp


@dataclass(frozen=True)
class Switches:
    cached: bool = False
    batched: bool = False
    compiled: bool = False
    risky: bool = False


class Checked(Rung):
    same = True


SECONDS = {"input": 4.0, "forward": 2.0}
CHANGES = [
    Change("batched", "forward", "one call a batch", 0.0),
    Change("compiled", "forward", "fused", 1e-3),
    Change("cached", "input", "read once", 0.0, on="batched"),
    Change("risky", "input", "skipped", 0.0),
]


class Small(Ladder):
    """Batches gain, caching gains, skipping is wrong; `compiled` raises `error`."""

    error = RuntimeError("no compiler\nfound")

    def make(self, switches):
        return switches

    def assess(self, made, change, below, rung):
        if made.compiled:
            raise self.error
        profile = {"input": 1.0 if made.cached else 4.0, "forward": 1.0 if made.batched else 2.0}
        found = Checked(change, made, profile, sum(profile.values()), SpeedUp(2, 1.9, 2.1, 0) if change else None)
        if made.risky:
            object.__setattr__(found, "same", False)
        return found


def test_each_rung_is_chosen_from_the_profile_below_and_a_wrong_one_is_taken_back():
    ladder = Small(choose_device("cpu"), CHANGES)
    rungs = list(ladder.climb(Switches()))
    assert [rung.change and rung.change.switch for rung in rungs] == [None, "risky", "batched", "cached"]
    assert [rung.kept for rung in rungs] == [True, False, True, True]
    assert rungs[-1].switches == Switches(cached=True, batched=True)
    assert rungs[0].largest == "input" and rungs[0].share("input") == pytest.approx(2 / 3)
    assert ladder.notes == ["compiled was not tried: RuntimeError: no compiler. torch.compile needs a C++ compiler (g++)."]
    assert len(ladder.changes) == len(CHANGES), "a ladder can be climbed again"


def test_a_change_stays_that_gains_in_its_part_alone_beyond_noise_unless_the_whole_becomes_slower():
    """As the capstone on a busy machine: a part 22 times as fast, and the whole within a noise of 35 %."""
    faster, noise, slower = SpeedUp(22.8, 20, 25, 0.4), SpeedUp(1.2, 0.9, 1.5, 0.35), SpeedUp(0.7, 0.6, 0.8, 0.01)

    def kept(gain, part_gain, same=True):
        rung = Checked(CHANGES[0], Switches(), SECONDS, 1.0, gain, part_gain)
        object.__setattr__(rung, "same", same)
        return rung.kept

    assert kept(noise, faster) and kept(faster, noise) and kept(faster, None)
    assert not kept(noise, noise) and not kept(noise, None) and not kept(slower, faster)
    assert not kept(faster, faster, same=False), "right first"


def test_laps_are_compared_by_one_clock_for_all():
    """The work computes; on the wall clock others had its core for half of the time, and for longer beside `after`."""
    before, after = [Lap(4.0, 2.0, 2.0)] * 9, [Lap(9.0, 1.0, 8.0)] * 8
    assert gain_in_turns(before, after).ratio == 2
    assert gain_in_turns([*before[:-1], Lap(400.0, 2.0)], after).ratio == pytest.approx(4 / 9), "one of them was blocked"


def test_only_the_compiler_may_fail():
    changes = [Change("risky", "input", "skipped", 0.0)]
    ladder = Small(choose_device("cpu"), changes)
    ladder.assess = lambda made, change, below, rung: 1 / 0 if change else Checked(None, made, SECONDS, 6.0)
    with pytest.raises(ZeroDivisionError):
        list(ladder.climb(Switches()))


def seconds_of(before, after, turns):
    before, after = iter(before), iter(after)
    return in_turns(lambda: next(before), lambda: next(after), turns=turns, seconds=float)


def test_turns_end_early_where_a_gain_is_clear_and_a_placebo_is_the_same_code_once_more():
    clear = seconds_of([4.0, 4.1, 4.0, 4.1], [1.0] * 3, turns=9)
    assert clear == ([4.0, 4.1, 4.0, 4.1], [1.0] * 3), "three turns are enough"
    assert gain_in_turns(*clear).faster and gain_in_turns(*clear).ratio == 4
    small = gain_in_turns(*seconds_of([1.035, 1.0, 1.06, 0.98, 1.03, 1.05], [1.0] * 5, turns=5))
    assert small.verdict == "within noise", "the placebo gains as much"
    assert gain_in_turns(*seconds_of([1.1] * 6, [1.0] * 5, turns=5)).faster


def test_several_programs_take_turns_with_the_same_runs_of_the_first_until_each_gain_is_clear():
    ran, seconds = [], {"a": 4.0, "b": 1.0, "c": 3.9}

    def work(name):
        def run():
            ran.append(name)
            return seconds[name]

        return run

    a, b, c = in_turns(*map(work, "abc"), turns=5, seconds=float)
    assert "".join(ran) == "a" + 5 * "bca", "c gains too little to end early"
    assert (a, b, c) == ([4.0] * 6, [1.0] * 5, [3.9] * 5)
    seconds["c"] = 2.0
    assert [len(samples) for samples in in_turns(*map(work, "abc"), turns=5, seconds=float)] == [4, 3, 3]
