"""The layers of a Sequential whose bias is wasted, because the batch norm right after them subtracts it again."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function

LAYERS, BATCH_NORMS = (nn.Conv2d, nn.Linear), (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
OTHER_NORMS = (nn.LayerNorm, nn.GroupNorm)


def networks() -> dict[str, nn.Sequential]:
    """The networks that the answer is tried on."""
    nets = [
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)),
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8)),
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)),
        nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)),
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Linear(4, 8), nn.LayerNorm(8)),
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)),
    ]
    return {f"Sequential({', '.join(type(layer).__name__ for layer in net)})": net for net in nets}


def single_points() -> list[tuple[str, str, nn.Sequential]]:
    """(mistake, hint, a network in which only this mistake shows)."""
    zero = nn.Conv2d(3, 8, 3)
    nn.init.zeros_(zero.bias)
    every_kind = (
        "Convolutions of one dimension and transposed ones have a bias, too: ask each layer for its bias, not for its class."
    )
    every_norm = "Every batch norm subtracts the mean, also one without weights of its own or without running statistics."
    repeated = (layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()))
    pairs = [
        ("kind-of-layer-forgotten", every_kind, [nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8)]),
        ("kind-of-layer-forgotten", every_kind, [nn.ConvTranspose2d(3, 8, 3), nn.BatchNorm2d(8)]),
        ("kind-of-layer-forgotten", "Conv3d and BatchNorm3d count, too.", [nn.Conv3d(3, 8, 3), nn.BatchNorm3d(8)]),
        ("setting-of-the-norm", every_norm, [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, affine=False)]),
        ("setting-of-the-norm", every_norm, [nn.Linear(3, 8), nn.BatchNorm1d(8, track_running_stats=False)]),
        ("not-next", NOT_NEXT, [nn.Conv2d(3, 8, 3), nn.Dropout(), nn.BatchNorm2d(8)]),
        ("value-of-the-bias", "A bias that is 0 now is a parameter that is trained, too.", [zero, nn.BatchNorm2d(8)]),
        ("many-layers", "Twelve layers: as text, '10' comes before '2'.", [*repeated]),
    ]
    return [(mistake, hint, nn.Sequential(*layers)) for mistake, hint, layers in pairs]


def named(
    net: nn.Sequential,
    kinds: tuple[type, ...] = LAYERS,
    norms: tuple[type, ...] | None = None,
    *,
    adjacent: bool = True,
    bias: bool = True,
) -> list[str]:
    """Names of the layers of some kinds, with a bias or without, that stand before one of `norms` (None: anywhere).

    adjacent  the norm is the next layer; otherwise it is any later layer
    """
    names, layers = list(net._modules), list(net)
    found = []
    for index, layer in enumerate(layers):
        after = layers[index + 1 : index + 2] if adjacent else layers[index + 1 :]
        before_norm = norms is None or any(isinstance(other, norms) for other in after)
        if isinstance(layer, kinds) and (getattr(layer, "bias", None) is not None) == bias and before_norm:
            found.append(names[index])
    return found


def has_bias(layer: nn.Module) -> bool:
    return isinstance(layer, LAYERS) and layer.bias is not None


NOT_NEXT = "Another layer stands in between. After it a bias still has an effect: look at the next layer only."
ONLY_BEFORE_BATCH_NORM = "A bias is wasted only where a batch norm follows."
MISTAKES: dict[str, tuple[Callable[[nn.Sequential], list[str]], str]] = {
    "every-convolution": (lambda net: named(net, (nn.Conv2d,)), ONLY_BEFORE_BATCH_NORM),
    "every-bias": (named, ONLY_BEFORE_BATCH_NORM),
    "every-bias, of norms too": (
        lambda net: [name for name, layer in net.named_children() if getattr(layer, "bias", None) is not None],
        ONLY_BEFORE_BATCH_NORM,
    ),
    "last-pair-missing": (
        lambda net: [name for name in named(net, norms=BATCH_NORMS) if int(name) < len(net) - 2],
        "The last two layers are a pair, too: n layers have n - 1 pairs of neighbors.",
    ),
    "linear-forgotten": (
        lambda net: named(net, (nn.Conv2d,), BATCH_NORMS),
        "A linear layer before a batch norm (BatchNorm1d) wastes its bias too.",
    ),
    "not-next": (lambda net: named(net, norms=BATCH_NORMS, adjacent=False), NOT_NEXT),
    "any-norm": (
        lambda net: named(net, norms=(*BATCH_NORMS, *OTHER_NORMS)),
        "GroupNorm and LayerNorm subtract a mean over several channels of a sample. The channels' biases differ, so they still"
        " have an effect.",
    ),
    "bias-already-gone": (
        lambda net: sorted(named(net, norms=BATCH_NORMS) + named(net, bias=False)),
        "One of the layers you name has no bias (bias=False), so it wastes nothing.",
    ),
    "first-only": (
        lambda net: named(net, norms=BATCH_NORMS)[:1],
        "You stop at the first. A network can waste several biases: name them all.",
    ),
    "last-only": (
        lambda net: named(net, norms=BATCH_NORMS)[-1:],
        "You keep only the last. A network can waste several biases: name them all.",
    ),
    "group-norm": (
        lambda net: named(net, norms=(*BATCH_NORMS, nn.GroupNorm)),
        "GroupNorm subtracts a mean over several channels of a sample. Their biases differ, so they still have an effect.",
    ),
    "norm-anywhere": (
        lambda net: named(net) if any(isinstance(layer, BATCH_NORMS) for layer in net) else [],
        "That a network has a batch norm does not waste all its biases: only those right before one.",
    ),
    "norm-in-front": (
        lambda net: [
            str(index) for index in range(1, len(net)) if isinstance(net[index - 1], BATCH_NORMS) and has_bias(net[index])
        ],
        "These layers come after a batch norm. It is the layer before it whose bias is subtracted.",
    ),
    "kept-not-wasted": (
        lambda net: sorted(set(named(net)) - set(named(net, norms=BATCH_NORMS))),
        "These are the biases that have an effect. Name the others.",
    ),
}


ERRORS = {
    "has no attribute 'bias'": (
        "not-all-have-one",
        "Not every layer has an attribute `bias`, a ReLU has none: getattr(layer, 'bias', None) is None for those.",
    ),
    "Boolean value of Tensor": (
        "truth-of-a-tensor",
        "A bias with several elements is neither true nor false: ask whether it `is not None`.",
    ),
}


@exercise("wasted-biases", notebook="11_tuning")
def judge_wasted_biases(answer: Callable[[nn.Sequential], Any]) -> None:
    """The layers of a Sequential whose bias is wasted, because the batch norm right after them subtracts it again."""
    nets, changed = networks(), []
    given = {}
    for case, net in nets.items():
        own = copy.deepcopy(net)
        try:
            given[case] = names_of(answer(own), net)
        except (AttributeError, RuntimeError) as error:
            for text, (name, hint) in ERRORS.items():
                if text in str(error):
                    raise Mistake(name, hint) from error
            raise
        if [name for name, _ in own.named_parameters()] != [name for name, _ in net.named_parameters()]:
            changed.append(case)
    layers = [nets[case]._modules[name] for case, names in given.items() for name in names]
    if layers and all(isinstance(layer, BATCH_NORMS) for layer in layers):
        raise Mistake("names-the-norm", "These are the batch norms. Name the layers before them.")
    expect_function(
        given.get,
        lambda case: named(nets[case], norms=BATCH_NORMS),
        {case: (case,) for case in nets},
        mistakes={mistake: (lambda case, wrong=wrong: wrong(nets[case]), hint) for mistake, (wrong, hint) in MISTAKES.items()},
    )
    for mistake, hint, net in single_points():
        got, right = names_of(answer(copy.deepcopy(net)), net), named(net, (nn.Module,), BATCH_NORMS)
        if got != sorted(right):
            kinds = ", ".join(type(layer).__name__ for layer in net)
            raise Mistake(mistake, f"For Sequential({kinds}) the names should be {right}; yours are {got}. {hint}")
    if changed:
        raise Mistake("inputs-changed", f"For {changed[0]} the names are right, but your function changed the network.")


def names_of(given: Any, net: nn.Sequential) -> list[str]:
    """What the student returned as sorted names of layers; also 0 for "0", and "0.bias"."""
    if given is None:
        raise Mistake("returns-nothing", "Your function returns None: return the names, such as ['0', '3'].")
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise Mistake("not-names", f"Your function returns {given!r}. Return a collection of names, such as ['0', '3'].")
    given = list(given)
    if any(isinstance(name, nn.Module | torch.Tensor) for name in given):
        raise Mistake("modules-not-names", "These are the layers or the biases themselves. Return their names, such as '0'.")
    names = sorted({str(name).removesuffix(".bias") for name in given})
    if unknown := [name for name in names if name not in net._modules]:
        raise Mistake("not-names", f"{unknown[0]!r} is not the name of a layer, such as '0'.")
    return names
