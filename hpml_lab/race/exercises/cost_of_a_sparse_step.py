"""Exercise: how many numbers a step of Adam and of SparseAdam writes."""

from collections.abc import Callable

from hpml_lab.core.exercises import exercise, expect_function

Count = Callable[[list[int], int, int], tuple[int, int]]  # (words, vocabulary, dim) -> (dense, sparse)


def right(words: list[int], vocabulary: int, dim: int) -> tuple[int, int]:
    """The weights and both moments: of all rows, or of the rows of the distinct words."""
    return 3 * vocabulary * dim, 3 * len(set(words)) * dim


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
        "Those are the two moments; the weights are written, too.",
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
    "both-dense": (
        lambda words, vocabulary, dim: (3 * vocabulary * dim, 3 * vocabulary * dim),
        "A sparse step writes only the rows of the words in the batch.",
    ),
}


@exercise("cost-of-a-sparse-step", notebook="06_race")
def judge_cost_of_a_sparse_step(answer: Count) -> None:
    cases = (([3, 7, 3, 3, 9, 7], 1000, 16), ([0, 1, 2, 2], 50, 4))
    expect_function(
        answer,
        right,
        {f"words = {words}, vocabulary = {size}, dim = {dim}": (words, size, dim) for words, size, dim in cases},
        mistakes=MISTAKES,
    )
