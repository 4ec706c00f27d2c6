"""What a pruned net holds, what its file weighs, and what prune.remove changes."""

import copy
import io
import zlib
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import prune

from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.core.experiment.result import Result
from hpml_lab.pruning.experiments.pruning.lecture_examples import AMOUNT, PrunedLayer, pairs, prune_globally
from hpml_lab.pruning.lessons.masks import weights_of
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


def files(fresh: LeNet) -> tuple[list[PrunedFile], bool]:
    """Dense, with masks, and after prune.remove; then with 90 % zeros. And whether `remove` left the values as they were."""
    rows, equal = [file_row("dense", fresh)], True
    for amount in (AMOUNT, 0.9):
        net = copy.deepcopy(fresh)
        prune_globally(net, amount)
        if amount == AMOUNT:
            rows.append(file_row(f"{amount:.0%} pruned, masked", net))
        masked = {name: weight.detach().clone() for name, weight in weights_of(net).items()}
        remove_all(net)
        equal &= all(torch.equal(weight, masked[name]) for name, weight in weights_of(net).items())
        rows.append(file_row(f"{amount:.0%} pruned, removed", net))
    return rows, equal


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


def compare_files(result: Result, equal: bool) -> None:
    """Claim what masks add to a net, and what prune.remove changes; `equal`: not its values."""
    dense, masked, removed, _ = rows = result.rows(PrunedFile)
    weights = sum(row.weights for row in result.rows(PrunedLayer))
    result.check(
        "A masked net holds weight_orig and weight_mask: 4 bytes more for each weight, on which zeros save nothing",
        masked.tensor_bytes == dense.tensor_bytes + 4 * weights and masked.hooks == 5,
        f"{dense.tensor_bytes:,} and {masked.tensor_bytes:,} bytes",
    )
    result.check(
        "After prune.remove names, hooks and bytes are those of the dense net, and the weights are what the masks had left",
        equal
        and {row.tensor_bytes for row in rows if row is not masked} == {dense.tensor_bytes}
        and sorted(removed.names.split(", ")) == sorted(dense.names.split(", "))
        and removed.hooks == 0,
    )
    result.measured(
        "Zeros save file only where the file is compressed",
        removed.file_kb > 0.99 * dense.file_kb and rows[-1].compressed_kb < rows[2].compressed_kb < 0.9 * dense.compressed_kb,
        "; ".join(f"{row.state}: {row.file_kb:.1f} kB, {row.compressed_kb:.1f} compressed" for row in rows),
        depends_on="torch's file format and zlib",
    )
    for row in rows:
        result.key_figure(f"file, {row.state}", round(row.file_kb, 1), "kB")
