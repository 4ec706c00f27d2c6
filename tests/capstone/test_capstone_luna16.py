"""LUNA16's layout, in files that the test writes: headers, values, and annotations in world coordinates."""

import os
import re
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest

from hpml_lab.capstone import find_scans, load, luna16_folder, synthetic
from hpml_lab.core.system.errors import LabError

ORIGIN = np.array([-195.5, 172.25, -378.0])
AXES = {
    "straight": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "x and y reversed": [[-1, 0, 0], [0, -1, 0], [0, 0, 1]],
    "turned by 36.9°": [[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1]],
}
COLUMNS = "seriesuid,coordX,coordY,coordZ,diameter_mm\n"


@pytest.fixture(scope="module")
def scan():
    return synthetic(3, shape=(8, 32, 40), spacing=(20.0, 6.0, 5.0), radius=(6.0, 8.0), sick=True)


def write(folder, scan, uid="1.3.6.1", axes="straight", packed=False, dtype="<i2", **replaced):
    """A scan as LUNA16 has it: subset0/uid.mhd with its values in HU, a row of annotations.csv a nodule."""
    subset = folder / "subset0"
    subset.mkdir(parents=True, exist_ok=True)
    direction = np.array(AXES[axes], dtype=float)  # row k is the direction of axis x, y, z
    values = (scan.stored * scan.slope + scan.intercept).astype(dtype)
    kind = {"i2": "MET_SHORT", "u2": "MET_USHORT", "f4": "MET_FLOAT", "i4": "MET_INT"}[values.dtype.str[1:]]
    data = f"{uid}.{'zraw' if packed else 'raw'}"
    header = {
        "ObjectType": "Image",
        "NDims": "3",
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": str(dtype.startswith(">")),
        "CompressedData": str(packed),
        "TransformMatrix": " ".join(str(value) for value in direction.ravel()),
        "Offset": " ".join(str(value) for value in ORIGIN),
        "CenterOfRotation": "0 0 0",
        "ElementSpacing": " ".join(str(mm) for mm in scan.spacing[::-1]),
        "DimSize": " ".join(str(size) for size in scan.stored.shape[::-1]),
        "ElementType": kind,
    }
    header |= {"ElementDataFile": data} | replaced if "ElementDataFile" in replaced else replaced | {"ElementDataFile": data}
    path = subset / f"{uid}.mhd"
    path.write_text("".join(f"{key} = {value}\n" for key, value in header.items() if value is not None))
    content = values.tobytes()
    (subset / data).write_bytes(zlib.compress(content) if packed else content)
    # Along axis x by so many mm, along y, along z: the sum of the axes' directions.
    points = [ORIGIN + x * direction[0] + y * direction[1] + z * direction[2] for z, y, x, _ in scan.nodules]
    table = folder / "annotations.csv"
    text = table.read_text() if table.exists() else COLUMNS
    rows = [f"{uid},{x},{y},{z},{2 * r}\n" for (x, y, z), r in zip(points, scan.nodules[:, 3], strict=True)]
    table.write_text(text + "".join(rows))
    return path


def refused(path, text, names=None):
    with pytest.raises(LabError, match=text) as caught:
        load(path)
    assert caught.value.problem.startswith("read, ") and (names or path.name) in caught.value.problem
    assert len(caught.value.fix) > 10


