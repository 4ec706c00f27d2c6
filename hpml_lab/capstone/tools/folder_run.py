"""A folder of patients through the pipeline: each result is written as soon as it is there, and a run that is repeated resumes.

    report = run_folder("scans", "results", LungPipeline(network, FAST))
    report.detections["patient-0003"]          # (n, 5): z, y, x, radius in mm, score
    report.failures                            # which file failed in which stage, and what to do; the others went on

In the folder of results each patient has a file `<name>.json`, or `<name>.failed.json` that names file and stage. Both are
written whole or not at all. A further run computes what has no result yet, what failed, and what was computed by another
pipeline or from another version of the scan's file.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from hpml_lab import distributed
from hpml_lab.capstone.tools import reading, scans
from hpml_lab.capstone.tools.ct import Scan
from hpml_lab.capstone.tools.lung_pipeline import LungPipeline, PatientOutcome, PipelineSwitches
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.readers import RECORD, reader, text_of
from hpml_lab.core.system.sealed import sealed_record, unsealed_record
from hpml_lab.core.system.shared_clock import CLOCK

RESULT_FORMAT = 2  # of a result's file
FAILED = ".failed.json"


@dataclass(frozen=True)
class PatientFailure:
    """A patient without a result: the file, the stage that failed, what is wrong and how to fix it."""

    name: str
    file: str
    stage: str
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.file}, stage {self.stage}: {self.problem} {self.fix}".strip()


@dataclass
class FolderReport:
    """What a run over a folder left behind.

    detections  {patient: (n, 5)} of all patients that have a result now
    computed    the patients whose result this run computed; the other results were there already
    failures    {patient: PatientFailure}
    seconds     of the run; on ranks of the slowest, from the moment at which it began with its patients
    """

    detections: dict[str, np.ndarray] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)
    failures: dict[str, PatientFailure] = field(default_factory=dict)
    seconds: float = 0.0


def run_folder(
    folder: str | Path | Sequence[Path],
    results: str | Path,
    pipeline: LungPipeline,
    *,
    load: Callable[[Path], Scan] | None = None,
    share: tuple[int, int] = (0, 1),
) -> FolderReport:
    """Run the pipeline over all scans of a folder and keep each result at once.

    folder   that of the scans, or the paths themselves; threads and prefetching are switches of the pipeline
    results  folder of the results; it is made if there is none
    load     (path) -> Scan; by default `scans.load`, which needs no annotations
    share    (rank, ranks): only every ranks-th patient, from `rank` on
    Raises LabError for a folder without scans, for two scans of one name, and if a result cannot be written.
    """
    paths = scans.find_scans(folder) if isinstance(folder, str | os.PathLike) else [Path(path) for path in folder]
    named = _by_name(paths)
    rank, ranks = share
    if not 0 <= rank < ranks:
        raise LabError(f"There is no rank {rank} among {ranks}.", "Count ranks from 0.")
    mine = dict(list(named.items())[rank::ranks])
    start, results, settings, report = CLOCK(), Path(results), fingerprint_of(pipeline), FolderReport()
    for name in mine:
        found = read_result(results, name, settings, mine[name])
        if found is not None:
            report.detections[name] = found
    todo = {path: (name, stamp(path)) for name, path in mine.items() if name not in report.detections}  # stamps before reading
    for outcome in pipeline.run(todo, load or _load):
        _keep(outcome, *todo[outcome.source], results, settings, report)
    report.seconds = CLOCK() - start
    return report


def run_on_ranks(
    folder: str | Path,
    results: str | Path,
    network: nn.Module,
    switches: PipelineSwitches,
    *,
    ranks: int = 2,
    device: torch.device | str = "cpu",
    deadline_seconds: float = 600.0,
) -> FolderReport:
    """`run_folder` on N ranks of notebook 13's launcher: rank r takes every N-th patient; with "cuda" each rank has a GPU."""
    paths = scans.find_scans(folder)
    _by_name(paths)  # an error is raised here, before any rank starts
    reports = distributed.launch(
        _rank, paths, results, network, switches, str(device), ranks=ranks, device=device, deadline_seconds=deadline_seconds
    )
    whole = FolderReport(seconds=max(report.seconds for report in reports))
    for report in reports:
        whole.detections |= report.detections
        whole.computed += report.computed
        whole.failures |= report.failures
    return whole


