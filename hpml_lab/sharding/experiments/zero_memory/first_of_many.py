"""What the first rank of thousands keeps, found out in one process.

torch's "fake" backend makes a process rank 0 of a group without the others: collectives return at once and bring nothing. So
the sizes are right; values are not, and neither are times.
"""

import gc

import torch
from torch import distributed as dist
from torch import nn

from hpml_lab.sharding.experiments.zero_memory.sharded_runs import BATCH, adam, network
from hpml_lab.sharding.lessons.fsdp import FullyShardedDataParallel
from hpml_lab.sharding.lessons.zero import footprint

WIDTH, DEPTH = 256, 3  # of the network, whose tensors have WIDTH rows each
COUNT = DEPTH * WIDTH * (WIDTH + 1)  # parameters
SHAPES = [(WIDTH, WIDTH), (WIDTH, 1)] * DEPTH  # rows of each tensor, and numbers in a row
COUNTER = 4  # bytes of Adam's step counter, which each tensor has


def first_of_many(numbers: tuple[int, ...]) -> list[tuple[int, int]]:
    """For each number of ranks the bytes that rank 0 keeps: with torch's fully_shard, and with FullyShardedDataParallel.

    To be called on a rank of its own, which leaves its group.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    gc.collect()
    gc.freeze()  # what is here already is not looked through each time tensors are counted
    found = []
    for ranks in numbers:
        dist.destroy_process_group()
        dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
        by_rows, mesh = network(WIDTH, DEPTH), init_device_mesh("cpu", (ranks,))
        for layer in [layer for layer in by_rows if isinstance(layer, nn.Linear)]:
            fully_shard(layer, mesh=mesh)
        fully_shard(by_rows, mesh=mesh)
        by_numbers = FullyShardedDataParallel(network(WIDTH, DEPTH))
        found.append((_owned(by_rows), _owned(by_numbers)))
    return found


def _owned(model: nn.Module) -> int:
    """Parameters, gradients and state after one step."""
    optimizer = adam(model.parameters())
    model(torch.ones(BATCH, WIDTH)).sum().backward()
    if isinstance(model, FullyShardedDataParallel):
        model.finish_gradient_synchronization()
    optimizer.step()
    parameters = list(model.parameters())
    return footprint(parameters, [parameter.grad for parameter in parameters], dict(optimizer.state)).owned
