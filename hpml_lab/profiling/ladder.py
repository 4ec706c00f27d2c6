"""Profile, change, assess: takes the slow trainer up a ladder, one change per rung, each chosen from the profile before it."""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.core.measure.noise import SpeedUp, speed_up_of
from hpml_lab.core.system.device import Device
from hpml_lab.profiling.habits import TrainingFiles
from hpml_lab.profiling.ladder_steps import BITS, CHANGES, ROUNDING, SIXTEEN, TrainerChange, applicable, next_step
from hpml_lab.profiling.part_clock import PartClock
from hpml_lab.profiling.slow_trainer import PARTS, WRONG, SlowTrainer, TrainerSwitches, TrainingHistory

CLEAR = 1.25  # a gain whose whole interval is above it needs no further turn


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
class Rung:
    """One rung: the step that led here (None at the bottom), the profile, and what the check found.

    profile     seconds an iteration of each part
    seconds     of an iteration, without the clock
    gain        how many times as fast as the rung below, timed in turns; None at the bottom
    difference  the largest of losses and test losses against the rung below, and what was allowed
    once        seconds of preparation before the first iteration
    repeats     whether all runs of this rung ended bitwise identical
    """

    step: TrainerChange | None
    switches: TrainerSwitches
    profile: dict[str, float]
    seconds: float
    history: TrainingHistory
    once: float
    repeats: bool
    gain: SpeedUp | None = None
    difference: float = 0.0
    bound: float = BITS

    @property
    def largest(self) -> str:
        """The part that takes the most time."""
        return max(PARTS, key=lambda part: self.profile[part])

    @property
    def same(self) -> bool:
        """Whether the losses are those of the rung below, within the bound."""
        return self.difference <= self.bound

    @property
    def kept(self) -> bool:
        """Whether the change stays: right first, and faster beyond noise second; one that gives up digits, by 5 %."""
        if self.gain is None:
            return True
        return self.same and self.gain.faster and (self.step.bound < SIXTEEN or self.gain.low > 1.05)

    def share(self, part: str) -> float:
        """What part of the profile's time `part` takes, 0 to 1."""
        return self.profile[part] / sum(self.profile.values())


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


def largest_difference(a: TrainingHistory, b: TrainingHistory) -> float:
    """The largest difference of two runs' losses and test losses; inf where they did not do the same number of iterations.

    0 only where everything is equal, the counts of right answers too.
    """
    if (len(a.losses), len(a.tests)) != (len(b.losses), len(b.tests)):
        return float("inf")
    if a == b:
        return 0.0
    pairs = [*zip(a.losses, b.losses, strict=True), *zip(a.tests, b.tests, strict=True)]
    differences = [abs(loss - other) for loss, other in pairs]
    if any(map(math.isnan, differences)) or max(differences) == 0:
        return float("inf")  # a NaN equals nothing; and other answers under equal losses are a fault of the log
    return max(differences)


class Ladder:
    """Climbs: profile, take the largest part's next step, assess; a step that is wrong or no faster is taken back."""

    def __init__(self, folder: TrainingFiles, device: Device, plan: LadderPlan, *, compile: bool) -> None:
        self.folder, self.device, self.plan = folder, device, plan
        self.steps = [step for step in CHANGES if applicable(step, device, compile)]
        self.notes: list[str] = []

    def exact(self) -> contextlib.AbstractContextManager:
        """On a GPU: sums in a fixed order, and no TF32: else two runs of the same code differ, and no check of bits is
        possible. A new object for each `with`: torch's can be entered only once."""
        if not self.device.is_cuda:
            return contextlib.nullcontext()
        return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)

    def make(self, switches: TrainerSwitches) -> SlowTrainer:
        return SlowTrainer(self.folder, switches, self.device.torch, batch=self.plan.batch, look=self.plan.look)

    def climb(self) -> Iterator[Rung]:
        """The rungs from the slow trainer up, those that were taken back among them."""
        steps = list(self.steps)
        with self.exact():
            made = self.make(TrainerSwitches())
            rung = self.assess(made, None, None, None)
            yield rung
            while step := next_step(rung.profile, steps, rung.switches):
                steps.remove(step)
                changed = self.make(replace(rung.switches, **{step.switch: True}))
                try:
                    tried = self.assess(changed, step, made, rung)
                except RuntimeError as error:  # all that the compiler raises
                    if step.switch != "compiled" or isinstance(error, torch.OutOfMemoryError):
                        raise
                    why = str(error).strip().splitlines()[0][:120]
                    self.notes.append(
                        f"{step.switch} was not tried: {type(error).__name__}: {why}. torch.compile needs a C++ compiler (g++)."
                    )
                    continue
                yield tried
                if tried.kept:
                    made, rung = changed, tried

    def assess(self, made: SlowTrainer, step: TrainerChange | None, below: SlowTrainer | None, rung: Rung | None) -> Rung:
        """Profile a trainer, time it in turns with the one below, and compare what both left behind."""
        plan = self.plan
        made.run(2)  # what is done only once, such as compiling, is done now
        clock = PartClock(self.device.torch, PARTS)
        profiled = made.run(plan.profiled, clock)
        history = made.run(plan.iterations)
        gain = self.gain_of(below, made) if below else None
        seconds, again = self.timed(made)
        repeats = profiled == again == self.start(history)
        profile = {part: taken / plan.profiled for part, taken in clock.seconds.items()}
        found = Rung(step, made.switches, profile, seconds, history, made.once, repeats)
        if step is None:
            return found
        # Once losses are rounded to 16 bits, any other rounding may tip one over: their bound holds from there on.
        bound = SIXTEEN if step.bound and made.switches.bfloat16 else step.bound
        difference = self.off(rung.history, history)
        return replace(found, gain=gain, difference=difference, bound=bound)

    def start(self, history: TrainingHistory) -> TrainingHistory:
        """The first iterations of a run, as many as are profiled."""
        count = self.plan.profiled
        return TrainingHistory(history.losses[:count], history.rights[:count], history.tests[: count // self.plan.look])

    def off(self, before: TrainingHistory, history: TrainingHistory) -> float:
        """How far the losses are off: 0 only where the whole run ended bitwise identical.

        The largest difference at its start; where that ended bitwise identical, of the whole run.
        """
        return largest_difference(self.start(before), self.start(history)) or largest_difference(before, history)

    def timed(self, made: SlowTrainer) -> tuple[float, TrainingHistory]:
        """Seconds an iteration of one run, with all parts but without the clock, and what it left behind."""
        start = time.perf_counter()
        history = made.run(self.plan.profiled)
        return (time.perf_counter() - start) / self.plan.profiled, history

    def gain_of(self, below: SlowTrainer, made: SlowTrainer) -> SpeedUp:
        """How many times as fast `made` is as `below`, in turns, with `below` once more as the placebo.

        The turns end early where even the least of three is a clear gain.
        """
        turns: list[list[float]] = []
        while True:
            turns.append([self.timed(trainer)[0] for trainer in (below, made, below)])
            gain = speed_up_of(*zip(*turns, strict=True))
            if len(turns) >= self.plan.turns or (len(turns) >= 3 and gain.faster and gain.low > CLEAR):
                return gain

    def total(self, best: Rung) -> SpeedUp:
        """How many times as fast the best rung is as the slow trainer, timed in turns."""
        with self.exact():
            slow, fast = self.make(TrainerSwitches()), self.make(best.switches)
            fast.run(2)
            return self.gain_of(slow, fast)

    def try_mistakes(self, best: Rung) -> list[TemptingMistake]:
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

    def floor(self, best: Rung) -> float:
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
