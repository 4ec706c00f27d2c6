"""Answers to `csr-bytes`: the bytes of a matrix in CSR, and the fewest zeros with which they are fewer than the dense ones."""

import math

import numpy as np
import torch


def solution(weight, index_dtype):
    rows, columns = weight.shape
    value, index = weight.element_size(), index_dtype.itemsize
    nonzeros = int((weight != 0).sum())
    stored = nonzeros * (value + index) + (rows + 1) * index
    most = (rows * columns * value - 1 - (rows + 1) * index) // (value + index)  # elements that may be kept
    return stored, rows * columns - most


def with_bytes(count):
    """The solution with another number of bytes of (weight, bytes of an index)."""
    return lambda weight, index_dtype: (count(weight, index_dtype.itemsize), solution(weight, index_dtype)[1])


def with_zeros(count):
    """The solution with another number of zeros of (weight, bytes of an index)."""
    return lambda weight, index_dtype: (solution(weight, index_dtype)[0], count(weight, index_dtype.itemsize))


def nnz(weight):
    return int((weight != 0).sum())


def limit(weight, index, pointers=1):
    """The share of the formula, n·value = kept·(value + index) + (rows + 1)·index, solved for the zeros, not rounded."""
    value = weight.element_size()
    kept = (weight.numel() * value - pointers * (weight.shape[0] + 1) * index) / (value + index)
    return weight.numel() - kept


def consistent(nonzeros=nnz, value=None, index=None, pointers=lambda w: w.shape[0] + 1, indices=1):
    """A wrong formula, used for both numbers."""

    def answer(weight, index_dtype):
        v, i = value or weight.element_size(), index or index_dtype.itemsize

        def size(kept):
            return kept * (v + indices * i) + pointers(weight) * i

        zeros = next(z for z in range(weight.numel() + 1) if size(weight.numel() - z) < weight.numel() * v)
        return size(nonzeros(weight)), zeros

    return answer


def from_torch_always_int64(weight, index_dtype):
    csr = weight.to_sparse_csr()
    parts = csr.values(), csr.col_indices(), csr.crow_indices()
    return sum(part.nbytes for part in parts), solution(weight, index_dtype)[1]


def changes_the_matrix(weight, index_dtype):
    found = solution(weight, index_dtype)
    weight[weight.abs() > 5] = 0
    return found


def further_zeros(weight, index_dtype):
    stored, zeros = solution(weight, index_dtype)
    return stored, max(0, zeros - int((weight == 0).sum()))


