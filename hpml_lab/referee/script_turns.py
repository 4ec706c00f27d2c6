"""One base and several candidates in turns: who is faster beyond noise, and who trains the same."""

import contextlib
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.laps import held_up, seconds_by_one_clock
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.referee.copies import ScriptCopy, Setting, copy_of
from hpml_lab.referee.sameness import Sameness, sameness

FEWEST = 5  # turns: fewer have no interval
# Many short turns: a machine's speed wanders within seconds, and copies that follow each other closely see the same of it.
TURN_SECONDS = 0.1  # of the base, at least a step
COPY_SECONDS = 2.0  # of all its turns, if they are not fewer than SAMPLES
WARM_STEPS = 3
FEWEST_STEPS = 2 * FEWEST + WARM_STEPS + 3  # a turn begins with a step that is not timed
MOST_STEPS, MOST_TURNS = 200, 50
ADVICE = "It has to train with an optimizer of torch for some dozens of steps, in this process, without questions."
LONGER = 1.5  # times as many steps as a yardstick has: then another one is made; until then its losses decide
NUDGES = 3  # copies that are a unit in the last place away


@dataclass(frozen=True)
class Candidate:
    """A script, the words after `python`, with changes.

    reorders  whether they may let samples or random numbers come in another order
    lowers    whether they lower the precision
    where     the folder that it runs in; `isolate`: each copy in a copy of it
    """

    name: str
    script: Sequence[str]
    settings: Sequence[Setting] = ()
    reorders: bool = False
    lowers: bool = False
    where: Path | None = None
    isolate: bool = False

    def copy(self, deadline_seconds: float, *more: Setting) -> contextlib.AbstractContextManager[ScriptCopy]:
        """A copy of it that runs, with `more` changes."""
        where = {"where": self.where, "isolate": self.isolate}
        return copy_of(self.script, [*self.settings, *more], deadline_seconds=deadline_seconds, **where)


