"""What all readers of scans share: errors that name the file, values that are checked, and annotations in the patient's axes.

A patient's axes are x to the left, y to the back and z to the head, in mm; a Scan counts along slices, rows and columns.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpml_lab.capstone.tools.ct import Scan
from hpml_lab.core.system.errors import LabError, UnreadableFile
from hpml_lab.core.system.readers import TABLE, reader, reason, text_of

COLUMNS = ("seriesuid", "coordX", "coordY", "coordZ", "diameter_mm")  # of LUNA16's annotations.csv
ANNOTATIONS = "annotations.csv"
AGAIN = "Copy it again from its source; the other patients are not affected."


def short_name(path: str | Path) -> str:
    """A file or folder with the folder that it is in, where one is named."""
    return Path(*Path(path).parts[-2:]).as_posix()


def unreadable(path: str | Path, problem: str, fix: str = AGAIN) -> UnreadableFile:
    """The error for a file or folder that is not a scan: it begins with the stage and the file's name."""
    return UnreadableFile(f"read, {short_name(path)}: {problem}", fix)


def damaged(path: Path, error: Exception) -> LabError:
    """The error for what a reader of a format raises, whatever that is."""
    return unreadable(path, f"the file is cut off or damaged ({' '.join(str(error).split())[:100] or type(error).__name__}).")


def unannotated(path: Path) -> LabError:
    """The error for a scan of which nobody says where its nodules are."""
    fix = "load(path, annotated=False) reads it for detection alone."
    return unreadable(path, "the patient has no annotations, so detections cannot be judged.", fix)


def check_file(path: Path, missing: str, fix: str = AGAIN) -> None:
    """Raise unless `path` is a file: one that is not there is `missing`, and reading a pipe or a device might never end."""
    if not path.exists():
        raise unreadable(path, missing, fix)
    if not path.is_file():
        raise unreadable(path, "this is not a file but a folder, a pipe, a socket or a device.", fix)


def checked(path: Path, name: str, stored, spacing, slope, intercept, nodules) -> Scan:
    """A Scan of values that came from a file: integers of any type are brought to int16, and an error names the file."""
    try:
        stored, slope, intercept = to_int16(np.asarray(stored), float(slope), float(intercept))
        spacing = tuple(float(mm) for mm in np.ravel(spacing))
        return Scan(name, stored, spacing, slope, intercept, np.asarray(nodules, dtype=np.float64))
    except LabError as error:
        raise unreadable(path, error.problem, error.fix) from error
    except (TypeError, ValueError, OverflowError) as error:
        raise unreadable(path, f"its values are no scan ({error}).", "Write scans with `save(scan, folder)`.") from error


def to_int16(stored: np.ndarray, slope: float, intercept: float) -> tuple[np.ndarray, float, float]:
    """Values as int16 with the slope and the intercept that belong to them, so that HU stay what they are.

    16 bits without a sign are shifted by 32768, and the intercept makes up for it. Values with fractions are rounded.
    """
    if stored.dtype == np.int16:
        return stored, slope, intercept
    if stored.dtype.kind not in "iuf":
        raise LabError(f"stored values are integers; these are {stored.dtype}.", "Write them as int16.")
    if stored.dtype.kind == "f":
        if wrong := stored.size - int(np.isfinite(stored).sum()):
            raise LabError(f"{wrong:,} of {stored.size:,} values are NaN or infinite.", "Write it again from its source.")
        stored = np.rint(stored)
    low, high = (int(stored.min()), int(stored.max())) if stored.size else (0, 0)
    if -32768 <= low and high <= 32767:
        return stored.astype(np.int16), slope, intercept
    if 0 <= low and high <= 65535:
        return (stored.astype(np.int32) - 32768).astype(np.int16), slope, intercept + slope * 32768
    raise LabError(f"values from {low:,} to {high:,} do not fit into 16 bits.", "Are they stored values of a CT scanner?")


@dataclass(frozen=True)
class PatientAxes:
    """Where a volume is in the patient.

    origin     x, y, z of the first voxel's center
    direction  (3, 3): row k is the unit vector x, y, z along which the index of axis k grows; axes are slices, rows, columns
    """

    origin: np.ndarray
    direction: np.ndarray

    def are_perpendicular(self) -> bool:
        """As far as files with a few decimals say it."""
        found = self.direction @ self.direction.T
        return found.shape == (3, 3) and bool(np.abs(found - np.eye(3)).max() < 1e-3)

    def nodules(self, rows: np.ndarray) -> np.ndarray:
        """Annotations x, y, z, diameter -> nodules z, y, x, radius of a Scan."""
        rows = np.asarray(rows, dtype=np.float64).reshape(-1, 4)
        return np.column_stack([(rows[:, :3] - self.origin) @ self.direction.T, rows[:, 3] / 2])


@reader("a table of annotations", f"Its columns are {', '.join(COLUMNS)}, in mm.")
def read_annotations(path: Path) -> dict[str, np.ndarray]:
    """{name of the series: (n, 4) x, y, z and diameter in mm} from a file with LUNA16's columns, in any order."""
    check_file(path, "there is no such file.")
    found: dict[str, list[list[float]]] = {}
    try:
        for row in csv.DictReader(io.StringIO(text_of(path, TABLE, "utf-8-sig"), newline="")):
            values = [float(row[name]) for name in COLUMNS[1:]]
            if not np.isfinite(values).all() or values[3] <= 0:
                raise ValueError(f"{values} is no place with a diameter")
            found.setdefault(row[COLUMNS[0]].strip(), []).append(values)
    except Exception as error:  # an error of csv, a column that is missing, a cell that is none
        fix = f"Its columns are {', '.join(COLUMNS)}, in mm."
        raise unreadable(path, f"these are no annotations ({reason(error)}).", fix) from error
    return {name: np.array(rows) for name, rows in found.items()}