def peak_mib(work):
    """The most that Python and NumPy held while `work()` ran, in MiB."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_scan_has_its_values_and_its_nodules(scan, tmp_path, axes, packed):
    path = write(tmp_path, scan, axes=axes, packed=packed)
    read = load(path)
    assert np.array_equal(read.stored * read.slope + read.intercept, scan.stored * scan.slope + scan.intercept)
    assert read.name == "1.3.6.1" and read.spacing == scan.spacing
    np.testing.assert_allclose(read.nodules, scan.nodules, atol=1e-9)


@pytest.mark.parametrize("content", [bytes(300 << 20), b"\1" * 20_481], ids=["a bomb", "one byte more"])
def test_no_more_is_unpacked_than_the_header_asks_for(scan, tmp_path, content):
    path = write(tmp_path, scan, packed=True)
    path.with_suffix(".zraw").write_bytes(zlib.compress(content, 1))
    del content
    refuse = lambda: refused(path, "too long: its header asks for 20,480 bytes", "1.3.6.1.zraw")  # noqa: E731
    assert peak_mib(refuse) < 50


def test_a_compressed_file_without_end_is_not_read_whole(scan, tmp_path):
    path = write(tmp_path, scan, packed=True)
    os.truncate(path.with_suffix(".zraw"), 1 << 30)  # zeros that take no disk follow
    assert peak_mib(lambda: load(path)) < 50


def test_compressed_values_that_end_too_early(scan, tmp_path):
    path = write(tmp_path, scan, packed=True)
    data = path.with_suffix(".zraw")
    content = data.read_bytes()
    for kept in (len(content) // 2, 0):
        data.write_bytes(content[:kept])
        refused(path, "cut off", data.name)


@pytest.mark.parametrize("size", ["4294967296 4294967296 1", "1000000000000000000 1000000000000 1"])
@pytest.mark.parametrize("packed", [False, True])
def test_sizes_whose_product_is_too_large_for_64_bits(scan, tmp_path, size, packed):
    path = write(tmp_path, scan, packed=packed, DimSize=size)
    refused(path, "bytes are too many for a scan")


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices with names")
@pytest.mark.parametrize("what", ["folder", "pipe", "device"])
@pytest.mark.parametrize("name", ["data.raw", "1.3.6.1.mhd", "annotations.csv"])
def test_a_folder_a_pipe_or_a_device_in_a_files_place(scan, tmp_path, what, name):
    path = write(tmp_path, scan, ElementDataFile="data.raw")
    place = {"annotations.csv": tmp_path}.get(name, path.parent) / name
    place.unlink(missing_ok=True)
    {"folder": place.mkdir, "pipe": lambda: os.mkfifo(place), "device": lambda: place.symlink_to("/dev/zero")}[what]()
    if (what, name) == ("folder", path.name):
        return refused(path, "holds no DICOM file")
    refused(path, "not a file but a folder, a pipe, a socket or a device", name)


@pytest.mark.parametrize("dtype", ["<i2", ">i2", "<f4", "<i4"])
def test_values_of_other_types(scan, tmp_path, dtype):
    read = load(write(tmp_path, scan, dtype=dtype))
    assert read.stored.dtype == np.int16 and read.stored.dtype.isnative
    assert np.array_equal(read.stored, scan.stored + scan.intercept)


def test_values_without_a_sign(scan, tmp_path):
    shifted = replace(scan, intercept=0.0)
    read = load(write(tmp_path, shifted, dtype="<u2"))
    assert read.stored.dtype == np.int16 and np.array_equal(read.stored, scan.stored)


def test_a_published_row_is_where_its_publisher_says(tmp_path):
    """Voxel = (world − offset) / spacing for straight axes, as LUNA16's own tutorial computes it."""
    scan = synthetic(0, shape=(8, 32, 40), spacing=(20.0, 6.0, 5.0), sick=False)
    path = write(tmp_path, scan)
    (tmp_path / "annotations.csv").write_text(f"{COLUMNS}1.3.6.1,-128.6994211,195.25,-298.0,5.651470635\n")
    ((z, y, x, radius),) = load(path).nodules
    assert (z / 20, y / 6, x / 5, radius) == pytest.approx((4.0, 23 / 6, 13.36011578, 2.8257353175))


def test_what_lies_outside_the_scanners_field_is_air(scan, tmp_path):
    path = write(tmp_path, scan)
    raw = np.fromfile(path.with_suffix(".raw"), "<i2")
    raw[:40] = -3024
    raw.tofile(path.with_suffix(".raw"))
    assert (load(path).stored[0, 0] == -1024).all()


def test_all_scans_are_found_and_masks_are_left_out(scan, tmp_path, monkeypatch):
    paths = [write(tmp_path / "LUNA16", scan, uid) for uid in ("1.3.6.9", "1.3.6.10")]
    masks = tmp_path / "LUNA16" / "seg-lungs-LUNA16"
    masks.mkdir()
    (masks / "1.3.6.9.mhd").write_text("a mask, a volume too")
    monkeypatch.setenv("HPML_DATA", str(tmp_path))
    assert find_scans(luna16_folder()) == sorted(paths)


def test_without_luna16(tmp_path, monkeypatch):
    monkeypatch.setenv("HPML_DATA", str(tmp_path))
    monkeypatch.setattr("hpml_lab.core.system.paths.DATA", tmp_path)
    with pytest.raises(LabError, match="LUNA16 is not here. Set HPML_DATA"):
        luna16_folder()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kept", [0.99, 0.4, 0])
