"""What an experiment gives back: measured rows, quantities, checked claims, and where it all ran."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.core import machine
from hpml_lab.core.errors import LabError
from hpml_lab.core.files import atomic_write
from hpml_lab.core.paths import REFERENCE

FORMAT = 1  # of the JSON file; raise it when a change makes old files unreadable


@dataclass(frozen=True)
class Claim:
    """A sentence that the run itself checked.

    An exact claim holds on every machine (gradients agree, counts are right) and its text may be compared as stored output.
    A measured claim depends on the machine (4 workers beat 0): `measured` gives the figure, and it may fail without breaking
    anything.
    """

    text: str
    holds: bool
    measured: str = ""
    exact: bool = True

    @property
    def mark(self) -> str:
        return "holds" if self.holds else ("FAILS" if self.exact else "does not hold here")


@dataclass
class Result:
    """One run of one experiment.

    rows        the table that was measured, one dict a row
    quantities  the few figures to set beside the lecture's and the reference's; a name ends with its unit
    claims      what the run checked
    notes       what this machine could not do, with the mend
    arrays      what the figure needs beyond the table

    The experiment fills in these five; the registry adds what it was and where it ran.
    """

    rows: list[dict[str, Any]]
    claims: list[Claim] = field(default_factory=list)
    quantities: dict[str, float | int | str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    arrays: dict[str, Any] = field(default_factory=dict)
    slug: str = ""
    size: str = ""
    device: str = ""
    seed: int = 0
    seconds: float = 0.0
    when: str = ""
    machine: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """True where every exact claim holds."""
        return all(claim.holds for claim in self.claims if claim.exact)

    @property
    def experiment(self):
        from hpml_lab.core.experiment import find  # the registry needs Result to be defined first

        return find(self.slug)

    def figure(self):
        """The experiment's figure of this run, or None for one that has none."""
        return self.experiment.figure(self)

    def reference(self) -> "Result | None":
        """The recorded run on a GPU machine, or None where none was recorded."""
        path = REFERENCE / f"{self.slug}.json"
        return Result.load(path) if path.is_file() else None

    def save(self, folder: Path | str) -> Path:
        """Write `<folder>/<slug>.json`, whole or not at all."""
        content = json.dumps({"format": FORMAT, **_plain(asdict(self))}, indent=1, allow_nan=False)
        return atomic_write(Path(folder) / f"{self.slug}.json", content + "\n")

    @classmethod
    def load(cls, path: Path | str) -> "Result":
        """Read a saved result. Raises LabError for a file that is damaged or from another format."""
        path = Path(path)
        try:
            record = json.loads(path.read_text())
            if record.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            record = _restored(record)
            record["claims"] = [Claim(**claim) for claim in record["claims"]]
            return cls(**record)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise LabError(f"{path} is not a readable result ({error}).", "Delete it and run the experiment again.") from error

    def where(self) -> str:
        """One line on where, when and how it ran."""
        return (
            f"{self.size} on {self.device}, {machine.label(self.machine)}, seed {self.seed}, {self.seconds:.1f} s, {self.when}"
        )

    def __repr__(self) -> str:
        """Short and the same on every machine, so that nbval can compare it: exact claims only."""
        exact = [claim for claim in self.claims if claim.exact]
        return "\n".join([f"{self.slug}", *(f"  {claim.mark}: {claim.text}" for claim in exact)])

    def _ipython_display_(self) -> None:
        from hpml_lab.core.render import show

        show(self)


# JSON has no word for these; in a file they are written as {"number": "inf"}, which every reader of JSON takes.
_ODD = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def _plain(value: Any) -> Any:
    """`value` in JSON's own types: arrays become lists, NumPy's scalars Python's."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # a NumPy array or scalar, or a tensor
        return _plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return {"number": str(value)}
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"number"}:
            return _ODD[value["number"]]
        return {key: _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value