def _rank(paths: list[Path], results: Path, network: nn.Module, switches: PipelineSwitches, device: str) -> FolderReport:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on = f"cuda:{rank}" if device == "cuda" else device
    return run_folder(paths, results, LungPipeline(network, switches, on), share=(rank, ranks))


# ---- results in files ------------------------------------------------------------------------------------------------------


def fingerprint_of(pipeline: LungPipeline) -> dict[str, str]:
    """What a result depends on: the method's switches, and the sha256 of the network's weights.

    Threads, ranks and prefetching change no detection, so that a run may resume with others.
    """
    digest = hashlib.sha256()
    for name, value in pipeline.weights.items():
        digest.update(name.encode() + value.tobytes())
    return {"switches": str(pipeline.switches.method), "network": digest.hexdigest()}


def read_result(results: Path, name: str, settings: dict[str, str], source: Path) -> np.ndarray | None:
    """The detections in a patient's file; None if there is none, it is damaged, or its pipeline or scan was another one."""
    try:
        record = _record(results / f"{name}.json")
        same = record["format"] == RESULT_FORMAT and record["pipeline"] == settings and record["source"] == stamp(source)
        return np.array(record["detections"], dtype=np.float64).reshape(-1, 5) if same else None
    except (LabError, ValueError, KeyError, TypeError):
        return None


@reader("a whole result", "Delete it: it is computed again.")
def _record(path: Path) -> dict:
    return unsealed_record(json.loads(text_of(path, RECORD)))


def stamp(source: Path) -> list:
    """What tells a scan's files from a later version of them: how many, how large, and when written."""
    files = source.glob("*") if source.is_dir() else (path for path in source.parent.glob("*") if path.stem == source.stem)
    found = [path.stat() for path in files if path.is_file() and path.suffix != ".json"]  # results may lie next to scans
    return [source.name, len(found), sum(each.st_size for each in found), max((each.st_mtime_ns for each in found), default=0)]


def _keep(outcome: PatientOutcome, name: str, version: list, results: Path, settings: dict, report: FolderReport) -> None:
    failed = results / f"{name}{FAILED}"
    if outcome.error is None:
        record = {"format": RESULT_FORMAT, "pipeline": settings, "source": version}
        record["detections"] = outcome.detections.tolist()
        atomic_write(results / f"{name}.json", json.dumps(sealed_record(record), indent=1) + "\n")
        failed.unlink(missing_ok=True)
        report.detections[name] = outcome.detections
        report.computed.append(name)
        return
    report.failures[name] = failure = failure_of(outcome, name)
    atomic_write(failed, json.dumps(vars(failure), indent=1) + "\n")
    (results / f"{name}.json").unlink(missing_ok=True)  # of another pipeline or version of the scan


def failure_of(outcome: PatientOutcome, name: str) -> PatientFailure:
    """A patient's error with its file and its stage."""
    error, file = outcome.error, reading.short_name(outcome.source)
    if isinstance(error, LabError):
        return PatientFailure(name, file, outcome.stage, error.problem, error.fix)
    problem = f"{type(error).__name__}: {error}"
    return PatientFailure(name, file, outcome.stage, problem, "Run this patient alone to see where it comes from.")


def _load(path: Path) -> Scan:
    return scans.load(path, annotated=False)


def _by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """{name of the patient: path}; a folder of slices has the folder's name."""
    named: dict[str, Path] = {}
    for path in paths:
        name = path.name if path.is_dir() else path.stem
        if name in named:
            problem = f"{named[name]} and {path} are both called {name}: one result would overwrite the other."
            raise LabError(problem, "Rename one of them, or run their folders one after the other.")
        named[name] = path
    if not named:
        raise LabError("There are no scans to run.", "Hand over a folder of scans, or their paths.")
    return named
