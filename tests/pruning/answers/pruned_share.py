"""Answers to `pruned-share`: which share of a net's weights is 0."""

import copy

import numpy as np
import torch
from edited_source import wrong_answers
from torch import nn
from torch.nn.utils import prune


def solution(net):
    zeros = total = 0
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            zeros += int((layer.weight == 0).sum())
            total += layer.weight.numel()
    return zeros / total


def layers(net):
    return [layer for layer in net.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]


def _of(tensors):
    return sum(int((t == 0).sum()) for t in tensors) / max(sum(t.numel() for t in tensors), 1)


def removes_the_masks(net):
    for layer in layers(net):
        if hasattr(layer, "weight_mask"):
            prune.remove(layer, "weight")
    return solution(net)


def on_a_deep_copy(net):
    net = copy.deepcopy(net)
    removes_the_masks(net)
    return solution(net)


ZERO, SHARE = "layer.weight == 0", "return zeros / total"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("other-whole", (SHARE, "return zeros / sum(p.numel() for p in net.parameters())")),
            ("zeros-in-a-dense-net", (ZERO, "layer.weight.abs() < 0.3")),
            ("net-changed", ("    zeros = total = 0", "    net.eval()\n    zeros = total = 0")),
        ],
    ),
    ("net-changed", removes_the_masks),
    ("finds-nothing", lambda net: _of([p for name, p in net.named_parameters() if name.endswith("weight")])),
    ("copies-a-masked-net", on_a_deep_copy),
]


def from_the_state_dict(net):
    state, zeros, total = net.state_dict(), 0, 0
    for name, layer in net.named_modules():
        if type(layer) in (nn.Conv2d, nn.Linear):
            prefix = f"{name}.weight" if name else "weight"
            weight = state[prefix] if prefix in state else state[prefix + "_orig"] * state[prefix + "_mask"]
            zeros, total = zeros + weight.eq(0).sum().item(), total + weight.nelement()
    return zeros / total


def by_numpy(net):
    flat = np.concatenate([layer.weight.detach().numpy().ravel() for layer in layers(net)])
    return 1 - np.count_nonzero(flat) / flat.size


def weighted_mean(net):
    counts = [layer.weight.numel() for layer in layers(net)]
    shares = [(layer.weight == 0).double().mean().item() for layer in layers(net)]
    return float(np.average(shares, weights=counts))


def with_the_mask_where_there_is_one(net):
    zeros = total = 0
    for layer in layers(net):
        weight = layer.weight_orig * layer.weight_mask if hasattr(layer, "weight_mask") else layer.weight
        zeros += weight.numel() - torch.count_nonzero(weight).item()
        total += weight.numel()
    return zeros / total


def recursive(net):
    def counts(module):
        own = isinstance(module, (nn.Conv2d, nn.Linear))
        found = [((module.weight == 0).sum().item(), module.weight.numel())] if own else []
        return [sum(pair) for pair in zip((0, 0), *found, *map(counts, module.children()), strict=True)]

    zeros, total = counts(net)
    return zeros / total


def on_a_copy(net):
    tensors = {name: copy.deepcopy(t) for name, t in net.state_dict().items()}
    wanted = {name for name, m in net.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))}
    merged = {}
    for name, t in tensors.items():
        prefix, _, last = name.rpartition(".")
        if prefix in wanted and last.startswith("weight"):
            merged[prefix] = merged.get(prefix, 1) * t
    return (sum((w == 0).sum() for w in merged.values()) / sum(w.numel() for w in merged.values())).item()


ALSO_RIGHT = [from_the_state_dict, by_numpy, weighted_mean, with_the_mask_where_there_is_one, recursive, on_a_copy]
