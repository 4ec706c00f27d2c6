"""Answers to `variance-over-ranks`: (variance, unbiased variance) of all values, from counts, means and variances by rank."""

import torch
from edited_source import wrong_answers


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


def one_after_the_other(counts, means, variances):
    """Chan's merging of two, rank by rank."""
    n, mean, m2 = counts[0], means[0], counts[0] * variances[0]
    for count, other, variance in zip(counts[1:], means[1:], variances[1:], strict=True):
        delta, total = other - mean, n + count
        m2 = m2 + count * variance + delta**2 * n * count / total
        mean = mean + delta * count / total
        n = total
    return [m2 / n, m2 / (n - 1)]


DISTANCE = "(means - mean) ** 2"
M2 = f"(weights * (variances + {DISTANCE})).sum(0)"
UNBIASED, BOTH = "m2 / (n - 1)", "m2 / n, m2 / (n - 1)"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("averaged-variances", (M2, "n * variances.mean(0)"), (UNBIASED, "m2 / n")),
            ("weights-do-not-broadcast", ("counts[:, None]", "counts")),
            ("cancels", (M2, "(weights * (variances + means**2)).sum(0) - n * mean**2")),
            (
                "cancels",  # shifted by one number for all channels
                (M2, "(weights * (variances + (means - means.mean()) ** 2)).sum(0) - n * (mean - means.mean()) ** 2"),
            ),
            ("wrong-between", (DISTANCE, "(means - mean).abs() ** 1.5")),
            ("wrong-correction", (UNBIASED, "m2 / max(2, n - 1)")),
            ("swapped", (BOTH, "m2 / (n - 1), m2 / n")),
        ],
    ),
    ("all-rounded", lambda n, m, v: tuple(part.round(decimals=3) for part in solution(n, m, v))),
    ("single-precision", lambda counts, means, variances: solution(counts, means.float(), variances)),
]


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


ALSO_RIGHT = [one_after_the_other, shifted_squares, by_pairs, by_values, by_matrix_product]
