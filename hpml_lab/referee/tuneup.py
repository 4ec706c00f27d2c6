"""Tries the guide's changes on an untouched script, one at a time and then together, and says which are worth their lines."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpml_lab.core.show.numbers import number
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.profilers.nvml import Gpus
from hpml_lab.profilers.script_profile import check_script
from hpml_lab.referee.changes import Tip, as_diff, changes, chosen
from hpml_lab.referee.copies import copy_of, require_turns
from hpml_lab.referee.sameness import IN_WORDS, KEPT
from hpml_lab.referee.script_turns import ADVICE, Candidate, Compared, EndsEarly, Yardstick, compared

TOGETHER = 4  # changes that take turns with the script at the same time
FEW_WAITS = 0.5  # a step
BY_HAND = {
    "larger-batch": "it changes the training: notebook 15 says how far it carries",
    "autocast-fp16": "it needs a scaler, and lines of its own: notebook 12",
    "data-parallel": "it needs a launcher: notebook 13",
}
TEMPLATE = "tuneup.html.j2"
WIDTH, ROW = 240, 22  # of the ladder, in pixels


@dataclass(frozen=True)
class TriedTip:
    """One change, what it showed, and whether it is kept."""

    change: Tip
    found: Compared
    kept: bool
    why: str

    @property
    def text(self) -> str:
        return str(self.found.gain) if self.found.gain else self.found.failed


@dataclass
class Tuneup:
    """What was found out about one script.

    look      what it does (`in_the_script.Look`)
    rungs     the changes that were tried, in the guide's order
    absent    {change: why it does not apply, or was not tried}
    together  the kept ones at once, None where none or one is kept
    allow     how far the training of what is kept may differ
    """

    command: str
    look: dict[str, Any] = field(default_factory=dict)
    rungs: list[TriedTip] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    together: Compared | None = None
    notes: list[str] = field(default_factory=list)
    root: Path = field(default_factory=Path.cwd)
    seconds: float = 0.0
    interrupted: bool = False
    allow: str = "rounding"

    @property
    def kept(self) -> list[TriedTip]:
        return [rung for rung in self.rungs if rung.kept]

    @property
    def together_kept(self) -> bool:
        """Whether the kept ones at once would be kept as one change: gains do not multiply, and roundings add up."""
        return self.together is not None and self.together.faster_within(KEPT[self.allow])

    @property
    def together_says(self) -> str:
        """What to know before all the lines are written; "" where at once they are what each is alone."""
        if self.together is None or self.together_kept:
            return ""
        if self.together.gain is None:
            return f"All at once these changes do not run: {self.together}."
        why = "not the same training" if self.together.gain.faster else "not faster"
        return f"All at once these changes are {why} (--allow {self.allow}): {self.together}."

    def lines_of(self, rung: TriedTip) -> str:
        """The lines that make a change: a diff where the call was found in the script, and what to write otherwise."""
        return self._diff_of(rung) + self._by_hand(rung)

    def _diff_of(self, rung: TriedTip) -> str:
        return as_diff(rung.change.edits(self.look), self.root)

    def _by_hand(self, rung: TriedTip) -> str:
        """What to write where the call was not found in the script, and at places that no constructor knows."""
        return ("" if self._diff_of(rung) else f"{rung.change.lines}\n") + rung.change.also

    @property
    def lines(self) -> list[tuple[str, str]]:
        """(what, lines) of all that is kept: one diff of the calls that were found, and what to write for the others."""
        tips = [rung.change for rung in self.kept]
        edits = {tip.title: tip.edits(self.look) for tip in tips}
        found = {title: several for title, several in edits.items() if as_diff(several, self.root)}
        diff = as_diff([edit for several in found.values() for edit in several], self.root)
        by_hand = [(tip.title, tip.lines) for tip in tips if tip.title not in found]
        by_hand += [(f"with {tip.title}", tip.also) for tip in tips if tip.also]
        return [*([("; ".join(found), diff)] if found else []), *by_hand]

    def text(self) -> str:
        """The ladder for a terminal."""
        lines = [f"{self.command}: {len(self.rungs)} changes tried, {len(self.kept)} kept, {self.seconds:.0f} s"]
        for rung in self.rungs:
            lines.append(f"  {'keep' if rung.kept else '    '} {rung.change.name:20} {rung.text}")
            lines.append(f"       {rung.why}")
        if self.together is not None:
            lines.append(f"  together: {self.together}")
        lines += [f"  not tried: {name}: {why}" for name, why in self.absent.items()]
        lines += [f"  {note}" for note in (*self.notes, self.together_says) if note]
        for what, written in self.lines:
            lines += ["", f"{what}:", written.rstrip()]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON takes it."""
        rungs = [
            {"change": rung.change.name, "kept": rung.kept, "why": rung.why, **rung.found.as_dict()} for rung in self.rungs
        ]
        return {
            "command": self.command,
            "machine": f"{machine.cpu_name()}, {machine.cores()} cores",
            "changes": rungs,
            "together": {"kept": self.together_kept, **self.together.as_dict()} if self.together else None,
            "not_tried": self.absent,
            "notes": self.notes,
            "diff": {rung.change.name: diff for rung in self.kept if (diff := self._diff_of(rung))},
            "by_hand": {rung.change.name: lines for rung in self.kept if (lines := self._by_hand(rung))},
        }


