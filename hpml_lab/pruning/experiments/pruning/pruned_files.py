"""What a pruned net holds, what its file weighs, and what prune.remove changes."""

import copy
import io
import zlib
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import prune

from hpml_lab.core.experiment import Row, column
from hpml_lab.pruning.experiments.pruning.lecture_examples import AMOUNT, pairs, prune_globally
from hpml_lab.quantization import LeNet


@dataclass
class PrunedFile(Row):
    """What a net holds, and what its saved state_dict weighs."""

    state: str = column("state of the net")
    names: str = column("state_dict of conv1")
    hooks: int = column("hooks")
    parameters: int = column("parameters")
    tensor_bytes: int = column("tensors", "bytes")
    file_kb: float = column("file", "kB")
    compressed_kb: float = column("compressed", "kB")


def file_row(state: str, net: nn.Module) -> PrunedFile:
    tensors, buffer = net.state_dict(), io.BytesIO()
    torch.save(tensors, buffer)
    return PrunedFile(
        state=state,
        names=", ".join(name.removeprefix("conv1.") for name in tensors if name.startswith("conv1.")),
        hooks=sum(len(layer._forward_pre_hooks) for layer in net.modules()),
        parameters=sum(parameter.numel() for parameter in net.parameters()),
        tensor_bytes=sum(tensor.nbytes for tensor in tensors.values()),
        file_kb=len(buffer.getvalue()) / 1e3,
        compressed_kb=len(zlib.compress(buffer.getvalue(), 9)) / 1e3,
    )


def files(fresh: LeNet) -> list[PrunedFile]:
    """Dense, with masks, and after prune.remove; then with 90 % zeros."""
    rows = [file_row("dense", fresh)]
    for amount in (AMOUNT, 0.9):
        net = copy.deepcopy(fresh)
        prune_globally(net, amount)
        if amount == AMOUNT:
            rows.append(file_row(f"{amount:.0%} pruned, masked", net))
        remove_all(net)
        rows.append(file_row(f"{amount:.0%} pruned, removed", net))
    return rows


def remove_all(net: nn.Module) -> None:
    """torch's masks into the weights, for good."""
    for layer, name in pairs(net):
        prune.remove(layer, name)


def twice(fresh: LeNet) -> tuple[int, int, int]:
    """Weights that are 0 after 20 % over all layers, after 20 % again, and after 20 % again where `remove` came between."""
    net = copy.deepcopy(fresh)
    once, both = (prune_globally(net, AMOUNT) for _ in range(2))
    net = copy.deepcopy(fresh)
    prune_globally(net, AMOUNT)
    remove_all(net)
    return once, both, prune_globally(net, AMOUNT)
