"""Platform settings: those of /sys and of nvidia-smi, and what is said where they are hidden."""

import pytest

from hpml_lab.start.tools import platform_settings as module
from hpml_lab.start.tools.doctor import PROBES, Report
from hpml_lab.start.tools.finding import OK, Finding
from hpml_lab.start.tools.platform_settings import HIDDEN, NO_GPU, QUERY, platform_settings

MATRIX = """\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tPXB\t0-51\t0
GPU1\tNV18\t X \tSYS\t52-103\t1
NIC0\tPXB\tSYS\t X

Legend:
  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks"""


@pytest.fixture
def said(monkeypatch):
    """{what a tool's command line contains: what it prints}."""
    answers = {}
    monkeypatch.setattr(
        module, "run_tool", lambda command: next((a for k, a in answers.items() if k in " ".join(command)), None)
    )
    return answers


def found(system):
    return {setting.name: setting.found for setting in platform_settings(system)}


def test_the_processors_settings_are_read_from_sys(tmp_path, said):
    for path, text in {"cpu/cpu0/cpufreq/scaling_governor": "powersave\n", "cpu/smt/active": "1\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for node in ("node0", "node1", "nodes-online"):
        (tmp_path / "node" / node).mkdir(parents=True)
    here = found(tmp_path)
    assert (here["CPU governor"], here["NUMA nodes"]) == ("powersave", "2") and here["SMT"].startswith(
        "on; this process may use"
    )


def test_what_a_machine_hides_is_said(tmp_path, said):
    here = found(tmp_path / "no such folder")
    assert here["CPU governor"] == here["NUMA nodes"] == HIDDEN and here["SMT"].startswith(HIDDEN)
    assert {name for name, value in here.items() if value == NO_GPU} == set(here) - {"CPU governor", "NUMA nodes", "SMT"}


def test_the_gpus_settings_are_those_of_nvidia_smi(tmp_path, said):
    values = ["345", "1980", "[N/A]", "700.00", "Disabled", "1", "5", "8", "16"]
    assert len(values) == len(QUERY)
    said["--query-gpu=clocks.sm,clocks.max.sm"] = "\n".join([", ".join(values), ", ".join(["0"] * len(QUERY))])
    said["topo -m"] = MATRIX.strip()
    here = found(tmp_path)
    assert here["GPU clock"] == "345 of 1980 MHz now" and here["GPU power limit"] == "(not shown) W, by default 700.00 W"
    assert here["GPU persistence"] == "Disabled" and here["PCIe link"] == "generation 1 of 5, 8 of 16 lanes now"
    assert here["GPU topology"] == "2 GPUs, NV18"
    said["topo -m"] = "GPU0\tCPU Affinity\nGPU0\t X \t0-15"
    assert found(tmp_path)["GPU topology"] == "one GPU"


def test_an_old_nvidia_smi_that_knows_other_fields_is_no_answer(tmp_path, said):
    said["--query-gpu"] = "345, 1980"
    assert found(tmp_path)["GPU clock"] == NO_GPU


def test_the_report_shows_each_setting_with_its_cost_and_its_command(tmp_path, said):
    report = Report([Finding(name, OK, "") for name in PROBES], [], platform_settings(tmp_path))
    text = report.as_text(100)
    for setting in report.settings:
        assert setting.costs and setting.command and f"command: {setting.command}" in text and setting.name in text
        assert setting.name in report.as_json()
