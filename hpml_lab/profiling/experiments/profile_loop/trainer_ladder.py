"""The ladder of the slow trainer: how a rung is profiled, timed and checked, and what tempting mistakes seem to gain."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from statistics import median

import torch

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.device import Device
from hpml_lab.core.timing.counting import profiled, trace_events
from hpml_lab.core.timing.ladder import Change, Ladder, Rung, gain_in_turns, in_turns
from hpml_lab.core.timing.laps import Lap, lap
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.timing.timeline import busy
from hpml_lab.profiling.experiments.profile_loop.trainer_changes import BITS, CHANGES, ROUNDING, SIXTEEN, applicable
from hpml_lab.profiling.lessons.slow_and_fast import TrainingFiles
from hpml_lab.profiling.lessons.slow_trainer import (
    PARTS,
    WRONG,
    SlowTrainer,
    TrainerSwitches,
    TrainingHistory,
    largest_difference,
)
from hpml_lab.profiling.tools.device_work import device_spans
from hpml_lab.profiling.tools.part_clock import PartClock

Sample = tuple[Lap, dict[str, float]]  # an iteration: the whole, and seconds by part


@dataclass(frozen=True)
class LadderPlan:
    """How long and how often the trainer is run: `iterations` whose losses are compared, and `profiled` ones, which are also
    timed in at most `turns` turns and checked where the rounding changes; both are multiples of `look`."""

    iterations: int
    profiled: int
    batch: int
    look: int
    turns: int


@dataclass(frozen=True)
class TrainerRung(Rung):
    """One rung; times are of an iteration.

    seconds     at the bottom of one run, above it divided by each gain that was kept, so that two rungs compare as in turns
    once        seconds of preparation before the first iteration
    repeats     whether all runs of this rung ended bitwise identical
    difference  the largest of losses and test losses against the rung below, and what was allowed
    """

    history: TrainingHistory = field(default_factory=lambda: TrainingHistory([], []))
    once: float = 0.0
    repeats: bool = True
    difference: float = 0.0
    bound: float = BITS

    @property
    def same(self) -> bool:
        """Whether the losses are those of the rung below, within the bound."""
        return self.difference <= self.bound

    @property
    def kept(self) -> bool:
        """Whether the change stays; one that gives up digits must gain 5 %."""
        return super().kept and (self.gain is None or self.change.bound < SIXTEEN or self.gain.low > 1.05)


@dataclass
class TemptingMistake(Row):
    """A change that runs without an error, may look faster, and is wrong."""

    mistake: str = column("mistake")
    what_is_done: str = column("what is done")
    gain: float = column("seeming speed-up")
    interval: str = column("interval")
    verdict: str = column("looks")
    difference: float = column("largest difference of a loss")
    allowed: float = column("allowed")
    losses: list[float] = field(default_factory=list)
    tests: list[float] = field(default_factory=list)


class TrainerLadder(Ladder):
    """The ladder of the slow trainer."""

    def __init__(self, folder: TrainingFiles, device: Device, plan: LadderPlan, *, compile: bool) -> None:
        super().__init__(device, [change for change in CHANGES if applicable(change, device, compile)])
        self.folder, self.plan = folder, plan

    def make(self, switches: TrainerSwitches) -> SlowTrainer:
        return SlowTrainer(self.folder, switches, self.device.torch, batch=self.plan.batch, look=self.plan.look)

    def assess(
        self, made: SlowTrainer, change: Change | None, below: SlowTrainer | None, rung: TrainerRung | None
    ) -> TrainerRung:
        """Profile a trainer, time it in turns with the one below, and compare what both left behind."""
        plan = self.plan
        made.run(2)  # what is done only once, such as compiling, is done now
        clock = PartClock(self.device.torch, PARTS)
        profiled = made.run(plan.profiled, clock)
        history = made.run(plan.iterations)
        taken, again = self.timed(made)
        profile = {part: seconds / plan.profiled for part, seconds in clock.seconds.items()}
        found = TrainerRung(
            change,
            made.switches,
            profile,
            taken.seconds,
            history=history,
            once=made.once,
            repeats=profiled == again == self.start(history),
        )
        if change is None:
            return found
        before, after = in_turns(partial(self.sample, below), partial(self.sample, made), turns=plan.turns, seconds=whole_of)
        gain = gain_in_turns(*(list(map(whole_of, samples)) for samples in (before, after)))
        return replace(
            found,
            profile={part: median(parts[part] for _, parts in after) for part in PARTS},
            seconds=rung.seconds / gain.ratio,
            gain=gain,
            part_gain=part_gain(change.part, before, after),
            difference=self.off(rung.history, history),
            # Once losses are rounded to 16 bits, any other rounding may tip one over: their bound holds from there on.
            bound=SIXTEEN if change.bound and made.switches.bfloat16 else change.bound,
        )

    def start(self, history: TrainingHistory) -> TrainingHistory:
        """The first iterations of a run, as many as are profiled."""
        count = self.plan.profiled
        return TrainingHistory(history.losses[:count], history.rights[:count], history.tests[: count // self.plan.look])

    def off(self, before: TrainingHistory, history: TrainingHistory) -> float:
        """How far the losses are off: 0 only where the whole run ended bitwise identical.

        The largest difference at its start; where that ended bitwise identical, of the whole run.
        """
        return largest_difference(self.start(before), self.start(history)) or largest_difference(before, history)

    def timed(self, made: SlowTrainer, clock: PartClock | None = None) -> tuple[Lap, TrainingHistory]:
        """An iteration of one run, with all parts, and what the run left behind."""
        histories = []

        def run() -> float:
            start = time.perf_counter()
            histories.append(made.run(self.plan.profiled, clock))
            return time.perf_counter() - start

        return lap(run) / self.plan.profiled, histories[0]

    def sample(self, made: SlowTrainer) -> Sample:
        """An iteration of one run. On a GPU the clock waits at each border: there the whole is that of a run without it."""
        clock = PartClock(self.device.torch, PARTS)
        whole, _ = self.timed(made, clock)
        if self.device.is_cuda:
            whole, _ = self.timed(made)
        return whole, {part: seconds / self.plan.profiled for part, seconds in clock.seconds.items()}

    def gain_of(self, below: SlowTrainer, made: SlowTrainer) -> SpeedUp:
        """The speed-up of `made` over `below`, in turns, without the clock."""
        times = (lambda: self.timed(below)[0]), (lambda: self.timed(made)[0])
        return gain_in_turns(*in_turns(*times, turns=self.plan.turns, seconds=lambda taken: taken))

    def total(self, best: TrainerRung) -> SpeedUp:
        """The speed-up of the best rung over the slow trainer, timed in turns."""
        with self.exact():
            slow, fast = self.make(TrainerSwitches()), self.make(best.switches)
            fast.run(2)
            return self.gain_of(slow, fast)

    def gpu_share(self, best: TrainerRung) -> float | None:
        """% of an iteration of the best trainer in which the GPU works; None on a CPU. The profiler's own cost is left out."""
        if not self.device.is_cuda:
            return None
        with self.exact():
            made = self.make(best.switches)
            trace = profiled(lambda: made.run(self.plan.profiled), self.device.torch)
        return 100 * busy(device_spans(trace_events(trace))) / (self.timed(made)[0].seconds * self.plan.profiled)

    def try_mistakes(self, best: TrainerRung) -> list[TemptingMistake]:
        """Each tempting mistake on top of the best rung: how much faster it looks, and how far its losses are off."""
        rows = []
        with self.exact():
            right = self.make(best.switches)
            for mistake, what in WRONG.items():
                made = self.make(replace(best.switches, wrong=mistake))
                made.run(2)
                gain, history = self.gain_of(right, made), made.run(self.plan.iterations)
                rows.append(
                    TemptingMistake(
                        mistake=mistake,
                        what_is_done=what,
                        **gain.columns,
                        difference=self.off(best.history, history),
                        allowed=ROUNDING if mistake == "half a batch" else BITS,  # of the change that it passes for
                        losses=history.losses,
                        tests=history.tests,
                    )
                )
        return rows

    def floor(self, best: TrainerRung) -> float:
        """How far the losses move where each weight starts one spacing of its format off: what rounding alone may do.

        In float32, also where the best rung computes in 16 bits.
        """
        with self.exact():
            made = self.make(replace(best.switches, bfloat16=False))
            before = made.run(self.plan.iterations)
            for name, value in made.weights.items():
                if value.is_floating_point():
                    made.weights[name] = torch.nextafter(value, torch.full_like(value, float("inf")))
            return self.off(before, made.run(self.plan.iterations))


def whole_of(sample: Sample) -> Lap:
    return sample[0]


def part_gain(part: str, before: Sequence[Sample], after: Sequence[Sample]) -> SpeedUp | None:
    """The speed-up of a part in samples A B A B … A: infinite where nothing of it is left, None where there was nothing."""
    had, has = ([parts[part] for _, parts in samples] for samples in (before, after))
    if not min(had):
        return None
    return gain_in_turns(had, has) if min(has) else SpeedUp(inf, inf, inf, noise=0.0)
