"""What loads and checks where nothing can be installed, as in a browser (tests/without_processes.py takes it away)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOPICS = ("tensors", "autograd", "nets", "descent", "adaptive")
PROGRAM = Path(__file__).with_name("without_processes.py")
pytestmark = pytest.mark.environment(
    "a Python without threads and processes",
    files=("tests/without_processes.py", "hpml_lab/core", "hpml_lab/optim", "hpml_lab/landscape", "hpml_lab/data"),
)


def without_processes(*words):
    environment = os.environ | {"HPML_RESULTS": ""}
    return subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, timeout=900, env=environment)


def test_every_module_of_the_first_five_notebooks_loads():
    done = without_processes("load", "core", "optim", "landscape", "data", *TOPICS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("topic", TOPICS)
def test_every_answer_is_judged_as_elsewhere(topic):
    done = without_processes("check", topic)
    assert done.returncode == 0, done.stdout + done.stderr
    right, wrong = map(int, re.match(r"(\d+) right answers, (\d+) wrong ones", done.stdout).groups())
    assert right > 5 and wrong > 10
