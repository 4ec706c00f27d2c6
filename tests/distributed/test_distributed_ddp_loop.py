"""The plain DDP loop of the notebook: equal to one process on the whole batches."""

import pytest
import torch
from torch import nn
from torch.utils.data import DistributedSampler, TensorDataset

from hpml_lab import data
from hpml_lab.distributed import launch, train_with_ddp

EPOCHS, BATCH = 2, 16


@pytest.fixture(scope="module")
def digits():
    found = data.load("digits")
    return TensorDataset(found.train_x[:96].flatten(1), found.train_y[:96])


def one_process(digits, ranks, accumulate):
    """Plain SGD on batches that hold the samples of all ranks, in the sampler's order."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    samplers = [DistributedSampler(digits, ranks, rank, shuffle=True, drop_last=True) for rank in range(ranks)]
    for epoch in range(EPOCHS):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        orders = [list(sampler) for sampler in samplers]
        own = BATCH // ranks
        for start in range(0, len(orders[0]) - own + 1, own):
            numbers = [number for order in orders for number in order[start : start + own]]
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(digits.tensors[0][numbers]), digits.tensors[1][numbers]).backward()
            optimizer.step()
    return net.state_dict()


@pytest.mark.parametrize("ranks, accumulate", [(2, 1), (2, 2)])
def test_the_plain_loop_trains_what_one_process_trains_on_the_whole_batches(tmp_path, digits, ranks, accumulate):
    path = tmp_path / "model.pt"
    losses = launch(train_with_ddp, digits, EPOCHS, BATCH, accumulate, path, ranks=ranks)
    found, right = torch.load(path, weights_only=True), one_process(digits, ranks, accumulate)
    assert len(losses) == ranks and list(found) == list(right)
    for name, value in right.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)
