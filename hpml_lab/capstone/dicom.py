"""CT series in DICOM: one file a slice, ordered by position, never by name or number, and checked before they are a volume."""

import os
import shutil
import tempfile
import textwrap
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.capstone.ct import AIR, Scan
from hpml_lab.capstone.read_errors import unreadable
from hpml_lab.capstone.scans import checked, is_dicom, unannotated
from hpml_lab.capstone.slice_order import Slice, in_order
from hpml_lab.capstone.world import ANNOTATIONS, COLUMNS, Frame3D, annotations_csv, is_orthonormal, read_annotations
from hpml_lab.core.system.errors import LabError

# Attributes that all slices of one volume share, with what it means where they do not.
SHARED = {
    "SeriesInstanceUID": "the folder mixes several series",
    "Rows": "slices have different shapes",
    "Columns": "slices have different shapes",
    "PixelSpacing": "slices have different spacings of their pixels",
    "ImageOrientationPatient": "slices have different orientations",
    "RescaleSlope": "slices have different slopes",
    "RescaleIntercept": "slices have different intercepts",
    "PixelRepresentation": "some slices have values with a sign, others without",
}
COUNTS = {"PixelSpacing": 2, "ImageOrientationPatient": 6, "ImagePositionPatient": 3}
NEEDED = (*SHARED, "ImagePositionPatient", "PixelData")
SPLIT = "Put each series into a folder of its own."
AGAIN = "Copy it again from its source; the other patients are not affected."


def pydicom() -> Any:
    """The package; LabError where it is not installed."""
    try:
        import pydicom
    except ModuleNotFoundError as error:
        raise LabError(
            "pydicom is not installed, so DICOM is neither read nor written.",
            "pip install pydicom; .npz files need nothing more.",
        ) from error
    return pydicom


def load_dicom(folder: Path, *, annotated: bool = True) -> Scan:
    """The scan in a folder with one series. Slices are ordered along the normal of their plane, whatever their names.

    Pixels outside the scanner's field (PixelPaddingValue) become air. Annotations are those of `annotations.csv` in the folder,
    in LUNA16's format; `annotated=False` does without. Raises LabError that names the file for whatever is no volume.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".") and is_dicom(path))
    if not files:
        fix = "Hand over the folder that holds the slices; `find_scans` finds it."
        raise unreadable(folder, "the folder holds no DICOM file.", fix)
    read = [_read(path) for path in files]
    first = read[0]
    for attribute, problem in SHARED.items():
        values = [_shown(dataset[attribute].value) for dataset in read]
        usual = Counter(values).most_common(1)[0][0]
        for path, value in zip(files, values, strict=True):
            if value != usual:
                raise unreadable(path, f"{problem} ({attribute} {value} here, {usual} in most others).", SPLIT)
    columns, rows = np.array(first.ImageOrientationPatient, dtype=float).reshape(2, 3)
    direction = np.stack([np.cross(columns, rows), rows, columns])
    if not is_orthonormal(direction):
        raise unreadable(files[0], "its rows and columns are not perpendicular to each other.", AGAIN)
    positions = [np.array(dataset.ImagePositionPatient, dtype=float) for dataset in read]
    slices = [Slice(path, at, dataset) for path, at, dataset in zip(files, positions, read, strict=True)]
    slices, gap = in_order(slices, direction[0], int(first.get("ImagesInAcquisition") or 0))
    stored = np.stack([_pixels(slice_.path, slice_.dataset) for slice_ in slices])
    slope, intercept = float(first.RescaleSlope), float(first.RescaleIntercept)
    stored = _without_padding(stored, first.get("PixelPaddingValue"), slope, intercept)
    name = str(first.get("PatientID") or folder.name)
    frame = Frame3D(slices[0].position, direction)
    nodules = _nodules(folder, str(first.SeriesInstanceUID), frame, annotated)
    return checked(folder, name, stored, (gap, *map(float, first.PixelSpacing)), slope, intercept, nodules)


def _shown(value: Any) -> str:
    """A value as text, so that 1 and 1.000 are the same, and directions that differ in the seventh decimal."""
    return value if isinstance(value, str) else ", ".join(f"{round(float(number), 5) + 0.0:.6g}" for number in np.ravel(value))


def _read(path: Path) -> Any:
    """The file's dataset, with all that a volume needs."""
    dicom = pydicom()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pydicom warns of what is found below
            dataset = dicom.dcmread(path)
            absent = [name for name in NEEDED if dataset.get(name) in (None, "")]
            absent += [name for name, count in COUNTS.items() if name not in absent and dataset[name].VM != count]
    except dicom.errors.InvalidDicomError as error:
        raise unreadable(path, "this is not a DICOM file, or its beginning is missing.", AGAIN) from error
    except Exception as error:  # of a damaged file pydicom raises whatever its parts raise
        raise _damaged(path, error) from error
    if dataset.get("Modality", "CT") != "CT":
        raise unreadable(path, f"this is {dataset.Modality}, not CT: it has no Hounsfield units.", SPLIT)
    if int(dataset.get("NumberOfFrames") or 1) != 1 or int(dataset.get("SamplesPerPixel") or 1) != 1:
        raise unreadable(path, "one file holds several frames or colors.", "Convert it to one file a slice, in gray.")
    if absent:
        more = f" and {len(absent) - 2} more" if len(absent) > 2 else ""
        problem = f"no or incomplete {', '.join(absent[:2])}{more}: the file is cut off, or is not a slice of a CT series."
        raise unreadable(path, problem, AGAIN)
    return dataset


