"""csr-bytes: the bytes of a matrix in CSR, and from how many zeros on they are fewer than those of the dense matrix."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import MORE, combined
from hpml_lab.core.judge.same import numbers, plain, same, shown

Count = Callable[[Tensor, torch.dtype], float]


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

# ---- the parts of the first number -----------------------------------------------------------------------------------


def kept(weight: Tensor) -> int:
    return int(weight.count_nonzero())


def pointers(weight: Tensor) -> int:
    return weight.shape[0] + 1


def size(weight: Tensor) -> int:
    return weight.dtype.itemsize


def wide(weight: Tensor, index: torch.dtype) -> int:
    return index.itemsize


def stored(count=kept, value=size, columns=None, column_size=wide, rows=pointers, row_size=wide) -> Count:
    """CSR's bytes: values, column indices (as many as values unless `columns` counts them), row pointers."""

    def bytes_of(weight: Tensor, index: torch.dtype) -> float:
        n = count(weight)
        of_columns = (n if columns is None else columns(weight)) * column_size(weight, index)
        return n * value(weight) + of_columns + rows(weight) * row_size(weight, index)

    return bytes_of


def _numbers(bytes_each: float) -> Callable[..., float]:
    return lambda *_: bytes_each


def dense(weight: Tensor) -> int:
    return weight.numel() * size(weight)


ROWS_HINT = "Besides values and columns, CSR stores where each row begins. How many such pointers are there?"
PARTS = {
    "count": {
        "zeros-counted": (Tensor.numel, "You count every element. CSR stores only those that are not 0."),
        "counts-the-zeros": (lambda w: w.numel() - kept(w), "You count the zeros; CSR stores the other elements."),
        "negatives-not-counted": (lambda w: int((w > 0).sum()), "Elements below 0 are stored, too: they are not 0."),
        "fractions-cut-off": (lambda w: int(w.int().count_nonzero()), "A weight of 0.25 is stored, too: only 0 itself is not."),
        "small-ones-not-counted": (
            lambda w: int((w.abs() > 1e-6).sum()),
            "You take small elements for 0. An element of 1e-9 is stored, too: only 0 itself is not.",
        ),
        "coordinates-counted": (
            lambda w: 2 * kept(w),
            "nonzero() gives two numbers, row and column, for each element that is not 0: you count both.",
        ),
        "rows-counted": (lambda w: int(w.any(1).sum()), "Count elements, not rows that hold some."),
    },
    "value": {
        "values-of-4-bytes": (_numbers(4), "A value has as many bytes as the matrix's own dtype: not all are float32."),
        "values-of-8-bytes": (_numbers(8), "A value has as many bytes as the matrix's own dtype; 8 are those of float64."),
        "values-not-bytes": (_numbers(1), "You count the values; count their bytes."),
        "values-forgotten": (_numbers(0), "The indices are there; the values themselves take bytes, too."),
    },
    "columns": {
        "columns-forgotten": (_numbers(0), "Each stored value needs its column index."),
        "one-column-index-per-column": (lambda w: w.shape[1], "There is a column index for each stored value."),
        "rows-and-pointers": (lambda w: 2 * kept(w), "With the row pointers, a value needs no row index: only its column."),
    },
    "rows": {
        "row-pointers-forgotten": (_numbers(0), ROWS_HINT),
        "one-pointer-missing": (lambda w: w.shape[0], "n rows need n + 1 pointers: the last one says where the last row ends."),
        "coo": (kept, "A row index for each value is COO. CSR has pointers, one for each row and one for the end."),
        "pointers-of-columns": (lambda w: w.shape[1] + 1, "Those are the pointers of CSC. CSR has them for the rows."),
        "two-pointers-per-row": (lambda w: 2 * w.shape[0], "A row ends where the next one begins: one pointer says both."),
        "pointers-of-full-rows-only": (lambda w: int(w.any(1).sum()) + 1, "Rows of zeros have a pointer, too."),
    },
}
SIZES = {
    "indices-of-8-bytes": (_numbers(8), "The indices have the dtype that is given; int64 is only what torch takes by default."),
    "indices-of-4-bytes": (_numbers(4), "The indices have the dtype that is given, not always 4 bytes."),
    "indices-like-values": (lambda w, _: size(w), "An index has the bytes of the index dtype, not of the values."),
    "indices-not-bytes": (_numbers(1), "You count the indices; count their bytes."),
}


def _built(index: Callable[..., float] = wide, **parts: Any) -> Count:
    return stored(**{"column_size": index, "row_size": index} | parts)


