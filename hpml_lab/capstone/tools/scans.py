"""Scans in files: find them, load them, save them. Each error names the file and the stage, "read".

patient.npz            the workbook's own: stored values, spacing, slope, intercept and nodules in one file
a folder of .dcm       a DICOM series, one file a slice (`dicom.py`, needs pydicom)
scan.mhd + .raw/.zraw  MetaImage, as LUNA16 hands out its scans (`luna16.py`)
"""

import io
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpml_lab.capstone.tools.ct import Scan
from hpml_lab.capstone.tools.dicom import is_dicom, load_dicom, save_dicom
from hpml_lab.capstone.tools.luna16 import load_luna16
from hpml_lab.capstone.tools.reading import AGAIN, check_file, checked, damaged, unannotated, unreadable
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.readers import VOLUME, check_zip, open_file, reader

FORMATS = ("npz", "dicom")
META = ("spacing", "slope", "intercept", "nodules")


def find_scans(folder: str | Path) -> list[Path]:
    """Paths of all scans in a folder and below it, each of which `load` takes, sorted: files of the workbook and of LUNA16, and
    folders that hold a DICOM series. Links are followed, and each folder is entered once; pipes, sockets and devices are
    no scans. Raises LabError for a folder that does not exist, cannot be read or holds none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise unreadable(folder, "there is no such folder.", "Check the path; set HPML_DATA for data sets of your own.")
    try:
        found = sorted(_scans_under(folder))
    except OSError as error:
        fix = "Check its permissions, or choose another folder."
        raise unreadable(error.filename or folder, f"it cannot be read ({error.strerror or error}).", fix) from error
    if not found:
        kinds = ".npz, .mhd, or folders of .dcm files"
        raise unreadable(folder, "the folder holds no scan.", f"Scans are {kinds}. `save(synthetic(0), folder)` writes one.")
    return found


def _scans_under(folder: Path) -> Iterator[Path]:
    """The scans of a folder and of those below it. Links among them may lead anywhere, so each is entered once, and by its own
    name before that of a link."""
    folders, links, entered = [folder], deque(), set()
    while folders or links:
        here = folders.pop() if folders else links.popleft()
        status = here.stat()
        if (place := (status.st_dev, status.st_ino)) in entered:
            continue
        entered.add(place)
        series = False
        for path in here.iterdir():
            # Files that are being written or a system's own; LUNA16's masks, which are volumes too.
            if path.name.startswith((".", "seg-lungs")):
                continue
            if path.is_dir():
                (links if path.is_symlink() else folders).append(path)
            elif path.suffix.lower() in (".npz", ".mhd"):
                yield path
            else:
                series = series or is_dicom(path)
        if series:
            yield here


@reader("a scan", AGAIN)
def load(path: str | Path, *, annotated: bool = True) -> Scan:
    """The scan in a file, or in a folder with one DICOM series, checked.

    annotated  False for scans that nobody annotated: their `nodules` are then empty, and detections cannot be judged
    Raises LabError that names the file and the stage for whatever is not a whole, plausible scan.
    """
    path = Path(path)
    if path.is_dir():
        return load_dicom(path, annotated=annotated)
    check_file(path, "there is no such file.", "`find_scans(folder)` lists the scans of a folder.")
    suffix = path.suffix.lower()
    if suffix == ".mhd":
        return load_luna16(path, annotated=annotated)
    if suffix != ".npz":
        fix = "Scans are .npz or .mhd files; for DICOM hand over the folder of the series."
        raise unreadable(path, "this is not a file of a known format.", fix)
    try:
        with open_file(path, VOLUME) as content:
            check_zip(content, VOLUME)
            with np.load(content, allow_pickle=False) as file:
                values = {key: file[key] for key in file.files}
    except Exception as error:  # of a damaged file NumPy and zipfile raise whatever their parts raise
        raise damaged(path, error) from error
    if missing := [key for key in ("stored", *META[:3]) if key not in values]:
        raise unreadable(path, f"{', '.join(missing)} is missing.", "Write scans with `save(scan, folder)`.")
    nodules = values.get("nodules", None if annotated else np.empty((0, 4)))
    if nodules is None:
        raise unannotated(path)
    return checked(path, path.stem, values["stored"], values["spacing"], values["slope"], values["intercept"], nodules)


def save(scan: Scan, folder: str | Path, format: str = "npz") -> Path:
    """Write a scan to `folder`, whole or not at all, and return the path that `load` takes.

    format  "npz", or "dicom" (a folder with one file a slice; needs pydicom)
    """
    if format not in FORMATS:
        raise LabError(f"{format!r} is not a format that scans are written in.", f"Choose one of {', '.join(FORMATS)}.")
    folder = Path(folder)
    if format == "dicom":
        return save_dicom(scan, folder)
    buffer = io.BytesIO()
    np.savez(buffer, stored=scan.stored, **{key: getattr(scan, key) for key in META})
    return atomic_write(folder / f"{scan.name}.npz", buffer.getvalue())