def tuneup(
    script: Sequence[str],
    *,
    tips: Sequence[Tip] | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    allow: str = "rounding",
    steps: int | None = None,
    minutes: float = 5.0,
    deadline_seconds: float = 120.0,
    isolate: bool = False,
    say: Callable[[str], object] = lambda line: None,
) -> Tuneup:
    """Try the changes of the guide on `python SCRIPT…`, which stays as it is.

    tips              the changes: all of the guide otherwise
    only, skip        names of changes, or their beginnings
    allow             "bitwise", "rounding" or "precision": how far the training may differ for a change to be kept (KEPT)
    steps             of a turn; as many as fit into a tenth of a second otherwise
    minutes           after which nothing new is begun; the first changes are tried in any case
    deadline_seconds  for the first step of a copy, and for each turn
    isolate           let each copy run in a copy of this folder: what it writes is thrown away
    say               is called with what is going on, line by line
    An interrupt ends it with what is known. Raises LabError for a script that cannot be driven.
    """
    require_turns()
    check_script(script)
    found, start, left = Tuneup(" ".join(script), allow=allow), time.monotonic(), list[Tip]()

    def note(line: str) -> None:
        found.notes.append(line)
        say(line)

    base = Candidate("as it is", script, isolate=isolate)
    yardstick = Yardstick(base, deadline_seconds, note)
    try:
        others = _others_on_gpus()
        found.look = _look(script, deadline_seconds, isolate)
        found.notes += _seen(found.look, others)
        known = chosen(tips or changes(machine.cores(), found.look["threads"]), only, skip)
        found.absent = {change.name: why for change in known if (why := change.why_not(found.look))}
        left = [change for change in known if change.name not in found.absent]
        while left:
            if found.rungs and time.monotonic() - start > 60 * minutes:
                found.absent |= {change.name: f"{minutes:g} minutes are over (--minutes)" for change in left}
                left = []
                break
            now = left[: min(TOGETHER, yardstick.at_once or TOGETHER)]
            say(f"{', '.join(change.name for change in now)} …")
            results = compared([_candidate(change.name, base, [change], found.look) for change in now], yardstick, steps)
            left = [change for change in left if change.name not in results]
            for change in now[: len(results)]:
                found.rungs.append(rung := _rung(change, results[change.name], allow))
                say(f"{rung.change.name}: {rung.text}; {rung.why}")
        _keep_one_of_each_kind(found)
        if len(found.kept) > 1:
            say("the kept changes together …")
            together = _candidate("together", base, [rung.change for rung in found.kept], found.look)
            found.together = compared([together], yardstick, steps)["together"]
    except EndsEarly as error:
        found.notes.append(f"No gain can be measured: {error}.")
        found.absent |= {change.name: "not reached, because no gain can be measured" for change in left}
    except KeyboardInterrupt:
        found.interrupted = True
        found.notes.append("Interrupted: what stands here was known by then.")
        found.absent |= {change.name: "not reached before the interrupt" for change in left}
    _keep_one_of_each_kind(found)  # also after an interrupt
    found.absent |= {} if only or tips else BY_HAND
    found.seconds = time.monotonic() - start
    return found


def _others_on_gpus() -> str:
    """Who has GPUs open already, in words; "" for nobody."""
    with Gpus() as gpus:
        found = {gpu.bus_id: sorted(gpus.processes(gpu.bus_id) - {os.getpid()}) for gpu in gpus.read()}
    return "; ".join(f"{bus_id}: process {', '.join(map(str, several))}" for bus_id, several in found.items() if several)


