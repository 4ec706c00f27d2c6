"""Points for a lab: what is there and can be counts, what is missing or cannot be is named, whatever was handed in."""

import math

import pytest

from hpml_lab.core.experiment import Table
from hpml_lab.core.system.errors import LabError
from hpml_lab.tensors import Dot, dot_product
from hpml_lab.your_script import LabReport, kernel_points, report_points
from hpml_lab.your_script.tools.trainings import ScriptScaling

STEPS = ("parts", "devices", "ranks")


def report(*, speed_up=1.8, silent=(), missing=(), absent=("devices",), failed=()):
    """A report of STEPS, whose machine has no GPU; a script that fails leaves all of them undone."""
    absent = STEPS if "parts" in absent else absent
    made = LabReport("lab_training.py", "a machine", 4)
    for name in STEPS:
        if name not in missing:
            tables = [Table("Ranks", [ScriptScaling("strong", 2, 64, 1.0, speed_up)])] if name == "ranks" else []
            state = "not done" if name in failed else "not here" if name in absent else "done"
            made.keep(name, state, ["found"], tables, 1.0)
            made.step(name).prediction, made.step(name).sentence = "this", " … " if name in silent else "because"
    return made


@pytest.mark.parametrize(
    "given, points, problems",
    [
        (report(), 6, []),
        (report(silent=["parts"]), 5, ["parts: no sentence"]),
        (report(silent=["devices"]), 5, ["devices: no sentence"]),
        (report(missing=["parts"]), 3, ["parts: not run", "devices: not measured: found"]),
        (report(silent=["parts", "ranks"]), 4, ["parts: no sentence", "ranks: no sentence"]),
        (report(failed=["ranks"]), 5, ["ranks: not measured: found"]),
        (report(speed_up=3.0), 5, ["ranks: Ranks: 2 ranks are 3 times as fast as one"]),
        (
            report(absent=["parts"]),
            3,
            ["parts: not measured: found", "devices: not measured: found", "ranks: not measured: found"],
        ),
    ],
)
def test_a_step_counts_where_it_has_run_was_predicted_and_is_explained(tmp_path, given, points, problems):
    given.write(tmp_path)
    found = report_points(tmp_path, STEPS)
    assert (found.points, found.of, found.problems) == (points, 6, problems)
    assert str(found).splitlines() == [f"{points} of 6 points", *problems]


@pytest.mark.parametrize("content", [None, b"", b"\xff\x00", b'{"format": 1}'])
def test_a_report_that_is_missing_or_damaged_gives_none_and_says_so(tmp_path, content):
    if content is not None:
        (tmp_path / "report.json").write_bytes(content)
    found = report_points(tmp_path, STEPS)
    assert found.points == 0 and len(found.problems) == 1 and "report.json" in found.problems[0]


def test_a_report_that_was_changed_by_hand_names_the_way(tmp_path):
    report().write(tmp_path)
    text = (tmp_path / "report.json").read_text()
    (tmp_path / "report.json").write_text(text.replace("because", "because of it", 1))
    [problem] = report_points(tmp_path, STEPS).problems
    assert "changed by hand" in problem and "--explain" in problem


def test_a_step_that_there_is_none_of_is_said(tmp_path):
    with pytest.raises(LabError, match="there is no step 'part'.*parts, workers"):
        report_points(tmp_path, ["part"])


N = 300_000_000
GOOD = {"C": (8 * N, 2 * N, 0.2), "Python, 1,000,000": (8e6, 2e6, 0.1)}


def points(measured, at_least=2, **limits):
    return kernel_points(measured, **{"gb_per_s": 30, "gflop_per_s": 200, **limits}, intensity=1 / 4, at_least=at_least)


def test_kernels_below_the_roof_count():
    assert points(GOOD) == points(GOOD | {"one more": (8 * N, 2 * N, 0.3)}) and points(GOOD).points == 2
    assert points(GOOD, 4).problems == ["2 of 4 kernels are there"]


def test_a_time_below_the_roof_is_named():
    memory = points(GOOD | {"BLAS": (8 * N, 2 * N, 0.01)}, 3)
    assert memory.points == 2 and memory.problems == ["BLAS: 0.01 s, and 2.4e+09 bytes at 30 GB/s take 0.08 s"]
    arithmetic = points({"NumPy": (8e6, 2e6, 4e-6)}, 1)
    assert arithmetic.points == 0 and arithmetic.problems == ["NumPy: 4e-06 s, and 2e+06 FLOPs at 200 GFLOP/s take 1e-05 s"]


def test_what_was_measured_honestly_earns_all_points():
    """The recorded run's own kernels, under the limits that it measured: a sum is faster than a copy's bandwidth."""
    record = dot_product.reference()
    rows = [row for row in record.rows(Dot) if row.threads == 1 and row.n == max(row.n for row in record.rows(Dot))]
    measured = {row.way: (8 * row.n, 2 * row.n, 1e-6 * row.microseconds) for row in rows}
    limits = record.arrays["ceiling"]
    found = points(measured, len(measured), gb_per_s=limits["GB/s"], gflop_per_s=limits["GFLOP/s"])
    assert len(measured) >= 4 and found.problems == []


def test_figures_of_something_else_are_named():
    found = points(GOOD | {"mine": (1, 1, 1)}, 3)
    assert found.points == 2 and found.problems == ["mine: 1 FLOPs for 1 bytes are 1 FLOP/byte, not 0.25"]


def test_what_a_cache_holds_is_not_held_to_the_bandwidth_of_memory():
    assert points({"NumPy, 1,000,000": (8e6, 2e6, 1e-4)}, 1).points == 1


@pytest.mark.parametrize(
    "row", [..., None, "fast", (1, 2), (1, 2, 0), (1, 2, -1), (1, math.nan, 1), (1, 2, "1"), (1, 2, True), (10**400, 1, 1)]
)
def test_what_is_no_measurement_is_named(row):
    found = points(GOOD | {"mine": row}, 3)
    assert found.points == 2 and found.problems[0].startswith(f"mine: {row!r} is not")


@pytest.mark.parametrize(
    "limits", [{"gb_per_s": ...}, {"gflop_per_s": 0}, {"gb_per_s": "30"}, {"gb_per_s": math.inf}, {"gb_per_s": 1e9}]
)
def test_limits_that_are_no_numbers_are_named(limits):
    [name] = limits
    assert points(GOOD, **limits).points == 0 and points(GOOD, **limits).problems[0].startswith(f"{name} is ")


@pytest.mark.parametrize("measured", [..., None, [("C", 1)], 3])
def test_what_is_no_dictionary_is_named(measured):
    assert points(measured).points == 0 and "{name: (bytes, FLOPs, seconds)}" in points(measured).problems[0]
