"""CT series in DICOM, read and written by pydicom: one file a slice, ordered by position, never by name or number."""

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.capstone.tools.ct import AIR, Scan
from hpml_lab.capstone.tools.reading import (
    AGAIN,
    ANNOTATIONS,
    COLUMNS,
    PatientAxes,
    checked,
    damaged,
    read_annotations,
    unannotated,
    unreadable,
)
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import need
from hpml_lab.core.system.readers import SLICE, VOLUME, open_file, reading

SHARED = (
    "SeriesInstanceUID",
    "Rows",
    "Columns",
    "PixelSpacing",
    "ImageOrientationPatient",
    "RescaleSlope",
    "RescaleIntercept",
    "PixelRepresentation",
)  # all slices of one volume have the same
SPLIT = "Put each series into a folder of its own."
SAME = 0.01  # mm: slices closer than this are at the same position, which a file gives with a few decimals
DEFLATED = "1.2.840.10008.1.2.1.99"  # the transfer syntax of files that are packed as a whole
ROUNDED = 0.02  # of a gap, likewise


def is_dicom(path: Path) -> bool:
    """Whether a file is, or claims to be, DICOM: by its ending, or by the letters that begin after 128 bytes."""
    if path.suffix.lower() in (".dcm", ".dicom"):
        return True
    # UIDs as names end in a number.
    if not path.is_file() or path.name == "DICOMDIR" or (path.suffix and not path.suffix[1:].isdigit()):
        return False
    with reading(path, "a file that can be read", AGAIN), open_file(path, None) as file:
        return file.read(132)[128:] == b"DICM"


def load_dicom(folder: Path, *, annotated: bool = True) -> Scan:
    """The scan in a folder with one series. Slices are ordered along the normal of their plane, whatever their names.

    Pixels outside the scanner's field (PixelPaddingValue) become air. Annotations are those of `annotations.csv` in the folder,
    in LUNA16's format; `annotated=False` does without. Raises LabError that names the file for whatever is no volume.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".") and is_dicom(path))
    if not files:
        raise unreadable(folder, "the folder holds no DICOM file.", "`find_scans` finds the folder that holds the slices.")
    if (size := sum(path.stat().st_size for path in files)) > VOLUME:
        raise unreadable(folder, f"its {len(files)} DICOM files have {size:,} bytes, too many for a scan.", SPLIT)
    headers = [_read(path) for path in files]
    first = headers[0]
    for path, header in zip(files, headers, strict=True):
        for name in SHARED:
            if not _equal(header[name].value, first[name].value):
                problem = f"it differs from {files[0].name} in {name} ({header[name].value} and {first[name].value})."
                raise unreadable(path, problem, SPLIT)
    columns, rows = np.array(first.ImageOrientationPatient, dtype=float).reshape(2, 3)
    direction = np.stack([np.cross(columns, rows), rows, columns])
    positions = np.array([header.ImagePositionPatient for header in headers], dtype=float)
    order, gap = in_order(files, positions, direction[0], int(first.get("ImagesInAcquisition") or 0))
    axes = PatientAxes(positions[order[0]], direction)
    if not axes.are_perpendicular():
        raise unreadable(files[0], "its rows and columns are not perpendicular to each other.")
    stored = np.stack([_pixels(files[i], headers[i]) for i in order])
    slope, intercept = float(first.RescaleSlope), float(first.RescaleIntercept)
    if (padding := first.get("PixelPaddingValue")) is not None and slope > 0:  # never measured: air
        limits = np.iinfo(stored.dtype)
        stored[stored == padding] = np.clip(round((AIR - intercept) / slope), limits.min, limits.max)
    nodules = np.empty((0, 4))
    if annotated:
        if not (folder / ANNOTATIONS).exists():
            raise unannotated(folder)
        found, series = read_annotations(folder / ANNOTATIONS), str(first.SeriesInstanceUID)
        if found and series not in found:
            raise unreadable(folder / ANNOTATIONS, "its rows are of another series.", SPLIT)
        nodules = axes.nodules(found.get(series, []))
    name = str(first.get("PatientID") or folder.name)
    return checked(folder, name, stored, (gap, *map(float, first.PixelSpacing)), slope, intercept, nodules)


def _equal(a: Any, b: Any) -> bool:
    """1 and 1.000 are the same, and so are directions that differ in the seventh decimal."""
    return str(a) == str(b) if isinstance(a, str) else np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-6, atol=1e-6)


def _read(path: Path) -> Any:
    """The file's dataset, with all that a volume needs."""
    dicom = need("pydicom")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pydicom warns of what is found below
            with open_file(path, SLICE) as file:
                if dicom.filereader.read_file_meta_info(path).get("TransferSyntaxUID") == DEFLATED:  # without a limit
                    raise ValueError("it is packed as a whole: write it with another transfer syntax")
                dataset = dicom.dcmread(file)
            absent = [name for name in (*SHARED, "ImagePositionPatient", "PixelData") if dataset.get(name) in (None, "")]
    except Exception as error:  # of a damaged file pydicom raises whatever its parts raise
        raise damaged(path, error) from error
    if absent:
        problem = f"no {', '.join(absent[:2])}: the file is cut off or damaged, or is not a slice of a CT series."
        raise unreadable(path, problem)
    if dataset.Rows * dataset.Columns * 4 > SLICE:
        raise unreadable(path, f"{dataset.Rows} × {dataset.Columns} values are too many for a slice.")
    if dataset.get("Modality", "CT") != "CT":
        raise unreadable(path, f"this is {dataset.Modality}, not CT: it has no Hounsfield units.", SPLIT)
    return dataset


