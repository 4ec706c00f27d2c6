"""Points for what is handed in: which parts of a lab are there, what is missing, and which figures cannot be."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.your_script.tools.lab_report import DONE, FILE, NOT_HERE, LabReport, LabStep, implausible, read_report, said
from hpml_lab.your_script.tools.lab_steps import task_called

CACHED = 64e6  # bytes: so many may come from a cache, which is faster than main memory
TOLERANCE = 2.0  # of a limit that was measured by a copy: it moves a line more than it counts, and a sum moves none
MOST = {"gb_per_s": 2e4, "gflop_per_s": 5e6}  # above those of any one machine


@dataclass(frozen=True)
class LabPoints:
    """The points of one part of a lab, of how many, and why they are not all."""

    points: int
    of: int
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"{self.points} of {self.of} points", *self.problems])


def shortcomings(report: LabReport, steps: Collection[str]) -> list[str]:
    """What costs a report points, with the names of the steps: no run, no words, figures that cannot be."""
    found: dict[str, list[str]] = {}
    for name in steps:
        for problem in chain(*_problems(report, report.step(name))):
            found.setdefault(problem, []).append(name)
    return [f"{', '.join(names)}: {problem}" for problem, names in found.items()]


def report_points(folder: Path | str, steps: Sequence[str]) -> LabPoints:
    """Two points for each of the steps in a folder's report: one for what was measured, one for prediction and sentence.

    A step that the machine could not do counts as measured where others could be; one that the script failed in does not, nor
    does one with a figure that cannot be. A report that is missing or damaged gives none, and says so. Raises LabError for a
    step that there is none of.
    """
    for name in steps:
        task_called(name)
    try:
        report = read_report(Path(folder) / FILE)
    except LabError as error:
        return LabPoints(0, 2 * len(steps), [str(error)])
    found = {name: _problems(report, report.step(name)) for name in steps}
    points = sum(2 - bool(wrong) - bool(silent) for name, (wrong, silent) in found.items() if report.step(name).state)
    problems = [f"{name}: {'; '.join(chain(*both))}" for name, both in found.items() if any(both)]
    return LabPoints(points, 2 * len(steps), problems)


def _problems(report: LabReport, step: LabStep) -> tuple[list[str], list[str]]:
    """What is wrong with a step's measurement, and with the words about it."""
    if not step.state:
        return ["not run"], []
    wrong = implausible(report, report.tables_of(step))
    if step.state != DONE and not (step.state == NOT_HERE and report.step("parts").state == DONE):
        wrong = [f"not measured: {' '.join(step.says)}"]
    return wrong, [f"no {name}" for name in ("prediction", "sentence") if not said(getattr(step, name))]


def kernel_points(measured: Any, *, gb_per_s: Any, gflop_per_s: Any, intensity: float, at_least: int) -> LabPoints:
    """One point for each kernel that is not faster than the roofline: seconds ≥ max(bytes / bandwidth, FLOPs / peak).

    measured     {name: (bytes, FLOPs, seconds)}
    gb_per_s     the machine's bandwidth on all cores, as a copy measures it; up to 64 MB may come from a cache: not held to it
    gflop_per_s  its peak on all cores
    intensity    FLOP per byte of what was asked for, which each kernel has
    at_least     kernels that are asked for; more give no more points

    A kernel may be twice as fast as the limits say, because a copy is no exact limit. What is no number, not positive or no
    machine's gives no point, and is named.
    """
    limits = {"gb_per_s": gb_per_s, "gflop_per_s": gflop_per_s}
    if wrong := [name for name, value in limits.items() if not _number(value, MOST[name])]:
        problems = [f"{name} is {limits[name]!r}, not a number above 0 and up to {MOST[name]:g}" for name in wrong]
        return LabPoints(0, at_least, problems)
    if not isinstance(measured, Mapping):
        return LabPoints(0, at_least, [f"what was measured is {measured!r}, not {{name: (bytes, FLOPs, seconds)}}"])
    found = {name: _wrong_kernel(row, gb_per_s, gflop_per_s, intensity) for name, row in measured.items()}
    problems = [f"{name}: {why}" for name, why in found.items() if why]
    right = len(measured) - len(problems)
    if len(measured) < at_least:
        problems.append(f"{len(measured)} of {at_least} kernels are there")
    return LabPoints(min(right, at_least), at_least, problems)


def _number(value: Any, most: float = 1e30) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < value <= most


def _wrong_kernel(row: Any, gb_per_s: float, gflop_per_s: float, intensity: float) -> str:
    """Why a kernel's figures cannot be; "" where they can."""
    if not (isinstance(row, Sequence) and len(row) == 3 and all(map(_number, row))):
        return f"{row!r} is not (bytes, FLOPs, seconds), three numbers above 0"
    size, flops, seconds = map(float, row)
    if not math.isclose(flops / size, intensity, rel_tol=0.01):
        return f"{flops:.3g} FLOPs for {size:.3g} bytes are {flops / size:.3g} FLOP/byte, not {intensity:g}"
    moved, computed = (size / gb_per_s / 1e9 if size > CACHED else 0.0), flops / gflop_per_s / 1e9
    if TOLERANCE * seconds >= max(moved, computed):
        return ""
    if moved > computed:
        return f"{seconds:.3g} s, and {size:.3g} bytes at {gb_per_s:.3g} GB/s take {moved:.3g} s"
    return f"{seconds:.3g} s, and {flops:.3g} FLOPs at {gflop_per_s:.3g} GFLOP/s take {computed:.3g} s"
