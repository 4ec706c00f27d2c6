"""The experiment `environment`: the doctor's report as a result."""

import pytest

from hpml_lab import start
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.system.device import choose_device
from hpml_lab.start.experiments import environment as module
from hpml_lab.start.experiments.environment import MachineFinding, NotebookFinding
from hpml_lab.start.tools.doctor import PROBES, Notebook, Report
from hpml_lab.start.tools.finding import LIMITED, MISSING, OK, Finding


@pytest.fixture(scope="module")
def result(ran):
    return ran("environment")


def test_its_exact_claims_hold_here(result):
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
    assert sum(claim.exact for claim in result.claims) == 2 and all(check.holds for check in result.checks)


def test_it_has_a_row_for_each_probe_and_each_notebook(result):
    found = {row.name: row.value for row in result.rows(MachineFinding)}
    assert list(found) == list(PROBES)
    assert "00_start" in [row.name for row in result.rows(NotebookFinding)]
    device, reasons = found["device"], [choose_device(name).reason for name in (None, "cpu")]
    assert device.startswith("cpu, mixed precision in ") and any(device.endswith(f"; cpu: {reason}") for reason in reasons)


def test_what_is_not_there_is_noted_with_its_fix(result):
    lacking = {row.name for row in result.rows(MachineFinding) if row.state == MISSING}
    assert lacking <= {note.split(":")[0] for note in result.notes}


def test_the_figure_is_drawn_from_a_saved_result(result, tmp_path):
    figure = load_result(result.save(tmp_path)).figure()
    [axes] = figure.axes
    shown = result.rows(NotebookFinding)
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.name for row in shown]
    widths = [bar.get_width() for bar in axes.patches]
    assert sum(widths) == sum(row.experiments for row in shown)
    remarks = [text.get_text() for text in axes.texts]
    assert [bool(remark) for remark in remarks] == [bool(row.lacks) for row in shown]


def test_its_exact_claims_fail_where_python_and_torch_do_not_fit(monkeypatch):
    states = {"torchvision": MISSING, "shm": LIMITED, "cuda": MISSING}
    findings = [Finding(name, states.get(name, OK), "cpu, x", fix="do it") for name in PROBES]
    broken = Report(findings, [Notebook("00_start", MISSING, 1)])
    asked = []
    monkeypatch.setattr(module, "examine", lambda device: asked.append(str(device)) or broken)
    result = start.environment("quick", device="cpu")
    assert not result
    assert {row.name: row.value for row in result.rows(MachineFinding)}["device"] == "cpu, x; cpu: it was asked for"
    assert [claim.holds for claim in result.claims] == [False, False, False, False]
    assert result.claims[2].measured == "short: shm"
    [axes] = result.figure().axes
    assert [text.get_text() for text in axes.texts] == ["cannot be started"]
    assert axes.get_title() == "0 of 1 experiments run here; 0 show everything"
