"""The exercises that ask for numbers take them as a student computes them, with torch or NumPy as well as by hand."""

import numpy as np
import pytest
import torch

from hpml_lab.core.judge.exercises import check

STEPS = (0.01 * torch.arange(1, 5000).rsqrt().cumsum(0) < 1).sum() + 1
FIRST = (0.01, 0.00316, 0.1, 0.001)


@pytest.mark.parametrize("answer", [STEPS, np.int64(2574), np.float32(2500)], ids=repr)
def test_steps_may_be_a_tensors_or_numpys_number(answer):
    assert check("adagrad-distance", answer)


@pytest.mark.parametrize("kind", [torch.tensor, np.array, lambda values: [torch.tensor(value) for value in values]])
def test_first_steps_may_be_tensors_or_arrays(kind):
    assert check("first-steps", kind(FIRST))
    assert check("first-steps", kind(FIRST[:3])).mistake == "not-four-numbers"


@pytest.mark.parametrize("answer", [torch.tensor(1.0), "1234", {"a": 1.0}, (1.0, 2.0, 3.0, "4"), [[1.0] * 2] * 4], ids=repr)
def test_anything_but_four_numbers_is_named(answer):
    assert check("first-steps", answer).mistake == "not-four-numbers"
