"""LUNA16's layout: one MetaImage a scan (.mhd, .raw or .zraw), the nodules of all in `annotations.csv`, in the patient's axes.

The data set, 888 scans with 1,186 nodules, is at luna16.grand-challenge.org. Readers who have it unpack it to HPML_DATA/LUNA16;
the workbook neither downloads nor needs it. Of MetaImage this reads what LUNA16 uses; SimpleITK reads all of it.
"""

import math
from pathlib import Path

import numpy as np

from hpml_lab.capstone.tools.ct import Scan
from hpml_lab.capstone.tools.reading import (
    ANNOTATIONS,
    PatientAxes,
    check_file,
    checked,
    damaged,
    read_annotations,
    unannotated,
    unreadable,
)
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import data_folders
from hpml_lab.core.system.readers import HEADER, TABLE, VOLUME, inflate, open_file, reason, text_of

TYPES = {"MET_SHORT": "i2", "MET_USHORT": "u2", "MET_INT": "i4", "MET_FLOAT": "f4"}
OUTSIDE = -1024  # HU; scanners fill what is outside their field with values below it
LISTS = ("seriesuids.csv", "candidates.csv", "candidates_V2.csv")  # name healthy patients too


def luna16_folder() -> Path:
    """HPML_DATA/LUNA16, or the project's data/LUNA16. LabError where there is none."""
    for folder in data_folders():
        if (folder / "LUNA16").is_dir():
            return folder / "LUNA16"
    fix = "Set HPML_DATA to a folder that has LUNA16/subset0/*.mhd and LUNA16/annotations.csv; nothing else needs it."
    raise LabError("LUNA16 is not here.", fix)


def load_luna16(path: Path, *, annotated: bool = True) -> Scan:
    """The scan of a .mhd with its data, whose values are Hounsfield units, and its nodules from `annotations.csv`.

    Annotations are looked for in the file's folder and in the two above. A series without a row is healthy if one of LUNA16's
    lists names it; otherwise nobody says so: LabError, or no nodules with `annotated=False`.
    """
    try:
        lines = text_of(path, HEADER, errors="replace").splitlines()
        field = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines if "=" in line)}
        size = tuple(int(value) for value in field["DimSize"].split())
        x, y, z = (float(value) for value in field["ElementSpacing"].split())
        offset = np.array([float(value) for value in field["Offset"].split()])
        direction = np.array([float(value) for value in field["TransformMatrix"].split()]).reshape(3, 3)
        order = ">" if field.get("BinaryDataByteOrderMSB", "False") == "True" else "<"
        kind = np.dtype(TYPES[field["ElementType"]]).newbyteorder(order)
        data, compressed = path.parent / field["ElementDataFile"], field.get("CompressedData", "False") == "True"
        axes = PatientAxes(offset, direction[::-1])
        if len(size) != 3 or min(size) < 1 or not np.isfinite(offset).all() or not axes.are_perpendicular():
            raise ValueError(f"DimSize {size}, Offset {offset} and its axes are not those of a volume")
    except Exception as error:  # a line that is missing, no number, or too large for one
        raise unreadable(path, f"the header describes no volume ({reason(error)}).") from error
    needed = math.prod(size) * kind.itemsize
    if needed > VOLUME:
        raise unreadable(path, f"{needed:,} bytes are too many for a scan.")
    nodules = _nodules(path, axes) if annotated else np.empty((0, 4))
    stored = _values(data, compressed, needed, kind).reshape(size[::-1])
    hu = stored if kind.kind == "u" else np.maximum(stored, OUTSIDE)  # values without a sign cannot be below it
    return checked(path, path.stem, hu, (z, y, x), 1.0, 0.0, nodules)


def _values(data: Path, compressed: bool, needed: int, kind: np.dtype) -> np.ndarray:
    """The values of a data file, of this machine's byte order."""
    check_file(data, "the file with the values is missing.")
    try:
        with open_file(data, None) as file:
            content = file.read(needed + needed // 100 + 100)  # too long is seen, and not read whole
        content = inflate(content, needed) if compressed else content
    except Exception as error:
        raise damaged(data, error) from error
    if len(content) != needed:
        state = "cut off" if len(content) < needed else "too long"
        raise unreadable(data, f"the file is {state}: its header asks for {needed:,} bytes of values.")
    return np.frombuffer(content, kind).astype(kind.newbyteorder("="))


def _nodules(path: Path, axes: PatientAxes) -> np.ndarray:
    folders = [path.parent, *path.parent.parents[:2]]
    names = (ANNOTATIONS, f"CSVFILES/{ANNOTATIONS}")
    table = next((folder / name for folder in folders for name in names if (folder / name).exists()), None)
    if table is None:
        raise unannotated(path)
    rows = read_annotations(table).get(path.stem)
    if rows is not None:
        return axes.nodules(rows)
    for listing in (table.parent / name for name in LISTS):
        if listing.is_file():
            for line in text_of(listing, TABLE, "utf-8-sig", "replace").splitlines():
                if line.split(",")[0].strip() == path.stem:
                    return np.empty((0, 4))
    fix = f"Put LUNA16's candidates.csv next to {ANNOTATIONS}, or {LISTS[0]} with one series a line."
    raise unreadable(path, f"{ANNOTATIONS} has no row for it, and no list says that the patient is healthy.", fix)
