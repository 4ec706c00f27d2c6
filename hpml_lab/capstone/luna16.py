"""LUNA16's layout: one MetaImage a scan (.mhd, .raw or .zraw), the nodules of all in `annotations.csv`, in world coordinates.

The data set, 888 scans with 1,186 nodules, is at luna16.grand-challenge.org. Readers who have it unpack it to HPML_DATA/LUNA16;
the workbook neither downloads nor needs it.
"""

import math
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpml_lab.capstone.ct import Scan
from hpml_lab.capstone.read_errors import LARGEST_UNPACKED, check_file, unreadable
from hpml_lab.capstone.scans import checked, unannotated
from hpml_lab.capstone.world import ANNOTATIONS, Frame3D, is_orthonormal, read_annotations
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import data_folders

TYPES = {
    "MET_CHAR": "i1",
    "MET_UCHAR": "u1",
    "MET_SHORT": "i2",
    "MET_USHORT": "u2",
    "MET_INT": "i4",
    "MET_UINT": "u4",
    "MET_LONG": "i4",
    "MET_FLOAT": "f4",
    "MET_DOUBLE": "f8",
}
HEADER = 1 << 16  # bytes in which a header ends
OUTSIDE = -1024  # HU; scanners fill what is outside their field with values below it
LISTS = ("seriesuids.csv", "candidates.csv", "candidates_V2.csv")  # name healthy patients too
AGAIN = "Unpack it again; the other patients are not affected."


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
    header = read_header(path)
    frame = Frame3D(header.origin, header.direction[::-1])
    nodules = _nodules(path, frame) if annotated else np.empty((0, 4))
    stored = read_values(path, header)
    if stored.dtype.kind in "if":
        stored = np.maximum(stored, OUTSIDE)  # NaN stays NaN, which is found below
    return checked(path, path.stem, stored, header.spacing[::-1], 1.0, 0.0, nodules)


def _nodules(path: Path, frame: Frame3D) -> np.ndarray:
    folders = [path.parent, *path.parent.parents[:2]]
    table = next((folder / name for folder in folders for name in _names(ANNOTATIONS) if (folder / name).exists()), None)
    if table is None:
        raise unannotated(path)
    rows = read_annotations(table).get(path.stem)
    if rows is not None:
        return frame.nodules(rows)
    named = re.compile(rf"^{re.escape(path.stem)}\b", re.MULTILINE)
    for listing in (table.parent / name for name in LISTS):
        if listing.is_file() and named.search(listing.read_text(encoding="utf-8-sig", errors="replace")):
            return np.empty((0, 4))
    problem = f"{ANNOTATIONS} has no row for it, and no list says that the patient is healthy."
    fix = f"Put LUNA16's candidates.csv next to {ANNOTATIONS}, or {LISTS[0]} with one series a line."
    raise unreadable(path, problem, fix)


def _names(name: str) -> tuple[str, str]:
    return name, f"CSVFILES/{name}"


@dataclass(frozen=True)
class MetaImage:
    """What a MetaImage header says; axes in the file's order x, y, z.

    direction  (3, 3): row k is the unit vector, in the patient, along which axis k's index grows
    data       file with the values; None where they follow the header
    """

    size: tuple[int, ...]
    spacing: tuple[float, ...]
    origin: np.ndarray
    direction: np.ndarray
    dtype: np.dtype
    compressed: bool
    data: Path | None
    begins: int


