"""Answers to `embedding-backward`: the gradient of a table from that of the rows that were looked up."""

from collections import defaultdict

import numpy as np
import torch
from torch.nn import functional as F


def solution(ids, grad_output, vocabulary, padding_idx=None):
    d = grad_output.shape[-1]
    table = grad_output.new_zeros(vocabulary, d)
    table.index_add_(0, ids.flatten(), grad_output.reshape(-1, d))
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def overwrites(ids, grad_output, vocabulary, padding_idx=None):
    table = grad_output.new_zeros(vocabulary, grad_output.shape[-1])
    table[ids.long()] = grad_output
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def adds_by_indexing(ids, grad_output, vocabulary, padding_idx=None):
    table = grad_output.new_zeros(vocabulary, grad_output.shape[-1])
    table[ids.long()] += grad_output
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def mean(ids, grad_output, vocabulary, padding_idx=None):
    count = torch.bincount(ids.flatten(), minlength=vocabulary).clamp(min=1)
    return solution(ids, grad_output, vocabulary, padding_idx) / count[:, None]


def mean_by_masks(ids, grad_output, vocabulary, padding_idx=None):
    rows = [grad_output[ids == word].mean(0) for word in range(vocabulary)]
    table = torch.stack(rows)
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def no_padding(ids, grad_output, vocabulary, padding_idx=None):
    return solution(ids, grad_output, vocabulary)


def falsy_padding(ids, grad_output, vocabulary, padding_idx=None):
    table = solution(ids, grad_output, vocabulary)
    if padding_idx:
        table[padding_idx] = 0
    return table


def zero_is_padding(ids, grad_output, vocabulary, padding_idx=0):
    return solution(ids, grad_output, vocabulary, padding_idx)


def batch_mean(ids, grad_output, vocabulary, padding_idx=None):
    return solution(ids, grad_output, vocabulary, padding_idx) / max(len(ids), 1)


def by_position(ids, grad_output, vocabulary, padding_idx=None):
    rows = grad_output.reshape(-1, grad_output.shape[-1])
    table = rows.new_zeros(vocabulary, rows.shape[1])
    table[: len(rows)] = rows[:vocabulary]
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def by_rank(ids, grad_output, vocabulary, padding_idx=None):
    _, index = torch.unique(ids, return_inverse=True)
    return solution(index, grad_output, vocabulary, padding_idx)


def seen_only(ids, grad_output, vocabulary, padding_idx=None):
    return solution(ids, grad_output, vocabulary, padding_idx)[ids.unique().long()]


def ends_early(ids, grad_output, vocabulary, padding_idx=None):
    last = int(ids.max()) + 1 if ids.numel() else 0
    return solution(ids, grad_output, vocabulary, padding_idx)[:last]


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


def by_numpys_eye(ids, grad_output, vocabulary, padding_idx=None):
    rows = grad_output.numpy().reshape(-1, grad_output.shape[-1])
    table = np.eye(vocabulary)[ids.numpy().ravel()].T @ rows
    if padding_idx is not None:
        table[padding_idx] = 0
    return table.astype(rows.dtype)


def clears_the_input(ids, grad_output, vocabulary, padding_idx=None):
    if padding_idx is not None:
        grad_output[ids == padding_idx] = 0
    return solution(ids, grad_output, vocabulary)


def in_float32(ids, grad_output, vocabulary, padding_idx=None):
    d = grad_output.shape[-1]
    table = torch.zeros(vocabulary, d)
    table.index_add_(0, ids.flatten(), grad_output.reshape(-1, d))
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def in_float32_by_loops(ids, grad_output, vocabulary, padding_idx=None):
    table = torch.zeros(vocabulary, grad_output.shape[-1])
    for i, row in zip(ids.flatten(), grad_output.reshape(-1, grad_output.shape[-1]), strict=True):
        if i != padding_idx:
            table[i] += row
    return table


def another_reshape(ids, grad_output, vocabulary, padding_idx=None):
    d = grad_output.shape[-1]
    return solution(ids.flatten(), grad_output.reshape(d, -1).T.contiguous(), vocabulary, padding_idx)


def first_sequence(ids, grad_output, vocabulary, padding_idx=None):
    if ids.ndim > 1:
        ids, grad_output = ids[0], grad_output[0]
    return solution(ids, grad_output, vocabulary, padding_idx)


