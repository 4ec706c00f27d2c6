"""A training run that is far too small for a GPU: what each of several processes does that share one."""

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector


def train_small(device: torch.device | str, steps: int) -> torch.Tensor:
    """`steps` steps of a small net, the same in every process; return its weights, on the CPU.

    A kernel of it keeps a few of a GPU's hundred multiprocessors busy, for less time than Python needs to launch it.
    """
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128)).to(device)
    batch = torch.randn(32, 128).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()
    return parameters_to_vector(net.parameters()).detach().cpu()  # waits for the device
