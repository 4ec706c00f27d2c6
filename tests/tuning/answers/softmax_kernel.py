"""Answers to `softmax-kernel`: one program a row, the maximum first, and lanes beyond the row that count for nothing."""

from edited_source import wrong_answers


def solution(x_start, y_start, x_stride, y_stride, columns, BLOCK: "tl.constexpr"):  # noqa: F821
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)  # noqa: F821
    scores = tl.load(x_start + row * x_stride + lane, mask=lane < columns, other=float("-inf")).to(tl.float32)  # noqa: F821
    powers = tl.exp(scores - tl.max(scores, axis=0))  # noqa: F821
    tl.store(y_start + row * y_stride + lane, powers / tl.sum(powers, axis=0), mask=lane < columns)  # noqa: F821


def padded_afterwards(x_start, y_start, x_stride, y_stride, columns, BLOCK: "tl.constexpr"):  # noqa: F821
    lane = tl.arange(0, BLOCK)  # noqa: F821
    inside = lane < columns
    x = tl.load(x_start + tl.program_id(0) * x_stride + lane, mask=inside).to(tl.float32)  # noqa: F821
    x = tl.where(inside, x, float("-inf"))  # noqa: F821
    powers = tl.exp2((x - tl.max(x)) * 1.4426950408889634)  # noqa: F821
    tl.store(y_start + tl.program_id(0) * y_stride + lane, powers * (1 / tl.sum(powers)), mask=inside)  # noqa: F821


ALSO_RIGHT = [padded_afterwards]
LOAD_MASK, WIDE = ', mask=lane < columns, other=float("-inf")', ".to(tl.float32)"
DIFFERENCE, SUM = "scores - tl.max(scores, axis=0)", "tl.sum(powers, axis=0)"
WRONG = wrong_answers(
    solution,
    [
        ("loads-outside", (LOAD_MASK, "")),
        ("loads-outside", ("row * x_stride", "row * columns")),
        ("stores-outside", ("row * y_stride", "row * columns")),
        ("stores-outside", (f"{SUM}, mask=lane < columns", SUM)),
        ("stores-twice", ("row * y_stride", "row")),
        ("stores-twice", ("row * y_stride + ", "")),
        ("not-stored", (f"{SUM}, mask=lane < columns", f"{SUM}, mask=lane < columns - 1")),
        (
            "loads-twice",
            ("tl.max(scores, axis=0)", f"tl.max(tl.load(x_start + row * x_stride + lane{LOAD_MASK}){WIDE}, axis=0)"),
        ),
        ("block-size", ("tl.arange(0, BLOCK)", "tl.arange(0, columns)")),
        ("block-size", ("tl.arange(0, BLOCK)", "tl.arange(0, 1000)")),
        ("padding-counts", (DIFFERENCE, "scores"), ('float("-inf")', "0.0")),
        ("half-precision", (WIDE, ""), (SUM, "tl.sum(powers.to(scores.dtype), axis=0)")),
        ("wrong-value", (f"powers / {SUM}", "powers * 0.5")),
        ("raises", ("tl.sum", "tl.total")),
    ],
)
