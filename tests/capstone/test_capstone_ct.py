"""Synthetic patients, and scans in the workbook's own files."""

import dataclasses
import io
import os
import socket
import zipfile

import numpy as np
import pytest

from hpml_lab.capstone import find_scans, load, save, synthetic
from hpml_lab.capstone.tools import scans
from hpml_lab.capstone.tools.ct import LUNG, NOISE, SOLID, Scan
from hpml_lab.capstone.tools.reading import short_name
from hpml_lab.core.system.errors import LabError

SMALL = dict(shape=(24, 64, 64), spacing=(6.0, 3.0, 3.0))
NONE = np.empty((0, 4))


@pytest.fixture(scope="module")
def scan():
    return synthetic(3, sick=True, **SMALL)


@pytest.fixture(scope="module")
def patients():
    """A few of the size that the capstone uses."""
    return [synthetic(seed, sick=True) for seed in range(3)]


def hounsfield(scan):
    return scan.stored * scan.slope + scan.intercept


def distances(scan, nodule):
    """mm of each voxel from a nodule's center."""
    axes = np.ogrid[tuple(slice(0, size) for size in scan.stored.shape)]
    return np.sqrt(sum((index * mm - c) ** 2 for index, mm, c in zip(axes, scan.spacing, nodule, strict=False)))


def same_scan(first, second):
    values = [dataclasses.asdict(each) for each in (first, second)]
    return all(np.array_equal(values[0][key], values[1][key]) for key in values[0])


# ---- Synthetic patients --------------------------------------------------------------------------------------------


def test_one_seed_is_one_patient(scan):
    assert same_scan(scan, synthetic(3, sick=True, **SMALL))
    assert not np.array_equal(scan.stored, synthetic(4, sick=True, **SMALL).stored)


def test_half_of_the_patients_are_sick_with_one_to_three_nodules():
    counts = [len(synthetic(seed, shape=(8, 32, 32), spacing=(20.0, 6.0, 6.0)).nodules) for seed in range(150)]
    assert set(counts) == {0, 1, 2, 3}
    assert 0.4 < np.mean([count > 0 for count in counts]) < 0.6


def test_where_a_nodule_is_known_there_is_a_ball_of_its_radius(patients):
    for scan in patients:
        hu = hounsfield(scan)
        for nodule in scan.nodules:
            away, radius = distances(scan, nodule), nodule[3]
            core = hu[away < 0.5 * radius]
            assert abs(core.mean() - SOLID) < 3 * NOISE / np.sqrt(len(core)) + 5
            ring = hu[(away > radius + 2.5) & (away < radius + 5)]
            assert np.median(ring) == pytest.approx(LUNG, abs=10), "it is in a lung, apart from walls"
            near = hu[away < radius + 2.5]
            solid = (near > (SOLID + LUNG) / 2).sum() * np.prod(scan.spacing)
            assert solid == pytest.approx(4 / 3 * np.pi * radius**3, rel=0.35), "its volume; vessels may touch it"


def test_radii_are_of_the_range_and_nodules_are_apart():
    for seed in range(30):
        nodules = synthetic(seed, sick=True, shape=(8, 48, 48), spacing=(20.0, 4.0, 4.0), radius=(4.0, 5.0)).nodules
        assert ((nodules[:, 3] >= 4) & (nodules[:, 3] <= 5)).all() and len(nodules)
        for i, first in enumerate(nodules):
            for second in nodules[:i]:
                assert np.linalg.norm(first[:3] - second[:3]) > first[3] + second[3]


def test_the_anatomy_does_not_depend_on_the_number_of_voxels():
    coarse = synthetic(5, (16, 48, 48), (10.0, 4.0, 4.0), sick=True)
    fine = synthetic(5, (32, 96, 96), (5.0, 2.0, 2.0), sick=True)
    assert np.array_equal(coarse.extent, fine.extent)
    # Positions count from the center of the first voxel, which is half a voxel inside.
    half = (np.array(coarse.spacing) - fine.spacing) / 2
    np.testing.assert_allclose(coarse.nodules[:, :3] + half, fine.nodules[:, :3])
    assert np.array_equal(coarse.nodules[:, 3], fine.nodules[:, 3])


def test_values_are_as_a_scanner_stores_them(patients):
    for scan in patients:
        assert scan.stored.dtype == np.int16 and scan.stored.shape == (64, 192, 192)
        assert scan.stored.min() >= 0 and scan.stored.max() <= 4095
        assert (hounsfield(scan) < -700).mean() > 0.4, "air around the body, and lungs"


def test_organs_are_where_dicom_says(patients):
    """z points to the head, y to the back, x to the patient's left."""
    hu = np.mean([hounsfield(scan) for scan in patients], axis=0)
    back, left = hu[:, 140, 96], hu[20, 82, 110]
    assert (back > 300).all(), "the spine"
    assert left > -100 and hu[20, 82, 192 - 110] < -600, "the heart"
    assert hu[-1, 88, 96] < -900 and hu[0, 88, 96] > -100, "the windpipe"


