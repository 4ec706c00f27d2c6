"""What an experiment returns: figure, key figures, checked claims, tables of typed rows, and where it all ran."""

import dataclasses
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.core import kept, machine, render
from hpml_lab.core.errors import LabError
from hpml_lab.core.files import atomic_write
from hpml_lab.core.findings import Claim, KeyFigure, Table

FORMAT = 2  # of the JSON file; raise it when a change makes old files unreadable


@dataclass
class Result:
    """One run of one experiment, filled in the order in which it is read.

    tables       the measured rows, each table of one dataclass
    key_figures  the few numbers to compare with the lecture's and a recorded run's
    claims       what the run checked about the lecture's subject
    checks       what the run checked about itself, such as a setting that was restored; shown apart
    notes        what this machine could not do, and how to change that
    arrays       what the figure needs beyond the tables

    The experiment fills these in; the registry adds what it was and where it ran.
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

    def reference(self) -> "Result | None":
        """The recorded run, or None if none was recorded."""
        return self.experiment.reference()

    @property
    def where(self) -> str:
        """One line on where, when and how it ran."""
        return (
            f"{self.size} on {self.device}, {machine.label(self.machine)}, seed {self.seed}, {self.seconds:.1f} s, {self.when}"
        )

    def all_notes(self) -> list[str]:
        """The run's notes, and whose the recorded run is, if one is shown."""
        reference = self.reference()
        if reference is None:
            return list(self.notes)
        return [*self.notes, f"The reference is a recorded run: {reference.where}."]

    def comparison(self) -> tuple[list[str], list[list[Any]]]:
        """Headings and rows that compare the key figures: lecture, here, reference; a column without a value is left out."""
        recorded = self.reference()
        reference = {figure.label: figure.here for figure in recorded.key_figures} if recorded else {}
        rows = [[figure.heading, figure.lecture, figure.here, reference.get(figure.label)] for figure in self.key_figures]
        names = ["", "lecture", "here", f"reference: {machine.label(recorded.machine)}" if recorded else "reference"]
        kept = [0, *(i for i in (1, 2, 3) if any(row[i] is not None for row in rows))]
        return [names[i] for i in kept], [[row[i] for i in kept] for row in rows]

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
        """(figure, caption): this run's, and the recorded run's if there is one."""
        caption = self.experiment.caption
        runs = [(self, caption)]
        if (reference := self.reference()) is not None:
            runs.append((reference, f"Recorded run, {reference.where}: {caption}"))
        figures = [(run.figure(), words) for run, words in runs]
        return [(figure, words) for figure, words in figures if figure is not None]

    def _ipython_display_(self) -> None:
        from IPython.display import display

        kept.keep(self)
        for figure, caption in self.pictures():
            if label := caption.removesuffix(self.experiment.caption).strip():  # "Recorded run, ...:"
                render.show_line(label)
            render.show_picture(figure, caption)
        display({"text/html": self.html(), "text/plain": repr(self)}, raw=True)

    def save(self, folder: Path | str) -> Path:
        """Write `<folder>/<slug>.json`, completely or not at all."""
        record = {name: getattr(self, name) for name in SAVED}
        record["tables"] = [_table_record(table) for table in self.tables]
        content = json.dumps({"format": FORMAT, **_plain(record)}, indent=1, allow_nan=False)
        return atomic_write(Path(folder) / f"{self.slug}.json", content + "\n")


SAVED = [item.name for item in dataclasses.fields(Result) if item.name != "experiment"]


def from_record(path: Path, row_types: dict[str, type], experiment: Any) -> Result:
    """Read a saved result. Raises LabError for a file that is damaged, in another format, or from an older row type.

    row_types  {name of the dataclass: the dataclass}, from the experiment's module
    """
    try:
        record = _restored(read_record(path))
        record["tables"] = [
            Table(table["title"], [row_types[table["row_type"]](**row) for row in table["rows"]]) for table in record["tables"]
        ]
        record["key_figures"] = [KeyFigure(**figure) for figure in record["key_figures"]]
        record["claims"], record["checks"] = ([Claim(**claim) for claim in record[kind]] for kind in ("claims", "checks"))
        return Result(**record, experiment=experiment)
    except (TypeError, KeyError, AttributeError) as error:
        raise _unreadable(path, error) from error


def read_record(path: Path) -> dict[str, Any]:
    """The saved record as plain JSON, without its format number; LabError if it cannot be read."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        if record.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        return record
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> LabError:
    return LabError(f"{path} is not a readable result ({error}).", "Delete it and run the experiment again.")


def _table_record(table: Table) -> dict[str, Any]:
    """A table with the name of its row type, so that loading gives typed rows back."""
    row_type = type(table.rows[0]).__name__ if table.rows else ""
    return {"title": table.title, "row_type": row_type, "rows": [asdict(row) for row in table.rows]}


# JSON has no word for these; in a file they are written as {"number": "inf"}, which every reader of JSON takes.
_NOT_FINITE = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def _plain(value: Any) -> Any:
    """`value` in JSON's own types: arrays become lists, NumPy's scalars Python's."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return _plain(asdict(value))
    if hasattr(value, "tolist"):  # a NumPy array or scalar, or a tensor
        return _plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return {"number": str(value)}
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"number"}:
            return _NOT_FINITE[value["number"]]
        return {key: _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value
