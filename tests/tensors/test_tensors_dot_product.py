"""The dot product's ways agree, its sums are as exact as their bounds say, and the roofline says what it cannot draw."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hpml_lab import tensors
from hpml_lab.core.system import c_code
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import Ceiling, Timing
from hpml_lab.tensors.experiments import dot_product as module
from hpml_lab.tensors.experiments.dot_product import NO_COMPILER, PYTHON, STOP, Dot, Sum, vectors, works
from hpml_lab.tensors.lessons import dot_loops, summation

needs_compiler = pytest.mark.skipif(c_code.compiler() is None, reason="no C compiler here")


@pytest.fixture
def result(ran):
    """What the notebook found in this run of the tests; run here where it did not."""
    return ran("dot-product")


def test_it_is_sound(result, sound):
    sound(result)


def test_its_rows_count_two_flops_and_eight_bytes_for_each_pair(result):
    for row in result.rows(Dot):
        assert row.rate == pytest.approx(2 * row.n / row.microseconds / 1e3)
        assert row.bandwidth == pytest.approx(4 * row.rate)
    assert {row.way for row in result.rows(Sum)} == {"running", "pairwise", "compensated", "in_double"}


@pytest.mark.parametrize("n", [1, 3, 4, 1001])
def test_all_ways_give_the_same_product(n):
    a, b = vectors(n)
    exact = math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))
    for way, work in works(n).items():
        assert float(work()) == pytest.approx(exact, rel=1e-5), way


@needs_compiler
@pytest.mark.parametrize(
    "a, b",
    [
        (np.ones(4), np.ones(4)),
        (np.ones(4, np.float32), np.ones(5, np.float32)),
        (np.ones(8, np.float32)[::2], np.ones(4, np.float32)),
        (np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)),
    ],
    ids=["float64", "lengths", "gaps", "matrices"],
)
def test_c_reads_no_memory_that_is_not_the_vectors(a, b):
    with pytest.raises(ValueError, match="two float32 vectors"):
        dot_loops.in_c(a, b)


def test_a_compiler_that_does_not_run_and_a_folder_that_loads_nothing_are_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setattr(c_code, "find_tool", lambda name: str(tmp_path / "no-such-compiler"))
    assert c_code.loaded("int one(void) { return 1; }") is None
    monkeypatch.setattr(c_code, "compiled", lambda code, target, *options: bool(target.write_bytes(b"no library")))
    assert c_code.loaded("") is None


def test_without_a_compiler_the_row_says_so(monkeypatch):
    monkeypatch.setattr(c_code, "find_tool", lambda name: None)
    dot_loops.library.cache_clear()
    try:
        result = replace(module.dot_product, quick={"sizes": (1_000,), "summed": 1_000})("quick", device="cpu")
    finally:
        dot_loops.library.cache_clear()
    assert NO_COMPILER in result.notes
    assert all(not row.way.startswith("C,") for row in result.rows(Dot))
    assert len(result.claims) == 3


@pytest.mark.parametrize("way", [summation.running, summation.pairwise, summation.compensated, summation.in_double])
@pytest.mark.parametrize("n", [1, 2, 3, 1000, 4097])
def test_a_sum_keeps_its_bound(way, n):
    x = np.random.default_rng(n).random(n, dtype=np.float32) * np.float32(10.0) ** np.random.default_rng(1).integers(-6, 6, n)
    x = x.astype(np.float32)
    exact = math.fsum(x.tolist())
    assert way(x).dtype == np.float32
    assert abs(float(way(x)) - exact) <= max(1.0, summation.bounds(n)[way]) * summation.U * exact


def test_a_compensated_sum_can_be_off_by_more_than_two_units_and_not_by_its_bound():
    """Found by a search; textbooks give 2u. All are multiples of 2⁻³¹, and their sum is exact in float64."""
    x = np.array([51134384, 268887616, 6808404, 647994816, 16340577, 1156317696, 384], np.float64) / 2**31
    single = x.astype(np.float32)
    assert (single == x).all(), "they are numbers of float32"
    error = abs(float(summation.compensated(single)) - math.fsum(x)) / math.fsum(x) / summation.U
    assert 2.2 < error < summation.bounds(len(x))[summation.compensated]


def test_pairwise_adds_neighbors():
    big = np.float32(2.0**25)
    assert summation.pairwise(np.array([big, 1, -big, 1], np.float32)) == 0, "each 1 is lost beside the number next to it"
    assert summation.running(np.array([big, 1, -big, 1], np.float32)) == 1, "only the first"


def test_a_running_sum_that_does_not_stop_fails_its_claim(monkeypatch):
    monkeypatch.setattr(module, "add_up", lambda n: [Sum("running", STOP + 1000, 5.0, 1.0)])
    result = replace(module.dot_product, quick={"sizes": (1_000,), "summed": 10})("quick", device="cpu")
    failed = [claim.text for claim in result.claims if not claim.holds]
    assert len(failed) >= 2 and "stops at 16,777,216" in failed[0] and "within its bound" in failed[1]


def test_lists_of_python_end_where_they_would_fill_the_memory():
    assert PYTHON in works(1_000) and PYTHON not in works(1_000_001)


# ---- the roofline of one's own points --------------------------------------------------------------------------------


def test_the_labs_roofline_with_given_limits():
    points = {"ten": (0.25, 5.0), "measured": Timing((1e-3,) * 3, 1, bytes=8e6, flops=2e6)}
    axes = tensors.roofline(points, ceilings=(30, 200)).figure.axes[0]
    labels = [line.get_label() for line in axes.lines]
    assert labels[0] == "given limits: 30 GB/s, 200 GFLOP/s"
    assert labels[1] == "ten: 5 GFLOP/s, 67%", "of 0.25 · 30 = 7.5"
    assert labels[2] == "measured: 2 GFLOP/s, 27%"
    x, y = axes.lines[0].get_data()
    assert max(y) == 200 and y[0] == pytest.approx(30 * x[0])


def test_measured_limits_are_the_default(monkeypatch):
    from hpml_lab.core.timing import roofline

    monkeypatch.setattr(roofline, "ceiling", lambda device, threads: Ceiling(10.0 * threads, 50.0, threads))
    assert "measured limits: 10 GB/s" in tensors.roofline({}).figure.axes[0].lines[0].get_label()
    on_two = tensors.roofline({"a": Timing((1.0,), 2, bytes=8, flops=2)})
    assert "measured limits: 20 GB/s" in on_two.figure.axes[0].lines[0].get_label(), "on as many threads as the point"


@pytest.mark.parametrize(
    "points, ceilings, said",
    [
        ({"a": Timing((1.0,), 1, bytes=8)}, (1, 1), "a says neither"),
        ({"a": 3}, (1, 1), "a: 3 cannot be drawn. Give a Timing"),
        ({"a": (0, 1)}, (1, 1), "a: .* cannot be drawn"),
        ({"a": (1, 1)}, (0, 1), "ceilings: .* cannot be drawn"),
        ({"a": (1, 1)}, 30, "ceilings: 30 cannot be drawn"),
        ({"a": (float("inf"), 1)}, (1, 1), "a: .* cannot be drawn"),
        ([(1, 1)], (1, 1), "has no names"),
    ],
)
def test_what_cannot_be_drawn_is_named(points, ceilings, said):
    with pytest.raises(LabError, match=said):
        tensors.roofline(points, ceilings=ceilings)
