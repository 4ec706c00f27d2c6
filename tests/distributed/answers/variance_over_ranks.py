"""Answers to `variance-over-ranks`: (variance, unbiased variance) of all values, from counts, means and variances by rank."""

from fractions import Fraction

import numpy as np
import torch


def solution(counts, means, variances):
    n = counts.sum()
    weights = counts[:, None]
    mean = (weights * means).sum(0) / n
    m2 = (weights * (variances + (means - mean) ** 2)).sum(0)
    return m2 / n, m2 / (n - 1)


def both(counts, variance):
    n = counts.sum()
    return variance, variance * n / (n - 1)


def weighted(counts, values):
    return (counts[:, None] * values).sum(0) / counts.sum()


def average(counts, means, variances):
    return both(counts, variances.mean(0))


def average_twice(counts, means, variances):
    return variances.mean(0), variances.mean(0)


def weighted_average(counts, means, variances):
    return both(counts, weighted(counts, variances))


def between_only(counts, means, variances):
    return both(counts, weighted(counts, (means - weighted(counts, means)) ** 2))


def unweighted_between(counts, means, variances):
    return both(counts, weighted(counts, variances) + means.var(0, unbiased=False))


def unweighted(counts, means, variances):
    return both(counts, (variances + (means - means.mean(0)) ** 2).mean(0))


def unweighted_within(counts, means, variances):
    return both(counts, variances.mean(0) + weighted(counts, (means - weighted(counts, means)) ** 2))


def around_the_mean_of_means(counts, means, variances):
    return both(counts, weighted(counts, variances + (means - means.mean(0)) ** 2))


def torchs_var_of_means(counts, means, variances):
    return both(counts, weighted(counts, variances) + torch.var(means, dim=0))


def absolute(counts, means, variances):
    return both(counts, weighted(counts, variances + (means - weighted(counts, means)).abs()))


def added(counts, means, variances):
    return both(counts, variances.sum(0))


def pooled(counts, means, variances):
    value = ((counts - 1)[:, None] * variances).sum(0) / (counts.sum() - len(counts))
    return value, value


def largest(counts, means, variances):
    return both(counts, variances.amax(0))


def square_of_means(counts, means, variances):
    return both(counts, weighted(counts, variances + means**2) - weighted(counts, means) ** 2)


def swapped(counts, means, variances):
    return solution(counts, means, variances)[::-1]


def same_twice(counts, means, variances):
    return (solution(counts, means, variances)[0],) * 2


def unbiased_twice(counts, means, variances):
    return (solution(counts, means, variances)[1],) * 2


def count_of_rank_0(counts, means, variances):
    variance, _ = solution(counts, means, variances)
    return variance, variance * counts[0] / (counts[0] - 1)


def number_of_ranks(counts, means, variances):
    variance, _ = solution(counts, means, variances)
    return variance, variance * len(counts) / max(len(counts) - 1, 1)


def corrected_down(counts, means, variances):
    variance, _ = solution(counts, means, variances)
    return variance, variance * (counts.sum() - 1) / counts.sum()


def deviations(counts, means, variances):
    variance, unbiased = solution(counts, means, variances)
    return variance.sqrt(), unbiased.sqrt()


def not_divided(counts, means, variances):
    m2 = solution(counts, means, variances)[0] * counts.sum()
    return m2, m2


def one_alone(counts, means, variances):
    return solution(counts, means, variances)[0]


def nothing(counts, means, variances):
    solution(counts, means, variances)


def in_place(counts, means, variances):
    right = solution(counts, means, variances)
    means -= weighted(counts, means)
    return right


def no_weights_shape(counts, means, variances):
    return both(counts, (counts * variances).sum(0) / counts.sum())


def only_two_ranks(counts, means, variances):
    return solution(counts[:2], means[:2], variances[:2])


def all_channels_together(counts, means, variances):
    return tuple(value.mean() for value in solution(counts, means, variances))


def weights_of_ranks(counts, means, variances):
    """The right formula, with m2 divided by n and by n − N."""
    m2 = solution(counts, means, variances)[0] * counts.sum()
    return m2 / counts.sum(), m2 / (counts.sum() - len(counts))


def two_means(counts, means, variances):
    """Chan's formula for the first two ranks."""
    a, b = counts[0], counts[1] if len(counts) > 1 else 0
    between = a * b / (a + b) * (means[0] - means[-1 if len(means) < 2 else 1]) ** 2 / counts.sum()
    return both(counts, weighted(counts, variances) + between)


def as_if_unbiased(counts, means, variances):
    m2 = ((counts - 1)[:, None] * variances).sum(0) + counts.sum() * weighted(counts, (means - weighted(counts, means)) ** 2)
    return m2 / counts.sum(), m2 / (counts.sum() - 1)


def mean_first(counts, means, variances):
    return weighted(counts, means), solution(counts, means, variances)[0]


def corrected_on_each_rank(counts, means, variances):
    unbiased = variances * (counts / (counts - 1))[:, None]
    within = weighted(counts, unbiased)
    return solution(counts, means, variances)[0], within + weighted(counts, (means - weighted(counts, means)) ** 2)


def merged_by(weight):
    def merged(counts, means, variances):
        n, mean, m2 = counts[0].double(), means[0], counts[0] * variances[0]
        for more, other, variance in zip(counts[1:], means[1:], variances[1:], strict=True):
            m2 = m2 + more * variance + weight(n, more) * (other - mean) ** 2
            n, mean = n + more, mean + (other - mean) * more / (n + more)
        return m2 / n, m2 / (n - 1)

    return merged