def test_truncated_values(scan, tmp_path, packed, kept):
    path = write(tmp_path, scan, packed=packed)
    data = path.with_suffix(".zraw" if packed else ".raw")
    content = data.read_bytes()
    data.write_bytes(content[: int(len(content) * kept)])
    refused(path, "cut off", data.name)


def test_a_file_of_values_that_is_too_long_or_missing(scan, tmp_path):
    path = write(tmp_path, scan)
    data = path.with_suffix(".raw")
    data.write_bytes(data.read_bytes() * 2)
    refused(path, r"too long: its header asks for 20,480 bytes", data.name)
    data.unlink()
    refused(path, "the file with the values is missing", data.name)


@pytest.mark.parametrize(
    "replaced, text",
    [
        ({"DimSize": None}, "KeyError: .DimSize"),
        ({"DimSize": "40 32"}, "not those of a volume"),
        ({"DimSize": "0 0 0"}, "not those of a volume"),
        ({"ElementSpacing": "5 6 wide"}, "could not convert"),
        ({"ElementSpacing": "5 0 20"}, "three positive lengths"),
        ({"ElementSpacing": "5 nan 20"}, "three positive lengths"),
        ({"Offset": "nan 0 0"}, "not those of a volume"),
        ({"TransformMatrix": "1 0 0 0 1 0"}, "cannot reshape"),
        ({"TransformMatrix": "1 0 0 1 0 0 0 0 1"}, "not those of a volume"),
        ({"ElementType": "MET_COMPLEX"}, "KeyError: .MET_COMPLEX"),
        ({"ElementDataFile": None}, "KeyError: .ElementDataFile"),
    ],
    ids=str,
)
def test_headers_that_describe_no_volume(scan, tmp_path, replaced, text):
    refused(write(tmp_path, scan, **replaced), text)


def test_nan(scan, tmp_path):
    path = write(tmp_path, scan, dtype="<f4")
    raw = np.fromfile(path.with_suffix(".raw"), "<f4")
    raw[[5, 77]] = np.nan, np.inf
    raw.tofile(path.with_suffix(".raw"))
    refused(path, "2 of 10,240 values are NaN or infinite")


def test_a_patient_without_annotations(scan, tmp_path):
    path = write(tmp_path, scan)
    table = tmp_path / "annotations.csv"
    table.write_text(COLUMNS)
    refused(path, "annotations.csv has no row for it")
    for name in ("candidates.csv", "seriesuids.csv"):
        (tmp_path / name).write_text("seriesuid,coordX,coordY,coordZ,class\n1.3.6.11,0,0,0,0\n")
        refused(path, "no list says that the patient is healthy")
        (tmp_path / name).write_text("1.3.6.11\n1.3.6.1\n" if name == "seriesuids.csv" else "1.3.6.1,0,0,0,0\n")
        assert load(path).nodules.shape == (0, 4)
        (tmp_path / name).unlink()
    table.unlink()
    refused(path, "no annotations")
    assert load(path, annotated=False).nodules.shape == (0, 4)


@pytest.mark.parametrize(
    "text, found",
    [
        ("seriesuid,coordX,coordY\n1.3.6.1,0,0\n", "these are no annotations .KeyError: .coordZ"),
        (COLUMNS + "1.3.6.1,0,0,0,5\n1.3.6.1,a,0,0,5\n", "these are no annotations"),
        (COLUMNS + "1.3.6.1,0,0\n", "these are no annotations"),
        (COLUMNS + "1.3.6.1,0,0,nan,5\n", "these are no annotations"),
        (COLUMNS + "1.3.6.1,0,0,0,-5\n", "these are no annotations"),
    ],
    ids=["column", "word", "short", "nan", "negative"],
)
def test_annotations_that_cannot_be_read(scan, tmp_path, text, found):
    path = write(tmp_path, scan)
    (tmp_path / "annotations.csv").write_text(text)
    refused(path, found, "annotations.csv")


def test_a_nodule_outside_the_volume(scan, tmp_path):
    """What a reader that forgets the offset or the direction would see."""
    path = write(tmp_path, scan, axes="x and y reversed")
    header = path.read_text()
    path.write_text(re.sub("TransformMatrix = .*", "TransformMatrix = 1 0 0 0 1 0 0 0 1", header))
    refused(path, "a nodule's center is outside the volume")
