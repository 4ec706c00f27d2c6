"""Answers to `embedding-backward`: the gradient of a table from that of the rows that were looked up."""

import numpy as np
import torch
from edited_source import wrong_answers
from torch.nn import functional as F


def solution(ids, grad_output, vocabulary, padding_idx=None):
    d = grad_output.shape[-1]
    table = grad_output.new_zeros(vocabulary, d)
    table.index_add_(0, ids.flatten(), grad_output.reshape(-1, d))
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def by_loops(ids, grad_output, vocabulary, padding_idx=None):
    table = torch.zeros(vocabulary, grad_output.shape[-1], dtype=grad_output.dtype)
    for i, row in zip(ids.flatten().tolist(), grad_output.reshape(-1, grad_output.shape[-1]), strict=True):
        if i != padding_idx:
            table[i] += row
    return table


def by_autograd(ids, grad_output, vocabulary, padding_idx=None):
    table = torch.zeros(vocabulary, grad_output.shape[-1], dtype=grad_output.dtype, requires_grad=True)
    F.embedding(ids, table, padding_idx=padding_idx).backward(grad_output)
    return table.grad


def by_one_hot(ids, grad_output, vocabulary, padding_idx=None):
    vectors = F.one_hot(ids.flatten().long(), vocabulary).to(grad_output.dtype)
    table = vectors.T @ grad_output.reshape(-1, grad_output.shape[-1])
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def by_a_mask_of_numpy(ids, grad_output, vocabulary, padding_idx=None):
    read = ids.numpy().reshape(-1)[:, None] == np.arange(vocabulary)
    rows = grad_output.reshape(-1, grad_output.shape[-1]).numpy()
    table = torch.from_numpy(np.stack([rows[read[:, word]].sum(0) for word in range(vocabulary)]))
    return by_mask(table, padding_idx)


def by_torchs_backward(ids, grad_output, vocabulary, padding_idx=None):
    padding = -1 if padding_idx is None else padding_idx
    return torch.ops.aten.embedding_dense_backward(grad_output, ids, vocabulary, padding, False)


def by_running_sums(ids, grad_output, vocabulary, padding_idx=None):
    """A row's sum as a difference of sums over all rows before, in which a small gradient next to a large one is lost."""
    order = ids.flatten().argsort(stable=True)
    ends = ids.flatten().bincount(minlength=vocabulary).cumsum(0)
    rows = grad_output.reshape(-1, grad_output.shape[-1])
    sums = torch.cat([rows.new_zeros(1, rows.shape[-1]), rows[order].cumsum(0)])
    return by_mask(sums[ends].diff(dim=0, prepend=sums[:1]), padding_idx)


NEW = "grad_output.new_zeros(vocabulary, d)"
ADD = "table.index_add_(0, ids.flatten(), grad_output.reshape(-1, d))"
COUNTS = "ids.flatten().bincount(minlength=vocabulary).clamp(min=1)[:, None]"
PADDED = "if padding_idx is not None"
CLEAR = "table[padding_idx] = 0"
END = "return table"

WRONG = [
    *wrong_answers(
        solution,
        [
            ("repeats-not-summed", (END, f"return table / {COUNTS}.sqrt()")),
            (
                "several-dimensions",  # sets the rows of each sequence at once
                (ADD, "for i, rows in zip(ids, grad_output):\n        table[i.long()] = table[i.long()] + rows"),
            ),
            ("several-dimensions", (ADD, "table.index_add_(0, ids, grad_output)")),
            ("wrong-with-padding", (CLEAR, "table[:padding_idx] = 0")),
            ("row-read-once", (PADDED, "if padding_idx is None:\n        table[-1] = 0\n    else")),
            ("other-number-of-rows", (END, "return grad_output")),
            ("unseen-row-not-0", (END, "return table + 1")),
            ("another-dtype", (NEW, "torch.zeros(vocabulary, d)")),
        ],
    ),
    ("row-read-once", by_running_sums),
    ("uses-autograd", by_autograd),
    ("uses-autograd", by_torchs_backward),
    ("one-hot-in-memory", by_one_hot),
    ("one-hot-in-memory", by_a_mask_of_numpy),
    ("no-ids", lambda ids, grad, *more: solution(ids, grad, *more) if ids.numel() else grad),
    ("wrong-shape", lambda *given: solution(*given).T),
    ("another-dtype", lambda ids, grad, *more: solution(ids, grad.float(), *more).to(grad.dtype)),
]