def counts(ids, grad_output, vocabulary, padding_idx=None):
    return solution(ids, torch.ones_like(grad_output), vocabulary, padding_idx)


def nothing(ids, grad_output, vocabulary, padding_idx=None):
    solution(ids, grad_output, vocabulary, padding_idx)


def mean_and_no_padding(ids, grad_output, vocabulary, padding_idx=None):
    return mean(ids, grad_output, vocabulary)


def ones_for_unseen(ids, grad_output, vocabulary, padding_idx=None):
    return solution(ids, grad_output, vocabulary, padding_idx) + 1


def without_the_padding_row(ids, grad_output, vocabulary, padding_idx=None):
    table = solution(ids, grad_output, vocabulary)
    return table if padding_idx is None else torch.cat([table[:padding_idx], table[padding_idx + 1 :]])


def clears_up_to_the_padding(ids, grad_output, vocabulary, padding_idx=None):
    table = solution(ids, grad_output, vocabulary)
    if padding_idx is not None:
        table[:padding_idx] = 0
    return table


def last_dimension_in_turn(ids, grad_output, vocabulary, padding_idx=None):
    """Sets the rows of each sequence at once."""
    table = grad_output.new_zeros(vocabulary, grad_output.shape[-1])
    for i, rows in zip(ids, grad_output, strict=True):
        table[i.long()] = table[i.long()] + rows
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def largest_of_repeats(ids, grad_output, vocabulary, padding_idx=None):
    d = grad_output.shape[-1]
    index = ids.flatten().long()[:, None].expand(-1, d)
    table = grad_output.new_zeros(vocabulary, d)
    table.scatter_reduce_(0, index, grad_output.reshape(-1, d), "amax", include_self=False)
    return by_mask(table, padding_idx)


def by_a_mask_of_numpy(ids, grad_output, vocabulary, padding_idx=None):
    read = ids.numpy().reshape(-1)[:, None] == np.arange(vocabulary)
    rows = grad_output.reshape(-1, grad_output.shape[-1]).numpy()
    table = torch.from_numpy(np.stack([rows[read[:, word]].sum(0) for word in range(vocabulary)]))
    return by_mask(table, padding_idx)


def by_torchs_backward(ids, grad_output, vocabulary, padding_idx=None):
    padding = -1 if padding_idx is None else padding_idx
    return torch.ops.aten.embedding_dense_backward(grad_output, ids, vocabulary, padding, False)


def for_one_dimension(ids, grad_output, vocabulary, padding_idx=None):
    table = grad_output.new_zeros(vocabulary, grad_output.shape[-1])
    return by_mask(table.index_add_(0, ids, grad_output), padding_idx)


def lists_of_one_hot_vectors(ids, grad_output, vocabulary, padding_idx=None):
    vectors = [[float(i == word) for word in range(vocabulary)] for i in ids.flatten().tolist()]
    table = torch.tensor(vectors, dtype=grad_output.dtype).T @ grad_output.reshape(-1, grad_output.shape[-1])
    return by_mask(table, padding_idx)


def column_of_padding(ids, grad_output, vocabulary, padding_idx=None):
    table = solution(ids, grad_output, vocabulary)
    if padding_idx is not None:
        table[:, padding_idx] = 0
    return table