def read_header(path: Path) -> MetaImage:
    """The header of a .mhd or .mha. LabError for one that does not describe a volume of single values."""
    try:
        with path.open("rb") as file:
            raw = file.read(HEADER)  # the values may follow
    except OSError as error:
        raise unreadable(path, f"the file cannot be read ({error.strerror or error}).", AGAIN) from error
    end = re.search(rb"^ElementDataFile\s*=\s*(.*?)\r?(\n|\Z)", raw, re.MULTILINE)
    if end is None:
        raise unreadable(path, "the header has no ElementDataFile: it is cut off, or not MetaImage.", AGAIN)
    lines = raw[: end.end()].decode("utf-8", errors="replace").splitlines()
    field = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines if "=" in line)}

    def of(*names: str, default: str | None = None) -> str:
        for name in names:
            if name in field:
                return field[name]
        if default is None:
            raise ValueError(f"{names[0]} is missing")
        return default

    try:
        size = tuple(int(value) for value in of("DimSize").split())
        spacing = tuple(float(value) for value in of("ElementSpacing", "ElementSize").split())
        origin = np.array([float(value) for value in of("Offset", "Position", "Origin", default="0 0 0").split()])
        axes = of("TransformMatrix", "Rotation", "Orientation", default="1 0 0 0 1 0 0 0 1")
        direction = np.array([float(value) for value in axes.split()]).reshape(3, 3)
        if len(size) != 3 or len(spacing) != 3 or origin.shape != (3,) or min(size) < 1 or not np.isfinite(origin).all():
            raise ValueError(f"DimSize {size}, ElementSpacing {spacing} and Offset {origin} are not those of a volume")
        if of("ElementNumberOfChannels", default="1") != "1":
            raise ValueError("it holds several values a voxel")
        if of("ElementType") not in TYPES:
            raise ValueError(f"ElementType {field['ElementType']} is not known")
        name = of("ElementDataFile")
        if name.split()[:1] == ["LIST"] or "%" in name:
            raise ValueError("its slices are in files of their own, which is not read here")
        begins = int(of("HeaderSize", default="0"))
    except ValueError as error:
        raise unreadable(path, f"the header describes no volume ({error}).", AGAIN) from error
    if not is_orthonormal(direction):
        raise unreadable(path, "the header's axes are not perpendicular unit vectors.", AGAIN)
    big = of("BinaryDataByteOrderMSB", "ElementByteOrderMSB", default="False").lower() == "true"
    dtype = np.dtype(TYPES[field["ElementType"]]).newbyteorder(">" if big else "<")
    compressed = of("CompressedData", default="False").lower() == "true"
    data = None if name in ("LOCAL", "Local", "local") else path.parent / name
    return MetaImage(size, spacing, origin, direction, dtype, compressed, data, end.end() if data is None else begins)


def read_values(path: Path, header: MetaImage) -> np.ndarray:
    """The values (slices, rows, columns), of this machine's byte order. LabError for a file that holds more or fewer."""
    data = header.data or path
    check_file(data, f"the file is missing that {path.name} names.", AGAIN)
    size, needed = " × ".join(map(str, header.size)), math.prod(header.size) * header.dtype.itemsize
    if header.compressed and needed > LARGEST_UNPACKED:
        raise unreadable(data, f"{size} values are no scan: they would unpack to {needed:,} bytes.", AGAIN)
    try:
        content, length = _content(data, header, needed)
    except (OSError, zlib.error) as error:
        raise unreadable(data, f"the file is cut off or damaged ({error}).", AGAIN) from error
    if length != needed:
        state = "cut off" if length < needed else "too long"
        more = " or more" if header.compressed and length > needed else ""
        raise unreadable(data, f"the file is {state}: {length:,} bytes{more}, and {size} values need {needed:,}.", AGAIN)
    values = np.frombuffer(content, header.dtype).reshape(header.size[::-1])
    native = header.dtype.newbyteorder("=")
    return values if header.dtype.isnative and sys.byteorder == "little" else values.astype(native)


def _content(data: Path, header: MetaImage, needed: int) -> tuple[bytes, int]:
    """The bytes of the values and how many there are; not more is unpacked than tells that they are too many."""
    length = data.stat().st_size
    first = header.begins
    if first < 0:  # the values are at the end
        first = 0 if header.compressed else length - needed
    first = min(max(first, 0), length)
    with data.open("rb") as file:
        file.seek(first)
        if not header.compressed:
            return file.read(needed) if length - first == needed else b"", length - first
        unpacker = zlib.decompressobj()
        packed = file.read(2 * needed + HEADER)  # compressed values are hardly ever longer than the values
        content = unpacker.decompress(packed, needed + 1)
    if len(content) <= needed and not unpacker.eof:
        raise zlib.error("the compressed values end too early")
    return content, len(content)