WRONG = [
    ("missing-zeros", further_zeros),
    ("more-zeros-than-elements", lambda w, i: (solution(w, i)[0], solution(w, i)[1] * 8)),
    ("fractions-cut-off", with_bytes(lambda w, i: nnz(w.int()) * (w.element_size() + i) + (w.shape[0] + 1) * i)),
    ("coordinates-counted", with_bytes(lambda w, i: w.nonzero().numel() * (w.element_size() + i) + (w.shape[0] + 1) * i)),
    ("row-pointers-forgotten", consistent(pointers=lambda w: 0)),
    ("one-pointer-missing", consistent(pointers=lambda w: w.shape[0])),
    ("pointers-of-columns", consistent(pointers=lambda w: w.shape[1] + 1)),
    ("two-pointers-per-row", with_bytes(lambda w, i: nnz(w) * (w.element_size() + i) + 2 * w.shape[0] * i)),
    ("indices-of-8-bytes", consistent(index=8)),
    ("indices-of-8-bytes", from_torch_always_int64),
    ("indices-of-4-bytes", consistent(index=4)),
    ("indices-like-values", with_bytes(lambda w, i: (2 * nnz(w) + w.shape[0] + 1) * w.element_size())),
    ("values-of-4-bytes", consistent(value=4)),
    ("values-of-8-bytes", with_bytes(lambda w, i: nnz(w) * (8 + i) + (w.shape[0] + 1) * i)),
    ("zeros-counted", with_bytes(lambda w, i: w.numel() * (w.element_size() + i) + (w.shape[0] + 1) * i)),
    ("counts-the-zeros", consistent(nonzeros=lambda w: int((w == 0).sum()))),
    ("negatives-not-counted", consistent(nonzeros=lambda w: int((w > 0).sum()))),
    ("coo", with_bytes(lambda w, i: nnz(w) * (w.element_size() + 2 * i))),
    ("rows-and-pointers", consistent(indices=2)),
    ("columns-forgotten", with_bytes(lambda w, i: nnz(w) * w.element_size() + (w.shape[0] + 1) * i)),
    ("values-forgotten", with_bytes(lambda w, i: nnz(w) * i + (w.shape[0] + 1) * i)),
    ("pointers-of-8-bytes", with_bytes(lambda w, i: nnz(w) * (w.element_size() + i) + (w.shape[0] + 1) * 8)),
    ("pointers-of-full-rows-only", with_bytes(lambda w, i: nnz(w) * (w.element_size() + i) + (int(w.any(1).sum()) + 1) * i)),
    ("dense-bytes", with_bytes(lambda w, i: w.nbytes)),
    ("values-not-bytes", with_bytes(lambda w, i: nnz(w) * (1 + i) + (w.shape[0] + 1) * i)),
    ("one-pointer-missing", with_bytes(lambda w, i: nnz(w) * (w.element_size() + 8) + w.shape[0] * 8)),
    ("bits", lambda w, index: (8 * solution(w, index)[0], solution(w, index)[1])),
    ("wrong-unit", lambda w, index: (solution(w, index)[0] / 1000, solution(w, index)[1])),
    ("saved-not-stored", lambda w, index: (w.nbytes - solution(w, index)[0], solution(w, index)[1])),
    ("equal-is-not-fewer", with_zeros(lambda w, i: math.ceil(limit(w, i)))),
    ("rounded-down", with_zeros(lambda w, i: math.floor(limit(w, i)))),
    ("not-a-whole-number", with_zeros(limit)),
    ("row-pointers-forgotten", with_zeros(lambda w, i: math.ceil(limit(w, i, pointers=0)))),
    ("row-pointers-forgotten", with_zeros(lambda w, i: math.floor(limit(w, i, pointers=0)) + 1)),
    ("two-thirds-always", with_zeros(lambda w, i: math.ceil(w.numel() * 2 / 3))),
    ("share-not-a-number", with_zeros(lambda w, i: (math.floor(limit(w, i)) + 1) / w.numel())),
    ("kept-not-zeros", with_zeros(lambda w, i: w.numel() - math.floor(limit(w, i)) - 1)),
    ("zeros-of-this-matrix", with_zeros(lambda w, i: int((w == 0).sum()))),
    ("one-too-many", with_zeros(lambda w, i: math.floor(limit(w, i)) + 2)),
    ("twelve-bytes-always", consistent(value=4, index=8)),
    ("twelve-bytes-always", lambda w, index: (nnz(w) * 12, 2 * w.numel() // 3)),
    ("twelve-bytes-always", lambda w, index: (nnz(w) * 12 + 8 * len(w), 2 * w.numel() // 3)),
    ("pointers-of-4-bytes", with_bytes(lambda w, i: nnz(w) * (w.element_size() + i) + (w.shape[0] + 1) * 4)),
    ("columns-of-4-bytes", with_bytes(lambda w, i: nnz(w) * (w.element_size() + 4) + (w.shape[0] + 1) * i)),
    ("share-not-a-number", with_zeros(lambda w, i: 2 / 3)),
    ("row-pointers-forgotten", with_zeros(lambda w, i: w.numel() * i / (w.element_size() + i))),
    ("not-enough-zeros", with_zeros(lambda w, i: w.numel() // 3)),
    ("more-zeros-than-needed", with_zeros(lambda w, i: w.numel())),
    ("more-zeros-than-needed", with_zeros(lambda w, i: math.ceil(limit(w, i)) + 1)),
    ("coo", with_zeros(lambda w, i: w.numel() - (w.nbytes - (w.shape[0] + 1) * i - 1) // (w.element_size() + 2 * i))),
    ("wrong-order", lambda w, index: solution(w, index)[::-1]),
    ("not-two-numbers", lambda w, index: solution(w, index)[0]),
    ("not-two-numbers", lambda w, index: f"{solution(w, index)[0] / 1e6:.1f} MB"),
    ("returns-nothing", lambda w, index: None),
    ("inputs-changed", changes_the_matrix),
    ("wrong-value", with_bytes(lambda w, i: nnz(w) * (w.element_size() + i + 1) + (w.shape[0] + 1) * i)),
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


def kept_by_shape(weight, index_dtype, known={}):  # noqa: B006
    return known.setdefault((weight.shape, weight.dtype, index_dtype), solution(weight, index_dtype))


WRONG += [
    ("remembers-calls", kept_by_shape),
    ("small-ones-not-counted", lambda w, index: solution(w.half().to(w.dtype), index)),
    ("small-ones-not-counted", lambda w, index: solution(torch.where(w.abs() > 1e-6, w, 0).to(w.dtype), index)),
    ("wrong-value", with_bytes(lambda w, i: int(w.sign().abs().half().sum()) * (w.element_size() + i) + (len(w) + 1) * i)),
]
