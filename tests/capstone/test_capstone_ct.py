"""Synthetic patients, and scans in the workbook's own files."""

import dataclasses

import numpy as np
import pytest

from hpml_lab.capstone import find_scans, load, save, synthetic

SMALL = dict(shape=(24, 64, 64), spacing=(6.0, 3.0, 3.0))
INTERCEPT = -1024


@pytest.fixture(scope="module")
def scan():
    return synthetic(3, sick=True, **SMALL)


def same_scan(first, second):
    values = [dataclasses.asdict(each) for each in (first, second)]
    return all(np.array_equal(values[0][key], values[1][key]) for key in values[0])


def test_one_seed_is_one_patient(scan):
    assert same_scan(scan, synthetic(3, sick=True, **SMALL))
    assert not np.array_equal(scan.stored, synthetic(4, sick=True, **SMALL).stored)


@pytest.mark.parametrize("format", ["npz", "npy"])
def test_a_scan_is_the_same_after_saving_and_loading(scan, tmp_path, format):
    for each in (scan, synthetic(0, sick=False, **SMALL)):
        path = save(each, tmp_path, format)
        assert same_scan(load(path), each)
    assert [path.name for path in find_scans(tmp_path)] == [f"patient-0000.{format}", f"patient-0003.{format}"]