def by_scatter(ids, grad_output, vocabulary, padding_idx=None):
    d = grad_output.shape[-1]
    index = ids.reshape(-1, 1).long().expand(-1, d)
    table = torch.zeros(vocabulary, d, dtype=grad_output.dtype).scatter_add(0, index, grad_output.reshape(-1, d))
    return table if padding_idx is None else table.index_fill(0, torch.tensor(padding_idx), 0)


def by_index_put(ids, grad_output, vocabulary, padding_idx=None):
    table = torch.zeros(vocabulary, grad_output.size(-1)).to(grad_output)
    kept = torch.ones(ids.shape, dtype=torch.bool) if padding_idx is None else ids != padding_idx
    return table.index_put_((ids[kept].long(),), grad_output[kept], accumulate=True)


def by_sparse_tensor(ids, grad_output, vocabulary, padding_idx=None):
    d = grad_output.shape[-1]
    with torch.sparse.check_sparse_tensor_invariants(False):
        rows = torch.sparse_coo_tensor(ids.reshape(1, -1).long(), grad_output.reshape(-1, d), (vocabulary, d))
    return by_mask(rows.to_dense(), padding_idx)


def by_mask(table, padding_idx):
    kept = torch.arange(len(table)) != (-1 if padding_idx is None else padding_idx)
    return table * kept[:, None]


def by_masks_of_words(ids, grad_output, vocabulary, padding_idx=None):
    rows = [grad_output[ids == word].sum(0) * (word != padding_idx) for word in range(vocabulary)]
    return torch.stack(rows)


def by_sorting(ids, grad_output, vocabulary, padding_idx=None):
    d = grad_output.shape[-1]
    order = ids.flatten().argsort(stable=True)
    ends = torch.searchsorted(ids.flatten()[order].long(), torch.arange(vocabulary), right=True)
    sums = torch.cat([grad_output.new_zeros(1, d, dtype=torch.float64), grad_output.reshape(-1, d)[order].double().cumsum(0)])
    table = sums[ends].diff(dim=0, prepend=sums[:1]).to(grad_output.dtype)
    return by_mask(table, padding_idx)


def by_a_sparse_product(ids, grad_output, vocabulary, padding_idx=None):
    n = ids.numel()
    places = torch.stack([ids.flatten().long(), torch.arange(n)])
    read = torch.sparse_coo_tensor(places, torch.ones(n, dtype=grad_output.dtype), (vocabulary, n))
    return by_mask(torch.sparse.mm(read, grad_output.reshape(-1, grad_output.shape[-1])), padding_idx)


def sparse_as_that_of_the_layer(ids, grad_output, vocabulary, padding_idx=None):
    rows = by_mask_of_rows(grad_output, ids, padding_idx).reshape(-1, grad_output.shape[-1])
    return torch.sparse_coo_tensor(ids.reshape(1, -1), rows, (vocabulary, rows.shape[-1]))


def by_mask_of_rows(rows, ids, padding_idx):
    return rows if padding_idx is None else rows * (ids != padding_idx)[..., None]


ALSO_RIGHT = [
    by_loops,
    by_scatter,
    by_index_put,
    by_sparse_tensor,
    by_masks_of_words,
    by_sorting,
    by_a_sparse_product,
    sparse_as_that_of_the_layer,
]
