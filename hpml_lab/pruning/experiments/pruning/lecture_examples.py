"""The lecture's four examples of pruning, with torch.nn.utils.prune next to masks from scratch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import prune

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.pruning.lessons.masks import Tensor, channel_mask, l1_mask, random_mask, weights_of, zeros
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


def layers(nets: Sequence[LeNet]) -> list[PrunedLayer]:
    """What 20 % over all layers takes from each layer of a fresh and of a trained net, which are pruned here.

    Expected: a fresh layer's weights are uniform between ± its bound,
    1 / sqrt(inputs), so the share of them below a threshold t is t / bound.
    """
    counts = {name: weight.numel() for name, weight in weights_of(nets[0]).items()}
    bounds = {name: weight[0].numel() ** -0.5 for name, weight in weights_of(nets[0]).items()}
    threshold = AMOUNT * sum(counts.values()) / sum(counts[name] / bounds[name] for name in counts)
    found = []
    for net in nets:
        prune_globally(net, AMOUNT)
        found.append(zeros(weights_of(net)))
    rows = []
    for name, count in counts.items():
        fresh, trained = (each[name] for each in found)
        shares = 100 * fresh / count, 100 * trained / count
        bound, layer = bounds[name], name.removesuffix(".weight")
        rows.append(PrunedLayer(layer, count, bound, 100 * threshold / bound, fresh, shares[0], trained, shares[1]))
    return rows


def count_zeros(result: Result) -> None:
    """Claim what the lecture's examples prune."""
    found = {row.example: row for row in result.rows(PrunedExample)}
    by_layer = result.rows(PrunedLayer)
    count, fresh, trained = (sum(getattr(row, name) for row in by_layer) for name in ("weights", "fresh", "trained"))
    result.claim(
        "20 % over all layers: 11,968 of the 59,838 weights are 0, in a fresh and in a trained net",
        (fresh, trained, count) == (11_968, 11_968, 59_838),
    )
    result.key_figure(
        "zeros of conv1: at random, biases, channels", ", ".join(str(found[x].zeros) for x in (RANDOM, BIAS, CHANNELS))
    )
    result.key_figure("zeros of conv1, at random and then channels", found[STACKED].zeros)
    for name in ("fresh", "trained"):
        result.key_figure(f"zeros by layer, 20 %, {name} net", " + ".join(f"{getattr(row, name):,}" for row in by_layer))
