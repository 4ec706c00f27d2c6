"""A matrix of which many elements are zero: which elements are kept, what stores them, and how many bytes that takes.

weight = largest(torch.randn(1024, 1024), 0.9)   # nine of ten elements are 0 now, and it takes as many bytes as before
matrix = FORMATS["CSR"].store(weight)            # matrix @ x, as weight @ x
stored_bytes(matrix), FORMATS["CSR"].bytes(1024, 1024, weight.count_nonzero().item())
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.sparse import to_sparse_semi_structured

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.warned import collect_warnings

BLOCK = 32  # rows and columns of a block in BSR
VALUE = 4  # bytes of a float32

# ---- which elements are kept -----------------------------------------------------------------------------------------


def largest(weight: Tensor, sparsity: float) -> Tensor:
    """A copy in which the share `sparsity` of all elements, those of smallest size, is 0."""
    _check(weight, sparsity)
    kept = max(1, round(weight.numel() * (1 - sparsity)))
    mask = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
    mask[weight.abs().flatten().topk(kept, sorted=False).indices] = True  # as many as that, also where sizes are equal
    return weight.where(mask.view(weight.shape), 0)


def largest_blocks(weight: Tensor, sparsity: float, block: int = BLOCK) -> Tensor:
    """A copy in which the share `sparsity` of all square blocks, those of smallest norm, is 0."""
    _check(weight, sparsity)
    rows, columns = weight.shape
    if rows % block or columns % block:
        raise LabError(
            f"{rows} × {columns} elements are not whole blocks of {block} × {block}.",
            f"Use numbers of rows and columns that {block} divides, or another block.",
        )
    blocks = weight.reshape(rows // block, block, columns // block, block)
    norms = blocks.square().sum((1, 3))
    kept = largest(norms, sparsity) > 0
    return blocks.where(kept[:, None, :, None], 0).reshape(rows, columns)


def largest_rows(weight: Tensor, sparsity: float) -> Tensor:
    """A copy in which the share `sparsity` of all rows, those of smallest norm, is 0."""
    _check(weight, sparsity)
    norms = weight.square().sum(1, keepdim=True)
    return weight.where(largest(norms, sparsity) > 0, 0)


def two_of_four(weight: Tensor) -> Tensor:
    """A copy in which, of every four elements next to each other in a row, the two of smallest size are 0."""
    _check(weight, 0.5)
    if weight.shape[1] % 4:
        raise LabError(f"rows of {weight.shape[1]} elements are not whole groups of four.", "Use a multiple of 4 columns.")
    groups = weight.reshape(-1, 4)
    mask = torch.zeros_like(groups, dtype=torch.bool).scatter_(1, groups.abs().topk(2, dim=1).indices, True)
    return groups.where(mask, 0).reshape(weight.shape)


def _check(weight: Tensor, sparsity: float) -> None:
    if weight.ndim != 2 or not weight.numel():
        raise LabError(
            f"a matrix is needed, and this has the shape {tuple(weight.shape)}.", "Flatten a convolution: flatten(1)."
        )
    if not 0 <= sparsity < 1:
        raise LabError(f"{sparsity} is not a valid sparsity.", "Give the share of zeros, from 0 to below 1: 0.9 for 90 %.")
    if not weight.isfinite().all():
        raise LabError("the matrix holds NaN or infinity, which have no order of size.", "Look where the training diverged.")


# ---- what stores them ------------------------------------------------------------------------------------------------


def csr(weight: Tensor, index: torch.dtype = torch.int64) -> Tensor:
    """The matrix as values, their column indices, and for each row where it begins (and where the last one ends)."""
    with collect_warnings():  # torch says once that the format is in beta
        made = weight.to_sparse_csr()
        return torch.sparse_csr_tensor(
            made.crow_indices().to(index), made.col_indices().to(index), made.values(), made.shape, check_invariants=True
        )


def bsr(weight: Tensor, block: int = BLOCK) -> Tensor:
    """CSR of blocks: every block that is not all zeros is stored whole, with one index."""
    with collect_warnings():
        return weight.to_sparse_bsr((block, block))


def without_zero_rows(weight: Tensor) -> Tensor:
    """A smaller dense matrix: the rows that are not all zeros."""
    return weight[weight.any(1)].contiguous()


def semi_structured(weight: Tensor) -> Tensor:
    """The two kept of every four, and two bits each that say which. RuntimeError without a CUDA GPU that computes with it."""
    with collect_warnings():  # torch says once that it is a prototype
        return to_sparse_semi_structured(weight.contiguous())


def searched(weight: Tensor, x: Tensor) -> Tensor:
    """The same, for products with x: it multiplies by the algorithm of cuSPARSELt that was fastest at weight @ x.

    Without a search torch takes algorithm 0 whatever the shape, while a heuristic chooses one for the dense product.
    `alg_id_cusparselt` of the result is its number.
    """
    matrix = semi_structured(weight)
    with collect_warnings():  # deprecated for a name that older versions of torch do not have
        matrix.alg_id_cusparselt = torch._cslt_sparse_mm_search(matrix.packed, x)
    return matrix


def stored_bytes(matrix: Tensor) -> int:
    """The bytes of all tensors that a matrix, dense or in one of these formats, consists of."""
    if matrix.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [matrix.values(), matrix.crow_indices(), matrix.col_indices()]
    elif isinstance(matrix, torch.sparse.SparseSemiStructuredTensor):
        parts = [part for part in (matrix.packed, matrix.meta) if part is not None]
    else:
        parts = [matrix]
    return sum(part.nbytes for part in parts)


# ---- bytes by formula ------------------------------------------------------------------------------------------------


def dense_bytes(rows: int, columns: int, kept: int = 0, value: int = VALUE) -> int:
    """Zeros take as much as any other number, however many elements are kept."""
    return rows * columns * value


def kept_bytes(rows: int, columns: int, kept: int, value: int = VALUE) -> int:
    """Whole rows taken out: what is left is dense, and needs no index."""
    return kept * value


def coo_bytes(rows: int, columns: int, kept: int, value: int = VALUE, index: int = 8) -> int:
    """A value, its row and its column."""
    return kept * (value + 2 * index)


def csr_bytes(rows: int, columns: int, kept: int, value: int = VALUE, index: int = 8) -> int:
    """A value and its column; and one pointer for each row, and one for the end."""
    return kept * (value + index) + (rows + 1) * index


def csr_int32_bytes(rows: int, columns: int, kept: int, value: int = VALUE) -> int:
    return csr_bytes(rows, columns, kept, value, index=4)


def bsr_bytes(rows: int, columns: int, kept: int, value: int = VALUE, block: int = BLOCK, index: int = 8) -> int:
    """CSR's formula for the blocks, with `block`² values each."""
    return kept * value + kept // block**2 * index + (rows // block + 1) * index


