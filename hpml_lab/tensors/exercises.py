"""The checks of notebook 01's exercises."""

from collections.abc import Callable

import numpy as np
import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function, expect_keys_and_type, expect_no_loop
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
    answer = expect_keys_and_type(answer, truth, bool, "True (shares memory) or False (has memory of its own)")
    wrong = {text for text in truth if answer[text] != truth[text]}
    if len(wrong) == len(truth):
        raise Mistake(
            "all-reversed", "Each one is wrong: True means that the expression shares memory, and needs none of its own."
        )
    for name, (texts, hint) in VIEW_OR_COPY_MISTAKES.items():
        if wrong & texts:
            raise Mistake(name, f"{min(wrong & texts)}: {hint}{_others(wrong - texts)}")


def _others(wrong: set[str]) -> str:
    return f" ({len(wrong)} more {'is' if len(wrong) == 1 else 'are'} wrong, too.)" if wrong else ""


@exercise("outer-sum", notebook=NOTEBOOK)
def judge_outer_sum(answer: Callable) -> None:
    """table[i, j] = a[i] + b[j] by broadcasting."""
    vectors = {
        "a = [1, 2, 3], b = [10, 20]": ([1.0, 2.0, 3.0], [10.0, 20.0]),
        "a = [1, 2], b = [10, 20]": ([1.0, 2.0], [10.0, 20.0]),
        "a = [4, 0], b = [5, 6]": ([4.0, 0.0], [5.0, 6.0]),  # of the same lengths as the last
        "a = [0.5, -1.25], b = [0.3, 0.1, 0.4, 0.2]": ([0.5, -1.25], [0.3, 0.1, 0.4, 0.2]),
        "a = [7], b = [1, 2, 3] (integers)": ([7], [1, 2, 3]),
    }
    expect_function(
        answer,
        lambda a, b: a[:, None] + b[None, :],
        {case: (torch.tensor(a), torch.tensor(b)) for case, (a, b) in vectors.items()},
        mistakes={
            "transposed": (
                lambda a, b: a + b[:, None],
                "Your table has a along the columns. Row i belongs to a[i]: which operand needs the new last axis?",
            ),
            "flattened": (
                lambda a, b: (a[:, None] + b).flatten(),
                "The numbers are right, but they form a single line: keep the two axes.",
            ),
            "transposed, reshaped": (
                lambda a, b: (a + b[:, None]).reshape(len(a), len(b)),
                "The shape is right, but a runs along the rows of memory: reshape does not exchange axes.",
            ),
            "product": (lambda a, b: torch.outer(a, b), "torch.outer multiplies; here the entries are added."),
            "swapped-sign": (lambda a, b: a[:, None] - b, "The entries are sums, not differences."),
            "swapped-sign, of a": (lambda a, b: b - a[:, None], "The entries are sums, not differences."),
            "b-missing": (lambda a, b: a[:, None].expand(-1, len(b)), "Each row is a[i] alone: b was not added."),
            "a-missing": (lambda a, b: b.expand(len(a), -1), "Each row is b alone: a was not added."),
            "integers": (lambda a, b: (a[:, None] + b).int(), "Your table has lost the fractions: keep the type of a and b."),
        },
        errors={
            "at non-singleton dimension 0": (
                "no-new-axis",
                "Your operands do not broadcast; a is (3,), b (2,). Which shapes would give (3, 2)? Add an axis of length 1.",
            )
        },
    )
    few, many = ((torch.ones(n), torch.ones(m)) for n, m in ((3, 4), (40, 41)))
    expect_no_loop(answer, few, many, more=37, over="elements", hint="Broadcasting adds all of them in one operation.")


@exercise("standardize", notebook=NOTEBOOK)
def judge_standardize(answer: Callable) -> None:
    """(x - mean) / standard deviation of each column, with the deviation's sum divided by N."""
    x = torch.tensor([[1.0, 10.0, 5.0], [2.0, 20.0, 1.0], [4.0, 60.0, 3.0], [9.0, 30.0, 0.0]])
    cases = {
        "a batch of 4 samples with 3 features": (x,),
        "3 samples with 3 features": (x[1:],),  # nothing raises here if rows and columns are mixed up
        "4 samples whose features have the sizes 0.001, 1 and 1000": (x * torch.tensor([1e-3, 1.0, 1e3]),),
        "6 samples with 2 features": (torch.cat([x[:3, :2], x[:3, 1:]]) ** 2,),
    }
    errors = {"must match the size": ("no-keepdim", _NO_KEEPDIM)}
    expect_function(answer, _centered_by(0, _deviation(0)), cases, tolerance=1e-5, mistakes=STANDARDISE_MISTAKES, errors=errors)