UNIT = "Return bytes, in no other unit."
BYTES_MISTAKES: dict[str, tuple[Count, str]] = {
    **{
        f"twelve-bytes-always{variant}": (
            stored(value=_numbers(4), column_size=_numbers(8), row_size=_numbers(8), rows=count),
            "12 bytes a value are those of float32 with int64 indices. Take the bytes of the dtypes that are given.",
        )
        for variant, count in {"": pointers, ", no pointers": _numbers(0), ", one pointer less": lambda w: w.shape[0]}.items()
    },
    **combined(_built, {**PARTS, "index": SIZES}),
    "pointers-like-values": (
        stored(row_size=lambda w, _: size(w)),
        "The row pointers are indices: they have the bytes of the index dtype.",
    ),
    "pointers-of-8-bytes": (stored(row_size=_numbers(8)), "The row pointers have the index dtype that is given, too."),
    "pointers-of-4-bytes": (stored(row_size=_numbers(4)), "The row pointers have the index dtype that is given, too."),
    "columns-of-4-bytes": (stored(column_size=_numbers(4)), "The column indices have the index dtype that is given, too."),
    "columns-of-8-bytes": (stored(column_size=_numbers(8)), "The column indices have the index dtype that is given, too."),
    "dense-bytes": (lambda w, _: dense(w), "Those are the bytes of the dense matrix, zeros and all."),
    "bits": (lambda w, index: 8 * stored()(w, index), "Those are bits; a byte has 8 of them."),
    **{
        f"wrong-unit, {unit}": (lambda w, index, factor=factor: stored()(w, index) / factor, UNIT)
        for unit, factor in {"kB": 1e3, "KiB": 2**10, "MB": 1e6, "MiB": 2**20}.items()
    },
    "saved-not-stored": (lambda w, index: dense(w) - stored()(w, index), "That is what CSR saves. Return what it takes."),
    "share-not-bytes": (lambda w, index: stored()(w, index) / dense(w), "That is a share of the dense bytes. Return bytes."),
}

# ---- the parts of the second number ----------------------------------------------------------------------------------


