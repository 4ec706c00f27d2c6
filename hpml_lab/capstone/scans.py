"""One door for scans in files: find them, load them, save them. Each error names the file and the stage, "read".

patient.npz            the workbook's own: stored values, spacing, slope, intercept and nodules in one file
patient.npy + .json    the same in two files, for readers that map the file into memory or know NumPy alone
a folder of .dcm       a DICOM series, one file a slice (`dicom.py`, needs pydicom)
scan.mhd + .raw/.zraw  MetaImage, as LUNA16 hands out its scans (`luna16.py`)
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpml_lab.capstone.ct import Scan
from hpml_lab.capstone.read_errors import LARGEST_UNPACKED, check_file, unreadable
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write

FORMATS = ("npz", "npy", "dicom")
META = ("spacing", "slope", "intercept", "nodules")
METAIMAGE = (".mhd", ".mha")


def find_scans(folder: str | Path) -> list[Path]:
    """Paths of all scans in a folder and below it, each of which `load` takes, sorted: files of the workbook and of LUNA16, and
    folders that hold a DICOM series. Links are followed, but not into a folder from inside it; pipes, sockets and devices are
    no scans. Raises LabError for a folder that does not exist, cannot be read or holds none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise unreadable(folder, "there is no such folder.", "Check the path; set HPML_DATA for data sets of your own.")
    try:
        found = sorted(_scans_in(folder, []))
    except OSError as error:
        fix = "Check its permissions, or choose another folder."
        raise unreadable(error.filename or folder, f"it cannot be read ({error.strerror or error}).", fix) from error
    if not found:
        kinds = ".npz, .npy, .mhd, or folders of .dcm files"
        raise unreadable(folder, "the folder holds no scan.", f"Scans are {kinds}. `save(synthetic(0), folder)` writes one.")
    return found


def _scans_in(folder: Path, above: list[Path]) -> Iterator[Path]:
    """The scans of a folder that was entered from the folders `above`, which links may lead back to."""
    series, above = False, [*above, folder.resolve()]
    for path in sorted(folder.iterdir()):
        # Files that are being written or a system's own; LUNA16's masks, which are volumes too.
        if path.name.startswith((".", "seg-lungs")):
            continue
        if path.is_dir():
            if path.resolve() not in above:
                yield from _scans_in(path, above)
        elif path.suffix.lower() in (".npz", ".npy", *METAIMAGE):
            yield path
        else:
            series = series or is_dicom(path)
    if series:
        yield folder


def is_dicom(path: Path) -> bool:
    """Whether a file is, or claims to be, DICOM: by its ending, or by the letters that begin after 128 bytes."""
    if path.suffix.lower() in (".dcm", ".dicom"):
        return True
    if (
        not path.is_file() or path.name == "DICOMDIR" or (path.suffix and not path.suffix[1:].isdigit())
    ):  # UIDs as names end in a number
        return False
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def load(path: str | Path, *, annotated: bool = True) -> Scan:
    """The scan in a file, or in a folder with one DICOM series, checked.

    annotated  False for scans that nobody annotated: their `nodules` are then empty, and detections cannot be judged
    Raises LabError that names the file and the stage for whatever is not a whole, plausible scan.
    """
    path = Path(path)
    if path.is_dir():
        from hpml_lab.capstone.dicom import load_dicom

        return load_dicom(path, annotated=annotated)
    check_file(path, "there is no such file.", "`find_scans(folder)` lists the scans of a folder.")
    suffix = path.suffix.lower()
    if suffix in METAIMAGE:
        from hpml_lab.capstone.luna16 import load_luna16

        return load_luna16(path, annotated=annotated)
    if suffix not in (".npz", ".npy"):
        fix = "Scans are .npz, .npy or .mhd files; for DICOM hand over the folder of the series."
        raise unreadable(path, "this is not a file of a known format.", fix)
    values = _npz(path) if suffix == ".npz" else _npy(path)
    missing = [key for key in ("stored", *META[:3]) if key not in values]
    if missing:
        raise unreadable(path, f"{', '.join(missing)} is missing.", "Write scans with `save(scan, folder)`.")
    nodules = values.get("nodules")
    if nodules is None:
        if annotated:
            raise unannotated(path)
        nodules = np.empty((0, 4))
    return checked(path, path.stem, values["stored"], values["spacing"], values["slope"], values["intercept"], nodules)


