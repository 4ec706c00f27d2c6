"""Exercise: the answers of many XOR nets at once, without a loop over the nets."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function, expect_no_loop
from hpml_lab.nets.batched_xor import INPUTS, batched_forward, stack_of_nets

NOTEBOOK = "03_nets"


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
    "bias-along-samples, of the output": (
        lambda x, W1, b1, W2, b2: output(torch.sigmoid(hidden(x, W1) + b1[:, None, :]), W2, b2[:, 0]),
        "With 4 nets and 4 samples the shapes fit by chance: b2 was added along the samples. It needs an axis of 1 for them.",
    ),
    "reshaped-not-transposed": (
        lambda *given: right(*given).T.reshape(len(given[1]), len(given[0])),
        "The shape is right, but the numbers belong to other nets: reshape does not exchange axes, a transpose does.",
    ),
    "output-axis-kept": (
        lambda *given: right(*given)[..., None],
        "There is an axis of length 1 too many: the result is (S, N).",
    ),
    "answers-rounded": (
        lambda *given: right(*given).round(),
        "These are decisions, 0 or 1; the net's answers p lie in between.",
    ),
    "tanh-for-sigmoid": (
        lambda x, W1, b1, W2, b2: output(torch.tanh(hidden(x, W1) + b1[:, None, :]), W2, b2),
        "The hidden layer of these nets ends in a sigmoid, not in tanh.",
    ),
    "averaged-over-nets": (
        lambda *given: right(*given).mean(0).expand(len(given[1]), len(given[0])),
        "All rows are the same: you averaged over the nets.",
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
    generator = torch.Generator().manual_seed(0)

    def wide(nets: int, samples: int, hidden: int) -> tuple[torch.Tensor, ...]:
        shapes = (samples, 2), (nets, hidden, 2), (nets, hidden), (nets, 1, hidden), (nets, 1)
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)

    cases = {
        "4 nets and the 4 points of XOR": (INPUTS, *stack_of_nets(range(4))),
        "6 nets with 5 hidden units and 3 inputs": wide(6, 3, 5),
        "one net and one input": wide(1, 1, 2),
    }
    expect_function(answer, right, cases, tolerance=1e-5, mistakes=MISTAKES)
    hint = "Let one call work on all nets: every operand has an axis for them."
    expect_no_loop(answer, *((INPUTS, *stack_of_nets(range(n))) for n in (3, 12)), more=9, over="nets", hint=hint)
