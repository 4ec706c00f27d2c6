"""Answers to `attention-kernel`: the online softmax over blocks of keys, for a block of queries a program."""

from edited_source import wrong_answers


def solution(q_start, k_start, v_start, o_start, queries, keys, WIDTH: "tl.constexpr", BLOCK: "tl.constexpr"):  # noqa: F821
    lane, column = tl.arange(0, BLOCK), tl.arange(0, WIDTH)  # noqa: F821
    row = tl.program_id(0) * BLOCK + lane  # noqa: F821
    q = tl.load(q_start + row[:, None] * WIDTH + column, mask=row[:, None] < queries, other=0.0).to(tl.float32)  # noqa: F821
    top = tl.full([BLOCK], float("-inf"), tl.float32)  # noqa: F821
    total = tl.zeros([BLOCK], tl.float32)  # noqa: F821
    output = tl.zeros([BLOCK, WIDTH], tl.float32)  # noqa: F821
    for first in range(0, keys, BLOCK):
        key = first + lane
        place, exists = key[:, None] * WIDTH + column, key[:, None] < keys
        k = tl.load(k_start + place, mask=exists, other=0.0).to(tl.float32)  # noqa: F821
        v = tl.load(v_start + place, mask=exists, other=0.0).to(tl.float32)  # noqa: F821
        scores = tl.dot(q, tl.trans(k)) / WIDTH**0.5  # noqa: F821
        scores = tl.where(key < keys, scores, float("-inf"))  # noqa: F821
        new = tl.maximum(top, tl.max(scores, 1))  # noqa: F821
        weights, lower = tl.exp(scores - new[:, None]), tl.exp(top - new)  # noqa: F821
        total = total * lower + tl.sum(weights, 1)  # noqa: F821
        output = output * lower[:, None] + tl.dot(weights, v)  # noqa: F821
        top = new
    tl.store(o_start + row[:, None] * WIDTH + column, output / total[:, None], mask=row[:, None] < queries)  # noqa: F821


K_LOAD = "tl.load(k_start + place, mask=exists, other=0.0)"
STORE = "mask=row[:, None] < queries)"
WIDE = ".to(tl.float32)"
WRONG = wrong_answers(
    solution,
    [
        ("loads-outside", (K_LOAD, "tl.load(k_start + place)")),
        ("loads-outside", (", mask=row[:, None] < queries, other=0.0", "")),
        ("stores-outside", (f", {STORE}", ")")),
        ("stores-twice", ("row = tl.program_id(0) * BLOCK + lane", "row = tl.program_id(0) + lane")),
        (
            "loads-twice",
            ("tl.dot(q, tl.trans(k))", f"tl.dot(tl.load(q_start + row[:, None] * WIDTH + column, {STORE}, tl.trans(k))"),
        ),
        (
            "not-stored",
            ("output / total[:, None], mask=row[:, None] < queries", "output / total[:, None], mask=row[:, None] < 1"),
        ),
        ("block-size", ("lane, column = tl.arange(0, BLOCK)", "lane, column = tl.arange(0, 3 * BLOCK)")),
        ("padding-counts", ('tl.where(key < keys, scores, float("-inf"))', "tl.where(key < keys, scores, 0.0)")),
        ("scores-not-scaled", (" / WIDTH**0.5", "")),
        ("sum-not-corrected", ("total * lower + ", "total + ")),
        ("output-not-corrected", ("output * lower[:, None] + ", "output + ")),
        ("no-maximum", ("tl.maximum(top, tl.max(scores, 1))", "tl.zeros([BLOCK], tl.float32)")),
        ("wrong-value", ("total = total * lower + tl.sum(weights, 1)", "total = total * lower + tl.max(weights, 1)")),
        (
            "half-precision",
            (WIDE, ""),
            ("tl.dot(q, tl.trans(k))", "tl.dot(q, tl.trans(k)).to(q.dtype)"),
            ("(weights, v)", "(weights, v.to(tl.float32))"),
        ),
        ("raises", ("tl.trans(k)", "tl.transposed(k)")),
    ],
)