def unannotated(path: Path) -> LabError:
    """The error for a scan of which nobody says where its nodules are."""
    fix = "load(path, annotated=False) reads it for detection alone."
    return unreadable(path, "the patient has no annotations, so detections cannot be judged.", fix)


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
        wrong = stored.size - int(np.isfinite(stored).sum())
        if wrong:
            raise LabError(f"{wrong:,} of {stored.size:,} values are NaN or infinite.", "Write it again from its source.")
        stored = np.rint(stored)
    low, high = (int(stored.min()), int(stored.max())) if stored.size else (0, 0)
    if -32768 <= low and high <= 32767:
        return stored.astype(np.int16), slope, intercept
    if 0 <= low and high <= 65535:
        return (stored.astype(np.int32) - 32768).astype(np.int16), slope, intercept + slope * 32768
    raise LabError(f"values from {low:,} to {high:,} do not fit into 16 bits.", "Are they stored values of a CT scanner?")


def _npz(path: Path) -> dict:
    try:
        with np.load(path, allow_pickle=False) as file:
            unpacked = sum(entry.file_size for entry in file.zip.infolist())
            if unpacked > max(LARGEST_UNPACKED, path.stat().st_size):
                raise ValueError(f"it would unpack to {unpacked:,} bytes")
            return {key: file[key] for key in file.files}
    except Exception as error:  # of a damaged file NumPy and zipfile raise whatever their parts raise
        raise _damaged(path, error) from error


def _npy(path: Path) -> dict:
    meta = path.with_suffix(".json")
    fix = f"Write its spacing, slope, intercept and nodules to {meta.name}, as `save(scan, folder, 'npy')` does."
    check_file(meta, f"{meta.name} is missing, so spacing and Hounsfield units of {path.name} are unknown.", fix)
    try:
        values = json.loads(meta.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("not a dictionary")
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise _damaged(meta, error) from error
    if values.get("nodules") == []:
        values["nodules"] = np.empty((0, 4))  # an empty list does not say that its rows would have four numbers
    try:
        return {**values, "stored": np.load(path, allow_pickle=False)}
    except Exception as error:  # as in _npz
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> LabError:
    fix = "Copy or write it again; the other scans of the folder are not affected."
    return unreadable(path, f"the file is cut off or damaged ({str(error) or type(error).__name__}).", fix)


def save(scan: Scan, folder: str | Path, format: str = "npz") -> Path:
    """Write a scan to `folder`, whole or not at all, and return the path that `load` takes.

    format  "npz", "npy" (with a .json), or "dicom" (a folder with one file a slice; needs pydicom)
    """
    if format not in FORMATS:
        raise LabError(f"{format!r} is not a format that scans are written in.", f"Choose one of {', '.join(FORMATS)}.")
    folder = Path(folder)
    if format == "dicom":
        from hpml_lab.capstone.dicom import save_dicom

        return save_dicom(scan, folder)
    values = {key: getattr(scan, key) for key in META}
    buffer = io.BytesIO()
    if format == "npz":
        np.savez(buffer, stored=scan.stored, **values)
        return atomic_write(folder / f"{scan.name}.npz", buffer.getvalue())
    np.save(buffer, scan.stored)
    text = json.dumps({**values, "nodules": scan.nodules.tolist()}, indent=1)
    atomic_write(folder / f"{scan.name}.json", text + "\n")  # first: the .npy is what find_scans sees
    return atomic_write(folder / f"{scan.name}.npy", buffer.getvalue())
