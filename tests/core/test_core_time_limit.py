"""A time limit or an interrupt that strikes while a module is imported."""

import importlib
import importlib.util
import signal
import sys
import time
from pathlib import Path

import pytest

from hpml_lab.core.judge.time_limit import TimeLimitReached, time_limit
from hpml_lab.core.system.imports import whole_imports
from hpml_lab.profilers.functions import by_line

COMPUTES = """
import signal, time
start = time.thread_time()
while time.thread_time() - start < {seconds}:
    {body}
whole = True
"""
TICK = "signal.raise_signal(signal.SIGVTALRM)"  # on a busy machine the kernel's own come late


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A function that writes a module which computes for some seconds when it is imported."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, seconds, body="pass"):
        (tmp_path / f"{name}.py").write_text(COMPUTES.format(seconds=seconds, body=body))
        importlib.invalidate_caches()
        return name

    yield write
    for name in ("computes_long", "never_ends", "imports_a_check", "interrupted"):
        sys.modules.pop(name, None)


def test_an_import_is_not_cut_in_half(written):
    name = written("computes_long", 0.5)
    with pytest.raises(TimeLimitReached), time_limit(0.1, wall_seconds=None):
        assert importlib.import_module(name).whole
        while True:
            pass
    assert sys.modules[name].whole


def test_what_an_import_took_is_not_the_blocks_own(written):
    """The first answer of a kernel imports more than the next ones."""
    with time_limit(0.3, wall_seconds=None):
        importlib.import_module(written("computes_long", 0.6, TICK))
        start = time.thread_time()
        while time.thread_time() - start < 0.1:
            signal.raise_signal(signal.SIGVTALRM)


def in_a_loop(times):
    count = 0
    for _ in range(times):
        count += 1
    return count


@pytest.mark.parametrize("wait", [False, True], ids=["computes", "waits"])
def test_without_interval_timers_a_thread_watches_the_clocks(monkeypatch, wait):
    monkeypatch.delattr(signal, "setitimer")
    with pytest.raises(TimeLimitReached) as caught, time_limit(0.2, wall_seconds=0.3 if wait else None):
        while True:
            time.sleep(0.01 if wait else 0)
    assert caught.value.wall_seconds == (0.3 if wait else None) and caught.value.cpu_seconds >= (0 if wait else 0.2)
    with time_limit(60.0, wall_seconds=None):
        pass
    assert by_line(lambda: in_a_loop(3), [in_a_loop])[0] == 3, "nothing is left that a traced function would meet"


def test_an_import_that_does_not_end_is_ended(written):
    with pytest.raises(TimeLimitReached) as caught, time_limit(0.05, wall_seconds=None):
        importlib.import_module(written("never_ends", 60))
    assert 0.5 <= caught.value.cpu_seconds < 60


def test_an_import_that_called_the_block_is_none_of_the_blocks_own(tmp_path, written):
    name = written("imports_a_check", 0)
    with (tmp_path / f"{name}.py").open("a") as module:
        module.write(
            "from hpml_lab.core.judge.time_limit import TimeLimitReached, time_limit\n"
            "try:\n"
            "    with time_limit(0.2, wall_seconds=None):\n"
            "        start = time.thread_time()\n"
            "        while time.thread_time() - start < 60:\n"
            f"            {TICK}\n"
            "except TimeLimitReached as error:\n"
            "    computed = error.cpu_seconds\n"
        )
    assert importlib.import_module(name).computed < 2.0, "ten times the limit is for imports in the block"


def interrupted(written, seconds):
    """The name of a module during whose import this process gets an interrupt; then it computes for some seconds."""
    name = written("interrupted", seconds)
    path = Path(importlib.util.find_spec(name).origin)
    path.write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n" + path.read_text())
    return name


def test_an_interrupt_waits_until_the_import_is_whole(written):
    """Stopped in its first second, torch.optim.Adam could not be used any more in that kernel."""
    before, name = signal.getsignal(signal.SIGINT), interrupted(written, 0.3)
    with pytest.raises(KeyboardInterrupt), whole_imports():
        importlib.import_module(name)
        time.sleep(60)
    assert sys.modules[name].whole and signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_still_waits_acts_at_the_end_of_the_block(written):
    with pytest.raises(KeyboardInterrupt), whole_imports():
        importlib.import_module(interrupted(written, 0))
    time.sleep(0.2)  # and no second time


def test_an_interrupt_outside_an_import_acts_at_once():
    reached = False
    with pytest.raises(KeyboardInterrupt), whole_imports():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert not reached


def test_an_import_that_does_not_end_is_interrupted(written):
    with pytest.raises(KeyboardInterrupt), whole_imports(most_seconds=0.2):
        importlib.import_module(interrupted(written, 60))
