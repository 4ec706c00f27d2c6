"""The sampler of stacks sees the program alone: where it begins and ends is its own time."""

import _thread
import atexit
import os
import time
from types import SimpleNamespace

import pytest

from hpml_lab.core.system.programs import run_python
from hpml_lab.profilers import sampler
from hpml_lab.profilers.sampler import StackSampler


def wait(seconds: float) -> None:
    time.sleep(seconds)


def test_a_function_is_sampled_where_it_waits():
    with StackSampler(rate=200) as found:
        wait(0.2)
    assert any(stack.endswith("test_a_function_is_sampled_where_it_waits;wait") for stack in found.samples)


def test_the_samplers_own_functions_are_in_no_stack():
    """On a busy machine a sample falls into its end, which waits for the thread: it is no time of the program."""
    own: dict = {"time": time}
    exec(compile("def end(): time.sleep(0.2)", sampler.__file__, "exec"), own)
    with StackSampler(rate=200) as found:
        own["end"]()
    assert not [stack for stack in found.samples if stack.endswith(";end")]


FORKS_TWICE = """
import os, sys
sys.version_info = max(sys.version_info, (3, 12))  # from which on the sampler rests while Python forks
from hpml_lab.profilers.sampler import sample_until_exit

sample_until_exit(100.0, sys.argv[1])
if (child := os.fork()) == 0:
    if (own := os.fork()) == 0:
        os._exit(0)
    os._exit(os.waitpid(own, 0)[1])
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_child_that_forks_in_turn_does_not_wait_for_a_sampler_that_it_has_not(tmp_path):
    done = run_python(["-c", FORKS_TWICE, str(tmp_path / "stacks")], deadline_seconds=60)
    assert (done.stdout, done.exitcode) == ("0\n", 0), done.stderr
    assert (tmp_path / "stacks").exists()


def test_where_no_thread_may_be_started_nothing_is_waited_for_at_the_end(tmp_path, monkeypatch):
    """As in a container with a limit of processes."""

    def refuse(*_):
        raise RuntimeError("can't start new thread")

    registered = []
    monkeypatch.setattr(sampler, "_thread", SimpleNamespace(**{**vars(_thread), "start_new_thread": refuse}))
    monkeypatch.setattr(atexit, "register", registered.append)
    sampler.sample_until_exit(100.0, str(tmp_path / "stacks.txt"))
    assert not registered
