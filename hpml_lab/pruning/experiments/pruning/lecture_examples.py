"""The lecture's four examples of pruning, with torch.nn.utils.prune next to masks from scratch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import prune

from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.core.experiment.result import Result
from hpml_lab.pruning.lessons.masks import Tensor, channel_mask, global_masks, l1_mask, random_mask, weights_of, zeros
from hpml_lab.quantization import LeNet

RANDOM, BIAS, STACKED, CHANNELS = "30 % at random", "3 biases by L1", "random, then 3 channels by L2", "3 channels by L2"
AMOUNT = 0.2  # of all weights, in the lecture's example of global pruning


@dataclass
class PrunedExample(Row):
    """One example of the lecture: what torch prunes."""

    example: str = column("example")
    call: str = column("of torch.nn.utils.prune")
    elements: int = column("elements")
    zeros: int = column("zeros")
    share: float = column("zeros", "%")
    equal: bool = column("mask from scratch equal")


@dataclass
class PrunedLayer(Row):
    """What global pruning takes from one layer."""

    layer: str = column("layer")
    weights: int = column("weights")
    bound: float = column("largest weight of a fresh layer")
    expected: float = column("zeros expected of a fresh net", "%")
    fresh: int = column("zeros, fresh net")
    fresh_share: float = column("zeros, fresh net", "%")
    trained: int = column("zeros, trained net")
    trained_share: float = column("zeros, trained net", "%")


def conv1_examples() -> tuple[list[PrunedExample], dict[str, dict[str, Tensor]], LeNet]:
    """The rows of the examples on conv1, {example: its weight and bias} for the figure, and a fresh net for the fourth example.

    It is the lecture's code from top to bottom with seed 0: the random mask draws after the first net, and each example that
    needs a fresh net makes the next one.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        layer = LeNet().conv1
        state = torch.get_rng_state()
        own = random_mask(layer.weight, 0.3)
        torch.set_rng_state(state)
        prune.random_unstructured(layer, name="weight", amount=0.3)
        again, fresh = LeNet().conv1, LeNet()
    weight, bias = layer.weight_orig.detach(), layer.bias.detach()
    drawn = {"fresh": {"weight": weight.clone(), "bias": bias.clone()}}
    rows = []

    def add(example: str, call: str, pruned: nn.Module, name: str, own: Tensor) -> None:
        found, mask = zeros({name: getattr(pruned, name)})[name], getattr(pruned, f"{name}_mask")
        rows.append(
            PrunedExample(example, call, mask.numel(), found, 100 * found / mask.numel(), torch.equal(mask.bool(), own))
        )
        drawn[example] = {key: getattr(pruned, key).detach().clone() for key in ("weight", "bias")}

    add(RANDOM, "random_unstructured(conv1, 'weight', 0.3)", layer, "weight", own)
    earlier = layer.weight_mask.bool()
    prune.l1_unstructured(layer, name="bias", amount=3)
    add(BIAS, "l1_unstructured(conv1, 'bias', 3)", layer, "bias", l1_mask(bias, 3))
    prune.ln_structured(layer, name="weight", amount=0.5, n=2, dim=0)
    add(STACKED, "ln_structured(conv1, 'weight', 0.5, n=2, dim=0)", layer, "weight", channel_mask(weight, 0.5, keep=earlier))
    prune.ln_structured(again, name="weight", amount=0.5, n=2, dim=0)
    add(CHANNELS, "the same on a fresh layer", again, "weight", channel_mask(again.weight_orig, 0.5))
    return rows, drawn, fresh


def pairs(net: nn.Module) -> list[tuple[nn.Module, str]]:
    """(layer, "weight") for each weight, as torch.nn.utils.prune asks for them."""
    return [(net.get_submodule(name.removesuffix(".weight")), "weight") for name in weights_of(net)]


def prune_globally(net: nn.Module, amount: float) -> int:
    """Prune with torch over all layers; returns the number of weights that are now 0."""
    prune.global_unstructured(pairs(net), pruning_method=prune.L1Unstructured, amount=amount)
    return sum(zeros(weights_of(net)).values())


