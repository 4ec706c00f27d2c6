"""The three layers learn real images, by the loop of the notebook."""

import pytest
import torch
from torch import nn

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.threads import one_thread
from hpml_lab.data import batches, load
from hpml_lab.nets.lessons.networks import ThreeLayerNet


@one_thread()
def accuracy_after(epochs, data, size, lr):
    """Test accuracy of a ThreeLayerNet after `epochs` of SGD with momentum on `data`."""
    torch.manual_seed(0)
    net, order = ThreeLayerNet(inputs=data.train_x[0].numel()), torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    for _ in range(epochs):
        for x, y in batches(data.train_x, data.train_y, size, order):
            loss = nn.functional.cross_entropy(net(x.flatten(1)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return (net(data.test_x.flatten(1)).argmax(1) == data.test_y).double().mean().item()


def test_digits_are_learned():
    data = load("digits")
    assert accuracy_after(0, data, 64, 0.1) < 0.3
    assert accuracy_after(15, data, 64, 0.1) > 0.95


def test_real_mnist_is_learned_where_it_is_present():
    """Set HPML_DATA to the folder that holds MNIST/raw."""
    from hpml_lab.data.mnist import Damaged

    try:
        data = load("mnist")
    except Damaged:
        raise
    except LabError as absent:
        pytest.skip(str(absent))
    assert len(data.train_x) == 60_000 and len(data.test_x) == 10_000
    assert accuracy_after(2, data, 128, 0.1) > 0.95
