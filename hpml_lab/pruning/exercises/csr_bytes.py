"""csr-bytes: the bytes of a matrix in CSR, and from how many zeros on they are fewer than those of the dense matrix."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric, item
from hpml_lab.core.judge.same import same


def _matrix(rows: int, columns: int, zeros: float, dtype: torch.dtype, seed: int) -> Tensor:
    """Small numbers of both signs, of which about the share `zeros` is 0; the second row is all zeros. Floats are fractions."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(1, 9, (rows, columns), generator=generator)
    values *= 1 - 2 * torch.randint(0, 2, values.shape, generator=generator)
    values *= torch.rand(rows, columns, generator=generator) >= zeros
    values[1] = 0
    return values.to(dtype) / 4 if dtype.is_floating_point else values.to(dtype)


# In the second, 11 kept elements take exactly as many bytes as the dense matrix. The last two differ in their elements alone.
CASES: dict[str, tuple[Tensor, torch.dtype]] = {
    f"a {rows} × {columns} matrix in {str(dtype)[6:]} with {str(index)[6:]} indices": (
        _matrix(rows, columns, zeros, dtype, seed),
        index,
    )
    for seed, (rows, columns, zeros, dtype, index) in enumerate(
        [
            (40, 64, 0.7, torch.float32, torch.int64),
            (5, 9, 0.5, torch.float32, torch.int64),
            (64, 40, 0.9, torch.float32, torch.int32),
            (48, 100, 0.3, torch.float64, torch.int32),
            (100, 48, 0.8, torch.float16, torch.int64),
            (30, 200, 0.6, torch.float16, torch.int32),
            (24, 120, 0.95, torch.int8, torch.int32),
            (16, 90, 1.0, torch.float32, torch.int64),
            (60, 80, 0.1, torch.float32, torch.int64),
        ]
    )
}
CASES["a 60 × 80 matrix in float32 with int64 indices, most of it 0 and the rest below 1e-8"] = (
    1e-9 * _matrix(60, 80, 0.7, torch.float32, 9),
    torch.int64,
)


def right(weight: Tensor, index_dtype: torch.dtype) -> tuple[float, float]:
    value, index = weight.dtype.itemsize, index_dtype.itemsize
    kept = int(weight.count_nonzero())
    pointers = weight.shape[0] + 1
    stored = kept * value + kept * index + pointers * index
    spare = weight.numel() * value - (weight.shape[0] + 1) * index - 1
    fewest = weight.numel() - spare // (value + index)
    return stored, fewest


BYTES = Rubric(
    right,
    """
int(weight.count_nonzero())
    small-ones-not-counted :: int((weight.abs() > 1e-6).sum()) :: You take small elements for 0. An element of 1e-9 is stored,
        too: only 0 itself is not.
    negative-ones-not-counted :: int((weight > 0).sum()) :: You count what is above zero. Elements below zero are stored, too.
kept * value
    four-bytes-a-value :: kept * 4 :: Values are stored in their own dtype: not each has the 4 bytes of float32.
pointers = weight.shape[0] + 1
    one-pointer-missing :: pointers = weight.shape[0] :: n rows need n + 1 pointers: the last one says where the last row ends.
    coo :: pointers = int(weight.count_nonzero()) :: A row index for each value is COO. CSR has pointers, one for each row and
        one for the end.
    pointers-of-columns :: pointers = weight.shape[1] + 1 :: Those are the pointers of CSC. CSR has them for the rows.
whole answer
    twelve-bytes-always :: lambda w, i: (12 * int(w.count_nonzero()) + 8 * (w.shape[0] + 1), 0) :: $TWELVE
    twelve-bytes-always :: lambda w, i: (12 * int(w.count_nonzero()) + 8 * w.shape[0], 0) :: $TWELVE
    twelve-bytes-always :: lambda w, i: (12 * int(w.count_nonzero()), 0) :: $TWELVE
""",
    wrap=item(0),
    TWELVE="12 bytes a value are those of float32 with int64 indices. Take the bytes of the dtypes that are given.",
)
_OWN = "The first number is right. || The second number"
_SHARE = f"{_OWN} is a count of zeros, not their share."
_WHOLE = f"{_OWN} is a whole one: which one is the first that is enough?"
ZEROS = Rubric(
    right,
    """
weight.numel() * value - (weight.shape[0] + 1) * index - 1
    equal-is-not-fewer :: weight.numel() * value - (weight.shape[0] + 1) * index :: $OWN must leave CSR fewer bytes than dense;
        equally many are not fewer.
    row-pointers-forgotten :: weight.numel() * value - 1 :: $OWN leaves out the row pointers, which zeros do not save.
return stored, fewest
    not-a-whole-number :: return stored, weight.numel() - (spare + 1) / (value + index) :: $WHOLE
    missing-zeros :: return stored, fewest - (weight.numel() - kept) :: $LACKS
    missing-zeros :: return stored, max(0, fewest - (weight.numel() - kept)) :: $LACKS
""",
    wrap=item(1),
    OWN=_OWN,
    WHOLE=_WHOLE,
    LACKS=f"{_OWN} is how many zeros this matrix lacks. Give the number for any matrix of its shape and dtype.",
)


@exercise("csr-bytes", notebook="17_pruning", takes="weight, index_dtype", returns=(float, float))
def judge_csr_bytes(answer: Callable[[Tensor, torch.dtype], Any]) -> None:
    """kept · (value + index) + (rows + 1) · index bytes, and the fewest zeros that make them fewer than the dense matrix's."""
    try:
        BYTES.expect(answer, _named("the bytes of"))
    except Mistake as mistake:
        if all(same(answer(w.clone(), i), right(w, i)[::-1]) for w, i in CASES.values()):
            raise Mistake("wrong-order", "Return the bytes first, and then the zeros.") from mistake
        raise
    cases = _named("the fewest zeros of")
    ZEROS.expect(answer, cases, explain=lambda _, judged: _explain({row.case: (row.got, *row.given) for row in judged}))


def _named(what: str) -> dict[str, tuple[Tensor, torch.dtype]]:
    """The cases, so that a message says which of the two numbers it means."""
    return {f"{what} {case}": given for case, given in CASES.items()}


def _explain(judged: Mapping[str, tuple[float, Tensor, torch.dtype]]) -> None:
    """Raise the Mistake that says what is wrong with the fewest zeros, where no known mistake gives them."""
    if all(0 <= own <= 1 for own, *_ in judged.values()):
        raise Mistake("share-not-a-number", _SHARE)
    for case, (own, weight, index_dtype) in judged.items():
        if own % 1:  # also inf and nan
            raise Mistake("not-a-whole-number", _WHOLE)
        if same(own, right(weight, index_dtype)[1]):
            continue
        case = case.removeprefix("the fewest zeros of ")
        if own > weight.numel():
            hint = f"For {case} you ask for {own:,.0f} zeros of {weight.numel():,} elements."
            raise Mistake("more-zeros-than-elements", hint)
        value, index = weight.dtype.itemsize, index_dtype.itemsize
        taken, dense = (weight.numel() - own) * (value + index) + (weight.shape[0] + 1) * index, weight.numel() * value
        words = f"For {case}, {own:,.0f} zeros leave CSR {taken:,.0f} bytes; dense it takes {dense:,}."
        if taken >= dense:
            raise Mistake("not-enough-zeros", words)
        raise Mistake("more-zeros-than-needed", f"{words} Would fewer zeros be enough?")
