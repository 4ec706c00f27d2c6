"""What loads and runs on a system without POSIX, as on Windows (tests/without_posix.py takes it away)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.environment(
    "a Python without POSIX",
    files=("tests/without_posix.py", "hpml_lab/core/system", "hpml_lab/processes", "hpml_lab/profilers", "hpml_lab/cli"),
)
PROGRAM = Path(__file__).with_name("without_posix.py")


def without_posix(*words):
    environment = os.environ | {"HPML_RESULTS": ""}
    return subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, timeout=600, env=environment)


def test_every_module_loads_and_the_list_names_every_experiment():
    done = without_posix("all")
    assert done.returncode == 0 and "zero-grad" in done.stdout, done.stdout + done.stderr


def test_the_doctor_answers():
    done = without_posix("doctor")
    assert "Traceback" not in done.stderr and "00_start" in done.stdout, done.stderr


def test_an_experiment_runs(tmp_path):
    done = without_posix("run", "tensor-basics", "--size", "quick", "--out", str(tmp_path))
    assert done.returncode == 0 and (tmp_path / "tensor-basics.json").is_file(), done.stderr


def test_the_monitor_counts_a_command(tmp_path):
    done = without_posix("monitor", "--out", str(tmp_path / "seen"), "--", sys.executable, "-c", "sum(range(10**7)); exit(3)")
    assert done.returncode == 3 and (tmp_path / "seen.png").is_file(), done.stderr
    assert "s of processor time" in done.stderr and "MiB when sampled" in done.stderr, done.stderr
