"""What an experiment finds: claims, key figures, and tables of typed rows."""

import dataclasses
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Claim:
    """A sentence that the run itself checked, and that could have failed.

    An exact claim holds on every machine (gradients agree, counts are right) and its text may be compared as stored output.
    A measured claim depends on the machine (4 workers beat 0), or on what `depends_on` names: `measured` gives the figure, and
    it may fail without breaking anything.
    """

    text: str
    holds: bool
    measured: str = ""
    exact: bool = True
    depends_on: str = "the machine"

    @property
    def mark(self) -> str:
        return "holds" if self.holds else ("FAILS" if self.exact else "does not hold here")


@dataclass(frozen=True)
class KeyFigure:
    """One line of the comparison with the lecture: what it said, and what this run measured (None: not measured here)."""

    label: str
    here: float | int | str | None = None
    unit: str = ""
    lecture: float | int | str | None = None

    @property
    def heading(self) -> str:
        return heading(self.label, self.unit)


def heading(label: str, unit: str) -> str:
    """A label with its unit, as tables and axes write it."""
    return f"{label}, {unit}" if unit else label


def column(label: str, unit: str = "", default: Any = MISSING) -> Any:
    """A field of a row's dataclass that is shown as a column: its heading and unit stand here, code uses the field's name.

    A field without `column` is saved with the result and not shown.
    """
    return dataclasses.field(default=default, metadata={"label": label, "unit": unit})


class Row:
    """The base of every dataclass whose objects are the rows of a table: only these does a saved result bring back."""

    _kinds: ClassVar[dict[tuple[str, str], type["Row"]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Row._kinds[_package(cls.__module__), cls.__name__] = cls

    @staticmethod
    def kind(name: str, module: str) -> type["Row"]:
        """The row class called `name` of the package that `module` is part of. Raises ValueError if it has none."""
        if (found := Row._kinds.get((_package(module), name))) is None:
            raise ValueError(f"no rows are called {name!r}")
        return found


def _package(module: str) -> str:
    return module.partition(".")[0]


@dataclass(frozen=True)
class Table:
    """Rows of one dataclass under one title.

    absent   fields of the dataclass that no row of the file has: it was written before they were
    """

    title: str
    rows: Sequence[Any]
    absent: frozenset[str] = frozenset()

    @property
    def columns(self) -> dict[str, str]:
        """{field: heading} of the columns that are shown: those with a value in any row. An empty table has none."""
        fields = dataclasses.fields(self.rows[0]) if self.rows else ()
        shown = [
            field
            for field in fields
            if "label" in field.metadata and any(getattr(row, field.name) is not None for row in self.rows)
        ]
        return {field.name: heading(field.metadata["label"], field.metadata["unit"]) for field in shown}

    def cells(self) -> list[list[Any]]:
        """The values that are shown, row by row."""
        return [[getattr(row, name) for name in self.columns] for row in self.rows]
