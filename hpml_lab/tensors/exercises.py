"""The checks of notebook 01's exercises."""

from collections.abc import Callable

import numpy as np
import torch

from hpml_lab.core.exercises import Mistake, exercise, expect_function, expect_keys_and_type
from hpml_lab.tensors.memory import shares_memory

NOTEBOOK = "01_tensors"

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


@exercise("view-or-copy", notebook=NOTEBOOK)
def judge_view_or_copy(answer: dict[str, bool]) -> None:
    """True for each expression that shares memory with x (or with the array a)."""
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = torch.from_numpy(a)
    truth = {text: shares_memory(eval(text, {"x": x, "a": a, "torch": torch}), x) for text in VIEW_OR_COPY}
    expect_keys_and_type(answer, truth, bool, "True (shares memory) or False (has memory of its own)")
    wrong = {text for text in truth if answer[text] != truth[text]}
    for name, (texts, hint) in VIEW_OR_COPY_MISTAKES.items():
        if wrong and wrong <= texts:
            raise Mistake(name, hint)
    if wrong:
        raise Mistake(
            "several-wrong",
            f"{len(wrong)} of {len(truth)} are wrong, {sorted(wrong)[0]} among them: write through each and see if x changes.",
        )


@exercise("outer-sum", notebook=NOTEBOOK)
def judge_outer_sum(answer: Callable) -> None:
    """table[i, j] = a[i] + b[j] by broadcasting."""
    expect_function(
        answer,
        lambda a, b: a[:, None] + b[None, :],
        {
            "a = [1, 2, 3], b = [10, 20]": (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 20.0])),
            "a = [1, 2], b = [10, 20]": (torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])),
        },
        mistakes={
            "transposed": (
                lambda a, b: a + b[:, None],
                "Your table has a along the columns. Row i belongs to a[i]: which operand needs the new last axis?",
            ),
            "flattened": (
                lambda a, b: (a[:, None] + b).flatten(),
                "The numbers are right, but they form a single line: keep the two axes.",
            ),
            "product": (lambda a, b: torch.outer(a, b), "torch.outer multiplies; here the entries are added."),
            "swapped-sign": (lambda a, b: a[:, None] - b, "The entries are sums, not differences."),
        },
        errors={
            "must match the size": (
                "no-new-axis",
                "Shapes (3,) and (2,) do not broadcast. Which shapes would give (3, 2)? Add an axis of length 1.",
            )
        },
    )


@exercise("standardise", notebook=NOTEBOOK)
def judge_standardise(answer: Callable) -> None:
    """(x - mean) / standard deviation of each column, with the deviation's sum divided by N."""
    x = torch.tensor([[1.0, 10.0, 5.0], [2.0, 20.0, 1.0], [4.0, 60.0, 3.0], [9.0, 30.0, 0.0]])
    expect_function(
        answer,
        lambda x: (x - x.mean(0)) / x.std(0, correction=0),
        {"a batch of 4 samples with 3 features": (x,)},
        tolerance=1e-5,
        mistakes={
            "rows-instead-of-columns": (
                lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True),
                "You standardised each sample. Each feature, a column, needs its own mean: reduce over the samples.",
            ),
            "one-mean-for-all": (
                lambda x: (x - x.mean()) / x.std(correction=0),
                "You took one mean over the whole batch. Features have different scales: take one mean per column.",
            ),
            "sample-deviation": (
                lambda x: (x - x.mean(0)) / x.std(0),
                "By default, torch's std divides by N - 1; here the sum is divided by N. Look for `correction` in its"
                " documentation.",
            ),
            "variance-instead-of-deviation": (
                lambda x: (x - x.mean(0)) / x.var(0, correction=0),
                "You divided by the variance; its square root is the standard deviation, in the units of x.",
            ),
            "not-centred": (lambda x: x / x.std(0, correction=0), "The columns have deviation 1, but their mean is not 0 yet."),
            "not-scaled": (lambda x: x - x.mean(0), "The columns have mean 0, but their deviation is not 1 yet."),
        },
        errors={
            "must match the size": (
                "no-keepdim",
                "A mean over the last axis has shape (4,), which does not broadcast with (4, 3). First: over which axis are"
                " columns averaged?",
            )
        },
    )


@exercise("matmul-intensity", notebook=NOTEBOOK)
def judge_matmul_intensity(answer: Callable) -> None:
    """2 n m k FLOPs over the bytes of A (n, k), B (k, m) and C (n, m)."""

    def operands(n: int, m: int, k: int, width: int) -> int:
        return (n * k + k * m) * width

    def all_bytes(n: int, m: int, k: int, width: int) -> int:
        return operands(n, m, k, width) + n * m * width

    expect_function(
        answer,
        lambda n, m, k, width: 2 * n * m * k / all_bytes(n, m, k, width),
        {"(64, 128) @ (128, 48) in float32": (64, 48, 128, 4), "1024 × 1024 matrices in float16": (1024, 1024, 1024, 2)},
        mistakes={
            "one-flop-a-multiply-add": (
                lambda n, m, k, width: n * m * k / all_bytes(n, m, k, width),
                "A multiply-add is two operations, by the convention that vendors and the roofline use.",
            ),
            "result-not-counted": (
                lambda n, m, k, width: 2 * n * m * k / operands(n, m, k, width),
                "The operands are read, and the result has to be written as well.",
            ),
            "elements-instead-of-bytes": (
                lambda n, m, k, width: 2 * n * m * k / all_bytes(n, m, k, 1),
                "You divided by elements. How many bytes does each have?",
            ),
            "upside-down": (
                lambda n, m, k, width: all_bytes(n, m, k, width) / (2 * n * m * k),
                "Intensity is FLOPs per byte; yours is bytes per FLOP.",
            ),
            "only-the-result": (lambda n, m, k, width: 2 * n * m * k / (n * m * width), "Reading A and B moves bytes too."),
        },
    )