def fewest(
    total: Callable[[Tensor], float] = Tensor.numel,
    value=size,
    index=wide,
    pairs: int = 1,
    rows=pointers,
    equal: bool = False,
    more: int = 0,
) -> Count:
    """The fewest zeros with which CSR takes fewer bytes than the dense matrix.

    pairs  indices for each value;  equal  as few bytes are enough;  more  added at the end
    """

    def zeros(weight: Tensor, wanted: torch.dtype) -> int:
        spare = dense(weight) if value is size else weight.numel() * value(weight)
        spare -= rows(weight) * index(weight, wanted) + (not equal)
        return int(total(weight) - spare // (value(weight) + pairs * index(weight, wanted)) + more)

    return zeros


def _share(weight: Tensor, index: torch.dtype) -> float:
    return fewest()(weight, index) / weight.numel()


def _without_rounding(weight: Tensor, index: torch.dtype) -> float:
    spare = dense(weight) - pointers(weight) * index.itemsize
    return weight.numel() - spare / (size(weight) + index.itemsize)


OWN = "The first number is right. The second"
ZEROS_MISTAKES: dict[str, tuple[Count, str]] = {
    "equal-is-not-fewer": (fewest(equal=True), f"{OWN} must leave CSR fewer bytes than dense; equally many are not fewer."),
    "kept-not-zeros": (
        lambda w, i: w.numel() - fewest()(w, i),
        f"{OWN} is how many elements may be kept. How many are 0 then?",
    ),
    "share-not-a-number": (_share, f"{OWN} is a number of zeros, not their share."),
    "percent-not-a-number": (lambda w, i: 100 * _share(w, i), f"{OWN} is a number of zeros, not a percentage."),
    "not-a-whole-number": (_without_rounding, f"{OWN} is a whole number of zeros: which one is the first that is enough?"),
    "rounded-down": (
        lambda w, i: int(_without_rounding(w, i)),
        f"{OWN} is rounded down: with that many zeros CSR is not smaller yet.",
    ),
    "rounded": (
        lambda w, i: round(_without_rounding(w, i)),
        f"{OWN} is rounded to the nearest: that is not always enough zeros.",
    ),
    "one-too-many": (fewest(more=1), f"{OWN} is one too large: one zero less is enough."),
    "one-too-few": (fewest(more=-1), f"{OWN} is one too small: with so many zeros CSR is not smaller yet."),
    "row-pointers-forgotten": (fewest(rows=_numbers(0)), f"{OWN} leaves out the row pointers, which zeros do not save."),
    "row-pointers-forgotten, equal": (
        fewest(rows=_numbers(0), equal=True),
        f"{OWN} leaves out the row pointers, which zeros do not save. {MORE}",
    ),
    "row-pointers-forgotten, not rounded": (
        lambda w, i: w.numel() * i.itemsize / (size(w) + i.itemsize),
        f"{OWN} leaves out the row pointers, which zeros do not save. {MORE}",
    ),
    "one-pointer-missing": (fewest(rows=lambda w: w.shape[0]), f"{OWN} counts one row pointer too few."),
    "coo": (fewest(pairs=2), f"{OWN} counts two indices for each value, as COO has them."),
    "indices-of-8-bytes": (fewest(index=_numbers(8)), f"{OWN} takes int64 indices, whatever the index dtype is."),
    "indices-of-4-bytes": (fewest(index=_numbers(4)), f"{OWN} takes int32 indices, whatever the index dtype is."),
    "values-of-4-bytes": (fewest(value=_numbers(4)), f"{OWN} takes values of 4 bytes, whatever the matrix's dtype is."),
    "two-thirds-always": (
        lambda w, i: -(-2 * w.numel() // 3),
        f"{OWN} is two thirds whatever the dtypes: that is the limit of float32 with int64 indices, and without the pointers.",
    ),
    "half-always": (
        lambda w, i: w.numel() // 2,
        f"{OWN} is half of the elements, whatever the dtypes. What does a value cost?",
    ),
    "zeros-of-this-matrix": (
        lambda w, i: w.numel() - kept(w),
        f"{OWN} asks what is needed, not how many zeros this matrix has.",
    ),
    "missing-zeros": (
        lambda w, i: fewest()(w, i) - (w.numel() - kept(w)),
        f"{OWN} is how many zeros this matrix lacks. Give the number for any matrix of its shape and dtype.",
    ),
}
ZEROS_MISTAKES["missing-zeros, or none"] = (
    lambda w, i: max(0, ZEROS_MISTAKES["missing-zeros"][0](w, i)),
    ZEROS_MISTAKES["missing-zeros"][1],
)


@exercise("csr-bytes", notebook="17_pruning")
def judge_csr_bytes(answer: Callable[[Tensor, torch.dtype], Any]) -> None:
    """kept · (value + index) + (rows + 1) · index bytes, and the fewest zeros that make them fewer than the dense matrix's."""

    def two(weight: Tensor, index: torch.dtype) -> list[Any]:
        given = answer(weight, index)
        if given is None:
            raise Mistake("returns-nothing", "Your function returns None: return the two numbers.")
        items = list(given) if isinstance(given, Iterable) and not isinstance(given, str | Mapping) else []
        if len(items) != 2 or any(numbers(item) is None or numbers(item).ndim for item in items):
            raise Mistake("not-two-numbers", f"Return two numbers, the bytes and the zeros; yours is {shown(given)}.")
        return [plain(item) for item in items]

    try:
        expect_function(lambda w, i: two(w, i)[0], stored(), _named("the bytes of"), mistakes=BYTES_MISTAKES)
    except Mistake as mistake:
        if all(same(two(w.clone(), i), [fewest()(w, i), stored()(w, i)]) for w, i in CASES.values()):
            raise Mistake("wrong-order", "Return the bytes first, and then the zeros.") from mistake
        raise
    try:
        expect_function(lambda w, i: two(w, i)[1], fewest(), _named("the fewest zeros of"), mistakes=ZEROS_MISTAKES)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            _explain({case: two(w.clone(), i)[1] for case, (w, i) in CASES.items()})
        raise


def _named(what: str) -> dict[str, tuple[Tensor, torch.dtype]]:
    """The cases, so that a message says which of the two numbers it means."""
    return {f"{what} {case}": given for case, given in CASES.items()}


def _explain(zeros: Mapping[str, float]) -> None:
    """Raise the Mistake that says what is wrong with the fewest zeros, where no known mistake gives them."""
    if all(0 <= own <= 1 for own in zeros.values()):
        raise Mistake(*_mistake("share-not-a-number"))
    for case, own in zeros.items():
        weight, index = CASES[case]
        if own != int(own):
            raise Mistake(*_mistake("not-a-whole-number"))
        if same(own, fewest()(weight, index)):
            continue
        if own > weight.numel():
            raise Mistake(
                "more-zeros-than-elements", f"For {case} you ask for {own:,.0f} zeros of {weight.numel():,} elements."
            )
        taken = (weight.numel() - own) * (size(weight) + index.itemsize) + pointers(weight) * index.itemsize
        words = f"For {case}, {own:,.0f} zeros leave CSR {taken:,.0f} bytes; dense it takes {dense(weight):,}."
        if taken >= dense(weight):
            raise Mistake("not-enough-zeros", words)
        raise Mistake("more-zeros-than-needed", f"{words} Would fewer zeros be enough?")


def _mistake(name: str) -> tuple[str, str]:
    return name, ZEROS_MISTAKES[name][1]