@dataclass(frozen=True)
class Compared:
    """What a candidate showed.

    gain           over the base, None where it did not get through
    same           whether it trains the same
    failed         why it did not get through
    first_seconds  how much longer its first step took than the base's: what it compiles
    step_seconds   of a step of the base, and of its own
    """

    gain: SpeedUp | None
    same: Sameness | None
    failed: str = ""
    first_seconds: float = 0.0
    step_seconds: tuple[float, float] = (0.0, 0.0)
    held_up: str = ""

    def __str__(self) -> str:
        return f"{self.gain}; {self.same}" if self.gain else f"it does not get through: {self.failed}"

    def faster_within(self, classes: Collection[str]) -> bool:
        """Whether it gains beyond noise, and its training is of one of these classes."""
        return self.gain is not None and self.same is not None and self.gain.faster and self.same.kind in classes

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON takes it."""
        gain, same = self.gain, self.same
        return {
            "gain": gain and {"ratio": gain.ratio, "low": gain.low, "high": gain.high, "noise": gain.noise},
            "verdict": gain.verdict if gain else "failed",
            "same": same.kind if same else None,
            "detail": same.detail if same else self.failed,
            "first_seconds": self.first_seconds,
            "step_seconds": list(self.step_seconds),
        }


@dataclass
class Yardstick:
    """What is known of the base, and losses of nudged copies of it, made once and about as long as they are needed.

    deadline_seconds  for the first step of a copy, and for a turn: one that needs longer has failed
    say               is called with a line where there is memory for few copies only
    at_once           how many candidates take turns with the base at the same time, 0: not known yet
    ends_after        how many steps it has, if it ended before its turns were over
    """

    base: Candidate
    deadline_seconds: float = 120.0
    say: Callable[[str], object] = lambda line: None
    losses: list[list[float]] = field(default_factory=list)
    steps: int = 0
    at_once: int = 0
    ends_after: int = 0

    def of(self, steps: int) -> list[list[float]]:
        if steps > LONGER * self.steps:
            self.steps = steps
            with contextlib.ExitStack() as stack:  # they are not timed, and start together
                nudges = [("nudged", {"seed": seed}) for seed in range(NUDGES)]
                copies = [stack.enter_context(self.base.copy(self.deadline_seconds, nudge)) for nudge in nudges]
                for copy in copies:
                    copy.hear()
                for copy in copies:  # a turn does one step more, and what a script does not live to report is lost
                    while not copy.failed and (left := steps - copy.steps) > 1:
                        copy.turn(min(WARM_STEPS, left - 1))
            self.losses = [copy.losses for copy in copies]
        return self.losses


def compared(candidates: Sequence[Candidate], yardstick: Yardstick, steps: int | None = None) -> dict[str, Compared]:
    """Run the base, the base again and all candidates in turns, each time in a new order; by name, what each showed.

    steps  of a turn; as many as the base does in TURN_SECONDS otherwise
    Of a script that ends before its turns are over, they are shorter and fewer. Where there is no memory for all candidates, it
    leaves out the last ones. Raises EndsEarly where FEWEST turns are too many, and LabError where there is no memory for one.
    """
    copies = _in_turns(candidates, steps, yardstick)
    before, again = copies["before"], copies["again"]
    if not before.digest and not yardstick.ends_after and before.steps >= FEWEST_STEPS:
        yardstick.ends_after = before.steps
        copies = _in_turns(candidates, steps, yardstick)
        before, again = copies["before"], copies["again"]
    if min(len(before.laps), len(again.laps)) < FEWEST:
        early = min(before, again, key=lambda copy: len(copy.laps))
        raise EndsEarly(f"{early.failed}; let it train for longer" if early.at_its_end else early.failed)
    found = {}
    for candidate in candidates[: yardstick.at_once]:
        copy = copies[candidate.name]
        took = min(len(before.laps), len(again.laps), len(copy.laps))
        if took < FEWEST:
            found[candidate.name] = Compared(None, None, copy.failed or "it ended early")
            continue
        laps = {name: copies[name].laps[:took] for name in ("before", candidate.name, "again")}
        seconds, stretch = seconds_by_one_clock(laps)
        losses = min(len(before.losses), len(copy.losses))
        digests = (before.digest, copy.digest) if before.steps == copy.steps else ("", "before has ended")
        found[candidate.name] = Compared(
            speed_up_of(seconds["before"], seconds[candidate.name], seconds["again"]),
            sameness(
                before.losses[:losses],
                copy.losses[:losses],
                again.losses[:losses],
                [nudged[:losses] for nudged in yardstick.of(before.steps)],
                digests,
                candidate.reorders,
                candidate.lowers,
            ),
            first_seconds=copy.first_seconds - again.first_seconds,
            step_seconds=(sorted(seconds["before"])[took // 2], sorted(seconds[candidate.name])[took // 2]),
            held_up=held_up(stretch),
        )
    return found


def _in_turns(candidates: Sequence[Candidate], steps: int | None, yardstick: Yardstick) -> dict[str, ScriptCopy]:
    """The copies after their turns: "before", "again", and by its name each candidate for which there is memory."""
    order = random.Random(0)
    with contextlib.ExitStack() as stack:

        def started(candidate: Candidate) -> ScriptCopy:
            return stack.enter_context(candidate.copy(yardstick.deadline_seconds))

        before = started(yardstick.base)
        if not yardstick.at_once:
            if not (before.hear() and before.turn(WARM_STEPS)):
                return {"before": before, "again": before}
            yardstick.at_once, why = at_once(before.memory())
            if yardstick.at_once < len(candidates):
                yardstick.say(f"{why}: of {len(candidates)} changes {yardstick.at_once} at a time take turns with the script.")
        again = started(yardstick.base)
        copies = {"before": before, "again": again} | {each.name: started(each) for each in candidates[: yardstick.at_once]}
        others = [copy for copy in copies.values() if not (copy.steps or copy.failed)]
        for copy in others:
            copy.hear()  # its first step is done, or it has ended
        for copy in others:
            copy.turn(WARM_STEPS)
        if not before.laps or not again.laps:
            return copies
        left = yardstick.ends_after and yardstick.ends_after - before.steps
        steps, turns = _plan(before.laps[-1].wall, steps, left)
        for copy in copies.values():
            copy.laps.clear()
        for _ in range(turns):
            for copy in order.sample([*copies.values()], len(copies)):
                copy.turn(steps)
            if before.failed or again.failed:
                break
        for copy in copies.values():
            copy.finish()
    return copies


def at_once(memory: Sequence[tuple[float, float, str]]) -> tuple[int, str]:
    """How many candidates there is memory for next to the base, twice, and the line that says why; LabError if for none.

    memory  (bytes that a copy takes, bytes that are free next to one, of what), for each kind
    """
    few, own, free, what = min((int(free // own) - 1, own, free, what) for own, free, what in memory)
    why = f"a copy takes {own / 1e9:.1f} GB, and {free / 1e9:.1f} GB {what} are free for more"
    if few < 1:
        raise LabError(f"{why}: three take turns.", "Give it a smaller batch or network, or end what else is at work there.")
    return few, why


def _plan(step_seconds: float, steps: int | None, left: int) -> tuple[int, int]:
    """Steps of a turn, and turns, for a script whose step takes so long and which has `left` steps (0: enough)."""
    steps = steps or max(1, min(MOST_STEPS, round(TURN_SECONDS / step_seconds)))
    turns = max(SAMPLES, min(MOST_TURNS, round(COPY_SECONDS / (steps * step_seconds))))
    if left:
        turns = max(FEWEST, min(turns, SAMPLES, left // 2))
        steps = max(1, min(steps, left // turns - 1))
    return steps, turns


class EndsEarly(Exception):
    """The script, as it is, does not come far enough to be measured; its argument says why."""
