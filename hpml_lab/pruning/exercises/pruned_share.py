"""pruned-share: which share of a net's weights is 0, with torch's masks in it or without."""

import functools
import itertools
from collections.abc import Callable

import torch
from torch import nn

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import numbers, same
from hpml_lab.pruning.exercises.pruned_nets import NETS

Part = tuple[int, int]  # (zeros, elements) of one tensor
Parts = Callable[[nn.Module], list[Part]]
Number = Callable[[list[Part]], float]

# ---- the answer, with parts that can be replaced ---------------------------------------------------------------------


def _part(tensor: torch.Tensor) -> Part:
    return int((tensor == 0).sum()), tensor.numel()


def _layers(net: nn.Module, kinds: tuple[type, ...] = (nn.Conv2d, nn.Linear)) -> list[nn.Module]:
    return [layer for layer in net.modules() if isinstance(layer, kinds)]


def _weights(net: nn.Module) -> list[Part]:
    return [_part(layer.weight) for layer in _layers(net)]


def _with_biases(net: nn.Module) -> list[Part]:
    tensors = [(layer.weight, layer.bias) for layer in _layers(net)]
    return [_part(tensor) for pair in tensors for tensor in pair if tensor is not None]


def _stored(net: nn.Module) -> list[Part]:
    return [_part(getattr(layer, "weight_orig", layer.weight)) for layer in _layers(net)]


def _state(*kinds: str) -> Parts:
    """What the state_dict holds under names that end so."""
    return lambda net: [_part(tensor) for name, tensor in net.state_dict().items() if name.endswith(kinds)]


def _masks_added(net: nn.Module) -> list[Part]:
    """The zeros of the weights and those of the masks, over the weights."""
    masks = {id(layer): _part(layer.weight_mask)[0] for layer in _layers(net) if hasattr(layer, "weight_mask")}
    return [(_part(layer.weight)[0] + masks.get(id(layer), 0), layer.weight.numel()) for layer in _layers(net)]


def _mask_zeros(net: nn.Module) -> list[Part]:
    """The zeros of the masks, over all weights."""
    found = [(getattr(layer, "weight_mask", None), layer.weight.numel()) for layer in _layers(net)]
    return [(0 if mask is None else _part(mask)[0], count) for mask, count in found]


def _mask_if_any(net: nn.Module) -> list[Part]:
    """The zeros of a layer's mask if it has one, else those of its weight."""
    return [_part(getattr(layer, "weight_mask", layer.weight)) for layer in _layers(net)]


def _whole(parts: list[Part]) -> float:
    return sum(zeros for zeros, _ in parts) / max(sum(count for _, count in parts), 1)


def _mean(parts: list[Part]) -> float:
    return sum(zeros / count for zeros, count in parts) / max(len(parts), 1)


def _of_some(parts: list[Part]) -> float:
    """Over the layers that have a zero."""
    return _whole([part for part in parts if part[0]])


def _share(parts: Parts = _weights, number: Number = _whole) -> Callable[[nn.Module], float]:
    return lambda net: number(parts(net))


_STORED = (
    "Under a mask, weight_orig is what is stored, and no parameter is 0. What does the net compute with? parameters() does not "
    "list it: it is an attribute of the layer."
)
_MASKS = (
    "Your zeros are those of masks. After prune.remove there is no mask, but the weights are still 0; and a weight can be 0 "
    "without one."
)
_PARTS: dict[str, tuple[Parts, str]] = {
    "counts-biases": (_with_biases, "Biases are among your elements. Only weights count, above and below the fraction bar."),
    "stored-weights": (_stored, _STORED),
    "stored-weights, and all other parameters": (lambda net: [_part(p) for p in net.parameters()], _STORED),
    "stored-weights, matrices": (lambda net: [_part(p) for p in net.parameters() if p.ndim > 1], _STORED),
    "stored-weights, by name": (
        lambda net: [_part(parameter) for name, parameter in net.named_parameters() if "weight" in name],
        _STORED,
    ),
    "counts-masks": (
        lambda net: [_part(tensor) for tensor in net.state_dict().values()],
        "The state_dict of a pruned layer holds weight_orig and weight_mask: you count both, and neither is the weight.",
    ),
    "counts-masks, without biases": (
        _state("weight", "weight_orig", "weight_mask"),
        "The state_dict of a pruned layer holds weight_orig and weight_mask: you count both, and neither is the weight.",
    ),
    "zeros-twice": (_masks_added, "What a mask prunes is 0 in the weight as well: you count it twice."),
    "only-masks": (_state("weight_mask"), _MASKS),
    "only-masks, of biases too": (_state("_mask"), _MASKS),
    "only-masks, over all weights": (_mask_zeros, _MASKS),
    "only-masks, where there is one": (
        _mask_if_any,
        "Under a mask you count the zeros of the mask alone. A weight that the mask keeps can be 0 too: look at the weight.",
    ),
    "counts-normalization": (
        lambda net: [_part(layer.weight) for layer in net.modules() if hasattr(layer, "weight")],
        "A layer of normalization has a `weight`, too; only convolutions and Linear layers count.",
    ),
    "counts-other-layers": (
        lambda net: [_part(x.weight) for x in net.modules() if getattr(getattr(x, "weight", None), "ndim", 0) > 1],
        "nn.Conv2d and nn.Linear are not all layers with a matrix: an nn.Embedding or an nn.Conv1d has one, too. They do not "
        "count here.",
    ),
    "outer-layers-only": (
        lambda net: [_part(layer.weight) for layer in net.children() if isinstance(layer, nn.Conv2d | nn.Linear)],
        "You see only the layers right below the net: not those in blocks, and nothing if the net is a layer itself.",
    ),
    "linear-only": (
        lambda net: [_part(x.weight) for x in _layers(net, (nn.Linear,))],
        "The convolutions have weights as well.",
    ),
    "convolutions-only": (
        lambda net: [_part(x.weight) for x in _layers(net, (nn.Conv2d,))],
        "Linear layers have weights as well.",
    ),
    "pruned-layers-only": (
        lambda net: [_part(layer.weight) for layer in _layers(net) if hasattr(layer, "weight_mask")],
        "Layers without a mask have weights as well: they belong to the whole, and their zeros count.",
    ),
}
_NUMBERS: dict[str, tuple[Number, str]] = {
    "mean-over-layers": (
        _mean,
        "You take the mean of the layers' shares: a layer of 10 weights then counts as much as one of 10,000. Divide once.",
    ),
    "pruned-layers-only, by their zeros": (_of_some, "Layers without zeros belong to the whole as well."),
    "share-that-stays": (lambda parts: 1 - _whole(parts), "That is the share that is not 0."),
    "percent": (lambda parts: 100 * _whole(parts), "A share is between 0 and 1; yours is in percent."),
    "number-not-share": (lambda parts: sum(zeros for zeros, _ in parts), "You return how many are 0; which share is that?"),
    "number-not-share, that stays": (
        lambda parts: sum(count - zeros for zeros, count in parts),
        "You return how many are not 0. The share of zeros is asked for.",
    ),
    "zeros-by-the-rest": (
        lambda parts: sum(zeros for zeros, _ in parts) / max(sum(count - zeros for zeros, count in parts), 1),
        "You divide by the weights that are not 0; the whole has all of them.",
    ),
    "last-layer-only": (
        lambda parts: parts[-1][0] / parts[-1][1] if parts else 0.0,
        "You return the share of the last layer: is the sum, or the `return`, inside the loop?",
    ),
    "last-layer-only, the first": (
        lambda parts: parts[0][0] / parts[0][1] if parts else 0.0,
        "You return the share of the first layer: is the `return` inside the loop?",
    ),
    "sum-over-layers": (lambda parts: sum(zeros / count for zeros, count in parts), "You add the shares of the layers up."),
    "rounded": (lambda parts: round(_whole(parts), 2), "Return the share itself, not rounded."),
    "rounded, to an integer": (lambda parts: int(_whole(parts)), "Your share is an integer: `//` or int() cuts it off."),
}
MISTAKES = combined(_share, {"parts": _PARTS, "number": _NUMBERS})
right = _share()


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
        value = numbers(found)
        if value is None:
            return found
        if value.numel() != 1:
            raise Mistake("not-one-number", f"Return one number for the whole net; yours are {value.numel()}. Divide sums.")
        return value.double().item()

    return share


