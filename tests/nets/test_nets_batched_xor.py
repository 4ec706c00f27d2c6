"""The batched XOR program is the plain training of each seed, for hundreds of seeds at once."""

import pytest
import torch
from torch.nn import functional as F
from torch.optim import SGD, Adam

from hpml_lab.nets.lessons import batched_xor
from hpml_lab.nets.lessons.networks import XorNet

OPTIMIZERS = {
    "the lecture's": lambda parameters: SGD(parameters, lr=0.1),
    "lr 1": lambda parameters: SGD(parameters, lr=1.0),
    "momentum": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: Adam(parameters, lr=0.05),
}


def module(seed, activation=torch.sigmoid):
    torch.manual_seed(seed)
    return XorNet(activation=activation)


def test_the_stack_is_what_each_seed_draws_and_the_random_state_stays():
    state = torch.get_rng_state()
    stack = batched_xor.stack_of_nets([3, 0, 7])
    assert torch.equal(torch.get_rng_state(), state)
    assert [tuple(part.shape) for part in stack] == [(3, 4, 2), (3, 4), (3, 1, 4), (3, 1)]
    for index, seed in enumerate([3, 0, 7]):
        for part, own in zip(stack, module(seed).parameters(), strict=True):
            assert torch.equal(part[index], own)


@pytest.mark.parametrize("activation", batched_xor.ACTIVATIONS)
def test_forward_gives_each_nets_own_answers(activation):
    stack = batched_xor.stack_of_nets(range(6))
    x = torch.randn(5, 2)
    p = torch.sigmoid(batched_xor.batched_forward(stack, x, activation)[1])
    for seed in range(6):
        torch.testing.assert_close(p[seed], module(seed, getattr(torch, activation))(x)[:, 0])


@pytest.mark.parametrize("activation", batched_xor.ACTIVATIONS)
def test_the_gradients_by_hand_are_autograds(activation):
    stack = batched_xor.stack_of_nets(range(6), dtype=torch.float64)
    x, y = torch.randn(5, 2, dtype=torch.float64), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    by_hand = batched_xor.batched_gradients(stack, x, y, activation)
    for seed in range(6):
        net = module(seed, getattr(torch, activation)).double()
        F.binary_cross_entropy(net(x)[:, 0], y).backward()
        for stacked, own in zip(by_hand, net.parameters(), strict=True):
            torch.testing.assert_close(stacked[seed], own.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_all_is_training_each_in_float64(name):
    """1500 epochs lead all settings but the lecture's across the plateau, where a mistake would grow."""
    stack = batched_xor.train_batched(range(4), 1500, OPTIMIZERS[name], dtype=torch.float64).parameters
    for seed in (0, 3):
        net = batched_xor.train_one(seed, 1500, OPTIMIZERS[name], dtype=torch.float64)
        for stacked, own in zip(stack, net.parameters(), strict=True):
            torch.testing.assert_close(stacked[seed], own.detach(), rtol=0, atol=1e-9)


def test_float32_agrees_with_the_lectures_program_in_its_losses_and_answers():
    history = batched_xor.train_batched(range(3), 1000, OPTIMIZERS["lr 1"])
    for seed in range(3):
        p = batched_xor.train_one(seed, 1000, OPTIMIZERS["lr 1"])(batched_xor.INPUTS)
        loss = F.binary_cross_entropy(p, batched_xor.TARGETS)
        torch.testing.assert_close(history.loss[-1, seed], loss.detach(), rtol=1e-3, atol=1e-4)
        assert history.right[-1, seed] == ((p > 0.5) == (batched_xor.TARGETS > 0.5)).all()


def test_the_nets_are_independent():
    together = batched_xor.train_batched(range(5), 300, OPTIMIZERS["momentum"], dtype=torch.float64).parameters
    alone = batched_xor.train_batched([2], 300, OPTIMIZERS["momentum"], dtype=torch.float64).parameters
    for stacked, own in zip(together, alone, strict=True):
        torch.testing.assert_close(stacked[2:3], own, rtol=0, atol=1e-12)


def test_history_gives_fractions_and_first_epochs():
    history = batched_xor.BatchedHistory(
        epochs=torch.tensor([0, 10, 20]),
        right=torch.tensor([[False, False, True], [False, True, False], [False, True, True]]),
        loss=torch.zeros(3, 3),
        parameters=[],
    )
    assert history.first_right() == [None, 10, 0]
    assert [history.fraction_right(epoch) for epoch in (0, 10, 20)] == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert history.fraction_right(15) is None


def test_training_starts_at_the_stack_and_keeps_the_requested_snapshots():
    history = batched_xor.train_batched(range(2), 30, OPTIMIZERS["lr 1"], every=10, snapshots=(0, 25))
    assert history.epochs.tolist() == [0, 10, 20, 30]
    assert set(history.snapshots) == {0, 25}
    for start, kept, end in zip(batched_xor.stack_of_nets(range(2)), history.snapshots[0], history.parameters, strict=True):
        assert torch.equal(start, kept) and not torch.equal(kept, end)


@pytest.mark.cuda
def test_a_gpu_trains_the_same_nets():
    on_cpu = batched_xor.train_batched(range(50), 1000, OPTIMIZERS["lr 1"], dtype=torch.float64)
    on_gpu = batched_xor.train_batched(range(50), 1000, OPTIMIZERS["lr 1"], dtype=torch.float64, device="cuda")
    for here, there in zip(on_cpu.parameters, on_gpu.parameters, strict=True):
        assert there.is_cuda
        torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-8)
    assert torch.equal(on_cpu.right, on_gpu.right)