def _damaged(path: Path, error: Exception) -> LabError:
    why = textwrap.shorten(str(error), 100, placeholder=" …")
    return unreadable(path, f"the file is cut off or damaged ({why}).", AGAIN)


def _pixels(path: Path, dataset: Any) -> np.ndarray:
    """The stored values of one slice."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pixels = dataset.pixel_array
    except (NotImplementedError, RuntimeError) as error:
        fix = "Decompress it (`gdcmconv --raw`), or install a decoder for pydicom: pip install pylibjpeg pylibjpeg-libjpeg"
        raise unreadable(path, f"its pixels are compressed in a way that is not decoded here ({error}).", fix) from error
    except Exception as error:  # as in _read
        raise _damaged(path, error) from error
    wanted = pixels.nbytes + pixels.nbytes % 2
    if not dataset.file_meta.TransferSyntaxUID.is_compressed and len(dataset.PixelData) != wanted:
        size = f"{dataset.Rows} × {dataset.Columns} values need {wanted:,} bytes, and it has {len(dataset.PixelData):,}"
        raise unreadable(path, f"its pixels do not have the shape that it says ({size}).", AGAIN)
    return pixels


def _without_padding(stored: np.ndarray, padding: int | None, slope: float, intercept: float) -> np.ndarray:
    """Stored values in which pixels that were never measured are air."""
    if padding is None or not slope > 0:
        return stored
    limits = np.iinfo(stored.dtype)
    air = int(np.clip(round((AIR - intercept) / slope), limits.min, limits.max))
    return np.where(stored == padding, stored.dtype.type(air), stored)


def _nodules(folder: Path, series: str, frame: Frame3D, annotated: bool) -> np.ndarray:
    path = folder / ANNOTATIONS
    if not annotated:
        return np.empty((0, 4))
    if not path.exists():
        raise unannotated(folder)
    found = read_annotations(path)
    if found and series not in found:
        raise unreadable(path, "its rows are of another series.", f"The column {COLUMNS[0]} holds this SeriesInstanceUID.")
    return frame.nodules(found.get(series, []))


def save_dicom(scan: Scan, folder: Path) -> Path:
    """Write a scan as a series into `folder`/name, one file a slice and `annotations.csv`.

    The folder appears whole or not at all. Files are named by their unique identifiers, as archives do, so that the order of
    names says nothing.
    """
    dicom = pydicom()
    target = Path(folder) / scan.name
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise LabError(f"{target.name} exists and is not an empty folder.", "Choose another folder, or delete it first.")
    frame = Frame3D(np.zeros(3), np.eye(3)[::-1])
    series = dicom.uid.generate_uid(entropy_srcs=[scan.name, "series"])
    part = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
        for number in range(len(scan.stored)):
            dataset = _dataset(scan, number, series)
            dataset.save_as(part / f"{dataset.SOPInstanceUID}.dcm", enforce_file_format=True)
        (part / ANNOTATIONS).write_text(annotations_csv(series, frame.rows(scan.nodules)), encoding="utf-8")
        os.chmod(part, 0o755)  # mkdtemp makes folders that only the owner can enter
        os.replace(part, target)
        part = None
    except OSError as error:
        problem = f"the series could not be written ({error.strerror or error})."
        raise LabError(problem, "Free some space or choose another folder.") from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
    return target


def _dataset(scan: Scan, number: int, series: str) -> Any:
    """One slice as a dataset: the attributes that say where it is and what its values mean."""
    dicom = pydicom()
    slices, rows, columns = scan.stored.shape
    dataset = dicom.Dataset()
    dataset.file_meta = dicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = dicom.uid.ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = dicom.uid.CTImageStorage
    unique = dicom.uid.generate_uid(entropy_srcs=[scan.name, str(number)])
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = unique
    dataset.StudyInstanceUID = dicom.uid.generate_uid(entropy_srcs=[scan.name, "study"])
    dataset.SeriesInstanceUID = series
    dataset.FrameOfReferenceUID = dicom.uid.generate_uid(entropy_srcs=[scan.name, "frame"])
    dataset.Modality, dataset.PatientID, dataset.PatientName = "CT", scan.name, scan.name
    dataset.InstanceNumber = slices - number  # many scanners begin at the head
    dataset.ImagesInAcquisition = slices
    z, y, x = (_decimal(mm) for mm in scan.spacing)
    dataset.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    dataset.ImagePositionPatient = [0, 0, _decimal(number * scan.spacing[0])]
    dataset.PixelSpacing, dataset.SliceThickness = [y, x], z
    dataset.RescaleSlope, dataset.RescaleIntercept, dataset.RescaleType = _decimal(scan.slope), _decimal(scan.intercept), "HU"
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel = rows, columns, 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 16, 15, 1
    dataset.PixelData = scan.stored[number].astype("<i2").tobytes()
    return dataset


def _decimal(value: float) -> Any:
    """A number as DICOM's decimal string, which has at most 16 characters."""
    return pydicom().valuerep.DSfloat(value, auto_format=True)
