"""pruned-share: which share of a net's weights is 0, with torch's masks in it or without."""

import math
from collections.abc import Callable

import torch
from torch import nn

from hpml_lab.core.judge.asked import given_last
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import same
from hpml_lab.pruning.exercises.pruned_nets import NETS

_MASKS_COUNTED = "The state_dict of a pruned layer holds weight_orig and weight_mask: you count both; neither is the weight."


def right(net: nn.Module) -> float:
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    tensors = [layer.weight for layer in layers]
    parts = [(int((tensor == 0).sum()), tensor.numel()) for tensor in tensors]
    zeros, count = sum(z for z, n in parts), sum(n for z, n in parts)
    return zeros / max(count, 1)


def masked(layer: nn.Module) -> int:
    """The zeros of a layer's mask."""
    return int((layer.weight_mask == 0).sum()) if hasattr(layer, "weight_mask") else 0


def _modes(net: nn.Module) -> list[bool]:
    return [module.training for module in net.modules()] + [parameter.requires_grad for parameter in net.parameters()]


def _counted(answer: Callable[[nn.Module], float]) -> Callable[[str], float]:
    """The answer for a net by its description; each call gets a new one, which has to stay as it was."""

    def share(words: str) -> float:
        net = NETS[words]()
        before, modes = {name: tensor.clone() for name, tensor in net.state_dict().items()}, _modes(net)
        found = answer(net)
        after = net.state_dict()
        if (
            list(after) != list(before)
            or not all(torch.equal(after[name], before[name]) for name in before)
            or _modes(net) != modes
        ):
            raise Mistake("net-changed", f"For {words}, your function changed the net: it should only look at it.")
        return float(found)

    return share


RUBRIC = Rubric(
    right,
    """
[layer.weight for layer in layers]
    counts-biases :: [t for layer in layers for t in (layer.weight, layer.bias) if t is not None] :: Biases are no weights, and
        do not count above or below the fraction bar.
    stored-weights :: [getattr(layer, "weight_orig", layer.weight) for layer in layers] :: $STORED
    stored-weights :: list(net.parameters()) :: $STORED
    stored-weights :: [p for p in net.parameters() if p.ndim > 1] :: $STORED
    stored-weights :: [p for name, p in net.named_parameters() if "weight" in name] :: $STORED
    counts-masks :: list(net.state_dict().values()) :: $COUNTED
    counts-masks :: [t for n, t in net.state_dict().items() if n.endswith(("weight", "weight_orig", "weight_mask"))] :: $COUNTED
    only-masks :: [t for name, t in net.state_dict().items() if name.endswith("weight_mask")] :: $MASKS
    only-masks :: [t for name, t in net.state_dict().items() if name.endswith("_mask")] :: $MASKS
    only-masks :: [getattr(layer, "weight_mask", layer.weight) for layer in layers] :: Under a mask you count the zeros of the
        mask alone. A weight that the mask keeps can be 0 too: look at the weight.
    counts-other-layers :: [x.weight for x in net.modules() if getattr(getattr(x, "weight", None), "ndim", 0) > 1] :: nn.Conv2d
        and nn.Linear are not all layers with a matrix: an nn.Embedding or an nn.Conv1d has one, too. They do not count here.
    outer-layers-only :: [x.weight for x in net.children() if isinstance(x, nn.Conv2d | nn.Linear)] :: You see only the layers
        right below the net: not those in blocks, and nothing if the net is a layer itself.
    pruned-layers-only :: [layer.weight for layer in layers if hasattr(layer, "weight_mask")] :: Layers without a mask have
        weights as well: they belong to the whole, and their zeros count.
(int((tensor == 0).sum()), tensor.numel()) for tensor in tensors
    zeros-twice :: (int((x.weight == 0).sum()) + masked(x), x.weight.numel()) for x in layers :: What a mask prunes is 0 in the
        weight as well: count it once, not twice.
    only-masks :: (masked(layer), layer.weight.numel()) for layer in layers :: $MASKS
return zeros / max(count, 1)
    mean-over-layers :: return sum(z / n for z, n in parts) / max(len(parts), 1) :: In a mean of the layers' shares a layer of
        10 weights counts as much as one of 10,000. Divide once.
error
    copies-a-masked-net :: deepcopy protocol :: torch cannot copy a net with masks: its `weight` is computed from weight_orig.
        To look at it, no copy is needed.
""",
    wrap=_counted,
    STORED="Under a mask, weight_orig is what is stored, and no parameter is 0. What does the net compute with? parameters() "
    "does not list it: it is an attribute of the layer.",
    COUNTED=_MASKS_COUNTED,
    MASKS="Your zeros are those of masks. After prune.remove there is no mask, but the weights are still 0; and a weight can "
    "be 0 without one.",
)


@exercise("pruned-share", notebook="17_pruning", takes="net", returns=float)
def judge_pruned_share(answer: Callable) -> None:
    """The zeros of all convolutions' and Linear layers' weights, over the number of these weights."""
    RUBRIC.expect(answer, {words: (words,) for words in NETS}, explain=lambda share, _: _explain(share))


def _explain(share: Callable[[str], float]) -> None:
    """Raise the Mistake that says what the first wrong share is the share of, or which fraction it should have been."""
    if 0 < (found := share("a dense net")) < 1:
        hint = f"No weight of a dense net is 0, and your share is {found:.6g}. A small weight is not 0, nor is a negative one."
        raise Mistake("zeros-in-a-dense-net", hint)
    for words, make in NETS.items():
        found = share(words)
        layers = [layer for layer in make().modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
        parts = [(int((layer.weight == 0).sum()), layer.weight.numel()) for layer in layers]
        zeros, count = (sum(part[i] for part in parts) for i in (0, 1))
        if same(found, zeros / count):
            continue
        listed = ", ".join(f"{z} of {n}" for z, n in parts)
        name, hint = "wrong-value", f"the layers have {listed} zeros, which is {zeros} / {count}; yours is {found:.6g}."
        if found == 0:
            name, hint = "finds-nothing", f"you find no zero, and {zeros} of {count} weights are 0 when it computes."
        elif same(found, zeros / count / 2):
            name, hint = "counts-masks", f"your share is half of the right one. {_MASKS_COUNTED}"
        elif same(whole := zeros / found, round(whole) if math.isfinite(whole) else None) and round(whole) > count:
            hint = f"you find {zeros} zeros among {whole:.0f}; the convolutions and Linear layers have {count} weights."
            name = "other-whole"
        raise Mistake(name, f"For {words} {hint}", given_last(()))
