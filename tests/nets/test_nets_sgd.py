"""SGD by hand: which form is bitwise identical to torch's, and which changes autograd notices."""

import copy

import pytest
import torch
from torch.nn import functional as F

from hpml_lab.nets.lessons import sgd_by_hand
from hpml_lab.nets.lessons.networks import ThreeLayerNet


def nets_after(steps, *updates):
    """The weights of copies of one net, each trained by its own update on the same data."""
    torch.manual_seed(0)
    start, x, y = ThreeLayerNet(), torch.randn(16, 256), torch.randn(16, 10)
    vectors = []
    for update in updates:
        net = copy.deepcopy(start)
        step = update(net)
        for _ in range(steps):
            net.zero_grad()
            F.mse_loss(net(x), y).backward()
            step()
        vectors.append(sgd_by_hand.all_weights(net))
    return vectors


def by_hand(update):
    return lambda net: lambda: update(net, 0.05)


def by_torch(**how):
    return lambda net: torch.optim.SGD(net.parameters(), lr=0.05, **how).step


def test_alpha_is_bitwise_identical_to_torch_in_the_plain_loop_and_by_default_on_a_cpu():
    hand, loop, default = nets_after(30, by_hand(sgd_by_hand.alpha_form), by_torch(foreach=False), by_torch())
    assert torch.equal(hand, loop) and torch.equal(hand, default)


def test_the_slides_form_is_bitwise_identical_to_no_grad_and_close_to_torch():
    slide, plain, loop = nets_after(
        30, by_hand(sgd_by_hand.data_form), by_hand(sgd_by_hand.no_grad_form), by_torch(foreach=False)
    )
    assert torch.equal(slide, plain)
    torch.testing.assert_close(plain, loop, rtol=0, atol=1e-5)


def test_the_weights_do_move():
    still, moved = nets_after(1, lambda net: lambda: None, by_hand(sgd_by_hand.alpha_form))
    assert not torch.equal(still, moved)


@pytest.mark.parametrize("update", sgd_by_hand.BY_HAND.values(), ids=list(sgd_by_hand.BY_HAND))
def test_after_every_form_the_parameters_are_leaves_that_still_learn(update):
    net = ThreeLayerNet()
    net(torch.randn(2, 256)).sum().backward()
    update(net, 0.1)
    assert all(p.is_leaf and p.requires_grad and p.grad is not None for p in net.parameters())


def test_a_change_through_data_goes_unnoticed_and_one_under_no_grad_does_not():
    torch.manual_seed(0)
    net, x, y = ThreeLayerNet(), torch.randn(8, 256), torch.randn(8, 10)
    before = sgd_by_hand.all_weights(net)
    true = sgd_by_hand.gradient_after(lambda net: None, net, x, y)
    wrong = sgd_by_hand.gradient_after(sgd_by_hand.halve_through_data, net, x, y)
    assert (wrong - true).norm() > 0.1 * true.norm()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        sgd_by_hand.gradient_after(sgd_by_hand.halve_under_no_grad, net, x, y)
    assert torch.equal(sgd_by_hand.all_weights(net), before), "all of it happened to copies"
