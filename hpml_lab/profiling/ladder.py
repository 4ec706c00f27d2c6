"""Profile, change, assess: takes the slow trainer up a ladder, one change per rung, each chosen from the profile before it."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from statistics import median

import torch

from hpml_lab.core.device import Device
from hpml_lab.core.findings import column
from hpml_lab.profiling import habits
from hpml_lab.profiling.habits import TrainingFiles
from hpml_lab.profiling.part_clock import PartClock
from hpml_lab.profiling.slow_trainer import PARTS, WRONG, SlowTrainer, TrainerSwitches, TrainingHistory

# What a loss may differ by between two rungs, largest difference over the iterations that are checked. Training lets rounding
# differences grow, as it does a change of seed: after hundreds of iterations equal losses mean equal bits, or nothing.
# BITS: the change keeps every operation on every element and its order; nothing else than equal is right.
# ROUNDING: sums are taken in another order. One spacing of a float32 near 2 is 2.4e-7; training carries the differences on
#   and lets them grow. The row measures how far: the weights moved by one spacing each, and trained as long.
# SIXTEEN: bfloat16 has 8 significant bits: a product may be off by 0.4 %, a loss of 2.3 by 0.01. Allowed is twice that.
BITS, ROUNDING, SIXTEEN = 0.0, 1e-3, 2e-2
ENOUGH = 0.2  # seconds of timed runs after which no further pair is taken


@dataclass(frozen=True)
class TrainerChange:
    """One change: the switch it turns on, the part of the profile it attacks, and what the losses may differ by after it.

    slow, fast  the two pieces of code, to be read side by side (None where a setting is all there is)
    needs       "cuda", "bfloat16" or "compile", where the change means nothing without
    on          a switch that must be on before
    """

    switch: str
    part: str
    change: str
    bound: float
    slow: Callable | None = None
    fast: Callable | None = None
    needs: str = ""
    on: str = ""


CHANGES = (
    TrainerChange("decode_once", "input", "decode all files once, before training", BITS, habits.input_slow, habits.input_fast),
    TrainerChange(
        "batch_transform",
        "transform",
        "one operation a batch, in place, instead of a loop over samples",
        BITS,
        habits.transform_slow,
        habits.transform_fast,
    ),
    TrainerChange("prepare_once", "transform", "transform all images once, before training", BITS, on="decode_once"),
    TrainerChange(
        "late_log", "logging", "keep the figures on the device, ask once at the end", BITS, habits.LogSlow, habits.LogFast
    ),
    TrainerChange(
        "batch_evaluation",
        "evaluation",
        "test images in batches, without a graph",
        ROUNDING,
        habits.evaluate_slow,
        habits.evaluate_fast,
    ),
    TrainerChange("debug_off", "forward", "anomaly detection off: it was left on after a search for a NaN", BITS),
    TrainerChange(
        "library_layers",
        "backward",
        "torch's batch norm, ReLU and cross-entropy instead of written-out ones",
        ROUNDING,
        habits.forward_slow,
        habits.forward_fast,
    ),
    TrainerChange(
        "drop_gradients",
        "backward",
        "gradients to None, so that backward need not add to zeros",
        BITS,
        habits.clear_slow,
        habits.clear_fast,
    ),
    TrainerChange("channels_last", "backward", "the memory order N H W C", ROUNDING, needs="cuda", on="library_layers"),
    TrainerChange(
        "compiled", "backward", "torch.compile: operations fused into few kernels", ROUNDING, needs="compile", on="debug_off"
    ),
    TrainerChange("bfloat16", "backward", "convolutions and products in 16 bits (autocast)", SIXTEEN, needs="bfloat16"),
    TrainerChange(
        "fused_adam", "optimizer", "Adam for all parameters in one call", ROUNDING, habits.AdamSlow, habits.adam_fast
    ),
    TrainerChange(
        "pinned_copy",
        "copy",
        "copy from page-locked memory, without waiting",
        BITS,
        habits.copy_slow,
        habits.copy_fast,
        needs="cuda",
    ),
    TrainerChange("stay_on_device", "copy", "all prepared images lie on the device", BITS, needs="cuda", on="prepare_once"),
)


@dataclass(frozen=True)
class LadderPlan:
    """How long and how often the trainer is run: `iterations` timed ones, `profiled` ones, and as many that are checked where
    the rounding changes; both are multiples of `look`."""

    iterations: int
    profiled: int
    batch: int
    look: int
    pairs: int


@dataclass(frozen=True)
class Rung:
    """One rung: the step that led here (None at the bottom), the profile, and what the check found.

    profile     seconds an iteration of each part
    seconds     of an iteration, without the clock
    gain        seconds of the rung below / seconds here, taken in turns
    difference  the largest of losses and test losses against the rung below, and what was allowed
    once        seconds of preparation before the first iteration
    repeats     whether all runs of this rung left the same bits
    """

    step: TrainerChange | None
    switches: TrainerSwitches
    profile: dict[str, float]
    seconds: float
    history: TrainingHistory
    once: float
    repeats: bool
    gain: float = 1.0
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
        """Whether the change stays: it must be right first, and faster second; one that gives up digits, faster by 5 %."""
        return self.same and (self.step is None or self.gain > (1.05 if self.step.bound == SIXTEEN else 1))

    def share(self, part: str) -> float:
        """What part of the profile's time `part` takes, 0 to 1."""
        return self.profile[part] / sum(self.profile.values())


