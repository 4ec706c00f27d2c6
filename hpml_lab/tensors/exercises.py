"""The checks of notebook 01's exercises."""

import numpy as np
import torch

from hpml_lab.core.exercises import Mistake, exercise, expect, same
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


@exercise("view-or-copy", notebook=NOTEBOOK)
def judge_view_or_copy(answer: dict[str, bool]) -> None:
    """True for each expression that shares memory with x (or with the array a)."""
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = torch.from_numpy(a)
    truth = {text: shares_memory(eval(text, {"x": x, "a": a, "torch": torch}), x) for text in VIEW_OR_COPY}
    if not isinstance(answer, dict) or set(answer) != set(truth):
        raise Mistake("wrong-keys", f"Keep the dictionary's keys as they were: {', '.join(truth)}.")
    if not all(isinstance(value, bool) for value in answer.values()):
        raise Mistake("not-booleans", "Each value is True (shares memory) or False (has memory of its own).")
    wrong = {text for text in truth if answer[text] != truth[text]}
    known = {
        "list-of-indices-as-view": (
            {"x[[0, 2]]"},
            "Rows 0 and 2 fit a stride, but torch does not look: a list could say [0, 2, 0].",
        ),
        "slices-copy": (
            {"x[:, 1]"},
            "A slice needs no new memory: a start and a stride find every element. Try x[:, 1] += 1 and look at x.",
        ),
        "transpose-copies": ({"x.T"}, "Swapping the two strides is all that a transpose does."),
        "reshape-always-copies": (
            {"x.reshape(12)"},
            "When the elements already lie in the new order, reshape only changes shape and strides.",
        ),
        "reshape-never-copies": (
            {"x.T.reshape(12)"},
            "Can one stride walk through x.T in its own order? Write down the places in memory.",
        ),
        "to-always-copies": ({"x.to(torch.float32)"}, "What does .to do when the tensor already has that dtype and device?"),
        "numpy-mixed-up": (
            {"torch.from_numpy(a)", "torch.tensor(a)"},
            "One of the two borrows the array's memory and the other copies it: change a and look.",
        ),
    }
    for name, (texts, hint) in known.items():
        if wrong and wrong <= texts:
            raise Mistake(name, hint)
    if wrong:
        raise Mistake(
            "several-wrong",
            f"{len(wrong)} of {len(truth)} are wrong; write through each and see whether x changes. One is {sorted(wrong)[0]}.",
        )


@exercise("outer-sum", notebook=NOTEBOOK)
def judge_outer_sum(answer) -> None:
    """table[i, j] = a[i] + b[j] by broadcasting."""
    a, b = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 20.0])
    right, kept = a[:, None] + b[None, :], (a.clone(), b.clone())
    try:
        got = answer(a, b)
    except RuntimeError as error:
        if "must match the size" in str(error):
            raise Mistake(
                "no-new-axis", "Shapes (3,) and (2,) do not broadcast. Which shapes would give (3, 2)? Add an axis of length 1."
            ) from error
        raise
    expect(
        got,
        right,
        case="a = [1, 2, 3], b = [10, 20]",
        mistakes={
            "transposed": (
                right.T,
                "Your table has a along the columns. Row i belongs to a[i]: which operand needs the new last axis?",
            ),
            "flattened": (right.flatten(), "The numbers are right, but they stand in a line: keep the two axes."),
            "product": (torch.outer(*kept), "torch.outer multiplies; here the entries are added."),
            "swapped-sign": (kept[0][:, None] - kept[1], "The entries are sums, not differences."),
        },
    )
    if not (same(a, kept[0]) and same(b, kept[1])):
        raise Mistake("inputs-changed", "The table is right, but your function changed a or b on the way: write a new tensor.")
    square = answer(torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]))
    expect(square, torch.tensor([[11.0, 21.0], [12.0, 22.0]]), case="a = [1, 2], b = [10, 20]")


@exercise("standardise", notebook=NOTEBOOK)
def judge_standardise(answer) -> None:
    """(x - mean) / standard deviation of each column, with the deviation's sum divided by N."""
    x = torch.tensor([[1.0, 10.0, 5.0], [2.0, 20.0, 1.0], [4.0, 60.0, 3.0], [9.0, 30.0, 0.0]])
    kept = x.clone()

    def scaled(mean, deviation):
        return (kept - mean) / deviation

    mean, deviation = kept.mean(0), kept.std(0, correction=0)
    row_mean, row_deviation = kept.mean(1, keepdim=True), kept.std(1, correction=0, keepdim=True)
    try:
        got = answer(x)
    except RuntimeError as error:
        if "must match the size" in str(error):
            raise Mistake(
                "no-keepdim",
                "A mean over the last axis has shape (4,), which does not line up with (4, "
                "3). First: over which axis are columns averaged?",
            ) from error
        raise
    expect(
        got,
        scaled(mean, deviation),
        case="a batch of 4 samples with 3 features",
        tolerance=1e-5,
        mistakes={
            "rows-instead-of-columns": (
                scaled(row_mean, row_deviation),
                "You standardised each sample. Each feature, a column, needs its own mean: reduce over the samples.",
            ),
            "one-mean-for-all": (
                scaled(kept.mean(), kept.std(correction=0)),
                "You took one mean over the whole batch. Features have different scales: one mean a column.",
            ),
            "sample-deviation": (
                scaled(mean, kept.std(0)),
                "torch's std divides by N - 1 by itself; here the sum is "
                "divided by N. Look for `correction` in its documentation.",
            ),
            "variance-instead-of-deviation": (
                scaled(mean, deviation**2),
                "You divided by the variance: its root has the units of x.",
            ),
            "not-centred": (kept / deviation, "The columns have deviation 1, but their mean is not 0 yet."),
            "not-scaled": (kept - mean, "The columns have mean 0, but their deviation is not 1 yet."),
        },
    )
    if not same(x, kept):
        raise Mistake(
            "inputs-changed", "The result is right, but x itself was changed: in-place operations reach the caller's tensor."
        )


@exercise("matmul-intensity", notebook=NOTEBOOK)
def judge_matmul_intensity(answer) -> None:
    """2 n m k FLOPs over the bytes of A (n, k), B (k, m) and C (n, m)."""
    n, m, k, width = 64, 48, 128, 4
    read, written = (n * k + k * m) * width, n * m * width
    flops = 2 * n * m * k
    expect(
        answer(n, m, k, width),
        flops / (read + written),
        case="(64, 128) @ (128, 48) in float32",
        mistakes={
            "one-flop-a-multiply-add": (
                flops / 2 / (read + written),
                "A multiply-add is two operations, by the convention that vendors and the roofline use.",
            ),
            "result-not-counted": (flops / read, "The operands are read, and the result has to be written as well."),
            "elements-instead-of-bytes": (
                flops / ((read + written) / width),
                "You divided by elements. How many bytes is one?",
            ),
            "upside-down": ((read + written) / flops, "Intensity is FLOPs per byte; yours is bytes per FLOP."),
            "only-the-result": (flops / written, "Reading A and B costs bytes too."),
        },
    )
    expect(answer(1024, 1024, 1024, 2), 2 * 1024 / (3 * 2), case="1024 × 1024 matrices in float16")
