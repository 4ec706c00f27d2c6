"""DICOM series: the round trip, the order of slices, and every series that is no volume."""

import shutil
import sys
import warnings

import numpy as np
import pytest

from hpml_lab.capstone import find_scans, load, save, synthetic
from hpml_lab.core.system.errors import LabError

pydicom = pytest.importorskip("pydicom")
SMALL = dict(shape=(10, 32, 32), spacing=(16.0, 6.0, 6.0), radius=(6.0, 8.0))


@pytest.fixture(scope="module")
def scan():
    return synthetic(3, sick=True, **SMALL)


@pytest.fixture(scope="module")
def written(scan, tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pydicom warns of values that DICOM does not allow
        return save(scan, tmp_path_factory.mktemp("series"), "dicom")


@pytest.fixture
def series(written, tmp_path):
    """A copy of the series that a test may damage."""
    return shutil.copytree(written, tmp_path / written.name)


def slices_of(series):
    """Paths by position, lowest first."""
    return sorted(series.glob("*.dcm"), key=lambda path: float(pydicom.dcmread(path).ImagePositionPatient[2]))


def change(path, **values):
    dataset = pydicom.dcmread(path)
    for name, value in values.items():
        setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)


def refused(path, text, names=None):
    """Loading raises a LabError that names the stage, the file and what is wrong."""
    with pytest.raises(LabError, match=text) as caught:
        load(path)
    assert caught.value.problem.startswith("read, ") and (names or path).name in caught.value.problem
    assert len(caught.value.fix) > 10


def test_a_series_is_the_scan_that_was_written(scan, written):
    read = load(written)
    assert np.array_equal(read.stored, scan.stored) and read.stored.dtype == np.int16
    assert (read.name, read.spacing, read.slope, read.intercept) == (scan.name, scan.spacing, scan.slope, scan.intercept)
    np.testing.assert_allclose(read.nodules, scan.nodules, atol=1e-9)
    assert find_scans(written.parent) == [written]


def test_neither_names_nor_numbers_give_the_order(written):
    by_position = slices_of(written)
    assert by_position != sorted(by_position), "this series would not see a reader that sorts by name"
    numbers = [pydicom.dcmread(path).InstanceNumber for path in by_position]
    assert numbers == list(range(10, 0, -1))


def test_a_healthy_patient_has_no_nodules(tmp_path):
    assert load(save(synthetic(0, sick=False, **SMALL), tmp_path, "dicom")).nodules.shape == (0, 4)


@pytest.mark.parametrize("orientation", [[-1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, -1], [0.8, 0.6, 0, -0.6, 0.8, 0]], ids=str)
def test_a_turned_patient_is_read_along_the_normal_and_nodules_stay_at_their_voxels(scan, series, orientation):
    """The same voxels, elsewhere in the patient: positions and annotations are turned alike."""
    columns, rows = np.reshape(orientation, (2, 3))
    axes, origin = np.stack([np.cross(columns, rows), rows, columns]), np.array([-120.0, 40.0, -300.0])
    for number, path in enumerate(slices_of(series)):
        change(path, ImageOrientationPatient=orientation, ImagePositionPatient=(origin + 16.0 * number * axes[0]).tolist())
    points = scan.nodules[:, :3] @ axes + origin
    uid = pydicom.dcmread(next(series.glob("*.dcm"))).SeriesInstanceUID
    lines = [f"{x},{uid},{2 * r},{y},{z}" for (x, y, z), r in zip(points, scan.nodules[:, 3], strict=True)]
    (series / "annotations.csv").write_text("coordX,seriesuid,diameter_mm,coordY,coordZ\n" + "\n".join(lines))
    read = load(series)
    assert np.array_equal(read.stored, scan.stored)
    np.testing.assert_allclose(read.nodules, scan.nodules, atol=1e-6)
    np.testing.assert_allclose(read.spacing, scan.spacing, atol=1e-9)


def test_files_without_an_ending_or_with_a_number_are_found(scan, series):
    for number, path in enumerate(slices_of(series)):
        path.rename(path.with_name("IM" + str(number)) if number % 2 else path.with_suffix(""))
    (series / "README.txt").write_text("a note")
    (series / "picture").write_bytes(b"no DICOM")
    assert find_scans(series.parent) == [series]
    assert np.array_equal(load(series).stored, scan.stored)


def test_16_bits_without_a_sign_keep_their_hounsfield_units(scan, series):
    for path in series.glob("*.dcm"):
        dataset = pydicom.dcmread(path)
        dataset.PixelData = (dataset.pixel_array.astype(np.int32) + 40000).astype("<u2").tobytes()
        dataset.PixelRepresentation, dataset.RescaleIntercept = 0, -41024
        dataset.save_as(path, enforce_file_format=True)
    read = load(series)
    assert np.array_equal(read.stored.astype(int) + read.intercept, scan.stored.astype(int) + scan.intercept)


def test_padding_becomes_air(scan, series):
    first = slices_of(series)[0]
    dataset = pydicom.dcmread(first)
    pixels = dataset.pixel_array.copy()
    pixels[:5] = -2000
    dataset.PixelData = pixels.tobytes()
    dataset.save_as(first, enforce_file_format=True)
    for path in series.glob("*.dcm"):
        dataset = pydicom.dcmread(path)
        dataset.add_new("PixelPaddingValue", "SS", -2000)
        dataset.save_as(path, enforce_file_format=True)
    read = load(series)
    assert (read.stored[0, :5] + read.intercept == -1000).all()
    assert np.array_equal(read.stored[1:], scan.stored[1:]) and np.array_equal(read.stored[0, 5:], scan.stored[0, 5:])


