"""variance-over-ranks: the variance of all ranks' values, from each rank's count, mean and variance."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.asked import value_or_error
from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric, item
from hpml_lab.core.judge.same import same, shown

NOTEBOOK = "13_distributed"

Pair = tuple[torch.Tensor, torch.Tensor]


def right(counts: torch.Tensor, means: torch.Tensor, variances: torch.Tensor) -> Pair:
    n, weights = counts.sum(), counts[:, None]
    mean = (weights * means).sum(0) / n
    within = (weights * variances).sum(0)
    between = (weights * (means - mean).square()).sum(0)
    m2 = within + between
    return m2 / n, m2 / (n - 1)


def spread(means: torch.Tensor) -> torch.Tensor:
    """The variance between the ranks, without weights."""
    return means.var(0, correction=0)


def corrected_spread(means: torch.Tensor) -> torch.Tensor:
    return (means - means.mean(0)).square().sum(0) / (len(means) - 1)


def merged(weight: Callable[[float, float], float]) -> Callable[..., Pair]:
    """The ranks merged one after the other, where the squared distance of two means counts weight(values, values)."""

    def answer(n: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Pair:
        count, mean, m2 = int(n[0]), m[0], n[0] * v[0]
        for more, other, variance in zip(n[1:].tolist(), m[1:], v[1:], strict=True):
            m2 = m2 + more * variance + weight(count, more) * (other - mean).square()
            mean, count = mean + (other - mean) * more / (count + more), count + more
        return m2 / count, m2 / (count - 1)

    return answer


_SHAPE = """
error
    weights-do-not-broadcast :: must match the size of tensor :: counts has one number for each
        rank (N,), means and variances are (N, C): counts[:, None] is (N, 1).
"""
# What students take for the variance of all values: the first of the two.
BIASED = Rubric(
    right,
    """
m2 = within + between
    averaged-variances :: m2 = n * variances.mean(0) :: The average of the ranks' variances is not enough. Two ranks have
        variance 0, one has mean 0 and the other 10: do all values together have variance 0?
    only-within :: m2 = within :: The variances are averaged with the right weights. What is missing is how far the ranks'
        means are from each other.
    only-between :: m2 = between :: This is the variance between the ranks. Each rank's values also vary around its own mean.
    between-not-weighted :: m2 = within + n * spread(means) :: In the variance between the ranks a rank with more values
        counts more, and so does it in the mean of all.
    between-not-weighted :: m2 = within + n * (means - mean).square().mean(0) :: In the variance between the ranks a rank with
        more values counts more.
    not-weighted :: m2 = n * (variances.mean(0) + spread(means)) :: Both parts are there, but every rank has the same weight.
        A rank with more values counts more.
    not-weighted :: m2 = n * (variances.mean(0) + corrected_spread(means)) :: Every rank has the same weight. A rank with more
        values counts more.
    within-not-weighted :: m2 = n * variances.mean(0) + between :: The ranks' own variances have no weights: a rank with more
        values counts more.
    between-corrected :: m2 = within + n * corrected_spread(means) :: torch's var divides by N − 1 and gives each rank the
        same weight. Weight the squares by the counts, and divide by n.
    not-squared :: m2 = within + n * means.std(0, correction=0) :: To the variances you add a standard deviation: between the
        ranks, too, distances count squared, and weighted.
    summed :: m2 = n * variances.sum(0) :: You add the ranks' variances. A variance is a mean of squares: with twice as many
        values it does not double.
    pooled :: m2 = n * ((weights - 1) * variances).sum(0) / (n - len(counts)) :: The pooled variance of statistics assumes
        that all groups have the same mean. Here the means differ, and that counts.
    standard-deviation :: m2 = n * ((within + between) / n).sqrt() :: These are standard deviations; return variances, without
        the square root.
    not-divided :: m2 = n * (within + between) :: This is M2, the sum of the squared distances. Divide it by n, and by n − 1.
    same-twice :: m2 = (within + between) * n / (n - 1) :: The first of your two is the unbiased variance. A batch is
        normalized with the one that divides by n.
    channels-mixed :: m2 = (within + between).mean() :: $CHANNELS
    one-channel-only :: m2 = (within + between)[0] :: This is the variance of channel 0. Return one for each channel, the
        columns.
(means - mean).square()
    mean-of-means :: (means - means.mean(0)).square() :: Measure from the mean of all values, which weights each rank by its
        count; the mean of the ranks' means does not.
    mean-of-one-rank :: (means - means[0]).square() :: You measure from the mean of rank 0. The mean of all values is another.
    not-squared :: (means - mean).abs() :: The distances between the means count squared.
weights * variances
    unbiased-within :: (weights - 1) * variances :: The ranks' variances divide by their n, so that n · variance is a rank's sum
        of squares, not (n − 1) · variance.
whole answer
    first-ranks-only :: lambda n, m, v: right(n[:2], m[:2], v[:2]) :: Right for two ranks; with more, the others do not count.
    first-ranks-only :: first_two_means :: Right for two ranks; with more, the others' means do not count.
    wrong-weight-in-the-merge :: merged(lambda a, b: b / (a + b)) :: $MERGE
    wrong-weight-in-the-merge :: merged(lambda a, b: a * b) :: $MERGE
    wrong-weight-in-the-merge :: merged(lambda a, b: b) :: $MERGE
    wrong-weight-in-the-merge :: merged(lambda a, b: a + b) :: $MERGE
    wrong-weight-in-the-merge :: merged(lambda a, b: 1.0) :: $MERGE
