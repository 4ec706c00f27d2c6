"""Answers to `standardise`."""


def solution(x):
    return (x - x.mean(0)) / x.std(0, correction=0)


def no_keepdim(x):
    return (x - x.mean(1)) / x.std(1, correction=0)


def by_rows(x):
    return (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True)


def one_mean(x):
    return (x - x.mean()) / x.std(correction=0)


def sample_deviation(x):
    return (x - x.mean(0)) / x.std(0)


def variance(x):
    return (x - x.mean(0)) / x.var(0, correction=0)


def not_centred(x):
    return x / x.std(0, correction=0)


def not_scaled(x):
    return x - x.mean(0)


def in_place(x):
    x -= x.mean(0)
    x /= x.std(0, correction=0)
    return x


def misspelt(x):
    return (x - x.men(0)) / x.std(0)


WRONG = [
    ("no-keepdim", no_keepdim),
    ("rows-instead-of-columns", by_rows),
    ("one-mean-for-all", one_mean),
    ("sample-deviation", sample_deviation),
    ("variance-instead-of-deviation", variance),
    ("not-centred", not_centred),
    ("not-scaled", not_scaled),
    ("inputs-changed", in_place),
    ("raises", misspelt),
]
