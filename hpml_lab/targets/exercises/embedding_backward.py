"""embedding-backward: the gradient of a table from that of the rows which were looked up in it."""

import copy
import tracemalloc
from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_no_autograd
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same
from hpml_lab.core.timing.counting import operators

Tensor = torch.Tensor


def right(ids: Tensor, grad_output: Tensor, vocabulary: int, padding_idx: int | None = None) -> Tensor:
    rows = grad_output.reshape(-1, grad_output.shape[-1])
    index = ids.flatten().long()
    table = summed(index, rows, vocabulary)
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def summed(index: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    return rows.new_zeros(vocabulary, rows.shape[-1]).index_add(0, index, rows)


def counted(index: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    return summed(index, torch.ones_like(rows), vocabulary)


def set_in_turn(index: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    """The last gradient of each id."""
    table = rows.new_zeros(vocabulary, rows.shape[-1])
    for i, row in zip(index, rows, strict=True):
        table[i] = row
    return table


def dense(answer: Callable) -> Callable:
    """The answer, whose gradient may be a sparse tensor, as that of nn.Embedding(…, sparse=True) is."""

    def to_dense(*arguments: Any) -> Any:
        found = answer(*arguments)
        return found.to_dense() if isinstance(found, Tensor) and found.layout != torch.strided else found

    return to_dense


RUBRIC = Rubric(
    right,
    """
summed(index, rows, vocabulary)
    repeated-ids-overwritten :: set_in_turn(index, rows, vocabulary) :: $LAST
    repeated-ids-overwritten :: set_in_turn(index.flip(0), rows.flip(0), vocabulary) :: $LAST
    mean-over-repeats :: summed(index, rows, vocabulary) / counted(index, rows, vocabulary).clamp(min=1) :: $MEAN
    mean-over-repeats :: summed(index, rows, vocabulary) / counted(index, rows, vocabulary) :: $MEAN And rows that were never
        looked up become nan: their gradient is 0.
whole answer
    first-sequence-only :: lambda ids, grad, *more: right(*((ids[0], grad[0]) if ids.ndim > 1 else (ids, grad)), *more) :: Where
        ids has several dimensions, you use only its first row.
error
    another-dtype :: same dtype :: $DTYPE
    another-dtype :: same scalar type :: $DTYPE
    another-dtype :: destination dtypes match :: $DTYPE
    another-dtype :: expected scalar type :: $DTYPE
    several-dimensions :: supposed to be a vector :: $FLATTEN
    several-dimensions :: same number of dimensions as :: $FLATTEN
""",
    wrap=dense,
    LAST=(
        "The gradients of an id that is repeated add up. `table[ids] += …` leaves only one of them: it adds to each row once."
    ),
    MEAN="A row that was looked up k times gets the sum of its k gradients; you divide by k.",
    DTYPE="The table of gradients needs the dtype of grad_output: grad_output.new_zeros(…).",
    FLATTEN="ids may have any number of dimensions, grad_output one more: flatten both alike, ids to (n,), grad_output to "
    "(n, d).",
)


def _case(ids: Any, vocabulary: int, *more: int, d: int = 3, dtype: torch.dtype = torch.float64) -> tuple:
    ids = ids if isinstance(ids, Tensor) else torch.tensor(ids)
    made = torch.Generator().manual_seed(ids.numel() + vocabulary)
    return ids, torch.randn(*ids.shape, d, generator=made).to(dtype), vocabulary, *more


def _scaled(factor: float | Tensor, case: tuple) -> tuple:
    ids, grad, *more = case
    return ids, factor * grad, *more


@exercise(
    "embedding-backward", notebook="18_targets", takes="ids, grad_output, vocabulary, padding_idx", returns=like("grad_output")
)
def judge_embedding_backward(answer: Callable) -> None:
    """zeros(V, d).index_add(0, ids, grad_output), and 0 in the row padding_idx."""
    cases = {
        "ids [2, 0, 2] of 4 words": _case([2, 0, 2], 4),
        "ids [4, 6, 1] of 7 words": _case([4, 6, 1], 7),
        "the same id five times": _case([1, 1, 1, 1, 1], 3),
        "ids of shape (2, 3)": _case([[5, 0, 5], [2, 5, 0]], 8),
        "ids of shape (2, 2, 2)": _case([[[1, 3], [3, 0]], [[2, 2], [3, 6]]], 9, d=2),
        "int32 ids": _case(torch.tensor([3, 0, 3], dtype=torch.int32), 6),
        "no ids at all": _case(torch.empty(0, dtype=torch.int64), 2),
        "padding_idx = 0": _case([[1, 5, 0], [1, 0, 0]], 6, 0),
        "padding_idx = 0, ids in one row": _case([1, 0, 0, 2], 4, 0),
        "padding_idx = 2": _case([2, 0, 2, 3], 5, 2),
        "a padding_idx that does not occur": _case([3, 0, 3], 5, 1),
        "300 words": _case([299, 40, 299, 43], 300, d=2),
        "gradients near 1e8, and one near 1, in float32": _scaled(
            torch.tensor([[1e8], [1.0], [1e8]]), _case([1, 3, 1], 4, dtype=torch.float32)
        ),
        "gradients near 1e-6": _scaled(1e-6, _case([1, 3, 1, 0, 2], 4)),
    }
    RUBRIC.expect(answer, cases, explain=_explain)
    answer = dense(answer)
    given = cases["ids [2, 0, 2] of 4 words"]
    if not same(answer(*copy.deepcopy(given)), right(*given), 1e-12):
        hint = "For grad_output in float64 your sums have the seven digits of float32: add up in the dtype of grad_output."
        raise Mistake("another-dtype", hint)
    expect_no_autograd(answer, *given)
    _expect_own_work(answer)


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says for which cases, or which rows of the first wrong case, the gradient is another one."""
    wrong, cases = {}, {row.case: row.given for row in judged}
    for case, given, got, wanted in judged:
        if not given[0].numel() and not wrong and not same(got, wanted):
            hint = "Without any ids no row was read: the gradient is a table of zeros, (vocabulary, d)."
            raise Mistake("no-ids", hint)
        if got.ndim != 2 or got.shape[1] != wanted.shape[1]:
            return
        if len(got) != len(wanted):
            hint = f"For {case} your table has {len(got)} rows; it has one for each word, {len(wanted)}, also for padding_idx."
            raise Mistake("other-number-of-rows", hint)
        if not same(got, wanted):
            wrong[case] = got, wanted
    first = next(iter(wrong), None)
    if wrong and all(cases[case][0].ndim > 1 for case in wrong):
        hint = f"Your gradient is wrong only where ids has several dimensions, such as {first}: flatten it as grad_output."
        raise Mistake("several-dimensions", hint)
    if wrong and all(len(cases[case]) > 3 for case in wrong):
        row = next(r for r, (a, b) in enumerate(zip(*wrong[first], strict=True)) if not same(a, b))
        wanted = "the padding, and 0 is its gradient" if row == cases[first][3] else "not the padding, and keeps its gradient"
        hint = f"Your gradient is wrong only with a padding_idx. For {first}, look at row {row}: it is {wanted}."
        raise Mistake("wrong-with-padding", hint)
    for case, (got, wanted) in wrong.items():
        times = cases[case][0].flatten().long().bincount(minlength=len(wanted))
        rows = [r for r in range(len(wanted)) if not same(got[r], wanted[r])]
        if not all(times[r] for r in rows):
            hint = f"For {case} row {next(r for r in rows if not times[r])} was not read: its gradient is 0, yours is not."
            raise Mistake("unseen-row-not-0", hint)
        if all(times[r] > 1 for r in rows):
            hint = (
                f"For {case} only rows that were read several times are wrong, such as row {rows[0]}: add their gradients up."
            )
            raise Mistake("repeats-not-summed", hint)
        row = next((r for r in rows if times[r] == 1), rows[0])
        hint = f"For {case} row {row} was read once: its gradient is that row of grad_output, unchanged."
        raise Mistake("row-read-once", hint)


def _expect_own_work(answer: Callable) -> None:
    """Raise Mistake if torch's own backward pass does it, or something has a number for each id and each word."""
    n, vocabulary = 1000, 2000
    given = _case(torch.arange(n) * 7 % vocabulary, vocabulary, d=2, dtype=torch.float32)
    called = operators(lambda: answer(*copy.deepcopy(given)))
    if ready := [op.name for op in called if "_backward" in op.name]:
        hint = f"The numbers are right, but {ready[0]} is torch's own backward pass; the exercise asks you to write it."
        raise Mistake("uses-autograd", hint)
    written = max((op.written for op in called), default=0)
    if max(written, _numpys_bytes(lambda: answer(*given))) >= n * vocabulary:  # in a mask a number takes one byte
        hint = (
            f"The numbers are right, but for {n:,} ids and {vocabulary:,} words you make {n * vocabulary:,} numbers, one-hot "
            "vectors or a mask: just what an embedding avoids. Add each gradient to its row."
        )
        raise Mistake("one-hot-in-memory", hint)


def _numpys_bytes(work: Callable[[], Any]) -> int:
    """The peak of what Python and NumPy allocate; torch's tensors are not seen here."""
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not running:
            tracemalloc.stop()
