"""embedding-backward: the gradient of a table from that of the rows which were looked up in it."""

import copy
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function, expect_no_autograd
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import numbers, same
from hpml_lab.core.measure.counting import operators

Tensor = torch.Tensor
Backward = Callable[..., Any]  # (ids, grad_output, vocabulary, padding_idx=None)
Gather = Callable[[Tensor, Tensor, int], Tensor]  # (ids (n,), rows (n, d), vocabulary)


def _sum(ids: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    return rows.new_zeros(vocabulary, rows.shape[-1]).index_add(0, ids, rows)


def _counts(ids: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    return _sum(ids, torch.ones_like(rows), vocabulary)


def _in_turn(order: Callable[[int], Any]) -> Gather:
    """Each id sets its row, in an order: the last one stays."""

    def gather(ids: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
        table = rows.new_zeros(vocabulary, rows.shape[-1])
        for i in order(len(ids)):
            table[ids[i]] = rows[i]
        return table

    return gather


def _by_position(ids: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    table = rows.new_zeros(max(vocabulary, len(rows)), rows.shape[-1])
    table[: len(rows)] = rows
    return table[:vocabulary]


def _flat(ids: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return ids.flatten().long(), grad.reshape(-1, grad.shape[-1])


def _without_none(ids: Tensor, table: Tensor, padding: int | None) -> Tensor:
    if padding is not None:
        table[padding] = 0
    return table


def _build(
    flat: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = _flat,
    gather: Gather = _sum,
    scale: Callable[[Tensor], float] = lambda ids: 1.0,
    pad: Callable[[Tensor, Tensor, int | None], Tensor] = _without_none,
    end: Callable[[Tensor, Tensor], Any] = lambda table, ids: table,
) -> Backward:
    def backward(ids: Tensor, grad: Tensor, vocabulary: int, padding_idx: int | None = None) -> Any:
        table = gather(*flat(ids, grad), vocabulary) * scale(ids)
        return end(pad(ids, table, padding_idx), ids)

    return backward


right = _build()
_MEAN = "A row that was looked up k times gets the sum of its k gradients; you divide by k."
_BATCH = "Your gradients are all too small by the same factor: the division by the batch is in grad_output already."
_LAST = (
    "Where an id is repeated, only one of its gradients is left in your table. `table[ids] += …` does that, too: it adds to \
each row once."
)
_ORDER = "The rows of grad_output do not belong to the ids in this order: flatten both over all dimensions but the last."
MISTAKES = combined(
    _build,
    {
        "gather": {
            "repeated-ids-overwritten": (_in_turn(range), _LAST),
            "repeated-ids-overwritten, the first stays": (_in_turn(lambda n: reversed(range(n))), _LAST),
            "mean-over-repeats": (lambda i, r, v: _sum(i, r, v) / _counts(i, r, v).clamp(min=1), _MEAN),
            "mean-over-repeats, and nan": (
                lambda i, r, v: _sum(i, r, v) / _counts(i, r, v),
                _MEAN + " And rows that were never looked up become nan: their gradient is 0.",
            ),
            "times-the-count": (
                lambda i, r, v: _sum(i, r, v) * _counts(i, r, v),
                "A row that was looked up k times has the sum of its gradients; yours is k times that.",
            ),
            "counts-not-gradients": (_counts, "You count how often each row was looked up; add up the gradients instead."),
            "rows-by-position": (
                _by_position,
                "You put the i-th gradient into row i. It belongs into row ids[i]: the ids say which row was read.",
            ),
            "rows-by-rank": (
                lambda i, r, v: _sum(i.unique(return_inverse=True)[1], r, v),
                "You put the gradients into rows 0, 1, 2, … in the order of the ids that occur. Row 7 is row 7, also where "
                "rows 0 to 6 were not looked up.",
            ),
            "same-gradient-for-all-rows": (
                lambda i, r, v: r.sum(0).expand(v, -1).clone(),
                "Every row of your table has the same gradient. Only rows that were looked up have one, each its own.",
            ),
        },
        "flat": {
            "flattened-in-another-order": (lambda i, g: (i.flatten().long(), g.reshape(g.shape[-1], -1).T), _ORDER),
            "flattened-in-another-order, ids": (lambda i, g: _flat(i.mT if i.ndim > 1 else i, g), _ORDER),
            "first-sequence-only": (
                lambda i, g: _flat(i[0], g[0]) if i.ndim > 1 else _flat(i, g),
                "Where ids has several dimensions, you use only its first row.",
            ),
            "last-sequence-only": (
                lambda i, g: _flat(i[-1], g[-1]) if i.ndim > 1 else _flat(i, g),
                "Where ids has several dimensions, only its last row is in your result.",
            ),
        },
        "scale": {
            "divided-by-the-batch": (lambda ids: 1 / max(ids.numel(), 1), _BATCH),
            "divided-by-the-batch, nan without ids": (lambda ids: 1 / ids.numel() if ids.numel() else math.nan, _BATCH),
            "divided-by-the-batch, first dimension": (lambda ids: 1 / max(len(ids), 1), _BATCH),
            "wrong-sign": (
                lambda ids: -1.0,
                "Your gradient has the wrong sign: the optimizer subtracts it, not the backward pass.",
            ),
        },
        "pad": {
            "padding-ignored": (
                lambda ids, table, padding: table,
                "The row padding_idx is never trained: its gradient is 0, whatever grad_output holds there.",
            ),
            "padding-0-missed": (
                lambda ids, table, padding: _without_none(ids, table, padding or None),
                "padding_idx may be 0, and `if padding_idx:` is False for it. Ask whether it is None.",
            ),
            "row-0-always-padding": (
                lambda ids, table, padding: _without_none(ids, table, padding or 0),
                "Row 0 is a row as others are, unless padding_idx says that it is padding.",
            ),
            "only-the-padding": (
                lambda ids, table, padding: table if padding is None else table - _without_none(ids, table.clone(), padding),
                "With padding_idx only that row is left in your result; it is the one whose gradient is 0.",
            ),
        },
        "end": {
            "transposed": (lambda table, ids: table.T, "Your table is transposed: a row for each word, (vocabulary, d)."),
            "only-seen-rows": (
                lambda table, ids: table[ids.unique().long()],
                "You return the rows that were looked up. The table has all rows; the gradient of the others is 0.",
            ),
            "table-ends-early": (
                lambda table, ids: table[: int(ids.max()) + 1] if ids.numel() else table[:0],
                "Your table ends with the largest id that occurs; it has `vocabulary` rows.",
            ),
            "summed-over-the-width": (
                lambda table, ids: table.sum(1),
                "You sum over the last dimension; each of the d numbers of a row has a gradient of its own.",
            ),
            "looked-up-again": (
                lambda table, ids: table[ids.long()],
                "You return a row for each id, (…, d), as the forward pass does; the gradient has the shape of the table.",
            ),
        },
    },
)
_FLATTEN = (
    "ids may have any number of dimensions, grad_output one more: flatten both alike, ids to (n,), grad_output to (n, d)."
)
_INT32 = "Your way needs ids in int64, and they may come in int32: ids.long() first."
_DTYPE = "The table of gradients needs the dtype of grad_output: grad_output.new_zeros(…)."
_TEXTS = {
    ("another-dtype", _DTYPE): ("same dtype", "same scalar type", "destination dtypes match", "expected scalar type"),
    ("several-dimensions", _FLATTEN): ("supposed to be a vector", "same number of dimensions as"),
    ("int64-only", _INT32): ("dtype int64", "index tensor of type LongTensor"),
}
ERRORS = {text: found for found, texts in _TEXTS.items() for text in texts}


def _case(ids: Any, vocabulary: int, *more: int, d: int = 3, dtype: torch.dtype = torch.float64) -> tuple:
    ids = ids if isinstance(ids, Tensor) else torch.tensor(ids)
    made = torch.Generator().manual_seed(ids.numel() + vocabulary)
    return ids, torch.randn(*ids.shape, d, generator=made).to(dtype), vocabulary, *more


def _scaled(factor: float, case: tuple) -> tuple:
    ids, grad, *more = case
    return ids, factor * grad, *more


@exercise("embedding-backward", notebook="18_targets")
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
        "padding_idx = 2": _case([2, 0, 2, 3], 5, 2),
        "a padding_idx that does not occur": _case([3, 0, 3], 5, 1),
        "300 words": _case([299, 40, 299, 43], 300, d=2),
        "gradients near 1,000": _scaled(1e3, _case([1, 3, 1], 4)),
        "gradients near 1e-6": _scaled(1e-6, _case([1, 3, 1, 0, 2], 4)),
    }
    answer = _dense(answer)
    try:
        expect_function(answer, right, cases, mistakes=MISTAKES, errors=ERRORS)
    except Mistake as mistake:
        if mistake.name in ("wrong-value", "wrong-shape"):
            _explain(answer, cases)
        raise
    for dtype in (torch.float32, torch.float64):
        given = _case([2, 0, 2], 4, dtype=dtype)
        found = answer(*copy.deepcopy(given))
        if isinstance(found, Tensor) and found.dtype != dtype:
            raise Mistake("another-dtype", f"The numbers are right, but for grad_output in {dtype} yours are {found.dtype}.")
        if dtype == torch.float64 and not same(found, right(*given), 1e-12):
            hint = "For grad_output in float64 your sums have the seven digits of float32: add up in the dtype of grad_output."
            raise Mistake("another-dtype", hint)
    expect_no_autograd(answer, *cases["ids [2, 0, 2] of 4 words"])
    _expect_own_work(answer)


def _dense(answer: Callable) -> Callable:
    """The answer, whose gradient may be a sparse tensor, as that of nn.Embedding(…, sparse=True) is."""

    def dense(*arguments: Any) -> Any:
        found = answer(*arguments)
        return found.to_dense() if isinstance(found, Tensor) and found.layout != torch.strided else found

    return dense


def _explain(answer: Callable, cases: dict[str, tuple]) -> None:
    """Raise the Mistake that says for which cases, or which rows of the first wrong case, the gradient is another one."""
    wrong = {}
    for case, given in cases.items():
        got, wanted = numbers(answer(*copy.deepcopy(given))), right(*given)
        if not given[0].numel() and not wrong and (got is None or not same(got, wanted)):
            hint = "Without any ids no row was read: the gradient is a table of zeros, (vocabulary, d)."
            raise Mistake("no-ids", hint)
        if got is None or got.ndim != 2 or got.shape[1] != wanted.shape[1]:
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
