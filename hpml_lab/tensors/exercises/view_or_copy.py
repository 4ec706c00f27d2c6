"""view-or-copy: which expressions share memory with a tensor, and which copy it."""

import numpy as np
import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_truths
from hpml_lab.tensors.lessons.memory import shares_memory

# name of the mistake: (the expressions that it gets wrong, hint)
MISTAKES = {
    "list-of-indices-as-view": (
        ("x[[0, 2]]",),
        "Rows 0 and 2 are evenly spaced, but torch does not check that: the list could as well be [0, 2, 0].",
    ),
    "slices-copy": (
        ("x[:, 1]",),
        "A slice needs no new memory: a start and a stride find every element. Try x[:, 1] += 1 and look at x.",
    ),
    "transpose-copies": (("x.T",), "A transpose swaps the two strides and does nothing else."),
    "reshape-always-copies": (
        ("x.reshape(12)",),
        "If the elements already lie in the new order, reshape only changes shape and strides.",
    ),
    "reshape-never-copies": (
        ("x.T.reshape(12)",),
        "Can a single stride follow x.T in its own order? Write down the positions in memory.",
    ),
    "to-always-copies": (("x.to(torch.float32)",), "What does .to do if the tensor already has that dtype and device?"),
    "numpy-mixed-up": (
        ("torch.from_numpy(a)", "torch.tensor(a)"),
        "One of the two borrows the array's memory and the other copies it: change a and look.",
    ),
}


@exercise("view-or-copy", notebook="01_tensors", returns={str: bool})
def judge_view_or_copy(answer: dict[str, bool]) -> None:
    """True for each expression that shares memory with x (or with the array a)."""
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = torch.from_numpy(a)
    names = {"x": x, "a": a, "torch": torch}
    truth = {text: shares_memory(eval(text, names), x) for texts, _ in MISTAKES.values() for text in texts}
    expect_truths(answer, truth, MISTAKES, "the expression shares memory, and needs none of its own")