def layers(nets: Sequence[LeNet]) -> tuple[list[PrunedLayer], bool]:
    """What 20 % over all layers takes from each layer of a fresh and of a trained net, which are pruned here.

    Also whether torch's masks equal those from scratch. Expected: a fresh layer's weights are uniform between ± its bound,
    1 / sqrt(inputs), so the share of them below a threshold t is t / bound.
    """
    counts = {name: weight.numel() for name, weight in weights_of(nets[0]).items()}
    bounds = {name: weight[0].numel() ** -0.5 for name, weight in weights_of(nets[0]).items()}
    threshold = AMOUNT * sum(counts.values()) / sum(counts[name] / bounds[name] for name in counts)
    found, equal = [], True
    for net in nets:
        masks = global_masks(weights_of(net), AMOUNT)
        prune_globally(net, AMOUNT)
        buffers = dict(net.named_buffers())
        equal &= all(torch.equal(buffers[f"{name}_mask"].bool(), mask) for name, mask in masks.items())
        found.append(zeros(weights_of(net)))
    rows = []
    for name, count in counts.items():
        fresh, trained = (each[name] for each in found)
        shares = 100 * fresh / count, 100 * trained / count
        bound, layer = bounds[name], name.removesuffix(".weight")
        rows.append(PrunedLayer(layer, count, bound, 100 * threshold / bound, fresh, shares[0], trained, shares[1]))
    return rows, equal


def count_zeros(result: Result, drawn: dict[str, dict[str, Tensor]]) -> None:
    """Claim what the lecture's examples prune."""
    found = {row.example: row for row in result.rows(PrunedExample)}
    by_layer = result.rows(PrunedLayer)
    count, fresh, trained = (sum(getattr(row, name) for row in by_layer) for name in ("weights", "fresh", "trained"))
    whole = {example: (tensors["weight"] == 0).flatten(1).all(1) for example, tensors in drawn.items()}
    result.check("30 % at random: 16 of conv1's 54 weights are 0, which is 16.2 rounded", found[RANDOM].zeros == 16)
    result.check("Three biases of conv1 are 0", found[BIAS].zeros == 3)
    result.check(
        "Half of the channels by L2: 27 zeros, which are 3 whole channels",
        (found[CHANNELS].zeros, int(whole[CHANNELS].sum())) == (27, 3),
    )
    left = int((drawn[RANDOM]["weight"][~whole[STACKED]] == 0).sum())
    result.claim(
        "Pruned at random before, the channels come on top: 27 zeros, and those at random in the three channels that stay",
        (found[STACKED].zeros, int(whole[STACKED].sum())) == (27 + left, 3),
        f"27 + {left} = {found[STACKED].zeros}",
    )
    result.claim(
        "20 % over all layers: 11,968 of the 59,838 weights are 0, in a fresh and in a trained net",
        (fresh, trained, count) == (11_968, 11_968, 59_838),
    )
    most = max(by_layer, key=lambda row: row.fresh_share)
    result.check(
        "In the fresh net fc1 loses the largest share: its weights are drawn from the smallest range, up to 1 / sqrt(400)",
        most.layer == "fc1" and most.bound == min(row.bound for row in by_layer),
    )
    parts = [row.fresh for row in by_layer]
    result.measured(
        "With seed 0 the layers of the fresh net lose 3, 66, 10,581, 1,230 and 88 weights",
        parts == [3, 66, 10_581, 1_230, 88],
        " + ".join(f"{part:,}" for part in parts) + f" = {fresh:,}",
        depends_on="torch's random numbers",
    )
    result.key_figure(
        "zeros of conv1: at random, biases, channels", ", ".join(str(found[x].zeros) for x in (RANDOM, BIAS, CHANNELS))
    )
    result.key_figure("zeros of conv1, at random and then channels", found[STACKED].zeros)
    for name in ("fresh", "trained"):
        result.key_figure(f"zeros by layer, 20 %, {name} net", " + ".join(f"{getattr(row, name):,}" for row in by_layer))