def _look(script: Sequence[str], deadline_seconds: float, isolate: bool) -> dict[str, Any]:
    with copy_of(script, deadline_seconds=deadline_seconds, look=True, isolate=isolate) as copy:
        look = copy.looked()
    if not look:
        raise LabError(f"{' '.join(script)} cannot be driven: {copy.failed}.", ADVICE)
    # An isolated copy has seen its own files; the lines to write are for those that it is a copy of.
    return json.loads(json.dumps(look).replace(json.dumps(str(copy.folder / "files"))[1:-1], ""))


def _candidate(name: str, base: Candidate, several: Sequence[Tip], look: dict[str, Any]) -> Candidate:
    settings = [setting for change in several for setting in change.settings]
    draws = any(root["draws"] for root in look["roots"])
    reorders = any(change.reorders or (change.redraws and draws) for change in several)
    return replace(base, name=name, settings=settings, reorders=reorders, lowers=any(change.lowers for change in several))


def _rung(change: Tip, found: Compared, allow: str) -> TriedTip:
    if found.gain is None or found.same is None:
        return TriedTip(change, found, False, "it does not get through")
    why = str(found.same)
    if found.first_seconds > 1 and found.gain.faster:
        saved = found.step_seconds[0] - found.step_seconds[1]
        after = f", which {number(found.first_seconds / saved, 2)} steps make up for" if saved > 0 else ""
        why += f"; the first step takes {found.first_seconds:.1f} s more{after}"
    if found.held_up:
        why += f"; {found.held_up}"
    kept = found.faster_within(KEPT[allow])
    if not kept and (wider := next((name for name, classes in KEPT.items() if found.faster_within(classes)), "")):
        why += f"; --allow {wider} keeps it"
    return TriedTip(change, found, kept, why)


def _keep_one_of_each_kind(found: Tuneup) -> None:
    for kind in {rung.change.kind for rung in found.kept} - {""}:
        several = [rung for rung in found.kept if rung.change.kind == kind]
        best = max(several, key=lambda rung: rung.found.gain.ratio)
        for rung in several:
            if rung is not best:
                place = found.rungs.index(rung)
                found.rungs[place] = TriedTip(rung.change, rung.found, False, f"{rung.why}; {best.change.name} gains more")


def _seen(look: dict[str, Any], others: str) -> list[str]:
    """What no switch changes: others on its GPU, waits of each step, and biases that batch norm takes away again."""
    notes = []
    if others and any(root["device"] == "cuda" for root in look["roots"]):
        notes.append(f"Others had a GPU open before the look ({others}): gains may be noisier there, and fewer copies fit.")
    for wait in sorted(look["waits"], key=lambda wait: (wait["file"], wait["line"])):
        if wait["a_step"] >= FEW_WAITS:
            place = f"{os.path.relpath(wait['file'])}:{wait['line']}"
            often = f"{wait['by'].strip('_')} {number(wait['a_step'], 2)} times a step"
            notes.append(f"{place}: {often}; on a GPU each waits for all kernels.")
    if look["biases"]:
        several = ", ".join(dict.fromkeys(look["biases"]))
        notes.append(f"A bias before batch norm is subtracted again: {several}; bias=False saves it (notebook 11).")
    return notes


# ---- the page ----------------------------------------------------------------------------------------------------------------


def page(found: Tuneup) -> str:
    """The page: the ladder with its intervals, the class of each change, and the lines of what is kept."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hpml_lab.referee", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    several = [*(rung.found for rung in found.rungs), found.together]
    gains = [each.gain for each in several if each and each.gain]
    most = max([1.25, *(gain.high for gain in gains)])
    least = min([0.8, *(gain.low for gain in gains)])

    def x(ratio: float) -> float:
        """Where a ratio stands in the ladder, in pixels."""
        return round(WIDTH * (ratio - least) / (most - least), 1)

    return environment.get_template(TEMPLATE).render(
        found=found,
        classes="; ".join(words for kind, words in IN_WORDS.items() if kind in KEPT[found.allow]),
        x=x,
        width=WIDTH,
        row=ROW,
        where=f"{machine.cpu_name()}, {machine.cores()} cores, Python {sys.version.split()[0]}",
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