def two_of_four_bytes(rows: int, columns: int, kept: int, value: int = 2) -> int:
    """The kept half, and two bits for each of its elements."""
    return kept * value + kept // 4


@dataclass(frozen=True)
class SparseFormat:
    """A way to use zeros: which elements are kept, what stores them, and the bytes (rows, columns, kept elements, value)."""

    prune: Callable[[Tensor, float], Tensor]
    store: Callable[[Tensor], Any]
    bytes: Callable[..., int]


ZEROS, CSR, BSR, ROWS, SEMI = "dense with zeros", "CSR", f"BSR, {BLOCK} × {BLOCK}", "rows taken out", "2:4"
SEARCHED = "2:4, algorithm searched"
FORMATS = {
    ZEROS: SparseFormat(largest, lambda weight: weight, dense_bytes),
    CSR: SparseFormat(largest, csr, csr_bytes),
    BSR: SparseFormat(largest_blocks, bsr, bsr_bytes),
    ROWS: SparseFormat(largest_rows, without_zero_rows, kept_bytes),
}
SEMI_STRUCTURED = SparseFormat(lambda weight, sparsity: two_of_four(weight), semi_structured, two_of_four_bytes)


def most_kept(formula: Callable[..., int], rows: int, columns: int, value: int = VALUE) -> int:
    """How many elements may be kept at most, so that a format takes fewer bytes than the dense matrix."""
    dense, low, high = dense_bytes(rows, columns, value=value), -1, rows * columns
    while low < high:  # the bytes grow with what is kept
        middle = (low + high + 1) // 2
        low, high = (middle, high) if formula(rows, columns, middle, value) < dense else (low, middle - 1)
    if low < 0:
        raise LabError(f"even without any element, {rows} × {columns} are not smaller in this format.", "Keep it dense.")
    return low