_KNOWN = {name: (functools.cache(_counted(share)), hint) for name, (share, hint) in MISTAKES.items()}  # each counts once


_ERRORS = {
    "deepcopy protocol": (
        "copies-a-masked-net",
        "torch cannot copy a net with masks: its `weight` is computed from weight_orig. To look at it, no copy is needed.",
    )
}


@exercise("pruned-share", notebook="17_pruning")
def judge_pruned_share(answer: Callable) -> None:
    """The zeros of all convolutions' and Linear layers' weights, over the number of these weights."""
    try:
        expect_function(_counted(answer), _counted(right), {words: (words,) for words in NETS}, mistakes=_KNOWN, errors=_ERRORS)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            _explain(answer)
        raise


def _explain(answer: Callable) -> None:
    """Raise the Mistake that says what the first wrong share is the share of, or which fraction it should have been."""
    if 0 < (found := _counted(answer)("a dense net")) < 1:
        hint = f"No weight of a dense net is 0, and your share is {found:.6g}. A small weight is not 0, nor is a negative one."
        raise Mistake("zeros-in-a-dense-net", hint)
    for words, make in NETS.items():
        found = _counted(answer)(words)
        parts = _weights(make())
        zeros, count = (sum(part[i] for part in parts) for i in (0, 1))
        if not same(found, zeros / count):
            layers = ", ".join(f"{z} of {n}" for z, n in parts)
            _explain_parts(words, found, parts)
            hint = f"For {words} the layers have {layers} zeros, which is {zeros} / {count}; yours is {found:.6g}."
            raise Mistake("wrong-value", hint)


def _explain_parts(words: str, found: float, parts: list[Part]) -> None:
    """Raise the Mistake of a share that leaves layers out, knows no mask, or counts each weight and its mask."""
    zeros, count = (sum(part[i] for part in parts) for i in (0, 1))
    if found == 0:
        raise Mistake("finds-nothing", f"For {words} you find no zero, and {zeros} of {count} weights are 0 when it computes.")
    if same(found, zeros / count / 2):
        raise Mistake("counts-masks", f"For {words} your share is half of the right one. {_PARTS['counts-masks'][1]}")
    for size in range(1, len(parts)):
        for chosen in itertools.combinations(range(len(parts)), size):
            if same(found, _whole([parts[i] for i in chosen])):
                hint = (
                    f"For {words} yours is the share of layer {' and '.join(map(str, chosen))} alone (from 0, of {len(parts)})."
                )
                raise Mistake("some-layers-only", hint)
            rest = [parts[i] for i in range(len(parts)) if i not in chosen]
            if same(found, (_whole([parts[i] for i in chosen]) + _whole(rest)) / 2):
                hint = f"For {words} you take the mean of the shares of two groups of layers. They differ in size: divide once."
                raise Mistake("mean-over-layers", hint)
    whole = zeros / found
    if same(whole, round(whole)) and round(whole) > count:
        hint = f"For {words} you find {zeros} zeros among {whole:.0f}; the convolutions and Linear layers have {count} weights."
        raise Mistake("other-whole", hint)
