"""A test that hangs on a GPU ends with a word: what waits for a kernel cannot be interrupted."""

from hpml_lab.core.system.paths import ROOT
from hpml_lab.core.system.programs import run_python

HANGS = """
import sys, threading, types, pytest
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: True))  # it is not skipped

@pytest.mark.cuda(seconds=1)
def test_whose_kernel_never_returns():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def test_after_it():
    pass
"""


def test_a_cuda_test_that_hangs_ends_the_run_at_its_deadline_and_is_named(tmp_path):
    (tmp_path / "test_hanging.py").write_text(HANGS)
    options = ["-p", "conftest", "-c", str(ROOT / "pyproject.toml"), "-o", "addopts=", "-p", "no:cacheprovider"]
    finished = run_python(["-m", "pytest", *options, str(tmp_path)], deadline_seconds=120)
    assert finished.exitcode == 1, finished.stdout + finished.stderr
    assert "Timeout" in finished.stderr and "test_hanging.py" in finished.stderr
    assert "in test_whose_kernel_never_returns" in finished.stderr
