"""A time limit that strikes while a module is imported."""

import importlib
import sys

import pytest

from hpml_lab.core.time_limit import TimeLimitReached, time_limit

COMPUTES = """
import time
start = time.thread_time()
while time.thread_time() - start < {seconds}:
    pass
whole = True
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A function that writes a module which computes for some seconds when it is imported."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, seconds):
        (tmp_path / f"{name}.py").write_text(COMPUTES.format(seconds=seconds))
        importlib.invalidate_caches()
        return name

    yield write
    for name in ("computes_long", "never_ends", "imports_a_check"):
        sys.modules.pop(name, None)


def test_an_import_is_not_cut_in_half(written):
    name = written("computes_long", 0.5)
    with pytest.raises(TimeLimitReached), time_limit(0.1, wall_seconds=None):
        assert importlib.import_module(name).whole
        while True:
            pass
    assert sys.modules[name].whole


def test_an_import_that_does_not_end_is_ended(written):
    with pytest.raises(TimeLimitReached) as caught, time_limit(0.05, wall_seconds=None):
        importlib.import_module(written("never_ends", 60))
    assert 0.5 <= caught.value.cpu_seconds < 60


def test_an_import_that_called_the_block_is_none_of_the_blocks_own(tmp_path, written):
    name = written("imports_a_check", 0)
    with (tmp_path / f"{name}.py").open("a") as module:
        module.write(
            "from hpml_lab.core.time_limit import TimeLimitReached, time_limit\n"
            "try:\n"
            "    with time_limit(0.2, wall_seconds=None):\n"
            "        start = time.thread_time()\n"
            "        while time.thread_time() - start < 60:\n"
            "            pass\n"
            "except TimeLimitReached as error:\n"
            "    computed = error.cpu_seconds\n"
        )
    assert importlib.import_module(name).computed < 2.0, "ten times the limit is for imports in the block"
