"""Sentences that read a figure, run: each is checked on this run and on the recorded one, and says so where it does not hold.

In a notebook, in a cell with the tag `reading` whose source is hidden, below the question that it answers:

    reading(result, {
        "Momentum 0.9 leaves the plateau {:.0f} times as fast as the lecture's setting":
            lambda run: (run.here("times sooner, momentum") > 5, run.here("times sooner, momentum")),
    })
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpml_lab.core.experiment.render import folded
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.show import style
from hpml_lab.core.show.prose import prose_html
from hpml_lab.core.system.errors import LabError

HOLDS, FAILS, UNMEASURED = "holds", "does not hold", "not measured"
# What a reading raises where a run holds less than it asks for: an older record, a machine without a GPU.
HOLDS_LESS = (LookupError, AttributeError, TypeError, ValueError, StopIteration, ZeroDivisionError)
FIELD = re.compile(r"\{[^{}]*\}")

Read = Callable[[Result], Any]


@dataclass(frozen=True)
class Said:
    """A sentence with the figures of one run, and whether it holds there; `why` it could not be evaluated."""

    text: str
    state: str
    why: str = ""


@dataclass(frozen=True)
class Reading:
    """Sentences about one result: as they read with this run's figures, and with the recorded run's where these differ."""

    summary: str
    templates: tuple[str, ...]
    here: tuple[Said, ...]
    recorded: tuple[Said, ...] = ()
    machine: str = field(default="", compare=False)

    def failing(self) -> list[str]:
        """The sentences that do not hold, and whose run that shows. One that raises in this run fails, too."""
        wrong = [f"this run: {said.text} ({said.why or FAILS})" for said in self.here if said.state == FAILS]
        return wrong + [f"recorded run: {said.text}" for said in self.recorded if said.state == FAILS]

    def __repr__(self) -> str:
        """The sentences without their figures: the same on every machine, so that nbval can compare it."""
        return "\n".join([f"{self.summary}:", *(f"  {FIELD.sub('…', text)}" for text in self.templates)])

    def _repr_html_(self) -> str:
        recorded = self.recorded or (None,) * len(self.here)
        lines = [line for pair in zip(self.here, recorded, strict=True) for line in self._lines(*pair)]
        return folded(f"<b>{self.summary}</b>", "".join(lines))

    def _lines(self, here: Said, recorded: Said | None) -> list[str]:
        lines = [] if here.state == UNMEASURED and recorded and recorded.state != UNMEASURED else [_line(here, "here")]
        if recorded and recorded.state != UNMEASURED and recorded != here:
            lines.append(_line(recorded, f"in the recorded run, {self.machine}"))
        return lines


def _line(said: Said, where: str) -> str:
    if said.state == UNMEASURED:
        return f'<p style="margin:.3em 0;opacity:.7">Not measured {where}: {prose_html(said.text)}</p>'
    if said.state == FAILS:
        why = f" <small>({prose_html(said.why)})</small>" if said.why else ""
        word = f"<b>Does not hold {where}:</b> "
        return (
            f'<p data-reading="fails" style="border-left:4px solid {style.RED};padding-left:.6em;margin:.3em 0">'
            f"{word}{prose_html(said.text)}{why}</p>"
        )
    return f'<p style="margin:.3em 0">{prose_html(said.text)}{"" if where == "here" else f" <small>({where})</small>"}</p>'


def reading(result: Result, sentences: Mapping[str, Read], summary: str = "Answer") -> Reading:
    """Check sentences that read a result's figures, on this run and on the recorded one; shown folded under `summary`.

    sentences  {sentence: function of a run}. The function returns whether the sentence holds, or (holds, value, …) where the
               values fill the sentence's {braces}; None for `holds` says that the run did not measure it.

    Raises LabError for a sentence whose braces the values do not fill.
    """
    record = result.reference() if result.experiment else None
    here = tuple(_said(text, read, result) for text, read in sentences.items())
    there = tuple(_of_record(text, read, record) for text, read in sentences.items()) if record else ()
    return Reading(summary, tuple(sentences), here, there, record.ran_on if record else "")


def _said(text: str, read: Read, run: Result) -> Said:
    try:
        found = read(run)
    except HOLDS_LESS as error:
        return Said(FIELD.sub("…", text), FAILS, f"{type(error).__name__}: {error}")
    holds, *values = found if isinstance(found, tuple) else (found,)
    if holds is None:
        return Said(FIELD.sub("…", text), UNMEASURED)
    try:
        return Said(text.format(*values), HOLDS if holds else FAILS)
    except (IndexError, ValueError, TypeError) as error:
        raise LabError(
            f"The values {values} do not fill the sentence {text!r}: {error}.", "Return (holds, a value for each {…})."
        ) from error


def _of_record(text: str, read: Read, record: Result) -> Said:
    """As `_said`, where a run that holds less was made before the sentence was written."""
    said = _said(text, read, record)
    return Said(said.text, UNMEASURED) if said.why else said