def test_the_same_number_written_differently_is_the_same(scan, series):
    change(slices_of(series)[2], RescaleIntercept="-1024.000", RescaleSlope="1", PixelSpacing=["6.0000", "6"])
    assert np.array_equal(load(series).stored, scan.stored)


def test_a_missing_slice(series):
    paths = slices_of(series)
    paths[4].unlink()
    refused(series, r"missing slices after this one.*\(32.00 mm", paths[3])
    paths[5].unlink()
    refused(series, "missing slices after this one", paths[3])


def test_a_missing_last_slice(series):
    slices_of(series)[-1].unlink()
    refused(series, "missing slices: 1 of the 10 that the series says it has")


def test_a_duplicated_slice(series):
    path = slices_of(series)[4]
    shutil.copy(path, series / "copy.dcm")
    with pytest.raises(LabError, match="twice") as caught:
        load(series)
    assert path.name in caught.value.problem and "copy.dcm" in caught.value.problem


def test_mixed_spacings_of_slices(series):
    for number, path in enumerate(slices_of(series)):
        z = 16.0 * min(number, 5) + 8.0 * max(number - 5, 0)
        change(path, ImagePositionPatient=[0, 0, z])
    refused(series, r"not evenly spaced \(8.00 mm|not evenly spaced \(16.00 mm", slices_of(series)[5])


@pytest.mark.parametrize(
    "values, text",
    [
        ({"RescaleIntercept": 0}, "differs from .* in RescaleIntercept"),
        ({"RescaleSlope": 2}, "in RescaleSlope"),
        ({"PixelSpacing": [6, 7]}, "in PixelSpacing"),
        ({"ImageOrientationPatient": [0, 1, 0, 1, 0, 0]}, "in ImageOrientationPatient"),
        ({"SeriesInstanceUID": "1.2.3"}, "in SeriesInstanceUID"),
        ({"Rows": 16}, "in Rows"),
        ({"Modality": "MR"}, "this is MR, not CT"),
        ({"PixelSpacing": 6}, "in PixelSpacing"),
        ({"ImagePositionPatient": None}, "no ImagePositionPatient"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("which", [0, 7])
def test_one_slice_that_does_not_belong(series, values, text, which):
    path = sorted(series.glob("*.dcm"))[which]
    change(path, **values)
    refused(series, text, path)


def test_all_slices_of_a_wrong_shape(series):
    for path in series.glob("*.dcm"):
        change(path, Columns=31)
    refused(series, "2,048 bytes are not a slice of 32 × 31 values|cut off or damaged", slices_of(series)[0])


def test_a_tilted_gantry(series):
    for number, path in enumerate(slices_of(series)):
        change(path, ImagePositionPatient=[0, 4.0 * number, 16.0 * number])
    refused(series, "shifted by 4.00 mm in their plane: the gantry was tilted")


@pytest.mark.parametrize("kept", [0.97, 0.5, 0.3, 0.1, 0])
def test_a_truncated_file(series, kept):
    path = slices_of(series)[3]
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    refused(series, "cut off|beginning is missing", path)


def test_a_damaged_file(series):
    path = slices_of(series)[3]
    content = bytearray(path.read_bytes())
    content[140:180] = b"\xff" * 40
    path.write_bytes(content)
    refused(series, "cut off or damaged|beginning is missing|incomplete", path)


def test_a_compression_without_its_decoder(series, monkeypatch):
    def cannot(dataset):
        raise NotImplementedError("no decoder")

    monkeypatch.setattr(pydicom.dataset.Dataset, "pixel_array", property(cannot))
    refused(series, "damaged .no decoder", slices_of(series)[0])


def test_one_slice_and_none(series):
    for path in slices_of(series)[1:]:
        path.unlink()
    refused(series, "one slice alone", next(series.glob("*.dcm")))
    next(series.glob("*.dcm")).unlink()
    refused(series, "holds no DICOM file")


def test_a_patient_without_annotations(scan, series):
    (series / "annotations.csv").write_text("seriesuid,coordX,coordY,coordZ,diameter_mm\n1.2.3,0,0,0,5\n")
    refused(series, "its rows are of another series", series / "annotations.csv")
    (series / "annotations.csv").unlink()
    refused(series, "no annotations")
    read = load(series, annotated=False)
    assert np.array_equal(read.stored, scan.stored) and read.nodules.shape == (0, 4)


def test_a_series_appears_whole_or_not_at_all(scan, tmp_path, monkeypatch):
    written, write = [], pydicom.Dataset.save_as

    def fails_later(dataset, *arguments, **options):
        if len(written) == 5:
            raise OSError(28, "No space left on device")
        written.append(dataset)
        return write(dataset, *arguments, **options)

    monkeypatch.setattr(pydicom.Dataset, "save_as", fails_later)
    with pytest.raises(LabError, match="No space left"):
        save(scan, tmp_path, "dicom")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    save(scan, tmp_path, "dicom")
    with pytest.raises(LabError, match="exists"):
        save(scan, tmp_path, "dicom")


def test_without_pydicom(scan, series, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydicom", None)
    assert find_scans(series.parent) == [series], "finding needs nothing"
    for use in (lambda: load(series), lambda: save(scan, tmp_path / "other", "dicom")):
        with pytest.raises(LabError, match="pip install pydicom"):
            use()
