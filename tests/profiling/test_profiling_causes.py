"""Four causes of slow code: both forms agree, and an HDF5 file that cannot be opened is one clear error."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.profiling import slow_causes
from hpml_lab.profiling.experiments import slow_causes as row
from hpml_lab.profiling.experiments.slow_causes import LOCKING, CausePair
from hpml_lab.profiling.lessons import slow_causes as lesson

SMALL = slow_causes.quick | dict(cells=200, rows=40, columns=8, labels=500, chunks=4, values=1 << 10, threads=2, samples=2)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(row, "WATCHED_SECONDS", 0.05)


def test_the_row_times_and_profiles_each_pair(sound, ran):
    pytest.importorskip("h5py")
    result = ran("slow-causes")
    sound(result)
    rows = result.rows(CausePair)
    assert [row.cause for row in rows] == ["exceptions", "traversal", "dictionary", LOCKING] and len(result.claims) == 6
    assert all(row.same and row.slow_ms > 0 and row.fast_ms > 0 and row.shown for row in rows)
    assert "%" in rows[0].shown and "threads wait" in rows[3].shown


def test_without_h5py_and_line_profiler_one_line_each_says_so(sound, monkeypatch):
    for package in ("h5py", "line_profiler"):
        monkeypatch.setitem(sys.modules, package, None)
    result = replace(slow_causes, quick=SMALL)("quick", device="cpu")
    sound(result)
    assert [row.cause for row in result.rows(CausePair)] == ["exceptions", "traversal", "dictionary"]
    assert len(result.notes) == 2 and "pip install h5py" in result.notes[0] and "line-profiler" in result.notes[1]


@pytest.mark.parametrize("cells", [[], ["", ""], ["1.5", "", "-2e3"]])
def test_columns_of_text_are_parsed_alike(cells):
    assert lesson.parse_slow(cells) == lesson.parse_fast(cells) == [float(cell) if cell else lesson.ABSENT for cell in cells]


def test_sums_and_weights_are_right_in_both_forms():
    matrix = np.arange(12).reshape(3, 4)
    for form in (lesson.column_sums_slow, lesson.column_sums_fast):
        assert form(matrix).tolist() == [12, 15, 18, 21]
    for form in (lesson.weigh_slow, lesson.weigh_fast):
        assert form(np.array([2, 0, 2]), {0: 1, 1: 10, 2: 100}) == 201


def test_chunks_are_read_in_order_by_any_number_of_threads(tmp_path):
    pytest.importorskip("h5py")
    lesson.write_hdf5(tmp_path / "x.h5", chunks=5, values=300)
    with lesson.open_hdf5(tmp_path / "x.h5") as file:
        whole = file["x"][:]
        for threads in (1, 3):
            with ThreadPoolExecutor(threads) as pool:
                for form in (lesson.read_slow, lesson.read_fast):
                    assert np.array_equal(form(file["x"], pool), whole)


def test_a_file_that_cannot_be_opened_says_why_and_what_to_do(tmp_path):
    pytest.importorskip("h5py")
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "x.h5"
    with pytest.raises(LabError, match="is not there"):
        lesson.open_hdf5(path)
    lesson.write_hdf5(path, chunks=2, values=300)
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # as HDF5 holds it while it writes
        with pytest.raises(LabError, match="is locked.*End that program"):
            lesson.open_hdf5(path)
    whole = path.read_bytes()
    for damaged in (b"", b"no HDF5 file", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(LabError, match="is not an HDF5 file .*another copy"):
            lesson.open_hdf5(path)
