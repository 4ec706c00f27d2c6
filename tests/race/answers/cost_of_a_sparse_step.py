"""Answers to `cost-of-a-sparse-step`: weights and two moments, of all rows or of the distinct words' rows."""

import numpy as np
import torch


def solution(words, vocabulary, dim):
    return 3 * vocabulary * dim, 3 * len(set(words)) * dim


def counting(dense, sparse):
    """A wrong count, from the vocabulary, dim, the number of words and of distinct words."""
    return lambda words, vocabulary, dim: tuple(
        count(vocabulary, dim, len(words), len(set(words))) for count in (dense, sparse)
    )


WRONG = [
    ("wrong-value", lambda words, vocabulary, dim: (vocabulary * dim**2, len(set(words)) * dim**2)),
    ("sparse-alone", counting(lambda v, d, n, u: 3 * v * d, lambda v, d, n, u: 3 * v * u * d)),
    ("sparse-alone", lambda words, vocabulary, dim: (3 * vocabulary * dim, 3 * (max(words) - min(words) + 1) * dim)),
    ("dense-alone", counting(lambda v, d, n, u: 3 * n * d, lambda v, d, n, u: 3 * u * d)),
    ("dense-alone", counting(lambda v, d, n, u: int(np.float32(3 * d) * np.float32(v)), lambda v, d, n, u: 3 * d * u)),
    ("sparse-alone", lambda words, vocabulary, dim: (3 * vocabulary * dim, 3 * max(len(set(words)), 1) * dim)),
    ("wrong-type", lambda words, vocabulary, dim: 3 * len(set(words)) * dim),
]


def with_torch(words, vocabulary, dim):
    return torch.tensor([vocabulary, torch.tensor(words).unique().numel()]) * 3 * dim


def by_tables(words, vocabulary, dim):
    written = torch.zeros(3, vocabulary, dim, dtype=torch.bool)
    dense = written.numel()
    written[:, words] = True
    return dense, written.sum()


ALSO_RIGHT = [with_torch, by_tables]
