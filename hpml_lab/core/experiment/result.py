"""What an experiment returns: figure, key figures, checked claims, tables of typed rows, and where it all ran."""

import dataclasses
import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from hpml_lab.core.experiment import render
from hpml_lab.core.experiment.findings import Claim, KeyFigure, Table
from hpml_lab.core.experiment.older import REWORDED, REWORDED_ON, lacking, older_note
from hpml_lab.core.experiment.result_json import UNREADABLE, read_record, result_fields, written_record
from hpml_lab.core.show.picture import show_line, show_picture
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.readers import reader


@dataclass
class Result:
    """One run of one experiment, filled in the order in which it is read.

    tables       the measured rows, each table of one dataclass
    key_figures  the few numbers to compare with the lecture's and a recorded run's
    claims       what the run checked about the lecture's subject
    checks       what the run checked about itself, such as a setting that was restored; shown apart
    notes        what this machine could not do, and how to change that
    arrays       what the figure needs beyond the tables

    The experiment fills these in; the registry adds what it was and where it ran. One that ran in processes of its own alone,
    where the registry sees no GPU at work, sets `device` itself.
    """

    tables: list[Table] = field(default_factory=list)
    key_figures: list[KeyFigure] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    checks: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    arrays: dict[str, Any] = field(default_factory=dict)
    slug: str = ""
    size: str = ""
    device: str = ""
    seed: int = 0
    seconds: float = 0.0
    when: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    experiment: Any = field(default=None, repr=False, compare=False)  # who ran it: not saved

    # ---- what an experiment writes -------------------------------------------------------------------------------

    def key_figure(
        self, label: str, here: float | int | str | None = None, unit: str = "", lecture: float | int | str | None = None
    ) -> None:
        """Add a number to compare: `here` as measured (None: not on this machine), `lecture` as the lecture gives it."""
        self.key_figures.append(KeyFigure(label, here, unit, lecture))

    def claim(self, text: str, holds: bool, measured: str = "") -> None:
        """Add a statement about the lecture's subject that is true on every machine."""
        self.claims.append(Claim(text, bool(holds), measured))

    def measured(self, text: str, holds: bool, measured: str, depends_on: str = "the machine") -> None:
        """Add a statement that may fail on some machine, or with other seeds (`depends_on`); `measured` gives the figure."""
        self.claims.append(Claim(text, bool(holds), measured, exact=False, depends_on=depends_on))

    def check(self, text: str, holds: bool, measured: str = "") -> None:
        """Add a check of the experiment itself, such as a setting that was restored."""
        self.checks.append(Claim(text, bool(holds), measured))

    # ---- what is read from it ------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """True if every exact claim and every check holds."""
        return all(claim.holds for claim in [*self.claims, *self.checks] if claim.exact)

    def rows(self, kind: type | None = None) -> list[Any]:
        """All rows of the dataclass `kind`; without an argument the rows of the first table."""
        if kind is None:
            return list(self.tables[0].rows) if self.tables else []
        return [row for table in self.tables for row in table.rows if isinstance(row, kind)]

    def here(self, label: str) -> float | int | str | None:
        """A key figure's value in this run. Raises KeyError, with the labels that exist, for an unknown one."""
        values = {figure.label: figure.here for figure in self.key_figures}
        if label not in values:
            raise KeyError(f"no key figure is called {label!r}; there are {', '.join(values) or 'none'}")
        return values[label]

    def figure(self):
        """The experiment's figure of this run, or None if it has none."""
        return self.experiment.figure(self)

    @functools.cached_property
    def _recorded(self) -> "tuple[Result | None, str]":
        """The recorded run, if there is one to show, and otherwise a note if there should be one."""
        try:
            return self.experiment.reference(), ""
        except LabError as error:
            return None, f"The recorded run cannot be shown: {error.problem}"

    def reference(self) -> "Result | None":
        """The recorded run, or None if none was recorded or it is damaged; `all_notes` then says why."""
        return self._recorded[0]

    @property
    def ran_on(self) -> str:
        """The GPUs that it used, or else the processor, and torch's version."""
        return machine.label(self.machine, self.device)

    @property
    def where(self) -> str:
        """One line on where, when and how it ran."""
        launch = self.machine.get("launch_us")
        launch = f", a launch takes {launch:g} µs" if launch else ""
        return f"{self.size} on {self.device}, {self.ran_on}{launch}, seed {self.seed}, {self.seconds:.1f} s, {self.when}"

    def all_notes(self) -> list[str]:
        """The run's notes, and whose the recorded run is, or why it is not shown."""
        reference, damage = self._recorded
        note = damage if reference is None else f"The reference is a recorded run: {reference.where}."
        reworded = reference is not None and self.slug in REWORDED and reference.when < REWORDED_ON
        return [*self.notes, *([note] if note else []), *older_note(self.record_lacks(), reworded)]

    def record_lacks(self) -> list[str]:
        """What this run shows and the recorded one does not, because it is older than the code."""
        return lacking(record, self) if (record := self.reference()) else []

    def side_by_side(self) -> list[list[Any]]:
        """[label with unit, lecture, here, recorded] of each key figure of this run or of the recorded one.

        On a CPU, what only a GPU shows is a figure of the recorded run alone.
        """
        recorded = self.reference()
        here = {figure.label: figure for figure in self.key_figures}
        there = {figure.label: figure for figure in recorded.key_figures} if recorded else {}
        return [
            [found.heading, found.lecture, getattr(here.get(label), "here", None), getattr(there.get(label), "here", None)]
            for label, found in [(label, here.get(label) or there[label]) for label in here | there]
        ]

    def comparison(self) -> tuple[list[str], list[list[Any]]]:
        """Headings and rows that compare the key figures: lecture, here, reference; a column without a value is left out."""
        recorded, rows = self.reference(), self.side_by_side()
        names = ["", "lecture", self._column("here", recorded)]
        names.append(f"{recorded._column('reference', self)}: {recorded.ran_on}" if recorded else "reference")
        kept = [0, *(i for i in (1, 2, 3) if any(row[i] is not None for row in rows))]
        return [names[i] for i in kept], [[row[i] for i in kept] for row in rows]

    def _column(self, name: str, other: "Result | None") -> str:
        """The name of this run's column, with size and data set where the other run's differ."""
        if other is None or self.size == other.size or self.experiment.quick == self.experiment.full:
            return name
        return f"{name} ({', '.join([self.size, *self._data()])})"

    def _data(self) -> list[str]:
        """The data set that this run used or that its size names, such as ["digits"]; none for most experiments."""
        sizes = {"quick": self.experiment.quick, "full": self.experiment.full}  # a size from a file is no name of an attribute
        data = self.arrays.get("data") or sizes.get(self.size.partition(",")[0], {}).get("data")
        return [data] if isinstance(data, str) else []

    # ---- how it shows and saves itself ---------------------------------------------------------------------------

    def __repr__(self) -> str:
        """Short and the same on every machine, so that nbval can compare it: exact claims only."""
        exact = [claim for claim in self.claims if claim.exact]
        return "\n".join([self.slug, *(f"  {claim.mark}: {claim.text}" for claim in exact)])

    def text(self) -> str:
        """The whole result for a terminal, in the order in which a notebook shows it."""
        return render.text(self)

    def html(self) -> str:
        """The whole result but for its picture, as HTML."""
        return render.card(self)

    def pictures(self) -> list[tuple[Any, str]]:
        """(figure, caption): this run's, and the recorded run's if there is one and it may look different.

        Of two pictures each caption says whose it is.
        """
        caption = self.experiment.caption
        figures = [(self.figure(), caption)]
        if (reference := self.reference()) is not None and not self.experiment.same_picture:
            try:
                figures.append((reference.figure(), f"Recorded run, {reference.where}: {caption}"))
                figures[0] = figures[0][0], f"This run, {self.size}: {caption}"
            except Exception as error:  # its file is whole, but what it holds cannot be drawn: this run is shown all the same
                self._recorded = None, f"The recorded run cannot be shown: {type(error).__name__}: {error}."
        return [(figure, words) for figure, words in figures if figure is not None]

    def _ipython_display_(self) -> None:
        from IPython.display import display

        for figure, caption in self.pictures():
            if label := caption.removesuffix(self.experiment.caption).strip():  # "This run, ...:"
                show_line(label)
            show_picture(figure, caption)
        about = {"hpml": {"slug": self.slug, "device": self.device, "record_lacks": self.record_lacks()}}
        display({"text/html": self.html(), "text/plain": repr(self)}, raw=True, metadata=about)

    def save(self, folder: Path | str) -> Path:
        """Write `<folder>/<slug>.json`, completely or not at all."""
        content = written_record({name: getattr(self, name) for name in SAVED})
        return atomic_write(Path(folder) / f"{self.slug}.json", content)


SAVED = [item.name for item in dataclasses.fields(Result) if item.name != "experiment"]
HINTS = {name: hint for name, hint in get_type_hints(Result).items() if name in SAVED} | {"machine": machine.MachineRecord}


@reader(*UNREADABLE)
def load_record(path: Path, experiment: Any) -> Result:
    """Read a saved result of `experiment`.

    Raises LabError for a file that is damaged, in another format, of another experiment, or from an older row type.
    """
    result = Result(**result_fields(read_record(path), HINTS, experiment.function.__module__), experiment=experiment)
    if result.slug != experiment.slug:
        raise ValueError(f"it is one of {result.slug!r}, not of {experiment.slug!r}")
    return result