@pytest.mark.parametrize(
    "arguments, text",
    [
        (dict(seed=-1), "-1 is not a seed"),
        (dict(seed="three"), "'three' is not a seed"),
        (dict(seed=0, shape=(4, 64, 64)), "too small for a chest"),
        (dict(seed=0, shape=(64, 64)), "too small for a chest"),
        (dict(seed=0, spacing=(1.0, 0.0, 1.0)), "three positive lengths"),
        (dict(seed=0, spacing=(1.0, float("nan"), 1.0)), "three positive lengths"),
        (dict(seed=0, radius=(7.0, 3.0)), "not a range"),
        (dict(seed=0, radius=(90.0, 95.0), sick=True), "fits into lungs of this size"),
    ],
    ids=str,
)
def test_patients_that_cannot_be_made(arguments, text):
    with pytest.raises(LabError, match=text):
        synthetic(**{**SMALL, **arguments})


@pytest.mark.parametrize(
    "changed, text",
    [
        (dict(stored=np.zeros((4, 4), np.int16)), "slices, rows and columns"),
        (dict(stored=np.zeros((0, 4, 4), np.int16)), "slices, rows and columns"),
        (dict(stored=np.zeros((4, 4, 4), np.int32)), "int16"),
        (dict(spacing=(1.0, 1.0)), "three positive lengths"),
        (dict(spacing=(1.0, -1.0, 1.0)), "three positive lengths"),
        (dict(slope=0.0), "no Hounsfield units"),
        (dict(intercept=float("nan")), "no Hounsfield units"),
        (dict(nodules=np.zeros(4)), "rows of z, y, x and a positive radius"),
        (dict(nodules=np.array([[1.0, 1, 1, 0]])), "positive radius"),
        (dict(nodules=np.array([[1.0, np.nan, 1, 2]])), "finite"),
        (dict(nodules=np.array([[1.0, 1, 500, 2]])), "outside the volume"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_values_that_are_no_scan(scan, changed, text):
    with pytest.raises(LabError, match=text):
        dataclasses.replace(scan, **changed)


def test_hounsfield_units_of_whole_numbers_do_not_overflow(scan):
    changed = dataclasses.replace(scan, stored=np.full((2, 2, 2), 32000, np.int16), slope=2, intercept=-24, nodules=NONE)
    assert (hounsfield(changed) == 63976).all()


# ---- Files ---------------------------------------------------------------------------------------------------------


def refused(path, text, names=None):
    with pytest.raises(LabError, match=text) as caught:
        load(path)
    assert caught.value.problem.startswith("read, ") and (names or path.name) in caught.value.problem
    assert len(caught.value.fix) > 10


def test_a_scan_is_the_same_after_saving_and_loading(scan, tmp_path):
    for each in (scan, synthetic(0, sick=False, **SMALL)):
        path = save(each, tmp_path)
        assert same_scan(load(path), each)
    assert [path.name for path in find_scans(tmp_path)] == ["patient-0000.npz", "patient-0003.npz"]


def test_scans_are_found_in_folders_below_and_hidden_files_are_not(scan, tmp_path):
    paths = [save(scan, tmp_path / name) for name in ("b", "a/deeper", ".trash")]
    (tmp_path / "notes.txt").write_text("no scan")
    (tmp_path / "a" / ".patient.npz.part").write_bytes(b"half")
    assert find_scans(tmp_path) == [paths[1], paths[0]]


@pytest.mark.skipif(os.name != "posix", reason="links, pipes and sockets with names")
def test_links_back_pipes_and_sockets_are_passed_over(scan, tmp_path, monkeypatch):
    path = save(scan, tmp_path / "patients")
    for name in ("again", "once-more"):
        (tmp_path / "patients" / name).symlink_to(tmp_path / "patients")
    (tmp_path / "patients" / "up").symlink_to(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "patients")
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "1.2.840")
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert find_scans(tmp_path) == [path], "once, under its own name"
    os.mkfifo(tmp_path / "pipe.npz")
    refused(find_scans(tmp_path)[-1], "not a file but a folder, a pipe, a socket or a device", "pipe.npz")


def test_an_empty_folder_and_none(tmp_path):
    for path, text in ((tmp_path, "holds no scan"), (tmp_path / "nowhere", "no such folder")):
        with pytest.raises(LabError, match=text) as caught:
            find_scans(path)
        assert path.name in caught.value.problem and caught.value.problem.startswith("read, ")
    refused(tmp_path / "gone.npz", "no such file")
    (tmp_path / "notes.txt").write_text("no scan")
    refused(tmp_path / "notes.txt", "not a file of a known format")


@pytest.mark.parametrize("kept", [0.99, 0.5, 0.001, 0])
def test_a_truncated_file(scan, tmp_path, kept):
    path = save(scan, tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    refused(path, "cut off or damaged")


def test_a_damaged_byte_in_an_npz(scan, tmp_path):
    path = save(scan, tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    refused(path, "cut off or damaged")


def test_files_of_pickled_objects_are_not_opened(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, stored=np.array([{"a": 1}], dtype=object))
    refused(path, "cut off or damaged")


@pytest.mark.parametrize("shape", [(10**18,), (2**32, 2**32), (10**30, 1, 1), (-1, 2, 3)])
def test_a_header_that_asks_for_more_than_there_is(scan, tmp_path, shape):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i2", "fortran_order": False, "shape": shape})
    path = save(scan, tmp_path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("stored.npy", header.getvalue() + bytes(12))
    refused(path, "cut off or damaged")


def test_an_npz_is_not_unpacked_if_it_is_a_bomb(scan, tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, stored=np.zeros((64, 64, 64), np.int16), **{key: getattr(scan, key) for key in scans.META})
    assert load(path).stored.shape == (64, 64, 64), "compressed ones are read"
    monkeypatch.setattr(scans, "VOLUME", 64**3)
    refused(path, "it would unpack to 52.,... bytes")


def write_npz(path, scan, **changed):
    values = {**dataclasses.asdict(scan), **changed}
    np.savez(path, **{key: value for key, value in values.items() if value is not None and key != "name"})
    return path


@pytest.mark.parametrize(
    "changed, text",
    [
        (dict(spacing=None, slope=None), "spacing, slope is missing"),
        (dict(stored=np.zeros((2, 5), np.int16)), "this one's shape is"),
        (dict(stored=np.full((4, 5, 6), 70000)), "do not fit into 16 bits"),
        (dict(stored=np.zeros((4, 5, 6), bool)), "stored values are integers"),
        (dict(stored=np.zeros((4, 5, 6), complex)), "stored values are integers"),
        (dict(stored=np.where(np.arange(120) % 50, 1.0, np.nan).reshape(4, 5, 6)), "3 of 120 values are NaN"),
        (dict(stored=np.full((4, 5, 6), np.inf)), "120 of 120 values are NaN or infinite"),
        (dict(spacing=(1.0, 2.0)), "three positive lengths"),
        (dict(slope=float("nan")), "no Hounsfield units"),
        (dict(slope=(1.0, 2.0)), "its values are no scan"),
        (dict(spacing=("a", "b", "c")), "its values are no scan"),
        (dict(nodules=np.zeros((2, 3))), "rows of z, y, x"),
        (dict(nodules=np.array([[900.0, 1, 1, 2]])), "outside the volume"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_an_npz_that_holds_no_scan(scan, tmp_path, changed, text):
    refused(write_npz(tmp_path / "other.npz", scan, **changed), text)


def test_a_patient_without_annotations(scan, tmp_path):
    path = write_npz(tmp_path / "unknown.npz", scan, nodules=None)
    refused(path, "no annotations, so detections cannot be judged")
    read = load(path, annotated=False)
    assert np.array_equal(read.stored, scan.stored) and read.nodules.shape == (0, 4)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64", ">i2"])
def test_stored_values_of_other_types(scan, tmp_path, dtype):
    stored = (scan.stored % 200).astype(dtype)
    read = load(write_npz(tmp_path / "other.npz", scan, stored=stored))
    assert read.stored.dtype == np.int16 and read.stored.dtype.isnative and np.array_equal(read.stored, stored)


def test_16_bits_without_a_sign_keep_their_hounsfield_units(scan, tmp_path):
    stored = scan.stored.astype(np.uint16) + np.uint16(60000)
    read = load(write_npz(tmp_path / "other.npz", scan, stored=stored, slope=0.5))
    assert np.array_equal(hounsfield(read), stored * 0.5 + scan.intercept)


def test_a_scan_is_written_whole_or_not_at_all(scan, tmp_path, monkeypatch):
    path = save(scan, tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(LabError, match="No space left"):
        save(dataclasses.replace(scan, slope=2.0), tmp_path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_format_that_is_not_written(scan, tmp_path):
    with pytest.raises(LabError, match="'nii' is not a format"):
        save(scan, tmp_path, "nii")
    assert isinstance(scan, Scan) and list(tmp_path.iterdir()) == []


def test_a_relative_path_is_not_named_as_an_absolute_one():
    assert [short_name(name) for name in ("nope", "a/b/c", "/nope")] == ["nope", "b/c", "/nope"]


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_folders_that_all_link_to_each_other_are_entered_once(scan, tmp_path):
    folders = [tmp_path / f"ward-{number:02}" for number in range(16)]  # in one order after the other there are 16! ways
    for folder in folders:
        folder.mkdir()
    for folder in folders:
        for other in folders:
            (folder / f"to-{other.name}").symlink_to(other)
    saved = save(scan, folders[9])
    assert find_scans(tmp_path) == [saved]
