"""The judges of the exercises on reading scans: known mistakes are refused and named; the package agrees with the judges."""

from pathlib import Path

import numpy as np

from hpml_lab.capstone.exercises import hounsfield_units, order_the_slices, slice_series
from hpml_lab.capstone.tools.dicom import in_order
from hpml_lab.capstone.tools.reading import to_int16
from hpml_lab.core.system.errors import LabError


def test_the_reader_orders_slices_as_the_exercise_asks():
    ordered = 0
    for case, (headers,) in slice_series.cases().items():
        row, column = np.reshape(headers[0]["orientation"], (2, 3))
        positions = np.array([header["position"] for header in headers])
        try:
            found, _ = in_order([Path(f"{i}.dcm") for i in range(len(headers))], positions, np.cross(row, column))
        except LabError as error:
            said = {"twice": "not evenly spaced|twice", "tilted": "tilted", "shifted": "tilted", "one slice": "one slice alone"}
            assert any(key in case and any(part in str(error) for part in text.split("|")) for key, text in said.items()), case
        else:
            assert found == order_the_slices.right(headers), case
            ordered += 1
    assert ordered == 9


def test_stored_values_without_a_sign_have_the_hounsfield_units_of_the_exercise():
    for case, (stored, slope, intercept, *padding) in hounsfield_units.CASES.items():
        if np.ndim(slope) or np.ndim(intercept) or padding:
            continue
        values, a, b = to_int16(stored, slope, intercept)
        assert values.dtype == np.int16
        np.testing.assert_allclose(float(a) * values + float(b), hounsfield_units.right(stored, slope, intercept), err_msg=case)
