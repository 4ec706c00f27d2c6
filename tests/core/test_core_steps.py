"""Steps and memory are recorded as they are, whoever calls the optimizer and the operators, and however."""

import pytest
import torch
from torch import nn

from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.steps import Memory, Steps


def trained(*values, closure=False, after=None):
    """The steps of a weight of 1 that takes these gradients, with a rate of 0.5; None makes a step without one.

    after  what the answer does to the weight after each step, in a hook of its own
    """
    net = nn.Linear(1, 1, bias=False)
    nn.init.ones_(net.weight)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    steps = Steps(net, optimizer)
    if after:
        optimizer.register_step_post_hook(lambda *_: after(net.weight.data))

    def backward(value):
        optimizer.zero_grad()
        if value is not None:
            (value * net.weight).sum().backward()

    for value in values:
        if not closure:
            backward(value)
        optimizer.step((lambda value=value: backward(value)) if closure else None)
    return steps


@pytest.mark.parametrize("closure", (False, True))
def test_a_step_has_its_gradient_and_the_parameters_after_it(closure):
    steps = trained(2.0, 3.0, closure=closure, after=torch.Tensor.zero_)
    assert [gradient.tolist() for gradient in steps.gradients] == [[2.0], [3.0]]
    assert [point.tolist() for point in steps.points] == [[0.0], [-1.5]], "the hook of the answer made 0 of the first"


@pytest.mark.parametrize(
    ("values", "mistake"),
    [
        ((), "never-steps"),
        ((None, None), "no-backward"),
        ((0.0, 0.0), "zero-gradients"),
        ((None, 1.0), "step-before-backward"),
        ((1.0,), "other-number-of-steps"),
        ((1.0, 1.0, 1.0), "other-number-of-steps"),
        ((1.0, 2.0), "accumulates"),
    ],
)
def test_what_the_record_shows_is_said(values, mistake):
    with pytest.raises(Mistake) as found:
        trained(*values).explain(trained(1.0, 1.0))
    assert found.value.name == mistake


def test_another_gradient_is_a_multiple_of_the_right_one_or_not():
    assert trained(3.0).factor(0, trained(2.0)) == "1.5 times"


def test_memory_is_what_lives_at_once_and_a_view_takes_none():
    with Memory() as memory:
        kept = torch.ones(10, dtype=torch.float64)
        for _ in range(3):
            kept.view(2, 5).t() + 1
    assert (memory.most, memory.largest, memory.now) == (160, 80, 80)
