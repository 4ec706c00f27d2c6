"""Exercise: how many numbers a step of Adam and of SparseAdam writes."""

import copy
from collections.abc import Callable

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.same import plain, same

Count = Callable[[list[int], int, int], tuple[int, int]]  # (words, vocabulary, dim) -> (dense, sparse)


def right(words: list[int], vocabulary: int, dim: int) -> tuple[int, int]:
    """The weights and both moments: of all rows, or of the rows of the distinct words."""
    return 3 * vocabulary * dim, 3 * len(set(words)) * dim


def _count(dense: Callable[..., float], sparse: Callable[..., float]) -> Count:
    """A wrong count, from the vocabulary, dim, the number of words and the number of distinct words."""
    return lambda words, vocabulary, dim: tuple(
        count(vocabulary, dim, len(words), len(set(words))) for count in (dense, sparse)
    )


def _dense(v: int, d: int, n: int, u: int) -> int:
    return 3 * v * d


def _sparse(v: int, d: int, n: int, u: int) -> int:
    return 3 * u * d


MISTAKES: dict[str, tuple[Count, str]] = {
    "counts-repeats": (
        lambda words, vocabulary, dim: (3 * vocabulary * dim, 3 * len(words) * dim),
        "A word that comes twice has one row: its gradients are added before the step.",
    ),
    "forgets-the-moments": (
        lambda words, vocabulary, dim: (vocabulary * dim, len(set(words)) * dim),
        "Those are the weights alone. Which other tensors does Adam keep, and change in every step?",
    ),
    "forgets-the-weights": (
        lambda words, vocabulary, dim: (2 * vocabulary * dim, 2 * len(set(words)) * dim),
        "Those are two tensors; the weights and both moments are three.",
    ),
    "moments-stay-dense": (
        lambda words, vocabulary, dim: (3 * vocabulary * dim, (2 * vocabulary + len(set(words))) * dim),
        "SparseAdam leaves the moments of absent words alone, too: that is where it differs from Adam.",
    ),
    "rows-not-numbers": (
        lambda words, vocabulary, dim: (3 * vocabulary, 3 * len(set(words))),
        "Those are rows; each has `dim` numbers.",
    ),
    "swapped": (lambda words, vocabulary, dim: right(words, vocabulary, dim)[::-1], "Both are right, but dense comes first."),
    "counts-the-gradient": (
        _count(lambda v, d, n, u: 4 * v * d, lambda v, d, n, u: 4 * u * d),
        "The step reads the gradient; it writes to three tensors.",
    ),
    "weights-stay-dense": (
        _count(_dense, lambda v, d, n, u: (v + 2 * u) * d),
        "The weights of absent words are not written either.",
    ),
    "only-the-weights-are-sparse": (_count(_dense, lambda v, d, n, u: u * d), "The rows of both moments are written, too."),
    "forgets-dim": (_count(_dense, lambda v, d, n, u: 3 * u), "In the sparse step you count rows; each has `dim` numbers."),
    "forgets-dim-of-the-dense": (
        _count(lambda v, d, n, u: 3 * v, _sparse),
        "In the dense step you count rows; each has `dim` numbers.",
    ),
    "bytes-not-numbers": (
        _count(lambda v, d, n, u: 12 * v * d, lambda v, d, n, u: 12 * u * d),
        "Those are bytes; a number of float32 has four.",
    ),
    "counts-indices": (
        _count(_dense, lambda v, d, n, u: 3 * u * d + u),
        "The step reads the indices of the rows; it does not write them.",
    ),
    "a-share-not-a-count": (
        _count(_dense, lambda v, d, n, u: u / v),
        "That is a share of the rows; count the numbers that are written.",
    ),
    "weights-alone-with-repeats": (
        _count(lambda v, d, n, u: v * d, lambda v, d, n, u: n * d),
        "A word that comes twice has one row; and the step writes to three tensors.",
    ),
    "absent-words-counted": (
        lambda words, vocabulary, dim: (3 * vocabulary * dim, 3 * (vocabulary - len(set(words))) * dim),
        "Those are the rows of the words that are absent: SparseAdam leaves them alone.",
    ),
    "repeated-words-left-out": (
        lambda words, vocabulary, dim: (3 * vocabulary * dim, 3 * dim * sum(words.count(word) == 1 for word in words)),
        "You count only the words that come once. A word that comes several times has one row, which is written, too.",
    ),
    "both-dense": (
        lambda words, vocabulary, dim: (3 * vocabulary * dim, 3 * vocabulary * dim),
        "A sparse step writes only the rows of the words in the batch.",
    ),
}


CASES = (([3, 7, 3, 3, 9, 7], 1000, 16), ([0, 1, 2, 2], 50, 4), ([6, 1, 6], 8, 3), ([12, 2, 52], 100_003, 211))


def _judge_each(answer: Count) -> None:
    """Raise a Mistake if one of the two counts is right in all cases and the other is not."""
    given, wanted = ([count(*copy.deepcopy(case)) for case in CASES] for count in (answer, right))
    alike = [all(same(own[index], other[index]) for own, other in zip(given, wanted, strict=True)) for index in (0, 1)]
    if alike[0] is alike[1]:
        return
    wrong = alike.index(False)
    first = next(n for n, (own, other) in enumerate(zip(given, wanted, strict=True)) if not same(own[wrong], other[wrong]))
    words, vocabulary, dim = CASES[first]
    case = f"For words = {words}, vocabulary = {vocabulary}, dim = {dim} it should be"
    figures = f"{case} {wanted[first][wrong]}; yours is {plain(given[first][wrong])}."
    if wrong:
        raise Mistake("sparse-alone", f"The dense count is right, the sparse one is not. {figures} Which rows are written?")
    raise Mistake("dense-alone", f"The sparse count is right, the dense one is not. {figures} The batch plays no part in it.")


@exercise("cost-of-a-sparse-step", notebook="06_race")
def judge_cost_of_a_sparse_step(answer: Count) -> None:
    given = answer(*copy.deepcopy(CASES[0]))
    if given is not None and (not hasattr(given, "__len__") or len(given) != 2):
        raise Mistake("not-two-numbers", "Return two numbers: those of the dense step, then those of the sparse one.")
    cases = {f"words = {words}, vocabulary = {size}, dim = {dim}": (words, size, dim) for words, size, dim in CASES}
    try:
        expect_function(answer, right, cases, mistakes=MISTAKES)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            _judge_each(answer)
        raise