def _deviation(correction: int, axis: int = 0) -> Callable:
    return lambda x: x.std(axis, correction=correction, keepdim=True)


def _centered_by(axis: int, divisor: Callable) -> Callable:
    """(x - its mean along an axis) / divisor(x)."""
    return lambda x: (x - x.mean(axis, keepdim=True)) / divisor(x)


_NO_KEEPDIM = "A mean over the last axis has shape (4,), which does not fit (4, 3). Over which axis are columns averaged?"
_BY_ROWS = "You standardized each sample. Each feature, a column, needs its own mean: reduce over the samples."
_ONE_FOR_ALL = "You took one mean over the whole batch. Features have different scales: take one mean per column."
_ONE_DEVIATION = "Each column has mean 0, but you divided all by one deviation: each column needs its own."
_EPS = "You add a small number to the divisor, as layers of nets do against a deviation of 0. The formula here has none."
_SAMPLE = "By default, torch's std divides by N - 1; here the sum is divided by N. Look for `correction` in its documentation."

STANDARDISE_MISTAKES: dict[str, tuple[Callable, str]] = {
    "rows-instead-of-columns": (_centered_by(1, _deviation(0, 1)), _BY_ROWS),
    "rows-instead-of-columns, by N - 1": (_centered_by(1, _deviation(1, 1)), _BY_ROWS),
    "one-mean-for-all": (lambda x: (x - x.mean()) / x.std(correction=0), _ONE_FOR_ALL),
    "one-mean-for-all, by N - 1": (lambda x: (x - x.mean()) / x.std(), _ONE_FOR_ALL),
    "one-mean-for-all, not one deviation": (lambda x: (x - x.mean()) / x.std(0, correction=0), _ONE_FOR_ALL),
    "one-deviation-for-all": (_centered_by(0, lambda x: x.std(correction=0)), _ONE_DEVIATION),
    "one-deviation-for-all, by N - 1": (_centered_by(0, lambda x: x.std()), _ONE_DEVIATION),
    "sample-deviation": (_centered_by(0, _deviation(1)), _SAMPLE),
    "variance-instead-of-deviation": (
        _centered_by(0, lambda x: x.var(0, correction=0)),
        "You divided by the variance; its square root is the standard deviation, in the units of x.",
    ),
    "variance-instead-of-deviation, by N - 1": (
        _centered_by(0, lambda x: x.var(0)),
        "You divided by the variance (and by N - 1 in it); its square root is the standard deviation, in the units of x.",
    ),
    "multiplied": (
        lambda x: (x - x.mean(0)) * x.std(0, correction=0),
        "You multiplied by the deviation: wide columns become wider.",
    ),
    "not-centred": (lambda x: x / x.std(0, correction=0), "The columns have deviation 1, but their mean is not 0 yet."),
    "not-scaled": (_centered_by(0, lambda x: 1.0), "The columns have mean 0, but their deviation is not 1 yet."),
    "wrong-sign": (lambda x: (x.mean(0) - x) / x.std(0, correction=0), "The right size with the wrong sign: x - μ, not μ - x."),
    "parentheses-missing": (
        lambda x: x - x.mean(0) / x.std(0, correction=0),
        "Only the mean was divided by the deviation: x - μ belongs in parentheses.",
    ),
    "norm-instead-of-deviation": (
        _centered_by(0, lambda x: (x - x.mean(0)).norm(dim=0)),
        "You divided by the root of the sum of squares. The deviation is the root of their mean: where is 1/N?",
    ),
    "root-mean-square": (
        _centered_by(0, lambda x: (x * x).mean(0).sqrt()),
        "The squares under the root are those of x. The deviation squares x - μ.",
    ),
    "mean-distance": (
        _centered_by(0, lambda x: (x - x.mean(0)).abs().mean(0)),
        "You divided by the mean distance from μ. The standard deviation squares the distances first.",
    ),
    "scaled-to-the-range": (
        lambda x: (x - x.amin(0)) / (x.amax(0) - x.amin(0)),
        "That puts each column between 0 and 1. Here it is the mean that becomes 0, and the deviation that becomes 1.",
    ),
    "sum-for-mean": (
        lambda x: (x - x.sum(0)) / x.std(0, correction=0),
        "You subtracted the sum of the column; its mean is the sum over N.",
    ),
    **{
        f"eps-added, {eps} to the {what}": (_centered_by(0, lambda x, eps=eps, of=of: of(x, eps)), _EPS)
        for eps in (1e-3, 1e-5, 1e-6)
        for what, of in {
            "variance": lambda x, eps: (x.var(0, correction=0) + eps).sqrt(),
            "deviation": lambda x, eps: x.std(0, correction=0) + eps,
        }.items()
    },
    "untouched": (lambda x: x, "x comes back as it was."),
}


