"""Answers to `csr-bytes`: the bytes of a matrix in CSR, and the fewest zeros with which they are fewer than the dense ones."""

import math

import numpy as np
import torch
from edited_source import wrong_answers


def solution(weight, index_dtype):
    rows, columns = weight.shape
    value, index = weight.element_size(), index_dtype.itemsize
    nonzeros = int((weight != 0).sum())
    stored = nonzeros * (value + index) + (rows + 1) * index
    most = (rows * columns * value - 1 - (rows + 1) * index) // (value + index)  # elements that may be kept
    return stored, rows * columns - most


def with_zeros(count):
    """The solution with another number of zeros of (weight, bytes of an index)."""
    return lambda weight, index_dtype: (solution(weight, index_dtype)[0], count(weight, index_dtype.itemsize))


def limit(weight, index, pointers=1):
    """The share of the formula, n·value = kept·(value + index) + (rows + 1)·index, solved for the zeros, not rounded."""
    value = weight.element_size()
    kept = (weight.numel() * value - pointers * (weight.shape[0] + 1) * index) / (value + index)
    return weight.numel() - kept


def from_torch_always_int64(weight, index_dtype):
    csr = weight.to_sparse_csr()
    parts = csr.values(), csr.col_indices(), csr.crow_indices()
    return sum(part.nbytes for part in parts), solution(weight, index_dtype)[1]


def changes_the_matrix(weight, index_dtype):
    found = solution(weight, index_dtype)
    weight[weight.abs() > 5] = 0
    return found


def kept_by_shape(weight, index_dtype, known={}):  # noqa: B006
    return known.setdefault((weight.shape, weight.dtype, index_dtype), solution(weight, index_dtype))


