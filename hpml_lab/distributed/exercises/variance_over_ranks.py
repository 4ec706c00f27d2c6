"""variance-over-ranks: the variance of all ranks' values, from each rank's count, mean and variance."""

from collections.abc import Callable, Mapping

import numpy as np
import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.same import same, shown

NOTEBOOK = "13_distributed"

Pair = tuple[torch.Tensor, torch.Tensor]


def _together(counts: torch.Tensor, means: torch.Tensor, variances: torch.Tensor) -> Pair:
    """(M2 / n, M2 / (n − 1)) of all values, where M2 = Σ nᵣ varᵣ + Σ nᵣ (meanᵣ − mean)²."""
    return _both(counts, _within(counts, means, variances) + _between(counts, means))


def _m2(counts: torch.Tensor, means: torch.Tensor, variances: torch.Tensor) -> torch.Tensor:
    return counts.sum() * _together(counts, means, variances)[0]


def _both(counts: torch.Tensor, variance: torch.Tensor) -> Pair:
    """The variance, and with n / (n − 1)."""
    n = counts.sum()
    return variance, variance * n / (n - 1)


def _within(counts: torch.Tensor, means: torch.Tensor, variances: torch.Tensor) -> torch.Tensor:
    return (counts[:, None] * variances).sum(0) / counts.sum()


