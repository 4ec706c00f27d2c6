"""Exercise: the answers of many XOR nets at once, without a loop over the nets."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_no_loop
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.nets.lessons.batched_xor import INPUTS, stack_of_nets


def right(x: torch.Tensor, W1: torch.Tensor, b1: torch.Tensor, W2: torch.Tensor, b2: torch.Tensor) -> torch.Tensor:
    hidden = torch.sigmoid(torch.einsum("nd,shd->snh", x, W1) + b1[:, None, :])
    p = torch.sigmoid((hidden * W2).sum(-1) + b2)
    return p


RUBRIC = Rubric(
    right,
    """
b1[:, None, :]
    bias-along-samples :: b1 :: Each net adds its own row of b1 (S, H) to every sample: b1 needs an axis of 1 for them. With 4
        nets and 4 samples a wrong axis fits by chance.
(hidden * W2).sum(-1) + b2
    bias-along-samples :: (hidden * W2).sum(-1) + b2[:, 0] :: Each net adds its own b2 to every sample: b2 needs an axis of 1
        for them. With 4 nets and 4 samples a wrong axis fits by chance.
return p
    samples-first :: return p.T :: One row of the result is one net, not one sample: (S, N).
    first-net-only :: return p[:1].expand(len(W1), len(x)) :: Every row is the first net's: W1 and W2 have an axis for the nets.
    reshaped-not-transposed :: return p.T.reshape(len(W1), len(x)) :: The shape is right, but the numbers belong to other nets:
        reshape does not exchange axes, a transpose does.
    no-output-sigmoid :: return p.logit() :: These are the logits z; the net answers p = σ(z).
""",
)


@exercise("many-nets", notebook="03_nets", takes="x, W1, b1, W2, b2", returns=like("x"))
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
    RUBRIC.expect(answer, cases, tolerance=1e-5)
    hint = "Let one call work on all nets: every operand has an axis for them."
    expect_no_loop(answer, *((INPUTS, *stack_of_nets(range(n))) for n in (3, 12)), more=9, over="nets", hint=hint)