def _pixels(path: Path, dataset: Any) -> np.ndarray:
    """The stored values (rows, columns) of one slice."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pixels = dataset.pixel_array
        compressed = dataset.file_meta.TransferSyntaxUID.is_compressed
        if pixels.ndim != 2 or not compressed and len(dataset.PixelData) != pixels.nbytes:
            raise ValueError(f"{len(dataset.PixelData):,} bytes are not a slice of {dataset.Rows} × {dataset.Columns} values")
    except Exception as error:  # as in _read; pydicom names the package that decodes a compressed slice
        raise damaged(path, error) from error
    return pixels


def in_order(paths: list[Path], positions: np.ndarray, normal: np.ndarray, expected: int = 0) -> tuple[list[int], float]:
    """The indices of the slices by their position along the normal, and the distance of neighbors in mm.

    positions  (n, 3) centers of the first pixels in the patient
    expected   how many slices the series says that it has, 0 where it does not say
    Raises LabError for a slice twice, a missing one, mixed spacings and a tilted gantry.
    """
    order = np.argsort(positions @ normal, kind="stable").tolist()
    if len(order) < 2 or not np.isfinite(positions).all():
        raise unreadable(paths[0], "one slice alone, or one without a place, is not a volume.", "Copy the whole series.")
    steps = np.diff(positions[order], axis=0)
    gaps = steps @ normal
    gap = float(np.median(gaps))
    for i, distance in enumerate(gaps):
        before, after = paths[order[i]], paths[order[i + 1]]
        if distance < SAME:
            raise unreadable(after, f"the slice is there twice ({before.name} has the same position).", "Delete one of them.")
        if abs(distance - gap) > ROUNDED * gap:
            between = f"{distance:.2f} mm to {after.name}, {gap:.2f} mm between most others"
            problem = f"missing slices after this one, or slices that are not evenly spaced ({between})."
            raise unreadable(before, problem, "Copy the whole series again, or resample it to one spacing.")
    if expected > len(order):
        problem = f"missing slices: {expected - len(order)} of the {expected} that the series says it has."
        raise unreadable(paths[0].parent, problem, "Copy the whole series again.")
    aside = np.linalg.norm(steps - np.outer(gaps, normal), axis=1).max()
    if aside > ROUNDED * gap:
        problem = f"neighboring slices are shifted by {aside:.2f} mm in their plane: the gantry was tilted."
        raise unreadable(paths[0].parent, problem, "Resample it to a box first, for example with SimpleITK.")
    return order, float(gaps.mean())


def save_dicom(scan: Scan, folder: Path) -> Path:
    """Write a scan as a series into `folder`/name, whole or not at all: one file a slice and `annotations.csv`.

    Files are named by their unique identifiers, as archives do, so that the order of names says nothing.
    """
    dicom = need("pydicom")
    target = Path(folder) / scan.name
    if target.exists():
        raise LabError(f"{target.name} exists.", "Choose another folder, or delete it first.")
    series = dicom.uid.generate_uid(entropy_srcs=[scan.name, "series"])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.", ignore_cleanup_errors=True) as part:
            for number in range(len(scan.stored)):
                dataset = _dataset(dicom, scan, number, series)
                dataset.save_as(Path(part) / f"{dataset.SOPInstanceUID}.dcm", enforce_file_format=True)
            rows = [f"{series},{x},{y},{z},{2 * radius}\n" for z, y, x, radius in scan.nodules]
            (Path(part) / ANNOTATIONS).write_text(",".join(COLUMNS) + "\n" + "".join(rows), encoding="utf-8")
            os.chmod(part, 0o755)  # temporary folders are such that only the owner can enter
            os.replace(part, target)
            Path(part).mkdir()  # for TemporaryDirectory to delete
    except OSError as error:
        problem = f"the series could not be written ({error.strerror or error})."
        raise LabError(problem, "Free some space or choose another folder.") from error
    return target


def _dataset(dicom: Any, scan: Scan, number: int, series: str) -> Any:
    """One slice as a dataset: the attributes that say where it is and what its values mean."""
    slices, rows, columns = scan.stored.shape

    def unique(*names: str) -> str:
        return dicom.uid.generate_uid(entropy_srcs=[scan.name, *names])

    def decimal(value: float) -> Any:  # DICOM's decimal string has at most 16 characters
        return dicom.valuerep.DSfloat(value, auto_format=True)

    dataset = dicom.Dataset()
    dataset.file_meta = dicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = dicom.uid.ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = dicom.uid.CTImageStorage
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = unique(str(number))
    dataset.StudyInstanceUID, dataset.FrameOfReferenceUID, dataset.SeriesInstanceUID = unique("study"), unique("frame"), series
    dataset.Modality, dataset.PatientID, dataset.PatientName = "CT", scan.name, scan.name
    dataset.InstanceNumber, dataset.ImagesInAcquisition = slices - number, slices  # many scanners begin at the head
    z, y, x = (decimal(mm) for mm in scan.spacing)
    dataset.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    dataset.ImagePositionPatient = [0, 0, decimal(number * scan.spacing[0])]
    dataset.PixelSpacing, dataset.SliceThickness = [y, x], z
    dataset.RescaleSlope, dataset.RescaleIntercept, dataset.RescaleType = decimal(scan.slope), decimal(scan.intercept), "HU"
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel = rows, columns, 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 16, 15, 1
    dataset.PixelData = scan.stored[number].astype("<i2").tobytes()
    return dataset