"""
    + _SHAPE,
    wrap=item(0),
    CHANNELS="Each channel has a variance of its own: sum over the ranks, which are the rows, and not over the channels.",
    MERGE="You merge rank by rank, and both groups' own parts are right. How much does the squared distance between two "
    "groups' means count? Their numbers of values a and b both matter; if b is 0, it counts nothing.",
)
# What students take for the second, where the first is right.
UNBIASED = Rubric(
    right,
    """
m2 / (n - 1)
    same-twice :: m2 / n :: $FIRST || running_var takes the unbiased variance, which divides by n − 1 instead of n.
    local-count :: m2 / n * counts[0] / (counts[0] - 1) :: $FIRST In n / (n − 1), n is the number of values on all ranks, not
        on one.
    local-count :: ((weights * variances * (counts / (counts - 1).clamp(min=1))[:, None]).sum(0) + between) / n :: $FIRST
        $ONCE
    local-count :: ((weights * variances * (counts / (counts - 1))[:, None]).sum(0) + between) / n :: $FIRST $ONCE
    counts-ranks :: m2 / n * len(counts) / max(len(counts) - 1, 1) :: $FIRST In n / (n − 1), n is the number of values, not of
        ranks.
    counts-ranks :: m2 / (n - len(counts)) :: $FIRST The unbiased variance divides by n − 1: one mean is estimated, that of
        all values.
    pooled :: ((weights - 1) * variances).sum(0) / (n - len(counts)) :: $FIRST The pooled variance of statistics assumes that
        all groups have the same mean. Here the means differ.
    inverted-correction :: m2 / n * (n - 1) / n :: $FIRST The unbiased variance is larger: it divides by n − 1 instead of n.
    divided-again :: m2 / n / (n - 1) :: $FIRST You divide it by n − 1, but it has been divided by n already. How
        do the two divisors differ?
    not-divided :: m2 :: $FIRST The second is M2, the sum of the squared distances: divide it by n − 1.
"""
    + _SHAPE,
    wrap=item(1),
    FIRST="The first is right.",
    ONCE="Correct once, at the end, with the number of values on all ranks.",
)


def first_two_means(n: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Pair:
    """Of all values, with the distance between the first two ranks' means only."""
    m2 = (n[:, None] * v).sum(0) + (n[:2].prod() / n[:2].sum() * (m[0] - m[1]).square() if len(n) > 1 else 0)
    return m2 / n.sum(), m2 / (n.sum() - 1)


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
    torch.tensor([3, 4]),  # whose shares no binary fraction is
    torch.tensor([[1e9, 0.0], [1e9 + 2, 3.0]], dtype=torch.float64),
    torch.tensor([[1.0, 1.0], [2.0, 1.0]], dtype=torch.float64),
)


@exercise("variance-over-ranks", notebook=NOTEBOOK, takes="counts, means, variances", returns=(like("means"), like("means")))
def judge_variance_over_ranks(answer: Callable) -> None:
    """(M2 / n, M2 / (n − 1)) of each channel over all ranks, also where the means are far from zero."""

    def checked(*given: torch.Tensor) -> object:
        got = answer(*given)
        if same(got, right(*given)[::-1]) and not same(got, right(*given)):
            raise Mistake("swapped", "Both are right, in the wrong order: first the one that normalizes.")
        return got

    BIASED.expect(checked, _CASES, but=("dtype",), explain=_explain_first)
    UNBIASED.expect(checked, _CASES, but=("dtype",), explain=_explain_second)  # it is looked at when the first is right
    far = answer(*(part.clone() for part in _FAR))
    if same(far, right(*_FAR), 1e-3):
        return
    if same(far, right(*(part.float().to(part.dtype) for part in _FAR)), 1e-3):
        hint = "Right where the means are near zero. float32 keeps 7 digits, so 1,000,000,002 is 10⁹ there: stay in float64."
        raise Mistake("single-precision", hint)
    counts, *rest = (part.clone() for part in _FAR)
    if same(value_or_error(answer, (counts.double(), *rest)), right(*_FAR), 1e-3):
        hint = "Right where the means are near zero. One count over their sum is float32 in torch: count in float64 first."
        raise Mistake("single-precision", hint)
    raise Mistake(
        "cancels",
        "Right where the means are near zero. With means of 10⁹ a variance of 2 is lost in the last digits of squares, 10¹⁸,"
        " and of a mean in float32: subtract each channel's means from each other before you square, in float64.",
    )


# Where only one of the two parts of the variance is there, in words and numbers.
_PROBES = {
    "within": ("all means are 0, the variances 1 and 5", [[0.0], [0.0]], [[1.0], [5.0]]),
    "between": ("the means are 0 and 4, all variances 0", [[0.0], [4.0]], [[0.0], [0.0]]),
}


def _explain_first(answer: Callable, _: list[Judged]) -> None:
    """Raise the Mistake that names the part which is wrong: within the ranks, or between them."""
    counts = torch.tensor([2, 6])
    for kind, (words, means, variances) in _PROBES.items():
        given = counts, torch.tensor(means, dtype=torch.float64), torch.tensor(variances, dtype=torch.float64)
        got, wanted = answer(*given), right(*given)[0]
        if not same(got, wanted):
            hint = f"If {words} and the counts 2 and 6, the variance is {shown(wanted)}; your first is {shown(got)}."
            raise Mistake(f"wrong-{kind}", hint)


def _explain_second(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says how many times as large one is as the other."""
    n, ratio = int(judged[0].given[0].sum()), torch.as_tensor(judged[0].got) / right(*judged[0].given)[0]
    hint = f"The first is right. With {n} values the second should be {n}/{n - 1} of it; yours is {shown(ratio)} times it."
    raise Mistake("wrong-correction", hint)