def _mean(counts: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
    return (counts[:, None] * means).sum(0) / counts.sum()


def _between(counts: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
    return (counts[:, None] * (means - _mean(counts, means)).square()).sum(0) / counts.sum()


def _spread(means: torch.Tensor) -> torch.Tensor:
    """The variance between the ranks, without weights."""
    return means.var(0, correction=0)


def _corrected_spread(means: torch.Tensor) -> torch.Tensor:
    return (means - means.mean(0)).square().sum(0) / (len(means) - 1)


def _merged(weight: Callable[[float, float], float]) -> Callable[..., torch.Tensor]:
    """The ranks merged one after the other, where the squared distance of two means counts weight(values, values)."""

    def merged(n: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        count, mean, m2 = int(n[0]), m[0], n[0] * v[0]
        for more, other, variance in zip(n[1:].tolist(), m[1:], v[1:], strict=True):
            m2 = m2 + more * variance + weight(count, more) * (other - mean).square()
            mean, count = mean + (other - mean) * more / (count + more), count + more
        return m2 / count

    return merged


# What students take for the variance of all values, and a hint.
_VARIANCES: dict[str, tuple[Callable[..., torch.Tensor], str]] = {
    "averaged-variances": (
        lambda n, m, v: v.mean(0),
        "You average the ranks' variances. Two ranks have variance 0, one has mean 0 and the other 10: do all values together"
        " have variance 0?",
    ),
    "only-within": (
        _within,
        "The variances are averaged with the right weights. What is missing is how far the ranks' means are from each other.",
    ),
    "only-between": (
        lambda n, m, v: _between(n, m),
        "This is the variance between the ranks. Each rank's values also vary around its own mean.",
    ),
    "between-not-weighted": (
        lambda n, m, v: _within(n, m, v) + _spread(m),
        "In the variance between the ranks a rank with more values counts more, and so does it in the mean of all.",
    ),
    "between-not-weighted, around the right mean": (
        lambda n, m, v: _within(n, m, v) + (m - _mean(n, m)).square().mean(0),
        "In the variance between the ranks a rank with more values counts more.",
    ),
    "not-weighted": (
        lambda n, m, v: v.mean(0) + _spread(m),
        "Both parts are there, but every rank has the same weight. A rank with more values counts more.",
    ),
    "not-weighted, corrected": (
        lambda n, m, v: v.mean(0) + _corrected_spread(m),
        "Every rank has the same weight. A rank with more values counts more.",
    ),
    "within-not-weighted": (
        lambda n, m, v: v.mean(0) + _between(n, m),
        "The ranks' own variances have no weights: a rank with more values counts more.",
    ),
    "mean-of-means": (
        lambda n, m, v: _within(n, m, v) + (n[:, None] * (m - m.mean(0)).square()).sum(0) / n.sum(),
        "You measure from the mean of the ranks' means. The mean of all values weights each rank by its count.",
    ),
    "between-corrected": (
        lambda n, m, v: _within(n, m, v) + _corrected_spread(m),
        "torch's var divides by N − 1 and gives each rank the same weight. Weight the squares by the counts, and divide by n.",
    ),
    "mean-of-one-rank": (
        lambda n, m, v: _within(n, m, v) + (n[:, None] * (m - m[0]).square()).sum(0) / n.sum(),
        "You measure from the mean of rank 0. The mean of all values is another.",
    ),
    "mean-rounded": (
        lambda n, m, v: _within(n, m, v) + (n[:, None] * (m - _mean(n, m).floor()).square()).sum(0) / n.sum(),
        "Your mean of all values is a whole number: // rounds down, divide with /.",
    ),
    "not-squared, standard deviation": (
        lambda n, m, v: _within(n, m, v) + m.std(0, correction=0),
        "To the variances you add a standard deviation: between the ranks, too, distances count squared, and weighted.",
    ),
    "not-squared": (
        lambda n, m, v: _within(n, m, v) + (n[:, None] * (m - _mean(n, m)).abs()).sum(0) / n.sum(),
        "The distances between the means count squared.",
    ),
    "summed": (
        lambda n, m, v: v.sum(0),
        "You add the ranks' variances. A variance is a mean of squares: with twice as many values it does not double.",
    ),
    "pooled": (
        lambda n, m, v: ((n - 1)[:, None] * v).sum(0) / (n.sum() - len(n)),
        "The pooled variance of statistics assumes that all groups have the same mean. Here the means differ, and that counts.",
    ),
    "largest": (
        lambda n, m, v: v.max(0).values,
        "This is the largest of the variances: all values together may vary even more.",
    ),
}


_CHANNELS = "Each channel has a variance of its own: sum over the ranks, which are the rows, and not over the channels."
_SECOND = "The first is right. "
# What students take for the second, where the first is right.
_UNBIASED: dict[str, tuple[Callable[..., torch.Tensor], str]] = {
    "same-twice": (
        lambda n, m, v: _together(n, m, v)[0],
        _SECOND + "running_var takes the unbiased variance, which divides by n − 1 instead of n.",
    ),
    "local-count": (
        lambda n, m, v: _together(n, m, v)[0] * n[0] / (n[0] - 1),
        _SECOND + "In n / (n − 1), n is the number of values on all ranks, not on one.",
    ),
    "local-count, each rank's": (
        lambda n, m, v: _within(n, m, v * (n / (n - 1).clamp(min=1))[:, None]) + _between(n, m),
        _SECOND + "Correct once, at the end, with the number of values on all ranks.",
    ),
    "local-count, each rank's, not a number for one value": (
        lambda n, m, v: _within(n, m, v * (n / (n - 1))[:, None]) + _between(n, m),
        _SECOND + "Correct once, at the end, with the number of values on all ranks.",
    ),
    "counts-ranks": (
        lambda n, m, v: _together(n, m, v)[0] * len(n) / max(len(n) - 1, 1),
        _SECOND + "In n / (n − 1), n is the number of values, not of ranks.",
    ),
    "counts-ranks, subtracted": (
        lambda n, m, v: _m2(n, m, v) / (n.sum() - len(n)),
        _SECOND + "The unbiased variance divides by n − 1: one mean is estimated, that of all values.",
    ),
    "pooled": (
        lambda n, m, v: ((n - 1)[:, None] * v).sum(0) / (n.sum() - len(n)),
        _SECOND + "The pooled variance of statistics assumes that all groups have the same mean. Here the means differ.",
    ),
    "inverted-correction": (
        lambda n, m, v: _together(n, m, v)[0] * (n.sum() - 1) / n.sum(),
        _SECOND + "The unbiased variance is larger: it divides by n − 1 instead of n.",
    ),
    "divided-again": (
        lambda n, m, v: _together(n, m, v)[0] / (n.sum() - 1),
        _SECOND + "You divide it by n − 1, but it has been divided by n already. By which factor do the two differ?",
    ),
    "not-divided": (_m2, _SECOND + "The second is M2, the sum of the squared distances: divide it by n − 1."),
    "whole-numbers": (lambda n, m, v: _together(n, m, v)[1].floor(), _SECOND + "// leaves whole numbers: divide with /."),
}
_BIASED: dict[str, tuple[Callable[..., torch.Tensor], str]] = {
    "same-twice, unbiased": (
        lambda n, m, v: _together(n, m, v)[1],
        "The first of your two is the unbiased variance. A batch is normalized with the one that divides by n.",
    ),
    "standard-deviation": (
        lambda n, m, v: _together(n, m, v)[0].sqrt(),
        "These are standard deviations; return variances, without the square root.",
    ),
    "not-divided": (_m2, "This is M2, the sum of the squared distances. Divide it by n, and by n − 1."),
    "first-ranks-only": (
        lambda n, m, v: _together(n[:2], m[:2], v[:2])[0],
        "Right for two ranks; with more, the others do not count.",
    ),
    "first-ranks-only, of all values": (
        lambda n, m, v: _within(n, m, v) + (n[:2].prod() / n[:2].sum() * (m[0] - m[1]).square() if len(n) > 1 else 0) / n.sum(),
        "Right for two ranks; with more, the others' means do not count.",
    ),
    "channels-mixed": (lambda n, m, v: _together(n, m, v)[0].mean(), _CHANNELS),
    "one-channel-only": (
        lambda n, m, v: _together(n, m, v)[0][0],
        "This is the variance of channel 0. Return one for each channel, the columns.",
    ),
    "mean-first": (lambda n, m, v: _mean(n, m), "Your first is the mean of all values. Both that are asked for are variances."),
    **{
        f"wrong-weight-in-the-merge, {number}": (
            _merged(weight),
            "You merge rank by rank, and both groups' own parts are right. How much does the squared distance between two "
            "groups' means count? Their numbers of values a and b both matter; if b is 0, it counts nothing.",
        )
        for number, weight in enumerate(
            (lambda a, b: b / (a + b), lambda a, b: a * b, lambda a, b: b, lambda a, b: a + b, lambda a, b: 1.0)
        )
    },
    "whole-numbers": (lambda n, m, v: _together(n, m, v)[0].floor(), "// leaves whole numbers: divide with /."),
    "unbiased-within": (
        lambda n, m, v: ((n - 1)[:, None] * v).sum(0) / n.sum() + _between(n, m),
        "The ranks' variances divide by their n, so that n · variance is a rank's sum of squares; you multiply by n − 1.",
    ),
}


def _cases() -> dict[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)

    def case(counts: list[int], around: float = 0.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        shape = len(counts), 3
        means = around + 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
        variances = 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)
        variances[[count == 1 for count in counts]] = 0  # a single value does not vary
        return torch.tensor(counts), means, variances

    means, variances = torch.tensor([[1.0, 0.0], [4.0, 0.0]]), torch.tensor([[1.0, 3.0], [2.5, 6.0]])
    return {
        "counts [2, 4], means [[1, 0], [4, 0]], variances [[1, 3], [2.5, 6]]": (
            torch.tensor([2, 4]),
            means.double(),
            variances.double(),
        ),
        "two ranks with 8 values each": case([8, 8]),
        "three ranks with 2, 7 and 30 values": case([2, 7, 30]),
        "one rank alone": case([5]),
        "four ranks, of which one has a single value": case([9, 1, 4, 6]),
        "two ranks with a single value each": case([1, 1]),
    }


_CASES = _cases()
_FAR = (
    torch.tensor([50, 30]),
    torch.tensor([[1e9], [1e9 + 2]], dtype=torch.float64),
    torch.tensor([[1.0], [2.0]], dtype=torch.float64),
)


@exercise("variance-over-ranks", notebook=NOTEBOOK)
def judge_variance_over_ranks(answer: Callable) -> None:
    """(M2 / n, M2 / (n − 1)) of each channel over all ranks, also where the means are far from zero."""

    def part(number: int) -> Callable[..., object]:
        def checked(*given: torch.Tensor) -> object:
            got = answer(*given)
            if isinstance(got, Mapping):
                raise Mistake("a-dictionary", "Return the two as a pair, without names: return a, b.")
            if got is not None and (not isinstance(got, tuple | list | torch.Tensor | np.ndarray) or len(got) != 2):
                hint = "Return two things: the variance that divides by n, and the one that divides by n − 1."
                raise Mistake("returns-one", hint)
            if got is not None and same(got, _together(*given)[::-1]) and not same(got, _together(*given)):
                raise Mistake("swapped", "Both are right, in the wrong order: first the one that normalizes.")
            return None if got is None else got[number]

        return checked

    shape = (
        "weights-do-not-broadcast",
        "counts has one number for each rank (N,), means and variances are (N, C): counts[:, None] is (N, 1).",
    )
    named = (_BIASED | _VARIANCES | _corrected(), _UNBIASED)
    for number, mistakes in enumerate(named):  # the second is looked at when the first is right
        try:
            expect_function(
                part(number),
                lambda *given, number=number: _together(*given)[number],
                _CASES,
                mistakes=mistakes,
                errors={"must match the size of tensor": shape},
            )
        except Mistake as mistake:
            if mistake.name == "wrong-value":
                _explain(part(0), part(1))
            raise
    far = answer(*(part.clone() for part in _FAR))
    if same(far, _together(*_FAR), 1e-3):
        return
    if same(far, _together(*(part.float().to(part.dtype) for part in _FAR)), 1e-3):
        hint = "Right where the means are near zero. float32 keeps 7 digits, so 1,000,000,002 is 10⁹ there: stay in float64."
        raise Mistake("single-precision", hint)
    raise Mistake(
        "cancels",
        "Right where the means are near zero. With means of 10⁹, squares are 10¹⁸, and a variance of 2 is lost in their"
        " last digits: subtract the means from each other before you square.",
    )


# Where only one of the two parts of the variance is there, in words and numbers.
_PROBES = {
    "within": ("all means are 0, the variances 1 and 5", [[0.0], [0.0]], [[1.0], [5.0]]),
    "between": ("the means are 0 and 4, all variances 0", [[0.0], [4.0]], [[0.0], [0.0]]),
}


def _explain(first: Callable, second: Callable) -> None:
    """Raise the Mistake that names the part which is wrong: within the ranks, between them, or the correction."""
    counts = torch.tensor([2, 6])
    for kind, (words, means, variances) in _PROBES.items():
        given = counts, torch.tensor(means, dtype=torch.float64), torch.tensor(variances, dtype=torch.float64)
        got, wanted = first(*given), _together(*given)[0]
        if not same(got, wanted):
            hint = f"If {words} and the counts 2 and 6, the variance is {shown(wanted)}; your first is {shown(got)}."
            raise Mistake(f"wrong-{kind}", hint)
    given = next(iter(_CASES.values()))
    if all(same(first(*case), _together(*case)[0]) for case in _CASES.values()):
        n, ratio = int(given[0].sum()), torch.as_tensor(second(*given)) / torch.as_tensor(first(*given))
        hint = f"The first is right. With {n} values the second should be {n}/{n - 1} of it; yours is {shown(ratio)} times it."
        raise Mistake("wrong-correction", hint)


def _corrected() -> dict[str, tuple[Callable[..., torch.Tensor], str]]:
    """The wrong variances with n / (n − 1), which is no better."""
    return {
        f"{name}, corrected": (lambda n, m, v, f=variance: _both(n, f(n, m, v))[1], hint)
        for name, (variance, hint) in _VARIANCES.items()
    }
