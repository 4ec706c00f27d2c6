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


BOTH = "return stored, rows * columns - most"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("more-zeros-than-elements", (BOTH, "return stored, (rows * columns - most) * 8")),
            ("wrong-order", (BOTH, "return rows * columns - most, stored")),
        ],
    ),
    ("share-not-a-number", with_zeros(lambda w, i: limit(w, i) / w.numel())),
    ("not-a-whole-number", with_zeros(lambda w, i: math.nan)),
    ("not-enough-zeros", with_zeros(lambda w, i: w.numel() // 3)),
    ("more-zeros-than-needed", with_zeros(lambda w, i: w.numel())),
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


ALSO_RIGHT = [by_torch, by_numpy, by_scipy, by_a_loop, by_bisection]