@dataclass
class TemptingMistake:
    """A change that runs without an error, may look faster, and is wrong."""

    mistake: str = column("mistake")
    what_is_done: str = column("what is done")
    gain: float = column("looks faster", "times")
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


def applicable(step: TrainerChange, device: Device, compile: bool) -> bool:
    """Whether the step means anything on this device."""
    has = {"cuda": device.is_cuda, "bfloat16": device.dtype is torch.bfloat16, "compile": compile}
    return not step.needs or has[step.needs]


def next_step(profile: dict[str, float], steps: list[TrainerChange], switches: TrainerSwitches) -> TrainerChange | None:
    """The first step of the largest part that has one left; None where no step is left."""
    for part in sorted(PARTS, key=lambda part: -profile[part]):
        for step in steps:
            if step.part == part and (not step.on or getattr(switches, step.on)):
                return step
    return None


class Ladder:
    """Climbs: profile, take the largest part's next step, assess; a step that is wrong or no faster is taken back."""

    def __init__(self, folder: TrainingFiles, device: Device, plan: LadderPlan, *, compile: bool) -> None:
        self.folder, self.device, self.plan = folder, device, plan
        self.steps = [step for step in CHANGES if applicable(step, device, compile)]
        self.notes: list[str] = []
        self._cudnn = (
            # Sums in a fixed order, and no TF32: else two runs of the same code differ, and no check of bits is possible.
            torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
            if device.is_cuda
            else contextlib.nullcontext()
        )

    def make(self, switches: TrainerSwitches) -> SlowTrainer:
        return SlowTrainer(self.folder, switches, self.device.torch, batch=self.plan.batch, look=self.plan.look)

    def climb(self) -> Iterator[Rung]:
        """The rungs from the slow trainer up, those that were taken back among them."""
        steps = list(self.steps)
        with self._cudnn:
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
        runs, seconds, ratios = [], [], []
        for _ in range(plan.pairs):
            before = self.timed(below)[0] if below else 0.0
            taken, history = self.timed(made)
            runs.append(history)
            seconds.append(taken)
            ratios.append(before / taken)
            if sum(seconds) * plan.iterations > ENOUGH:
                break
        history = runs[0]
        repeats = all(run == history for run in runs) and profiled == self.start(history)
        profile = {part: taken / plan.profiled for part, taken in clock.seconds.items()}
        found = Rung(step, made.switches, profile, min(seconds), history, made.once, repeats)
        if step is None:
            return found
        # Once losses are rounded to 16 bits, any other rounding may tip one over: their bound holds from there on.
        bound = SIXTEEN if step.bound and made.switches.bfloat16 else step.bound
        difference = self.off(rung.history, history)
        return replace(found, gain=median(ratios), difference=difference, bound=bound)

    def start(self, history: TrainingHistory) -> TrainingHistory:
        """The first iterations of a run, as many as are profiled."""
        count = self.plan.profiled
        return TrainingHistory(history.losses[:count], history.rights[:count], history.tests[: count // self.plan.look])

    def off(self, before: TrainingHistory, history: TrainingHistory) -> float:
        """How far the losses are off: 0 only where the whole run left the same bits.

        The largest difference at its start; where that left the same bits, of the whole run.
        """
        return largest_difference(self.start(before), self.start(history)) or largest_difference(before, history)

    def timed(self, made: SlowTrainer) -> tuple[float, TrainingHistory]:
        """Seconds an iteration of one run, with all parts but without the clock, and what it left behind."""
        start = time.perf_counter()
        history = made.run(self.plan.iterations)
        return (time.perf_counter() - start) / self.plan.iterations, history

    def total(self, best: Rung) -> float:
        """How many times as fast the best rung is as the slow trainer, both timed again in turns."""
        with self._cudnn:
            slow, fast = self.make(TrainerSwitches()), self.make(best.switches)
            fast.run(2)
            return self.timed(slow)[0] / median(self.timed(fast)[0] for _ in range(self.plan.pairs))

    def try_mistakes(self, best: Rung) -> list[TemptingMistake]:
        """Each tempting mistake on top of the best rung: how much faster it looks, and how far its losses are off."""
        rows = []
        with self._cudnn:
            right = self.make(best.switches)
            for mistake, what in WRONG.items():
                made = self.make(replace(best.switches, wrong=mistake))
                made.run(2)
                pairs = [(self.timed(right)[0], self.timed(made)) for _ in range(self.plan.pairs)]
                history = pairs[0][1][1]
                rows.append(
                    TemptingMistake(
                        mistake=mistake,
                        what_is_done=what,
                        gain=median(before / taken for before, (taken, _) in pairs),
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
        with self._cudnn:
            made = self.make(replace(best.switches, bfloat16=False))
            before = made.run(self.plan.iterations)
            for name, value in made.weights.items():
                if value.is_floating_point():
                    made.weights[name] = torch.nextafter(value, torch.full_like(value, float("inf")))
            return self.off(before, made.run(self.plan.iterations))
