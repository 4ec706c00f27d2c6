"""What a lab has found: one JSON file, to which each step is added when it is done, and from which the page is made."""

import importlib
import typing
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from hpml_lab.core.experiment import Table
from hpml_lab.core.experiment.result_json import read_record, result_fields, written_record
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.paths import REFERENCE
from hpml_lab.core.system.readers import reader
from hpml_lab.your_script.tools.script_runs import EpochRow, more_than_whole

FILE = "report.json"
DONE, NOT_DONE, NOT_HERE = "done", "not done", "not here"  # states of a step; "" until it is tried


@dataclass
class LabStep:
    """One step of a lab.

    state       DONE; NOT_DONE, or NOT_HERE where this machine cannot do it whatever the script: `says` has the reason
    says        what was found, in sentences; one with several lines is code
    tables      the titles of its tables in the report
    prediction  what the reader expected before it ran
    sentence    what the reader says of it afterwards
    script      the sha256 of the script's file when it ran
    """

    name: str
    state: str = ""
    says: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    seconds: float = 0.0
    prediction: str = ""
    sentence: str = ""
    script: str = ""


@dataclass
class LabReport:
    """All that is known of one script on one machine.

    commit  of this project's code, with which the last step ran; "" in a report of before, and where nobody knows it
    """

    script: str = ""
    machine: str = ""
    cores: int = 0
    gpu: str = ""
    torch: str = ""
    commit: str = ""
    steps: list[LabStep] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def where(self) -> str:
        """What it ran on, in a line."""
        return f"{self.machine}, {self.cores} cores, {self.gpu or 'no GPU'}, torch {self.torch}"

    def step(self, name: str) -> LabStep:
        """The step of this name, which is added where there is none yet."""
        found = next((step for step in self.steps if step.name == name), None)
        if found is None:
            self.steps.append(found := LabStep(name))
        return found

    def tables_of(self, step: LabStep) -> list[Table]:
        return [table for table in self.tables if table.title in step.tables]

    def keep(
        self, name: str, state: str, says: Sequence[str], tables: Sequence[Table], seconds: float, script: str = ""
    ) -> None:
        """Put what a step has found in place of what it found before; prediction and sentence stay."""
        step = self.step(name)
        self.tables = [table for table in self.tables if table.title not in step.tables] + list(tables)
        step.state, step.says, step.seconds, step.script = state, list(says), seconds, script
        step.tables = [table.title for table in tables]

    def write(self, folder: Path | str) -> Path:
        """Write FILE into a folder, whole or not at all."""
        record = {name: value for name, value in asdict(self).items() if name != "tables"}
        return atomic_write(Path(folder) / FILE, written_record(record | {"tables": self.tables}))


def scalars(report: LabReport) -> list[tuple[str, float, int]]:
    """(name, value, row) of each number in a report's tables: what TensorBoard and Weights & Biases take."""
    return [
        (f"{table.title}/{heading}", float(value), at)
        for table in report.tables
        for at, row in enumerate(table.cells())
        for heading, value in zip(table.columns.values(), row, strict=True)
        if isinstance(value, int | float)
    ]


ANOTHER = "Move it away, or name another folder (--out; in a notebook LabNotebook's folder)."
BY_HAND = "Take back what was changed by hand (--explain changes a sentence), or move it away."
HINTS = typing.get_type_hints(LabReport)


@reader("a lab's report of this version", BY_HAND)
def read_report(path: Path | str) -> LabReport:
    """The report in a file. Raises LabError for one that is damaged, of another version, or none."""
    importlib.import_module("hpml_lab.your_script.tools.lab_steps")  # it registers the rows of all steps
    try:
        record = read_record(Path(path))
    except LabError as error:
        raise LabError(error.problem, BY_HAND) from error
    return LabReport(**result_fields({"commit": "", **record}, HINTS, __name__))


def recorded_report() -> LabReport | None:
    """A whole lab on the template, which is shown beside the reader's own; None where none is recorded."""
    path = REFERENCE / "lab" / FILE
    return read_report(path) if path.exists() else None


def said(text: str) -> bool:
    """Whether a prediction or a sentence was written, and no mere placeholder."""
    return text.strip(" .…") != ""


def report_in(folder: Path | str, script: Sequence[str], *, measured_here: bool = True) -> LabReport:
    """The report that a folder holds of this script on this machine; a new one where it holds none.

    measured_here  False for words alone, which may be written on another machine than that of the figures

    Raises LabError for a report of another script, or one of another machine: its figures would stand beside these.
    """
    here = LabReport(" ".join(script), machine.cpu_name(), machine.cores(), _gpu(), torch.__version__.split("+")[0])
    if not (path := Path(folder) / FILE).exists():
        return here
    found = read_report(path)
    compared = {"script": "the script"}
    if measured_here and any(step.state for step in found.steps):
        compared |= {"machine": "the machine", "cores": "its cores", "gpu": "the GPU", "torch": "torch"}
    elif measured_here:  # so far it holds predictions
        found.machine, found.cores, found.gpu, found.torch = here.machine, here.cores, here.gpu, here.torch
    for name, what in compared.items():
        if (before := getattr(found, name)) != (now := getattr(here, name)):
            problem = f"{path} is a report of another run: {what} was {before or 'none'}, and is {now or 'none'}."
            raise LabError(problem, ANOTHER)
    return found


def _gpu() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def implausible(report: LabReport, tables: Iterable[Table]) -> list[str]:
    """What cannot be in a report's tables: a speed-up above the ranks, a GPU without one, times that are not positive."""
    found = []
    for table in tables:
        for row in table.rows:
            found += [f"{table.title}: {problem}" for problem in _wrong(row, report)]
    return found


def _wrong(row: Any, report: LabReport) -> Iterable[str]:
    values = asdict(row)
    if (ranks := values.get("ranks")) and (speed_up := values.get("speed_up")) and speed_up / 1.25 > ranks:
        yield f"{ranks} ranks are {speed_up:.3g} times as fast as one"
    if values.get("run") == "cuda" and not report.gpu:
        yield "figures of a GPU, and the report names none"
    if (peak := values.get("peak")) and values["rate"] > 2 * peak:  # of a large product or convolution, no exact limit
        yield f"{values['rate']:.3g} GFLOP/s, and the peak is {peak:.3g}"
    if isinstance(row, EpochRow) and more_than_whole(row):
        yield f"load {row.load:g} s and train {row.train:g} s in an epoch of {row.total:g} s"
    for name, value in values.items():
        if name in ("total", "train", "seconds") and isinstance(value, float) and not value > 0:
            yield f"{name} of {value:g} s"
