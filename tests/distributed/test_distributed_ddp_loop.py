"""The plain DDP loop of the notebook, equal to one process on the whole batches; and the figure of five collectives."""

import pytest
import torch
from torch import nn
from torch.utils.data import DistributedSampler, TensorDataset

from hpml_lab import data
from hpml_lab.distributed import launch, train_with_ddp
from hpml_lab.distributed.views.collectives import call_all, collectives_drawn

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


@pytest.mark.parametrize("ranks, accumulate, samples", [(2, 1, 96), (2, 2, 96), (2, 2, 90)])  # 90: a micro-batch is left over
def test_the_plain_loop_trains_what_one_process_trains_on_the_whole_batches(tmp_path, digits, ranks, accumulate, samples):
    path, digits = tmp_path / "model.pt", TensorDataset(*digits[:samples])
    losses = launch(train_with_ddp, digits, EPOCHS, BATCH, accumulate, path, ranks=ranks)
    found, right = torch.load(path, weights_only=True), one_process(digits, ranks, accumulate)
    assert len(losses) == ranks and list(found) == list(right)
    for name, value in right.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)


def test_collectives_move_what_their_figure_says():
    found = launch(call_all, ranks=3)
    after = {name: [row[name][1] for row in found] for name in found[0]}
    assert after["broadcast"] == [[1, 2, 3]] * 3
    assert after["all_reduce"] == [[111, 222, 333]] * 3 and after["reduce_scatter"] == [[111], [222], [333]]
    assert after["all_gather"] == [[1, 10, 100]] * 3 and after["all_to_all"] == [[1, 10, 100], [2, 20, 200], [3, 30, 300]]
    shown = collectives_drawn()
    texts = [text.get_text() for axes in shown.figure.axes for text in axes.texts]
    assert texts.count("→") == 15 and texts.count("333") == 3 + 1 and "rank" in shown.caption
