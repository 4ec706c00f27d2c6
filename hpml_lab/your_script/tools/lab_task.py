"""What a step of a lab is given, and what it gives back."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpml_lab.core.experiment import Table
from hpml_lab.your_script.tools.script_runs import ScriptRun

LATE = 3  # times its seconds has a step for a run that it has begun


@dataclass(frozen=True)
class Lab:
    """A script, and how long each step may take.

    script      the words after `python`
    folder      for what a step writes besides its tables
    seconds     after which a step begins no further run
    accuracies  of the script as it is and with other seeds, as the step `seeds` has found them
    runs        {options: what the script printed with them}: several steps compare with the script as it is
    """

    script: Sequence[str]
    folder: Path
    seconds: float = 60.0
    accuracies: list[float] = field(default_factory=list)
    runs: dict[tuple[str, ...], ScriptRun] = field(default_factory=dict)

    def note_seeds(self, accuracies: Iterable[float | None]) -> None:
        """Keep what the script reaches with each seed, as far as that is a number."""
        self.accuracies[:] = [found for found in accuracies if found is not None and math.isfinite(found)]

    @property
    def words(self) -> list[str]:
        """The script's words, of which `--lr=0.1` is two."""
        return [part for word in self.script for part in (word.split("=", 1) if word.startswith("--") else [word])]


@dataclass(frozen=True)
class Findings:
    """What a step has found: sentences, of which one with several lines is code, and tables."""

    says: list[str]
    tables: list[Table]


class NotDone(Exception):
    """A step cannot be done; its text says why."""


class NotHere(NotDone):
    """A step that this machine cannot do, whatever the script is."""


@dataclass(frozen=True)
class LabTask:
    """One step as it is asked: a question to answer before it runs, the notebook that explains it, and what runs."""

    name: str
    title: str
    question: str
    notebook: str
    run: Callable[[Lab], Findings]


def not_run(lab: Lab, names: Sequence[str]) -> list[str]:
    """A sentence about what a step had no time for, if there is such."""
    return [f"Not run within {lab.seconds:.0f} s: {'; '.join(names)}. --again with more --seconds does."] if names else []
