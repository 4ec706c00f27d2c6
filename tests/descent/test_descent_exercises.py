"""The exercises of notebook 04 accept numbers as a student computes them, with torch as well as by hand."""

import torch

from hpml_lab.core.judge.exercises import check


def test_rates_may_be_float32():
    def rate(t, lr, first, then):
        return torch.tensor(lr) / 10 ** ((t > first) + (t > first + then))

    assert check("fix-the-schedule", rate)
