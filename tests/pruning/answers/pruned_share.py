"""Answers to `pruned-share`: which share of a net's weights is 0."""

import copy
from fractions import Fraction

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


def biases_too(net):
    zeros = total = 0
    for layer in layers(net):
        for tensor in (layer.weight, layer.bias):
            if tensor is not None:
                zeros, total = zeros + int((tensor == 0).sum()), total + tensor.numel()
    return zeros / total


def masks_twice(net):
    zeros = sum(int((layer.weight == 0).sum()) for layer in layers(net))
    zeros += sum(
        int((layer.weight_mask == 0).sum()) for layer in layers(net) if prune.is_pruned(layer) and hasattr(layer, "weight_mask")
    )
    return zeros / sum(layer.weight.numel() for layer in layers(net))


def mean_of_shares(net):
    return sum(float((layer.weight == 0).float().mean()) for layer in layers(net)) / len(layers(net))


def mean_of_masked(net):
    found = [layer for layer in layers(net) if hasattr(layer, "weight_mask")]
    return sum(float((layer.weight == 0).double().mean()) for layer in found) / max(len(found), 1)


def removes_the_masks(net):
    for layer in layers(net):
        if hasattr(layer, "weight_mask"):
            prune.remove(layer, "weight")
    return solution(net)


def mean_of_masked_and_biases(net):
    found = [t for layer in layers(net) for t in (layer.weight, layer.bias) if t is not None]
    return sum(float((t == 0).double().mean()) for t in found) / len(found)


def layers_with_masks_if_any(net):
    return _of([m.weight for m in layers(net) if prune.is_pruned(m)] or [m.weight for m in layers(net)])


def mean_of_both_kinds(net):
    kinds = [[m.weight for m in layers(net) if isinstance(m, kind)] for kind in (nn.Conv2d, nn.Linear)]
    shares = [_of(kind) for kind in kinds if kind]
    return sum(shares) / len(shares)


def on_a_deep_copy(net):
    net = copy.deepcopy(net)
    removes_the_masks(net)
    return solution(net)


ZERO, SHARE = "layer.weight == 0", "return zeros / total"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("returns-nothing", (SHARE, "zeros / total")),
            ("other-whole", (SHARE, "return zeros / sum(p.numel() for p in net.parameters())")),
            ("zeros-in-a-dense-net", (ZERO, "layer.weight.abs() < 0.3")),
            ("zeros-in-a-dense-net", (ZERO, "torch.isclose(layer.weight, torch.zeros(()))")),
            ("net-changed", ("    zeros = total = 0", "    net.eval()\n    zeros = total = 0")),
        ],
    ),
    ("stored-weights", lambda net: _of([*net.parameters()])),
    ("stored-weights", lambda net: _of([p for p in net.parameters() if p.dim() > 1])),
    ("counts-masks", lambda net: _of(net.state_dict().values())),
    ("counts-masks", lambda net: _of([t for name, t in net.state_dict().items() if name.split(".")[-1].startswith("weight")])),
    ("counts-biases", biases_too),
    ("counts-biases", mean_of_masked_and_biases),
    ("zeros-twice", masks_twice),
    ("only-masks", lambda net: _of([b for name, b in net.named_buffers() if name.endswith("weight_mask")])),
    ("only-masks", lambda net: _of([b for name, b in net.named_buffers() if name.endswith("_mask")])),
    ("mean-over-layers", mean_of_shares),
    ("mean-over-layers", mean_of_both_kinds),
    ("pruned-layers-only", mean_of_masked),
    ("net-changed", removes_the_masks),
    ("wrong-type", lambda net: {str(i): int((layer.weight == 0).sum()) for i, layer in enumerate(layers(net))}),
    ("finds-nothing", lambda net: _of([p for name, p in net.named_parameters() if name.endswith("weight")])),
    ("some-layers-only", layers_with_masks_if_any),
    ("wrong-type", lambda net: [_of([layer.weight]) for layer in layers(net)]),
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


def as_a_fraction(net):
    flat = torch.nn.utils.parameters_to_vector([layer.weight for layer in layers(net)])
    return Fraction(int((flat == 0).sum()), len(flat))


def as_a_tensor(net):
    return torch.cat([layer.weight.flatten() for layer in layers(net)]).eq(0).double().mean()


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


ALSO_RIGHT = [
    from_the_state_dict,
    by_numpy,
    as_a_fraction,
    as_a_tensor,
    weighted_mean,
    with_the_mask_where_there_is_one,
    recursive,
    on_a_copy,
]


def adds_up_over_calls(net, counts=[0, 0]):  # noqa: B006
    for layer in layers(net):
        counts[0] += int((layer.weight == 0).sum())
        counts[1] += layer.weight.numel()
    return counts[0] / counts[1]


WRONG += [
    ("remembers-calls", adds_up_over_calls),
    ("wrong-value", lambda net: torch.cat([layer.weight.flatten() == 0 for layer in layers(net)]).half().mean().item()),
]


def of_masks_alone(net):
    """0 / 0 where there is none."""
    masks = [mask for name, mask in net.named_buffers() if name.endswith("weight_mask")]
    return (sum((torch.sum(m == 0) for m in masks), torch.tensor(0)) / sum(m.numel() for m in masks)).item()


WRONG += [("wrong-value", of_masks_alone)]
