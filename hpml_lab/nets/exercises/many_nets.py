"""Exercise: the answers of many XOR nets at once, without a loop over the nets."""

from collections.abc import Callable

import torch
from torch.overrides import TorchFunctionMode

from hpml_lab.core.exercises import Mistake, exercise, expect, expect_function
from hpml_lab.nets.batched_xor import INPUTS, batched_forward, stack_of_nets

NOTEBOOK = "03_nets"


class CallCounter(TorchFunctionMode):
    """Counts the calls of torch functions."""

    calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


def right(x: torch.Tensor, *nets: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(batched_forward(nets, x)[1])


def hidden(x: torch.Tensor, W1: torch.Tensor) -> torch.Tensor:
    """W₁x of all nets, (S, N, H)."""
    return torch.einsum("nd,shd->snh", x, W1)


def output(a: torch.Tensor, W2: torch.Tensor, b2: torch.Tensor | float) -> torch.Tensor:
    return torch.sigmoid((a * W2).sum(-1) + b2)


def first_net_only(x, W1, b1, W2, b2):
    return right(x, W1[:1], b1[:1], W2[:1], b2[:1]).expand(len(W1), len(x))


MISTAKES = {
    "samples-first": (lambda *given: right(*given).T, "All numbers are there, but one row must be one net: (S, N)."),
    "first-net-only": (first_net_only, "Every row is the first net's: W1 and W2 have an axis for the nets."),
    "mixes-nets": (
        lambda x, W1, b1, W2, b2: output(torch.sigmoid(hidden(x, W1).sum(0) + b1[:, None, :]), W2, b2),
        "A sum runs over the nets: s must stand in the result, too.",
    ),
    "bias-along-samples": (
        lambda x, W1, b1, W2, b2: output(torch.sigmoid(hidden(x, W1) + b1), W2, b2),
        "With 4 nets and 4 samples the shapes fit by chance: b1 (S, H) "
        "was added along the samples. It needs an axis of 1 for them.",
    ),
    "no-hidden-sigmoid": (
        lambda x, W1, b1, W2, b2: output(hidden(x, W1) + b1[:, None, :], W2, b2),
        "The hidden layer has no activation: two linear layers are equal to one.",
    ),
    "no-output-sigmoid": (lambda x, *nets: batched_forward(nets, x)[1], "These are the logits z; the net answers p = σ(z)."),
    "no-hidden-bias": (
        lambda x, W1, b1, W2, b2: output(torch.sigmoid(hidden(x, W1)), W2, b2),
        "The hidden layer's bias b1 is missing.",
    ),
    "no-output-bias": (
        lambda x, W1, b1, W2, b2: output(torch.sigmoid(hidden(x, W1) + b1[:, None, :]), W2, 0.0),
        "The output's bias b2 is missing.",
    ),
}


@exercise("many-nets", notebook=NOTEBOOK)
def judge_many_nets(answer: Callable) -> None:
    # Four nets and four samples: a bias added along the wrong axis has a shape that fits, so only its values are wrong.
    case = {"4 nets and the 4 points of XOR": (INPUTS, *stack_of_nets(range(4)))}
    expect_function(answer, right, case, tolerance=1e-5, mistakes=MISTAKES)
    calls = []
    for seeds in (3, 12):
        nets = stack_of_nets(range(seeds))
        with CallCounter() as counter:
            p = answer(INPUTS, *nets)
        expect(p, right(INPUTS, *nets), case=f"{seeds} nets", tolerance=1e-5)
        calls.append(counter.calls)
    if calls[1] > calls[0]:
        raise Mistake(
            "loops-over-nets",
            f"The answer is right, but 3 nets take {calls[0]} calls of "
            f"torch and 12 nets {calls[1]}: let one call work on all nets.",
        )
