"""Two answers are the same if they have the same value, whatever type holds it; and the first place that differs is shown."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from hpml_lab.core.judge.same import difference, same

SAME = {
    "a scalar of NumPy": (np.float64(2.5), 2.5),
    "an integer of NumPy": (np.int64(7), 7),
    "a scalar of torch": (torch.tensor(2.5), 2.5),
    "a truth value of NumPy": (np.bool_(True), True),
    "a truth value of torch": (torch.tensor(False), False),
    "1 for True": (1, True),
    "a fraction": (Fraction(1, 3), 1 / 3),
    "a decimal": (Decimal("0.1"), 0.1),
    "a string of NumPy": (np.str_("b"), "b"),
    "an array for a tensor": (np.array([1.0, 2.0]), torch.tensor([1.0, 2.0])),
    "a reversed view of an array": (np.array([1.0, 2.0])[::-1], torch.tensor([2.0, 1.0])),
    "a view of a tensor": (torch.arange(3.0).numpy(), [0, 1, 2]),
    "a list for a tuple": ([1, "a"], (1, "a")),
    "a tensor for a tuple": (torch.tensor([1.0, 2.0]), (1.0, 2.0)),
    "rows for a list of tensors": (torch.eye(2), [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])]),
    "an array of strings": (np.array(["a", "b"]), ["a", "b"]),
    "a range": (range(3), [0, 1, 2]),
    "a size": ((2, 3), torch.zeros(2, 3).shape),
    "nested": ({"a": [np.float32(0.5), None]}, {"a": (0.5, None)}),
    "a set": ({1, 2}, {2, 1}),
    "a huge integer": (10**30, 10**30),
    "rounding next to 1": ([1.0, 1e-8], [1.0, 0.0]),
    "rounding of float32 next to 1": (torch.tensor([1.0, 3e-7]), torch.tensor([1.0, 0.0])),
    "not a number, where it should be": (torch.tensor(float("nan")), float("nan")),
}
DIFFERENT = {
    "integers that differ by 1": (4_000_001, 4_000_000),
    "integers of torch that differ by 1": (torch.tensor([4_000_001]), torch.tensor([4_000_000])),
    "small numbers": (2e-8, 1e-8),
    "small numbers of a tensor": (torch.tensor([2e-8, 1e-8]), torch.tensor([1e-8, 1e-8])),
    "a small number next to 1, in float64": ([1.0, 1.1e-7], [1.0, 0.0]),
    "small numbers of a tuple": ((1e6, 2e-8), (1e6, 1e-8)),
    "1.0 for True": (1.0, True),
    "2 for True": (2, True),
    "another truth value": (np.bool_(False), True),
    "shapes": (torch.zeros(3, 1), torch.zeros(3)),
    "a list of rows for a tensor": ([torch.zeros(2), torch.zeros(2)], torch.zeros(2, 2)),
    "lengths": ([1, 2], (1, 2, 3)),
    "keys": ({"a": 1}, {"b": 1}),
    "text for a number": ("5", 5),
    "nothing for a number": (None, 0.0),
    "a function for a number": (len, 3),
}


@pytest.mark.parametrize("got, right", SAME.values(), ids=SAME)
def test_the_same_value_in_another_type(got, right):
    assert same(got, right)


@pytest.mark.parametrize("got, right", DIFFERENT.values(), ids=DIFFERENT)
def test_another_value(got, right):
    assert not same(got, right)


def test_modules_are_the_same_with_the_same_layers_weights_and_mode():
    torch.manual_seed(0)
    net, twin = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    assert not same(twin, net)
    twin.load_state_dict(net.state_dict())
    assert same(twin, net)
    assert not same(twin.eval(), net)
    assert not same(nn.Sequential(nn.Linear(2, 3), nn.Tanh()), net)


def test_short_values_are_shown_and_of_long_ones_the_first_difference():
    assert difference(4, 3) == "should be 3; yours is 4"
    right = torch.arange(100.0).reshape(10, 10)
    wrong = right.clone()
    wrong[7, 2] = -1
    assert difference(wrong, right) == "should be 72 at [7, 2]; yours is -1 there"
    wrong[9, 9] = -1
    assert difference(wrong, right) == "should be 72 at [7, 2]; yours is -1 there (2 places differ)"
    words = [f"word {number}" for number in range(30)]
    assert difference([*words[:20], "x", *words[21:]], words) == "should be 'word 20' at [20]; yours is 'x' there"
    assert difference(words[:-1], words) == "should be 'word 29' at [29]; yours is nothing there"
    assert difference([*words, 1], words) == "should have nothing at [30]; yours has 1 there"
    assert "at ['k'][1]" in difference({"k": [0, 1], "long": "x" * 90}, {"k": [0, 2], "long": "x" * 90})


def test_values_that_look_alike_are_shown_with_their_digits_and_types():
    assert difference("5", 5) == "should be 5; yours is '5'"
    assert difference(0.12345678, 0.123457) == "should be 0.123457 (float); yours is 0.12345678 (float)"


def test_the_right_value_can_be_kept_back():
    assert difference((1.0, 2.0), (1.0, 3.0), reveal=False) == "is not 2 at [1]: that is too small"
    assert difference("x", 3.0, reveal=False) == "is not 'x'"


def test_what_cancels_almost_may_have_rounding_errors():
    right, rounded = 3.0458649e-05, 3.0459e-05
    assert not same(rounded, right)
    assert same(rounded, right, largest=0.1)
    assert not same(2 * right, right, largest=0.1)
