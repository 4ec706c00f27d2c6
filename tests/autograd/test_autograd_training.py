"""The engine trains networks by itself, and its losses and their gradients are torch's."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.autograd.lessons.engine import Tensor, sigmoid, tanh
from hpml_lab.autograd.lessons.mlp import (
    MLP,
    XOR_INPUTS,
    XOR_LABELS,
    binary_cross_entropy,
    cross_entropy,
    sgd_step,
    train_digits,
    train_xor,
)  # fmt: skip


def assert_close(ours, theirs):
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    assert np.all(np.abs(ours - theirs) <= 1e-12 * np.maximum(1, np.abs(theirs)))


def in_torch(net, activation):
    """The same network, with the same parameters, as an nn.Sequential in float64."""
    layers = []
    for weight, bias in net.layers:
        linear = nn.Linear(*weight.shape, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(weight.data.T))
            linear.bias.copy_(torch.tensor(bias.data))
        layers += [linear, activation()]
    return nn.Sequential(*layers[:-1])


def assert_same_gradients(net, twin):
    linears = [layer for layer in twin if isinstance(layer, nn.Linear)]
    for (weight, bias), linear in zip(net.layers, linears, strict=True):
        assert_close(weight.grad.T, linear.weight.grad)
        assert_close(bias.grad, linear.bias.grad)


def test_an_mlps_first_gradients_are_torchs():
    rng = np.random.default_rng(0)
    x, labels = rng.uniform(size=(16, 64)), rng.integers(10, size=16)
    net = MLP([64, 32, 10], seed=3)
    twin = in_torch(net, nn.ReLU)
    loss = cross_entropy(net(x), labels)
    loss.backward()
    theirs = F.cross_entropy(twin(torch.tensor(x)), torch.tensor(labels))
    theirs.backward()
    assert_close(loss.data, theirs)
    assert_same_gradients(net, twin)


def test_the_xor_net_follows_torch_for_a_hundred_steps():
    net = MLP([2, 4, 1], activation=sigmoid, seed=1)
    twin = in_torch(net, nn.Sigmoid)
    optimizer = torch.optim.SGD(twin.parameters(), lr=1.0)
    for _ in range(100):
        loss = binary_cross_entropy(net(XOR_INPUTS), XOR_LABELS)
        loss.backward()
        optimizer.zero_grad()
        theirs = F.binary_cross_entropy_with_logits(twin(torch.tensor(XOR_INPUTS)), torch.tensor(XOR_LABELS))
        theirs.backward()
        assert_close(loss.data, theirs)
        assert_same_gradients(net, twin)
        sgd_step(net.parameters(), lr=1.0)
        optimizer.step()


def test_a_deeper_net_with_another_activation():
    net = MLP([3, 5, 4, 2], activation=tanh, seed=2)
    x = np.random.default_rng(1).uniform(size=(6, 3))
    assert_close(net(x).data, in_torch(net, nn.Tanh)(torch.tensor(x)))
    assert [p.name for p in net.parameters()] == ["W1", "b1", "W2", "b2", "W3", "b3"]


def test_a_seed_fixes_the_weights():
    first, again, other = MLP([4, 3], seed=5), MLP([4, 3], seed=5), MLP([4, 3], seed=6)
    assert np.array_equal(first.layers[0][0].data, again.layers[0][0].data)
    assert not np.array_equal(first.layers[0][0].data, other.layers[0][0].data)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1000.0])
def test_cross_entropy_is_torchs_and_does_not_overflow(scale):
    values = scale * np.array([[1.0, -2.0, 0.5], [0.0, 3.0, 3.0]])
    ours, theirs = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        mine = cross_entropy(ours, [2, 0])
        mine.backward()
    its = F.cross_entropy(theirs, torch.tensor([2, 0]))
    its.backward()
    assert_close(mine.data, its)
    assert_close(ours.grad, theirs.grad)


def test_binary_cross_entropy_is_torchs_at_zero_and_far_out():
    values = np.array([0.0, 0.0, 2.5, -1000.0, 1000.0, 1000.0])
    labels = np.array([0.0, 1.0, 0.3, 1.0, 0.0, 1.0])
    ours, theirs = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        mine = binary_cross_entropy(ours, labels)
        mine.backward()
    its = F.binary_cross_entropy_with_logits(theirs, torch.tensor(labels))
    its.backward()
    assert_close(mine.data, its)
    assert_close(ours.grad, theirs.grad)


def test_a_step_moves_against_the_gradient_and_forgets_it():
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    sgd_step([x], lr=0.1)
    np.testing.assert_allclose(x.data, [0.8, 1.6])
    assert x.grad is None


def test_xor_is_solved_in_all_four_cases():
    training = train_xor()
    assert training.accuracy == 1
    np.testing.assert_array_equal(training.predictions > 0.5, XOR_LABELS)
    assert training.predictions.shape == (4, 1)
    assert len(training.losses) == 2000 and training.losses[-1] < 0.05 < 0.5 < training.losses[0]


def test_xor_is_not_solved_before_it_is_trained():
    assert train_xor(epochs=1).accuracy < 1


def test_the_digits_are_classified():
    training = train_digits()
    assert training.accuracy > 0.93
    assert training.predictions.shape == (497,) and set(training.predictions) == set(range(10))
    assert len(training.losses) == 30 and training.losses[-1] < 0.1 < training.losses[0]


def test_training_again_gives_the_same_losses():
    assert train_digits(epochs=2).losses == train_digits(epochs=2).losses


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.zeros((2, 3)), [0, 3], "integers from 0 to 2"),
        (np.zeros((2, 3)), [-1, 0], "integers from 0 to 2"),
        (np.zeros((2, 3)), [0.0, 1.0], "integers from 0 to 2"),
        (np.zeros((2, 3)), [0, 1, 2], r"labels \(N,\)"),
        (np.zeros(3), [0], r"logits \(N, C\)"),
    ],
)
def test_wrong_labels_are_named(logits, labels, message):
    with pytest.raises(ValueError, match=message):
        cross_entropy(Tensor(logits), labels)


def test_labels_that_would_broadcast_are_refused():
    with pytest.raises(ValueError, match=r"logits \(4, 1\) and labels \(4,\) must have the same shape"):
        binary_cross_entropy(Tensor(np.zeros((4, 1))), np.zeros(4))


def test_a_net_has_an_input_and_an_output():
    with pytest.raises(ValueError, match="at least an input and an output size"):
        MLP([3])
