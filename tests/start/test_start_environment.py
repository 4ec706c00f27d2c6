"""The experiment `environment`: the doctor's report as a result."""

import pytest

from hpml_lab.core.experiment import find
from hpml_lab.core.result import Result
from hpml_lab.start import experiments
from hpml_lab.start.doctor import Notebook, Report
from hpml_lab.start.probes import LIMITED, MISSING, OK, PROBES, Finding


@pytest.fixture(scope="module")
def result():
    return find("environment")("quick", device="cpu")


def test_its_exact_claims_hold_here(result):
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
    assert sum(claim.exact for claim in result.claims) == 3


def test_it_has_a_row_for_each_probe_and_each_notebook(result):
    names = [row["what"] for row in result.rows]
    assert names[: len(PROBES)] == [probe.__name__.replace("_", "-") for probe in PROBES]
    assert "notebook 00_start" in names
    device = next(row["found"] for row in result.rows if row["what"] == "device")
    assert device.startswith("cpu, mixed precision in ") and "it was asked for" in device


def test_what_is_not_there_is_noted_with_its_mend(result):
    lacking = {row["what"] for row in result.rows if row["state"] == MISSING and not row["what"].startswith("notebook")}
    assert lacking <= {note.split(":")[0] for note in result.notes}


def test_the_figure_is_drawn_from_a_saved_result(result, tmp_path):
    figure = Result.load(result.save(tmp_path)).figure()
    [axes] = figure.axes
    shown = result.arrays["notebooks"]
    assert [label.get_text() for label in axes.get_yticklabels()] == [one["name"] for one in shown]
    widths = [bar.get_width() for bar in axes.patches]
    assert sum(widths) == sum(one["experiments"] for one in shown)
    remarks = [text.get_text() for text in axes.texts]
    assert [bool(remark) for remark in remarks] == [bool(one["lacks"]) for one in shown]


def test_its_exact_claims_fail_where_python_and_torch_do_not_fit(monkeypatch):
    states = {"torchvision": MISSING, "shm": LIMITED, "cuda": MISSING}
    findings = [Finding(p.__name__.replace("_", "-"), states.get(p.__name__, OK), "cpu, x", fix="do it") for p in PROBES]
    broken = Report(findings, [Notebook("00_start", MISSING, 1)])
    monkeypatch.setattr(experiments, "examine", lambda device: broken)
    result = find("environment")("quick", device="cpu")
    assert not result
    assert [claim.holds for claim in result.claims] == [False, False, True, False, False]
    assert result.claims[3].measured == "short: shm"
    assert [text.get_text() for text in result.figure().axes[0].texts] == ["cannot be started"]
