"""A plain training loop with PyTorch's DDP: what each rank does, from the sampler to the saved weights."""

import contextlib
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def train_with_ddp(data: Dataset, epochs: int, batch: int, accumulate: int, path: Path | str) -> float:
    """Train a small network on this rank's part of `data`; returns the last loss on this rank, and rank 0 saves the weights."""
    ranks = dist.get_world_size()
    torch.manual_seed(dist.get_rank())  # DDP starts all ranks from rank 0's weights
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    # True where a loss may leave out a parameter: DDP then looks for those in each step, instead of waiting for their gradients
    model = DistributedDataParallel(net, find_unused_parameters=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)  # every rank gets other samples, and equally many
    loader = DataLoader(data, batch_size=batch // ranks // accumulate, sampler=sampler, drop_last=True)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # without it every epoch has the same order
        optimizer.zero_grad()  # micro-batches that did not fill the last epoch's last step are dropped
        for number, (x, y) in enumerate(loader, start=1):
            last = number % accumulate == 0
            with contextlib.nullcontext() if last else model.no_sync():  # no_sync: adds to this rank's gradients, sends nothing
                loss = nn.functional.cross_entropy(model(x), y)
                (loss / accumulate).backward()  # otherwise it averages the gradients over the ranks
            if last:
                optimizer.step()
                optimizer.zero_grad()

    if dist.get_rank() == 0:  # all ranks hold the same weights: one of them saves
        torch.save(model.module.state_dict(), path)  # `module`: without DDP's prefix in the names
    dist.barrier()  # nobody reads the file before it is written
    return loss.item()
