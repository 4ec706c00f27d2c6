"""The layers of a Sequential whose bias is wasted, because the batch norm right after them subtracts it again."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from hpml_lab.core.exercises import Mistake, exercise, expect_function

LAYERS, BATCH_NORMS = (nn.Conv2d, nn.Linear), (nn.BatchNorm1d, nn.BatchNorm2d)
OTHER_NORMS = (nn.LayerNorm, nn.GroupNorm)


def networks() -> dict[str, nn.Sequential]:
    """The networks that the answer is tried on."""
    nets = [
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)),
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8)),
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)),
        nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)),
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Linear(4, 8), nn.LayerNorm(8)),
    ]
    return {f"Sequential({', '.join(type(layer).__name__ for layer in net)})": net for net in nets}


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
        if isinstance(layer, kinds) and (layer.bias is not None) == bias and before_norm:
            found.append(names[index])
    return found


ONLY_BEFORE_BATCH_NORM = "A bias is wasted only where a batch norm follows."
MISTAKES: dict[str, tuple[Callable[[nn.Sequential], list[str]], str]] = {
    "every-convolution": (lambda net: named(net, (nn.Conv2d,)), ONLY_BEFORE_BATCH_NORM),
    "every-bias": (named, ONLY_BEFORE_BATCH_NORM),
    "linear-forgotten": (
        lambda net: named(net, (nn.Conv2d,), BATCH_NORMS),
        "A linear layer before a batch norm wastes its bias too.",
    ),
    "not-next": (
        lambda net: named(net, norms=BATCH_NORMS, adjacent=False),
        "Another layer stands in between. After ReLU a bias still has an effect: look at the next layer only.",
    ),
    "any-norm": (
        lambda net: named(net, norms=(*BATCH_NORMS, *OTHER_NORMS)),
        "GroupNorm and LayerNorm subtract a mean over several channels of a sample. The channels' biases differ, so they still"
        " have an effect.",
    ),
    "bias-already-gone": (
        lambda net: sorted(named(net, norms=BATCH_NORMS) + named(net, bias=False)),
        "One of the layers you name has no bias (bias=False), so it wastes nothing.",
    ),
    "names-the-norm": (
        lambda net: [name for name, layer in net._modules.items() if isinstance(layer, BATCH_NORMS)],
        "These are the batch norms. Name the layers before them.",
    ),
}


@exercise("wasted-biases", notebook="10_tuning")
def judge_wasted_biases(answer: Callable[[nn.Sequential], Any]) -> None:
    """The layers of a Sequential whose bias is wasted, because the batch norm right after them subtracts it again."""
    nets = networks()

    def names(case: str) -> list[str]:
        given = answer(nets[case])
        if given is None:
            raise Mistake("returns-nothing", "Your function returns None: return the names, such as ['0', '3'].")
        if not isinstance(given, Iterable):
            raise Mistake("not-names", "Return a collection of names, such as ['0', '3'].")
        return sorted({str(name).removesuffix(".bias") for name in given})

    expect_function(
        names,
        lambda case: named(nets[case], norms=BATCH_NORMS),
        {case: (case,) for case in nets},
        mistakes={mistake: (lambda case, wrong=wrong: wrong(nets[case]), hint) for mistake, (wrong, hint) in MISTAKES.items()},
    )