def whole_mean(counts, means, variances):
    mean = (counts[:, None] * means).sum(0) // counts.sum()
    return both(counts, weighted(counts, variances + (means - mean) ** 2))


WRONG = [
    ("wrong-correction", lambda n, m, v: (solution(n, m, v)[0], solution(n, m, v)[0] * n.sum() / max(2, n.sum() - 1))),
    ("wrong-value", lambda n, m, v: tuple(part.round(decimals=3) for part in solution(n, m, v))),
    ("averaged-variances", average),
    ("averaged-variances", average_twice),
    ("only-within", weighted_average),
    ("only-between", between_only),
    ("between-not-weighted", unweighted_between),
    ("not-weighted", unweighted),
    ("within-not-weighted", unweighted_within),
    ("mean-of-means", around_the_mean_of_means),
    ("between-corrected", torchs_var_of_means),
    ("not-squared", absolute),
    ("summed", added),
    ("pooled", pooled),
    ("largest", largest),
    ("cancels", square_of_means),
    ("single-precision", lambda counts, means, variances: solution(counts, means.float(), variances)),
    ("pooled", lambda *given: (solution(*given)[0], pooled(*given)[1])),
    ("one-channel-only", lambda *given: tuple(value[0] for value in solution(*given))),
    ("first-ranks-only", two_means),
    ("unbiased-within", as_if_unbiased),
    ("whole-numbers", lambda *given: (solution(*given)[0], solution(*given)[1] // 1)),
    ("swapped", swapped),
    ("same-twice", same_twice),
    ("same-twice", unbiased_twice),
    ("local-count", count_of_rank_0),
    ("counts-ranks", number_of_ranks),
    ("counts-ranks", weights_of_ranks),
    ("inverted-correction", corrected_down),
    ("standard-deviation", deviations),
    ("not-divided", not_divided),
    ("returns-one", one_alone),
    ("returns-nothing", nothing),
    ("inputs-changed", in_place),
    ("weights-do-not-broadcast", no_weights_shape),
    ("first-ranks-only", only_two_ranks),
    ("channels-mixed", all_channels_together),
    ("mean-first", mean_first),
    ("local-count", corrected_on_each_rank),
    ("wrong-weight-in-the-merge", merged_by(lambda n, more: more / (n + more))),
    ("wrong-weight-in-the-merge", merged_by(lambda n, more: n * more)),
    ("mean-rounded", whole_mean),
    ("mean-of-one-rank", lambda n, m, v: both(n, weighted(n, v + (m - m[0]) ** 2))),
    ("divided-again", lambda n, m, v: (solution(n, m, v)[0], solution(n, m, v)[0] / (n.sum() - 1))),
    ("a-dictionary", lambda *given: dict(zip(("biased", "unbiased"), solution(*given), strict=True))),
]


def with_numpy(counts, means, variances):
    n, m, v = (np.asarray(part, dtype=float) for part in (counts, means, variances))
    mean = np.average(m, axis=0, weights=n)
    variance = np.average(v + (m - mean) ** 2, axis=0, weights=n)
    return variance, variance * n.sum() / (n.sum() - 1)


def one_after_the_other(counts, means, variances):
    """Chan's merging of two, rank by rank."""
    n, mean, m2 = counts[0], means[0], counts[0] * variances[0]
    for count, other, variance in zip(counts[1:], means[1:], variances[1:], strict=True):
        delta, total = other - mean, n + count
        m2 = m2 + count * variance + delta**2 * n * count / total
        mean = mean + delta * count / total
        n = total
    return [m2 / n, m2 / (n - 1)]


def in_python(counts, means, variances):
    counts = counts.tolist()
    n, result = sum(counts), []
    for mean_of, variance_of in zip(means.T.tolist(), variances.T.tolist(), strict=True):
        mean = sum(Fraction(c) * Fraction(m) for c, m in zip(counts, mean_of, strict=True)) / n
        squares = (c * (Fraction(v) + (Fraction(m) - mean) ** 2) for c, m, v in zip(counts, mean_of, variance_of, strict=True))
        result.append(sum(squares))
    return [float(m2 / n) for m2 in result], [float(m2 / (n - 1)) for m2 in result]


def shifted_squares(counts, means, variances):
    """Mean of x² minus mean², after the first rank's mean has been subtracted."""
    means = means - means[0]
    return both(counts, weighted(counts, variances + means**2) - weighted(counts, means) ** 2)


def by_pairs(counts, means, variances):
    """Between the ranks: Σ over pairs of nₐ n_b (meanₐ − mean_b)² / n², each pair once."""
    n, w = counts.sum(), counts.double()
    between = torch.einsum("a,b,abc->c", w, w, (means[:, None] - means[None]) ** 2) / (2 * n**2)
    return torch.stack(both(counts, torch.einsum("a,ac->c", w, variances) / n + between))


def by_values(counts, means, variances):
    """Values that have these means and variances, and torch's own variance of them."""
    values = []
    for count, mean, variance in zip(counts.tolist(), means, variances, strict=True):
        if count == 1:
            return solution(counts, means, variances)  # one value has no variance
        x = torch.arange(count, dtype=torch.float64)[:, None]
        values.append(mean + (x - x.mean()) / x.std(correction=0) * variance.sqrt())
    return torch.cat(values).var(0, correction=0), torch.cat(values).var(0)


def by_matrix_product(counts, means, variances):
    weights = counts.double() / counts.sum()
    distances = means - weights @ means
    return both(counts, weights @ variances + weights @ distances.square())


ALSO_RIGHT = [with_numpy, one_after_the_other, in_python, shifted_squares, by_pairs, by_values, by_matrix_product]
