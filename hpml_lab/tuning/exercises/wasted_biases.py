"""The layers of a Sequential whose bias is wasted, because the batch norm right after them subtracts it again."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

from torch import nn

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric

BATCH_NORM = nn.modules.batchnorm._BatchNorm  # the base of all of them: of one to three dimensions, synchronized, lazy
NORMS = (BATCH_NORM, nn.LayerNorm, nn.GroupNorm)
FIRST = "Nothing stands before the first layer: `net[i - 1]` is then the last one."
NOT_NEXT = "Another layer stands in between. After it a bias still has an effect: look at the next layer only."


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
    every_batch_norm = "Synchronized and lazy batch norms subtract the mean, too: they are other classes."
    lazy = nn.LazyBatchNorm1d(affine=False, track_running_stats=False)  # one with parameters cannot be copied yet
    repeated = (layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()))
    pairs = [
        ("kind-of-layer-forgotten", every_kind, [nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8)]),
        ("kind-of-layer-forgotten", every_kind, [nn.ConvTranspose2d(3, 8, 3), nn.BatchNorm2d(8)]),
        ("kind-of-layer-forgotten", "Conv3d and BatchNorm3d count, too.", [nn.Conv3d(3, 8, 3), nn.BatchNorm3d(8)]),
        ("any-norm", "RMSNorm is no batch norm, and subtracts no mean.", [nn.Linear(3, 8), nn.RMSNorm(8)]),
        ("setting-of-the-norm", every_norm, [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, affine=False)]),
        ("setting-of-the-norm", every_norm, [nn.Linear(3, 8), nn.BatchNorm1d(8, track_running_stats=False)]),
        ("class-of-batch-norm-forgotten", every_batch_norm, [nn.Conv2d(3, 8, 3), nn.SyncBatchNorm(8)]),
        ("class-of-batch-norm-forgotten", every_batch_norm, [nn.Linear(3, 8), lazy]),
        ("not-next", NOT_NEXT, [nn.Conv2d(3, 8, 3), nn.Dropout(), nn.BatchNorm2d(8)]),
        ("value-of-the-bias", "A bias that is 0 now is a parameter that is trained, too.", [zero, nn.BatchNorm2d(8)]),
        ("before-the-first", FIRST, [nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8)]),
        ("many-layers", "Twelve layers: as text, '10' comes before '2'.", [*repeated]),
    ]
    return [(mistake, hint, nn.Sequential(*layers)) for mistake, hint, layers in pairs]


def wasted_biases(net: nn.Sequential) -> list[str]:
    layers = [*net._modules.items(), ("", None)]  # named_children() gives a module that stands in two places once
    return [
        name
        for (name, layer), (_, after) in itertools.pairwise(layers)
        if getattr(layer, "bias", None) is not None and isinstance(after, BATCH_NORM)
    ]


def names_given(answer: Callable[[nn.Sequential], Any]) -> Callable[[nn.Sequential], list[str]]:
    """The answer, whose names are looked at: sorted names of the net's layers, of which "0.bias" is one, too."""

    def names(net: nn.Sequential) -> list[str]:
        layers = list(net._modules)
        given = sorted({str(name).removesuffix(".bias") for name in answer(net)})
        if unknown := [name for name in given if name not in layers]:
            raise Mistake("not-names", f"{unknown[0]!r} is not the name of a layer, such as '0'.")
        return given

    return names


RUBRIC = Rubric(
    wasted_biases,
    """
and isinstance(after, BATCH_NORM)
    every-bias :: and not isinstance(layer, NORMS) :: $ONLY
    every-bias :: and True :: $ONLY
    not-next :: and not isinstance(layer, NORMS) and any(isinstance(other, BATCH_NORM) for other in net[int(name):]) :: $NEXT
    any-norm :: and isinstance(after, NORMS) :: GroupNorm and LayerNorm subtract a mean over several channels of a sample. The
        channels' biases differ, so they still have an effect.
getattr(layer, "bias", None) is not None
    linear-forgotten :: isinstance(layer, nn.Conv2d) and layer.bias is not None :: A linear layer before a batch norm
        (BatchNorm1d) wastes its bias too.
    bias-already-gone :: isinstance(layer, nn.Conv2d | nn.Linear) :: One of the layers you name has no bias (bias=False), so it
        wastes nothing.
whole answer
    kept-not-wasted :: lambda net: [str(i) for i in range(len(net)) if biased(net[i]) and str(i) not in wasted_biases(net)] ::
        These are the biases that have an effect. Name the others.
error
    not-all-have-one :: has no attribute 'bias' :: Not every layer has an attribute `bias`, a ReLU has none: getattr(layer,
        'bias', None) is None for those.
    truth-of-a-tensor :: Boolean value of Tensor :: A bias with several elements is neither true nor false: ask whether it `is
        not None`.
""",
    wrap=names_given,
    ONLY="A bias is wasted only where a batch norm follows.",
    NEXT=NOT_NEXT,
)


def biased(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None


@exercise("wasted-biases", notebook="11_tuning", takes="net", returns={str})
def judge_wasted_biases(answer: Callable[[nn.Sequential], Any]) -> None:
    """The layers of a Sequential whose bias is wasted, because the batch norm right after them subtracts it again."""
    RUBRIC.expect(answer, {case: (net,) for case, net in networks().items()}, explain=explain)
    for mistake, hint, net in single_points():
        got, right = names_given(answer)(copy.deepcopy(net)), wasted_biases(net)
        if got != sorted(right):
            kinds = ", ".join(type(layer).__name__ for layer in net)
            raise Mistake(mistake, f"For Sequential({kinds}) the names should be {right}; yours are {got}. {hint}")


def explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake of an answer that names nothing but batch norms."""
    layers = [net._modules[name] for _, (net,), names, _ in judged for name in names]
    if layers and all(isinstance(layer, BATCH_NORM) for layer in layers):
        raise Mistake("names-the-norm", "These are the batch norms. Name the layers before them.")
