"""The step that puts a script's net under the roofline: what it counts, what it says, and what it refuses."""

import pytest
import torch

from hpml_lab.core.timing.clock import Ceiling
from hpml_lab.your_script.tools import own_roofline
from hpml_lab.your_script.tools.lab_report import LabReport, implausible
from hpml_lab.your_script.tools.lab_task import Lab, NotDone
from hpml_lab.your_script.tools.own_roofline import place_under_roof
from hpml_lab.your_script.views.lab_page import roofline_figure

OWN = """
import torch
from torch import nn

def make_net():
    return nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 10))

def make_batch(size):
    return torch.randn(size, 300), torch.randint(10, (size,))

if __name__ == "__main__":
    raise SystemExit("it trains")
"""
PARAMETERS = 300 * 200 + 200 + 200 * 10 + 10
PRODUCTS = 300 * 200, 200 * 10  # multiply-adds of each layer, of a sample


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """(text) -> a lab of a script, on a machine without a GPU that has 4 GB/s and 2 GFLOP/s."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(own_roofline, "measured_limits", lambda device: Ceiling(4.0, 2.0, threads=1))

    def make(text, seconds=60.0):
        (tmp_path / "own_training.py").write_text(text)
        return Lab([str(tmp_path / "own_training.py")], tmp_path, seconds)

    return make


def test_flops_and_bytes_are_those_of_the_net(lab):
    """The input needs no gradient: the backward pass has a product for each layer's weights, and one for the second's input."""
    rows = place_under_roof(lab(OWN)).tables[0].rows
    assert [(row.part, row.batch) for row in rows] == [
        ("forward pass", 2),
        ("training step", 2),
        ("forward pass", 8),
        ("training step", 8),
    ]
    forward, step = 2 * sum(PRODUCTS), 2 * (2 * sum(PRODUCTS) + PRODUCTS[1])
    assert [1e9 * row.flops for row in rows] == pytest.approx([2 * forward, 2 * step, 8 * forward, 8 * step])
    activations = 300 + 3 * 200 + 200 + 10  # read by the first layer; written, read and written; read and written
    assert 1e6 * rows[0].moved == pytest.approx(4 * (PARAMETERS + 2 * activations), rel=0.001)
    momentum = 4 * 6 * PARAMETERS  # read weight, gradient and velocity; write weight and velocity; read them in the passes
    assert 1e6 * rows[1].moved > momentum and rows[3].intensity > 2 * rows[1].intensity


def test_the_peak_is_that_of_a_convolution_where_it_is_faster_than_a_product(monkeypatch):
    for product, faster in ((1e-6, "convolution"), (1e9, "product")):
        monkeypatch.setattr(own_roofline, "ceiling", lambda device, tf32, rate=product: Ceiling(4.0, rate, threads=1))
        found = own_roofline.measured_limits(torch.device("cpu"))
        assert found.gb_per_s == 4.0 and (found.gflop_per_s == product) == (faster == "product")


def test_each_part_has_its_distance_from_the_roof(lab):
    found = place_under_roof(lab(OWN))
    for row, line in zip(found.tables[0].rows, found.says, strict=False):
        assert row.rate == pytest.approx(1e3 * row.flops / row.milliseconds) and row.spread >= 0
        assert row.share == pytest.approx(100 * row.rate / min(2.0, 4.0 * row.intensity))
        limit = "arithmetic" if row.intensity > 0.5 else "memory"
        assert line.startswith(f"{row.part} of {row.batch}: ") and line.endswith(f"where {limit} is the limit.")
    assert {line.split()[-4] for line in found.says[:4]} == {"memory", "arithmetic"}
    assert found.says[4].startswith("On one thread memory is the limit below 0.5 FLOP/byte.")


def test_the_figure_has_the_roof_and_each_part_at_its_place(lab):
    [table] = place_under_roof(lab(OWN)).tables
    roof, *points = roofline_figure(table).axes[0].lines
    assert max(roof.get_ydata()) == 2.0 and roof.get_label() == "measured limits: 4 GB/s, 2 GFLOP/s"
    assert [(point.get_xdata()[0], point.get_ydata()[0]) for point in points] == [
        (row.intensity, row.rate) for row in table.rows
    ]


@pytest.mark.parametrize(
    "change, why",
    [
        (("return nn.Sequential(", "raise ValueError('no such layer')\n    return ("), "ValueError: no such layer"),
        (
            ("nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 10)", "nn.ReLU()"),
            "ValueError: FlopCounterMode counts no FLOPs in it",
        ),
    ],
)
def test_a_net_that_cannot_be_placed_says_why(lab, change, why):
    with pytest.raises(NotDone) as raised:
        place_under_roof(lab(OWN.replace(*change)))
    assert str(raised.value) == f"a forward pass of 2: {why}"


def test_what_does_not_fit_into_the_time_is_named(lab):
    found = place_under_roof(lab(OWN, seconds=0.0))
    assert len(found.tables[0].rows) == 1
    assert found.says[-1].startswith("Not run within 0 s: training step of 2; forward pass of 8; training step of 8.")


def test_a_rate_far_above_the_peak_cannot_be(lab):
    [table] = place_under_roof(lab(OWN)).tables
    for row in table.rows:
        row.rate = row.peak
    assert implausible(LabReport(), [table]) == []
    table.rows[1].rate = 6.0
    assert implausible(LabReport(), [table]) == ["The net under the roofline: 6 GFLOP/s, and the peak is 2"]
