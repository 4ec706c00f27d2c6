"""Exercise: how many numbers a step of Adam and of SparseAdam writes."""

from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import plain, same

Count = Callable[[list[int], int, int], tuple[int, int]]  # (words, vocabulary, dim) -> (dense, sparse)


def right(words: list[int], vocabulary: int, dim: int) -> tuple[int, int]:
    """The weights and both moments: of all rows, or of the rows of the distinct words."""
    rows = len(set(words))
    dense = 3 * vocabulary * dim
    sparse = 3 * rows * dim
    return dense, sparse


RUBRIC = Rubric(
    right,
    """
len(set(words))
    counts-repeats :: len(words) :: A word that comes twice has one row: its gradients are added before the step.
    absent-words-counted :: vocabulary - len(set(words)) :: Those are the rows of the words that are absent: SparseAdam leaves
        them alone.
    repeated-words-left-out :: sum(words.count(word) == 1 for word in words) :: You count only the words that come once. A word
        that comes several times has one row, which is written, too.
3 * vocabulary * dim
    forgets-dim-of-the-dense :: 3 * vocabulary :: In the dense step you count rows. || Each row has `dim` numbers.
3 * rows * dim
    moments-stay-dense :: (2 * vocabulary + rows) * dim :: SparseAdam leaves the moments of absent words alone, too: that is
        where it differs from Adam.
    weights-stay-dense :: (vocabulary + 2 * rows) * dim :: The weights of absent words are not written either.
    only-the-weights-are-sparse :: rows * dim :: The rows of both moments are written, too.
    forgets-dim :: 3 * rows :: In the sparse step you count rows; each has `dim` numbers.
    counts-indices :: 3 * rows * dim + rows :: The step reads the indices of the rows; it does not write them.
return dense, sparse
    forgets-the-weights :: return 2 * dense // 3, 2 * sparse // 3 :: Those are two tensors; the weights and both moments are
        three.
    swapped :: return sparse, dense :: Both are right, but dense comes first.
    counts-the-gradient :: return 4 * dense // 3, 4 * sparse // 3 :: The step reads the gradient; it writes to three tensors.
    bytes-not-numbers :: return 4 * dense, 4 * sparse :: Those are bytes; a number of float32 has four.
whole answer
    weights-alone-with-repeats :: lambda words, vocabulary, dim: (vocabulary * dim, len(words) * dim) :: A word that comes twice
        has one row; and the step writes to three tensors.
""",
)
CASES = (([3, 7, 3, 3, 9, 7], 1000, 16), ([0, 1, 2, 2], 50, 4), ([6, 1, 6], 8, 3), ([12, 2, 52], 100_003, 211), ([], 10, 2))


@exercise("cost-of-a-sparse-step", notebook="06_race", takes="words, vocabulary, dim", returns=(int, int))
def judge_cost_of_a_sparse_step(answer: Count) -> None:
    cases = {f"words = {words}, vocabulary = {size}, dim = {dim}": (words, size, dim) for words, size, dim in CASES}
    RUBRIC.expect(answer, cases, explain=_explain)


def _explain(_: Count, judged: list[Judged]) -> None:
    """Raise a Mistake if one of the two counts is right in all cases and the other is not."""
    differ = [[row for row in judged if not same(row.got[index], row.wanted[index])] for index in (0, 1)]
    if all(differ) or not any(differ):
        return
    wrong = 0 if differ[0] else 1
    row = differ[wrong][0]
    figures = f"For {row.case} it should be {row.wanted[wrong]}; yours is {plain(row.got[wrong])}."
    if wrong:
        raise Mistake("sparse-alone", f"The dense count is right, the sparse one is not. {figures} Which rows are written?")
    raise Mistake("dense-alone", f"The sparse count is right, the dense one is not. {figures} The batch plays no part in it.")
