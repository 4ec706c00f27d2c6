"""Exercise which-track: does the result of an expression require a gradient?"""

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_truths

KNOWN = {
    "constants-tracked": ({"x + y"}, "Neither x nor y requires a gradient, so why should their sum?"),
    "all-operands-needed": ({"x + z"}, "One tracked operand is enough: the result depends on it."),
    "slices-cut": ({"(x + z)[0]"}, "Indexing is an operation like any other: its gradient goes back to the chosen element."),
    "detach-tracks": ({"z.detach()"}, "detach gives the same numbers without their history. That is its only purpose."),
    "clone-cuts": ({"z.clone()"}, "clone copies the numbers and is recorded as an operation. Which call cuts the history?"),
    "like-inherits": (
        {"torch.zeros_like(z)"},
        "zeros_like takes over shape, dtype and device. The zeros do not depend on z's values.",
    ),
    "comparison-tracks": ({"z > 0"}, "True and False do not move when z moves a little: there is nothing to differentiate."),
    "no-grad-ignored": ({"no_grad: z * 2"}, "Inside the block nothing is recorded, whatever the operands are."),
}


def tracked() -> dict[str, bool]:
    """{expression: whether its result requires a gradient}."""
    x, y, z = torch.ones(3), torch.ones(3), torch.ones(3, requires_grad=True)
    with torch.no_grad():
        not_recorded = z * 2
    results = {
        "x + y": x + y,
        "x + z": x + z,
        "(x + z)[0]": (x + z)[0],
        "z.detach()": z.detach(),
        "z.clone()": z.clone(),
        "torch.zeros_like(z)": torch.zeros_like(z),
        "z > 0": z > 0,
        "no_grad: z * 2": not_recorded,
    }
    return {expression: result.requires_grad for expression, result in results.items()}


@exercise("which-track", notebook="02_autograd", returns={str: bool})
def judge_which_track(answer: dict[str, bool]) -> None:
    """True for each expression whose result requires a gradient."""
    expect_truths(answer, tracked(), KNOWN, "the result requires a gradient")
