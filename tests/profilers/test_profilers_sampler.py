"""The sampler of stacks sees the program alone: where it begins and ends is its own time."""

import time

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
