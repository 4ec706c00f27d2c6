"""Answers to `fused-bias-gelu`: a block of elements for each program, the bias by column, and a mask for what is beyond."""

from edited_source import wrong_answers


def solution(x_start, bias_start, y_start, n, columns, BLOCK: "tl.constexpr"):  # noqa: F821
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # noqa: F821
    exists = element < n
    z = tl.load(x_start + element, mask=exists) + tl.load(bias_start + element % columns, mask=exists)  # noqa: F821
    tl.store(y_start + element, z * (0.5 + 0.5 * tl.erf(z * 0.7071067811865476)), mask=exists)  # noqa: F821


X, STORE = "tl.load(x_start + element, mask=exists)", "), mask=exists)"
ELEMENT = "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"
WRONG = wrong_answers(
    solution,
    [
        ("loads-outside", (X, "tl.load(x_start + element)")),
        ("loads-outside", (X, "tl.load(x_start + element)"), (STORE, "))")),
        ("stores-outside", (STORE, "))")),
        ("stores-twice", (ELEMENT, "tl.program_id(0) + tl.arange(0, BLOCK)")),
        ("stores-twice", (ELEMENT, "tl.arange(0, BLOCK)")),
        ("not-stored", ("element < n", "element < n - 1")),
        ("not-stored", ("element < n", "element < BLOCK")),
        ("loads-twice", ("tl.erf(z *", f"tl.erf(({X} + tl.load(bias_start + element % columns, mask=exists)) *")),
        ("block-size", ("tl.arange(0, BLOCK)", "tl.arange(0, 1000)")),
        ("block-size", ("tl.arange(0, BLOCK)", "tl.arange(0, columns)")),
        ("wrong-value", ("0.5 * tl.erf", "0.4 * tl.erf")),
        ("raises", ("tl.erf", "tl.gelu")),
        ("wrong-arguments", (", columns, BLOCK", ", BLOCK"), ("% columns", "% n")),
    ],
)