@exercise("matmul-intensity", notebook=NOTEBOOK)
def judge_matmul_intensity(answer: Callable) -> None:
    """2 n m k FLOPs over the bytes of A (n, k), B (k, m) and C (n, m)."""

    def operands(n: int, m: int, k: int, width: int) -> int:
        return (n * k + k * m) * width

    def all_bytes(n: int, m: int, k: int, width: int) -> int:
        return operands(n, m, k, width) + n * m * width

    cases = {
        "(64, 128) @ (128, 48) in float32": (64, 48, 128, 4),
        "1024 × 1024 matrices in float16": (1024, 1024, 1024, 2),
        "(3, 7) @ (7, 5) in float64": (3, 5, 7, 8),
        "(200, 1) @ (1, 30) in int8": (200, 30, 1, 1),
    }

    def right(n: int, m: int, k: int, width: int) -> float:
        return 2 * n * m * k / all_bytes(n, m, k, width)

    expect_function(
        answer,
        right,
        cases,
        mistakes={
            "one-flop-a-multiply-add": (
                lambda *sizes: right(*sizes) / 2,
                "A multiply-add is two operations, by the convention that vendors and the roofline use.",
            ),
            "result-not-counted": (
                lambda n, m, k, width: 2 * n * m * k / operands(n, m, k, width),
                "The operands are read, and the result has to be written as well.",
            ),
            "result-read-too": (
                lambda n, m, k, width: 2 * n * m * k / (all_bytes(n, m, k, width) + n * m * width),
                "You count C twice. It has to be written once; nothing of it must be read.",
            ),
            "elements-instead-of-bytes": (
                lambda *sizes: right(*sizes[:3], 1),
                "You divided by elements. How many bytes does each have?",
            ),
            "width-ignored": (lambda *sizes: right(*sizes[:3], 4), "You take 4 bytes per number, whatever `width` is."),
            "bits": (lambda *sizes: right(*sizes) / 8, "`width` is in bytes already: no factor 8."),
            "upside-down": (lambda *sizes: 1 / right(*sizes), "Intensity is FLOPs per byte; yours is bytes per FLOP."),
            "only-the-result": (lambda n, m, k, width: 2 * n * m * k / (n * m * width), "Reading A and B moves bytes too."),
            "first-addition-left-out": (
                lambda n, m, k, width: n * m * (2 * k - 1) / all_bytes(n, m, k, width),
                "k products need only k - 1 additions, that is true; but by convention a product of matrices counts "
                "k multiply-adds of two FLOPs for each entry.",
            ),
            "rounded-down": (lambda *sizes: int(right(*sizes)), "Your division drops the fraction: // or int()."),
            "rounded": (lambda *sizes: round(right(*sizes)), "Right but rounded: return the number as it is."),
            "parentheses-missing": (
                lambda n, m, k, width: 2 * n * m * k / (n * k + k * m + n * m) * width,
                "a / b * c is (a / b) · c: the bytes, width included, belong in parentheses.",
            ),
            "parentheses-missing, in the sum": (
                lambda n, m, k, width: 2 * n * m * k / (width * n * k + k * m + n * m),
                "`width` multiplies only one of the three matrices: put their elements in parentheses.",
            ),
            "parentheses-missing, after the sum": (
                lambda n, m, k, width: 2 * n * m * k / (n * k + k * m + n * m * width),
                "`width` multiplies only one of the three matrices: put their elements in parentheses.",
            ),
            "nothing-reused": (
                lambda n, m, k, width: 2 * n * m * k / (width * (2 * n * m * k + n * m)),
                "You read both operands anew for each multiply-add. At least, each number is read once and then reused.",
            ),
            "k-missing": (
                lambda n, m, k, width: 2 * n * m / all_bytes(n, m, k, width),
                "You count one multiply-add for each entry of C. Each of them is a sum over k products.",
            ),
            "flops-alone": (lambda n, m, k, width: 2 * n * m * k, "These are the FLOPs. Intensity is FLOPs per byte."),
            "bytes-alone": (all_bytes, "These are the bytes. Intensity is FLOPs per byte."),
            "square-only": (
                lambda n, m, k, width: 2 * n / (3 * width),
                "Right only for square matrices: count the elements of A, B and C by n, m and k.",
            ),
        },
    )
