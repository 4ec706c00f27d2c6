"""Answers to `cost-of-a-sparse-step`: weights and two moments, of all rows or of the distinct words' rows."""


def solution(words, vocabulary, dim):
    return 3 * vocabulary * dim, 3 * len(set(words)) * dim


def with_repeats(words, vocabulary, dim):
    return 3 * vocabulary * dim, 3 * len(words) * dim


def weights_only(words, vocabulary, dim):
    return vocabulary * dim, len(set(words)) * dim


def moments_only(words, vocabulary, dim):
    return 2 * vocabulary * dim, 2 * len(set(words)) * dim


def dense_moments(words, vocabulary, dim):
    return 3 * vocabulary * dim, (2 * vocabulary + len(set(words))) * dim


def rows_only(words, vocabulary, dim):
    return 3 * vocabulary, 3 * len(set(words))


def swapped(words, vocabulary, dim):
    return 3 * len(set(words)) * dim, 3 * vocabulary * dim


def all_dense(words, vocabulary, dim):
    return 3 * vocabulary * dim, 3 * vocabulary * dim


def squared(words, vocabulary, dim):
    return vocabulary * dim**2, len(set(words)) * dim**2


def nothing(words, vocabulary, dim):
    solution(words, vocabulary, dim)


WRONG = [
    ("counts-repeats", with_repeats),
    ("forgets-the-moments", weights_only),
    ("forgets-the-weights", moments_only),
    ("moments-stay-dense", dense_moments),
    ("rows-not-numbers", rows_only),
    ("swapped", swapped),
    ("both-dense", all_dense),
    ("wrong-value", squared),
    ("returns-nothing", nothing),
]