STORED, POINTERS = "stored = nonzeros * (value + index) + (rows + 1) * index", "(rows + 1) * index"
NONZERO, COUNT = "weight != 0", "int((weight != 0).sum())"
VALUE, INDEX, EACH = "weight.element_size()", "index_dtype.itemsize", "(value + index)"
BOTH = "return stored, rows * columns - most"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("counts-the-zeros", (NONZERO, "weight == 0")),
            ("negatives-not-counted", (NONZERO, "weight > 0")),
            ("fractions-cut-off", (NONZERO, "weight.int() != 0")),
            ("small-ones-not-counted", (NONZERO, "weight.half() != 0")),
            ("small-ones-not-counted", (NONZERO, "weight.abs() > 1e-6")),
            ("coordinates-counted", (COUNT, "weight.nonzero().numel()")),
            ("zeros-counted", (COUNT, "weight.numel()")),
            ("wrong-value", (COUNT, "int(weight.sign().abs().half().sum())")),
            ("values-of-4-bytes", (VALUE, "4")),
            ("indices-of-8-bytes", (INDEX, "8")),
            ("indices-of-4-bytes", (INDEX, "4")),
            ("twelve-bytes-always", (VALUE, "4"), (INDEX, "8")),
            ("row-pointers-forgotten", (POINTERS, "0")),
            ("one-pointer-missing", (POINTERS, "rows * index")),
            ("pointers-of-columns", (POINTERS, "(columns + 1) * index")),
            ("rows-and-pointers", (EACH, "(value + 2 * index)")),
            ("two-pointers-per-row", (STORED, "stored = nonzeros * (value + index) + 2 * rows * index")),
            ("one-pointer-missing", (STORED, "stored = nonzeros * (value + 8) + rows * 8")),
            ("indices-like-values", (STORED, "stored = (2 * nonzeros + rows + 1) * value")),
            ("values-of-8-bytes", (STORED, f"stored = nonzeros * (8 + index) + {POINTERS}")),
            ("values-not-bytes", (STORED, f"stored = nonzeros * (1 + index) + {POINTERS}")),
            ("columns-of-4-bytes", (STORED, f"stored = nonzeros * (value + 4) + {POINTERS}")),
            ("wrong-value", (STORED, f"stored = nonzeros * (value + index + 1) + {POINTERS}")),
            ("columns-forgotten", (STORED, f"stored = nonzeros * value + {POINTERS}")),
            ("values-forgotten", (STORED, f"stored = nonzeros * index + {POINTERS}")),
            ("coo", (STORED, "stored = nonzeros * (value + 2 * index)")),
            ("pointers-of-8-bytes", (STORED, "stored = nonzeros * (value + index) + (rows + 1) * 8")),
            ("pointers-of-4-bytes", (STORED, "stored = nonzeros * (value + index) + (rows + 1) * 4")),
            ("pointers-of-full-rows-only", (STORED, f"stored = nonzeros * {EACH} + (int(weight.any(1).sum()) + 1) * index")),
            ("dense-bytes", (STORED, "stored = weight.nbytes")),
            ("bits", (BOTH, "return 8 * stored, rows * columns - most")),
            ("wrong-unit", (BOTH, "return stored / 1000, rows * columns - most")),
            ("saved-not-stored", (BOTH, "return weight.nbytes - stored, rows * columns - most")),
            ("equal-is-not-fewer", ("value - 1 -", "value -")),
            ("coo", (f"{POINTERS}) // {EACH}", f"{POINTERS}) // (value + 2 * index)")),
            ("kept-not-zeros", (BOTH, "return stored, most")),
            ("one-too-many", (BOTH, "return stored, rows * columns - most + 1")),
            ("share-not-a-number", (BOTH, "return stored, (rows * columns - most) / weight.numel()")),
            ("more-zeros-than-elements", (BOTH, "return stored, (rows * columns - most) * 8")),
            ("missing-zeros", (BOTH, "return stored, max(0, nonzeros - most)")),
            ("wrong-order", (BOTH, "return rows * columns - most, stored")),
            ("not-two-numbers", (BOTH, "return stored")),
            ("not-two-numbers", (BOTH, 'return f"{stored / 1e6:.1f} MB"')),
            ("returns-nothing", (BOTH, "")),
        ],
    ),
    ("rounded-down", with_zeros(lambda w, i: math.floor(limit(w, i)))),
    ("not-a-whole-number", with_zeros(limit)),
    ("row-pointers-forgotten", with_zeros(lambda w, i: math.ceil(limit(w, i, pointers=0)))),
    ("row-pointers-forgotten", with_zeros(lambda w, i: math.floor(limit(w, i, pointers=0)) + 1)),
    ("row-pointers-forgotten", with_zeros(lambda w, i: w.numel() * i / (w.element_size() + i))),
    ("two-thirds-always", with_zeros(lambda w, i: math.ceil(w.numel() * 2 / 3))),
    ("share-not-a-number", with_zeros(lambda w, i: 2 / 3)),
    ("zeros-of-this-matrix", with_zeros(lambda w, i: int((w == 0).sum()))),
    ("not-enough-zeros", with_zeros(lambda w, i: w.numel() // 3)),
    ("more-zeros-than-needed", with_zeros(lambda w, i: w.numel())),
    ("more-zeros-than-needed", with_zeros(lambda w, i: math.ceil(limit(w, i)) + 1)),
    ("twelve-bytes-always", lambda w, index: (int((w != 0).sum()) * 12, 2 * w.numel() // 3)),
    ("twelve-bytes-always", lambda w, index: (int((w != 0).sum()) * 12 + 8 * len(w), 2 * w.numel() // 3)),
    ("indices-of-8-bytes", from_torch_always_int64),
    ("inputs-changed", changes_the_matrix),
    ("remembers-calls", kept_by_shape),
    ("raises", lambda w, index: (w.nnz() * 12, 0)),
]


def by_torch(weight, index_dtype):
    csr = weight.to_sparse_csr()
    crow, col = csr.crow_indices().to(index_dtype), csr.col_indices().to(index_dtype)
    kept = weight.numel()
    while kept * (weight.element_size() + crow.element_size()) + crow.nbytes >= weight.numel() * weight.element_size():
        kept -= 1
    return csr.values().nbytes + crow.nbytes + col.nbytes, weight.numel() - kept


def by_numpy(weight, index_dtype):
    values = weight.float().numpy()
    value, index = weight.dtype.itemsize, torch.iinfo(index_dtype).bits // 8
    pointers = np.concatenate([[0], np.cumsum((values != 0).sum(axis=1))])
    zeros = np.arange(values.size + 1)
    sizes = (values.size - zeros) * (value + index) + len(pointers) * index
    return np.array([pointers[-1] * (value + index) + len(pointers) * index, zeros[sizes < values.size * value][0]])


def by_scipy(weight, index_dtype):
    from scipy.sparse import csr_array

    index = {torch.int32: np.int32, torch.int64: np.int64}[index_dtype]
    made = csr_array(weight.float().numpy())
    values = len(made.data) * weight.element_size()
    stored = values + made.indices.astype(index).nbytes + made.indptr.astype(index).nbytes
    return [stored, math.floor(limit(weight, np.dtype(index).itemsize)) + 1]


def by_a_loop(weight, index_dtype):
    total = index_dtype.itemsize
    for row in weight.tolist():
        total += index_dtype.itemsize
        for element in row:
            if element:
                total += index_dtype.itemsize + weight.element_size()
    dense, zeros = weight.numel() * weight.element_size(), 0
    pointers = (len(weight) + 1) * index_dtype.itemsize
    while pointers + (weight.numel() - zeros) * (weight.element_size() + index_dtype.itemsize) >= dense:
        zeros += 1
    return total, zeros


def as_tensors(weight, index_dtype):
    return torch.tensor(solution(weight, index_dtype))


def as_floats(weight, index_dtype):
    return tuple(float(number) for number in solution(weight, index_dtype))


def by_bisection(weight, index_dtype):
    import bisect

    value, index = weight.element_size(), index_dtype.itemsize
    pointers = (weight.size(0) + 1) * index
    smaller = bisect.bisect_left(
        range(weight.numel() + 1),
        True,
        key=lambda zeros: (weight.numel() - zeros) * (value + index) + pointers < weight.numel() * value,
    )
    return len(weight.nonzero()) * (value + index) + pointers, smaller


ALSO_RIGHT = [by_torch, by_numpy, by_scipy, by_a_loop, as_tensors, as_floats, by_bisection]


WRONG += [
    ("not-a-whole-number", lambda weight, index_dtype, number=number: (solution(weight, index_dtype)[0], number))
    for number in (math.inf, math.nan)
]
