"""view-or-copy: which expressions share memory with a tensor, and which copy it."""

import numpy as np
import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_keys_and_type
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.tensors.lessons.memory import shares_memory

VIEW_OR_COPY = (
    "x[:, 1]",
    "x[[0, 2]]",
    "x.T",
    "x.reshape(12)",
    "x.T.reshape(12)",
    "x.to(torch.float32)",
    "torch.from_numpy(a)",
    "torch.tensor(a)",
)

# name of the mistake: (the expressions that it gets wrong, hint)
VIEW_OR_COPY_MISTAKES = {
    "list-of-indices-as-view": (
        {"x[[0, 2]]"},
        "Rows 0 and 2 are evenly spaced, but torch does not check that: the list could as well be [0, 2, 0].",
    ),
    "slices-copy": (
        {"x[:, 1]"},
        "A slice needs no new memory: a start and a stride find every element. Try x[:, 1] += 1 and look at x.",
    ),
    "transpose-copies": ({"x.T"}, "A transpose swaps the two strides and does nothing else."),
    "reshape-always-copies": (
        {"x.reshape(12)"},
        "If the elements already lie in the new order, reshape only changes shape and strides.",
    ),
    "reshape-never-copies": (
        {"x.T.reshape(12)"},
        "Can a single stride follow x.T in its own order? Write down the positions in memory.",
    ),
    "to-always-copies": ({"x.to(torch.float32)"}, "What does .to do if the tensor already has that dtype and device?"),
    "numpy-mixed-up": (
        {"torch.from_numpy(a)", "torch.tensor(a)"},
        "One of the two borrows the array's memory and the other copies it: change a and look.",
    ),
}


@exercise("view-or-copy", notebook="01_tensors", returns={str: bool})
def judge_view_or_copy(answer: dict[str, bool]) -> None:
    """True for each expression that shares memory with x (or with the array a)."""
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = torch.from_numpy(a)
    truth = {text: shares_memory(eval(text, {"x": x, "a": a, "torch": torch}), x) for text in VIEW_OR_COPY}
    answer = expect_keys_and_type(answer, truth, bool, "True (shares memory) or False (has memory of its own)")
    wrong = {text for text in truth if answer[text] != truth[text]}
    if len(wrong) == len(truth):
        raise Mistake(
            "all-reversed", "Each one is wrong. || True means that the expression shares memory, and needs none of its own."
        )
    for name, (texts, hint) in VIEW_OR_COPY_MISTAKES.items():
        if wrong & texts:
            raise Mistake(name, f"{min(wrong & texts)}: {hint}{_others(wrong - texts)}")


def _others(wrong: set[str]) -> str:
    return f" ({len(wrong)} more {'is' if len(wrong) == 1 else 'are'} wrong, too.)" if wrong else ""
