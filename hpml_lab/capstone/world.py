"""Where a scan is in the patient's coordinates, and annotations in them: x to the left, y to the back, z to the head, in mm."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpml_lab.capstone.read_errors import check_file, unreadable

COLUMNS = ("seriesuid", "coordX", "coordY", "coordZ", "diameter_mm")  # of LUNA16's annotations.csv
ANNOTATIONS = "annotations.csv"


@dataclass(frozen=True)
class Frame3D:
    """Where a volume is: the center of its first voxel, and the direction of each axis.

    origin     x, y, z of the first voxel's center
    direction  (3, 3): row k is the unit vector x, y, z along which the index of axis k grows; axes are slices, rows, columns
    """

    origin: np.ndarray
    direction: np.ndarray

    def to_scan(self, world: np.ndarray) -> np.ndarray:
        """(n, 3) points x, y, z of the patient -> mm along slices, rows and columns from the center of the first voxel."""
        return (np.asarray(world, dtype=np.float64) - self.origin) @ self.direction.T

    def to_world(self, points: np.ndarray) -> np.ndarray:
        """The inverse of `to_scan`: the directions are perpendicular to each other."""
        return np.asarray(points, dtype=np.float64) @ self.direction + self.origin

    def nodules(self, rows: np.ndarray) -> np.ndarray:
        """Annotations x, y, z, diameter -> nodules z, y, x, radius of a Scan."""
        rows = np.asarray(rows, dtype=np.float64).reshape(-1, 4)
        return np.column_stack([self.to_scan(rows[:, :3]), rows[:, 3] / 2])

    def rows(self, nodules: np.ndarray) -> np.ndarray:
        """Nodules z, y, x, radius of a Scan -> annotations x, y, z, diameter."""
        return np.column_stack([self.to_world(nodules[:, :3]), nodules[:, 3] * 2])


def is_orthonormal(direction: np.ndarray) -> bool:
    """Whether the axes are unit vectors perpendicular to each other, as far as files with a few decimals say it."""
    return direction.shape == (3, 3) and bool(np.abs(direction @ direction.T - np.eye(3)).max() < 1e-3)


def read_annotations(path: Path) -> dict[str, np.ndarray]:
    """{name of the series: (n, 4) x, y, z and diameter in mm} from a file with LUNA16's columns, in any order."""
    check_file(path, "there is no such file.", "Copy it again.")
    found: dict[str, list[list[float]]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            absent = [name for name in COLUMNS if name not in (table.fieldnames or [])]
            if absent:
                raise unreadable(path, f"column {', '.join(absent)} is missing.", f"Its columns are {', '.join(COLUMNS)}.")
            for row in table:
                try:
                    values = [float(row[name]) for name in COLUMNS[1:]]
                    if not np.isfinite(values).all() or values[3] <= 0:
                        raise ValueError("not finite, or no positive diameter")
                except (TypeError, ValueError) as error:
                    fix = "Each row has coordinates and a diameter in mm."
                    raise unreadable(path, f"line {table.line_num} is no annotation ({error}).", fix) from error
                found.setdefault(row[COLUMNS[0]].strip(), []).append(values)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise unreadable(path, f"it cannot be read ({error}).", "Copy it again.") from error
    return {name: np.array(rows) for name, rows in found.items()}


def annotations_csv(name: str, rows: np.ndarray) -> str:
    """The text of an annotations file with the nodules of one series; it has a heading alone for a healthy patient."""
    lines = [",".join((name, *(repr(float(value)) for value in row))) for row in rows]
    return "\n".join([",".join(COLUMNS), *lines]) + "\n"
