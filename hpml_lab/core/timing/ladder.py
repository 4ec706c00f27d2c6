"""Profile, change, assess: a program goes up a ladder, one change per rung, each chosen from the profile of the rung below.

A topic derives its own change, rung and ladder: it says how a program is made from switches, and how one is assessed.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from hpml_lab.core.system.device import Device
from hpml_lab.core.timing.laps import Lap, seconds_by_one_clock
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of

CLEAR = 1.25  # a gain whose whole interval is above it needs no further turn
Sample = TypeVar("Sample")


@dataclass(frozen=True)
class Change:
    """One change: a switch, the part of the profile that it attacks, what it does, and what the outputs may differ by after it.

    needs  what the machine must have, such as "cuda" or "compile", where the change means nothing without
    on     a switch that must be on before
    """

    switch: str
    part: str
    change: str
    bound: Any
    needs: str = ""
    on: str = ""

    def applied(self, switches: Any) -> Any:
        """The switches with this one on."""
        return replace(switches, **{self.switch: True})


@dataclass(frozen=True)
class Rung:
    """One rung: the change that led here (None at the bottom), the profile, and what the change gained.

    profile    {part: seconds of one unit of work}
    seconds    of one unit of work
    gain       the speed-up over the rung below, timed in turns; None at the bottom
    part_gain  that of the part which the change attacks, in the same turns; None where it was not timed alone
    """

    change: Any
    switches: Any
    profile: dict[str, float]
    seconds: float
    gain: SpeedUp | None = None
    part_gain: SpeedUp | None = None

    @property
    def largest(self) -> str:
        """The part that takes the most time."""
        return max(self.profile, key=lambda part: self.profile[part])

    def share(self, part: str) -> float:
        """What part of the profile's time `part` takes, 0 to 1."""
        return self.profile[part] / sum(self.profile.values())

    @property
    def same(self) -> bool:
        """Whether the outputs are those of the rung below, as far as the change promises it."""
        raise NotImplementedError

    @property
    def kept(self) -> bool:
        """Whether the change stays: right first, and faster beyond noise second.

        The whole or the part that the change attacks: a small part can become many times as fast, and the whole not by more
        than its noise. A part's gain does not count where the whole becomes slower.
        """
        if self.gain is None:
            return True
        part = self.part_gain is not None and self.part_gain.faster and not self.gain.slower
        return self.same and (self.gain.faster or part)


class Ladder(ABC):
    """Climbs: profile, take the largest part's next change, assess; a change that is wrong or gains nothing is taken back.

    changes  those that mean something on this device
    notes    why a change was not tried
    """

    def __init__(self, device: Device, changes: Iterable[Change]) -> None:
        self.device, self.changes = device, list(changes)
        self.notes: list[str] = []

    @abstractmethod
    def make(self, switches: Any) -> Any:
        """The program with these switches."""

    @abstractmethod
    def assess(self, made: Any, change: Any, below: Any, rung: Any) -> Any:
        """The rung of a program: its profile, and how it compares with the program and the rung below (None at the bottom)."""

    def next_change(self, profile: dict[str, float], left: Sequence[Any], switches: Any) -> Any:
        """The change to try next; None where none is left."""
        return next_change(profile, left, switches)

    def exact(self) -> contextlib.AbstractContextManager:
        """On a GPU: sums in a fixed order, and no TF32: else two runs of the same code differ, and outputs cannot be compared.

        A new object for each `with`: torch's can be entered only once.
        """
        if not self.device.is_cuda:
            return contextlib.nullcontext()
        return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)

    def climb(self, switches: Any) -> Iterator[Any]:
        """The rungs from these switches up, those that were taken back among them."""
        left = list(self.changes)
        with self.exact():
            made = self.make(switches)
            rung = self.assess(made, None, None, None)
            yield rung
            while change := self.next_change(rung.profile, left, rung.switches):
                left.remove(change)
                changed = self.make(change.applied(rung.switches))
                try:
                    tried = self.assess(changed, change, made, rung)
                except RuntimeError as error:  # all that the compiler raises
                    if change.switch != "compiled" or isinstance(error, torch.OutOfMemoryError):
                        raise
                    why = f"{type(error).__name__}: {str(error).strip():.120}".splitlines()[0]
                    self.notes.append(f"compiled was not tried: {why}. torch.compile needs a C++ compiler (g++).")
                    continue
                yield tried
                if tried.kept:
                    made, rung = changed, tried


def next_change(profile: dict[str, float], left: Sequence[Any], switches: Any) -> Any:
    """The first change of the largest part that has one left; None where none is left."""
    for part in sorted(profile, key=lambda part: -profile[part]):
        for change in left:
            if change.part == part and (not change.on or getattr(switches, change.on)):
                return change
    return None


def in_turns(
    before: Callable[[], Sample], *after: Callable[[], Sample], turns: int, seconds: Callable[[Sample], float | Lap]
) -> tuple[list[Sample], ...]:
    """Samples of a program and of one or several others in turns, A B A B … A or A B C A B C … A, with at most so many of B.

    They end early where even the least of three is a clear gain, of each of the others.
    """
    a, *others = [before()], *([] for _ in after)
    while True:
        for work, samples in zip(after, others, strict=True):
            samples.append(work())
        a.append(before())
        taken = [seconds(sample) for sample in a]
        gains = [gain_in_turns(taken, [seconds(sample) for sample in samples]) for samples in others]
        turn = len(a) - 1
        if turn >= turns or (turn >= 3 and all(gain.faster and gain.low > CLEAR for gain in gains)):
            return a, *others


def gain_in_turns(before: Sequence[float] | Sequence[Lap], after: Sequence[float] | Sequence[Lap]) -> SpeedUp:
    """The speed-up in samples A B A B … A, seconds or laps: each A is the placebo of the one before."""
    if isinstance(before[0], Lap):
        seconds, _ = seconds_by_one_clock({"before": before, "after": after})
        before, after = seconds["before"], seconds["after"]
    return speed_up_of(before[:-1], after, before[1:])