WRONG = [
    ("repeated-ids-overwritten", overwrites),
    ("repeated-ids-overwritten", adds_by_indexing),
    ("mean-over-repeats", mean),
    ("mean-over-repeats", mean_by_masks),
    ("mean-over-repeats", mean_and_no_padding),
    ("padding-ignored", no_padding),
    ("padding-0-missed", falsy_padding),
    ("row-0-always-padding", zero_is_padding),
    ("divided-by-the-batch", batch_mean),
    ("divided-by-the-batch", lambda i, g, v, p=None: solution(i, g, v, p) / max(i.numel(), 1)),
    ("rows-by-position", by_position),
    ("rows-by-rank", by_rank),
    ("only-seen-rows", seen_only),
    ("table-ends-early", ends_early),
    ("transposed", lambda *given: solution(*given).T),
    ("summed-over-the-width", lambda *given: solution(*given).sum(1)),
    ("looked-up-again", lambda *given: solution(*given)[given[0].long()]),
    ("uses-autograd", by_autograd),
    ("one-hot-in-memory", by_one_hot),
    ("one-hot-in-memory", by_numpys_eye),
    ("inputs-changed", clears_the_input),
    ("another-dtype", in_float32),
    ("another-dtype", in_float32_by_loops),
    ("flattened-in-another-order", another_reshape),
    ("first-sequence-only", first_sequence),
    ("counts-not-gradients", counts),
    ("wrong-sign", lambda *given: -solution(*given)),
    ("returns-nothing", nothing),
    ("unseen-row-not-0", ones_for_unseen),
    ("other-number-of-rows", without_the_padding_row),
    ("wrong-with-padding", clears_up_to_the_padding),
    ("several-dimensions", last_dimension_in_turn),
    ("repeats-not-summed", largest_of_repeats),
    ("row-read-once", lambda ids, grad_output, *more: solution(ids, grad_output.abs(), *more)),
    ("other-number-of-rows", lambda *given: given[1]),
    ("one-hot-in-memory", by_a_mask_of_numpy),
    ("uses-autograd", by_torchs_backward),
    ("several-dimensions", for_one_dimension),
    ("no-ids", lists_of_one_hot_vectors),
    ("wrong-with-padding", column_of_padding),
    ("divided-by-the-batch", lambda i, g, v, p=None: solution(i, g, v, p) / i.numel()),
    ("row-read-once", lambda i, g, v, p=None: solution(i, g, v, -1 if p is None else p)),
]


def by_loops(ids, grad_output, vocabulary, padding_idx=None):
    table = torch.zeros(vocabulary, grad_output.shape[-1], dtype=grad_output.dtype)
    for i, row in zip(ids.flatten().tolist(), grad_output.reshape(-1, grad_output.shape[-1]), strict=True):
        if i != padding_idx:
            table[i] += row
    return table


def by_scatter(ids, grad_output, vocabulary, padding_idx=None):
    d = grad_output.shape[-1]
    index = ids.reshape(-1, 1).long().expand(-1, d)
    table = torch.zeros(vocabulary, d, dtype=grad_output.dtype).scatter_add(0, index, grad_output.reshape(-1, d))
    return table if padding_idx is None else table.index_fill(0, torch.tensor(padding_idx), 0)


def by_index_put(ids, grad_output, vocabulary, padding_idx=None):
    table = torch.zeros(vocabulary, grad_output.size(-1)).to(grad_output)
    kept = torch.ones(ids.shape, dtype=torch.bool) if padding_idx is None else ids != padding_idx
    return table.index_put_((ids[kept].long(),), grad_output[kept], accumulate=True)


def by_numpy(ids, grad_output, vocabulary, padding_idx=None):
    table = np.zeros((vocabulary, grad_output.shape[-1]), dtype=grad_output.numpy().dtype)
    np.add.at(table, ids.numpy(), grad_output.numpy())
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


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


def by_dictionary(ids, grad_output, vocabulary, padding_idx=None):
    d = grad_output.shape[-1]
    found = defaultdict(lambda: [0.0] * d)
    for i, row in zip(ids.flatten().tolist(), grad_output.reshape(-1, d).tolist(), strict=True):
        found[i] = [a + b for a, b in zip(found[i], row, strict=True)]
    found.pop(padding_idx, None)
    return [found.get(word, [0.0] * d) for word in range(vocabulary)]


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
    by_numpy,
    by_sparse_tensor,
    by_masks_of_words,
    by_dictionary,
    by_sorting,
    by_a_sparse_product,
    sparse_as_that_of_the_layer,
]


def into_the_same_table(ids, grad_output, vocabulary, padding_idx=None, tables={}):  # noqa: B006
    key = vocabulary, grad_output.shape[-1], grad_output.dtype
    table = tables.setdefault(key, solution(ids, 0 * grad_output, vocabulary))
    table += solution(ids, grad_output, vocabulary, padding_idx)
    return table


def small_ones_dropped(*given):
    table = solution(*given)
    return torch.where(table.abs() < 1e-6, 0.0, table).to(table.dtype)


WRONG += [
    ("remembers-calls", into_the_same_table),
    ("row-read-once", small_ones_dropped),
    ("row-read-once", lambda *given: solution(*given).clamp(-10, 10)),
    ("another-dtype", lambda ids, grad, *more: solution(ids, grad.float(), *more).to(grad.dtype)),
    ("row-read-once", lambda ids, grad, *more: solution(ids, grad.half(), *more).to(grad.dtype)),
]
