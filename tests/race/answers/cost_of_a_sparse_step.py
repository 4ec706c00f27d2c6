"""Answers to `cost-of-a-sparse-step`: weights and two moments, of all rows or of the distinct words' rows."""

import numpy as np
import torch


def solution(words, vocabulary, dim):
    return 3 * vocabulary * dim, 3 * len(set(words)) * dim


def moments_only(words, vocabulary, dim):
    return 2 * vocabulary * dim, 2 * len(set(words)) * dim


def dense_moments(words, vocabulary, dim):
    return 3 * vocabulary * dim, (2 * vocabulary + len(set(words))) * dim


def swapped(words, vocabulary, dim):
    return 3 * len(set(words)) * dim, 3 * vocabulary * dim


def squared(words, vocabulary, dim):
    return vocabulary * dim**2, len(set(words)) * dim**2


def nothing(words, vocabulary, dim):
    solution(words, vocabulary, dim)


def counting(dense, sparse):
    """A wrong count, from the vocabulary, dim, the number of words and of distinct words."""
    return lambda words, vocabulary, dim: tuple(
        count(vocabulary, dim, len(words), len(set(words))) for count in (dense, sparse)
    )


def one_number(words, vocabulary, dim):
    return 3 * len(set(words)) * dim


def once_only(words, vocabulary, dim):
    return 3 * vocabulary * dim, 3 * dim * sum(words.count(word) == 1 for word in words)


WRONG = [
    ("forgets-the-weights", moments_only),
    ("moments-stay-dense", dense_moments),
    ("swapped", swapped),
    ("wrong-value", squared),
    ("returns-nothing", nothing),
    ("counts-the-gradient", counting(lambda v, d, n, u: 4 * v * d, lambda v, d, n, u: 4 * u * d)),
    ("forgets-the-weights", counting(lambda v, d, n, u: 2 * v * d, lambda v, d, n, u: 2 * u * d + 0 * n)),
    ("weights-stay-dense", counting(lambda v, d, n, u: 3 * v * d, lambda v, d, n, u: (v + 2 * u) * d)),
    ("only-the-weights-are-sparse", counting(lambda v, d, n, u: 3 * v * d, lambda v, d, n, u: u * d)),
    ("forgets-dim", counting(lambda v, d, n, u: 3 * v * d, lambda v, d, n, u: 3 * u)),
    ("forgets-dim-of-the-dense", counting(lambda v, d, n, u: 3 * v, lambda v, d, n, u: 3 * u * d)),
    ("bytes-not-numbers", counting(lambda v, d, n, u: 12 * v * d, lambda v, d, n, u: 12 * u * d)),
    ("counts-indices", counting(lambda v, d, n, u: 3 * v * d, lambda v, d, n, u: 3 * u * d + u)),
    ("wrong-type", counting(lambda v, d, n, u: 3 * v * d, lambda v, d, n, u: u / v)),
    ("weights-alone-with-repeats", counting(lambda v, d, n, u: v * d, lambda v, d, n, u: n * d)),
    ("wrong-type", one_number),
    ("sparse-alone", counting(lambda v, d, n, u: 3 * v * d, lambda v, d, n, u: 3 * v * u * d)),
    ("sparse-alone", lambda words, vocabulary, dim: (3 * vocabulary * dim, 3 * (max(words) - min(words) + 1) * dim)),
    ("dense-alone", counting(lambda v, d, n, u: 3 * n * d, lambda v, d, n, u: 3 * u * d)),
    ("absent-words-counted", counting(lambda v, d, n, u: 3 * v * d, lambda v, d, n, u: 3 * (v - u) * d)),
    ("repeated-words-left-out", once_only),
]


def with_numpy(words, vocabulary, dim):
    return np.array([3 * vocabulary * dim, 3 * np.unique(words).size * dim])


def with_torch(words, vocabulary, dim):
    return torch.tensor([vocabulary, torch.tensor(words).unique().numel()]) * 3 * dim


def by_tables(words, vocabulary, dim):
    written = torch.zeros(3, vocabulary, dim, dtype=torch.bool)
    dense = written.numel()
    written[:, words] = True
    return dense, written.sum()


ALSO_RIGHT = [with_numpy, with_torch, by_tables]

WRONG += [
    (
        "dense-alone",
        lambda words, vocabulary, dim: (int(np.float32(3 * dim) * np.float32(vocabulary)), 3 * dim * len(set(words))),
    )
]


WRONG += [  # right numbers in another kind than the exercise asks for
]
