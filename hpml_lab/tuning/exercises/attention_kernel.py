"""A kernel in Triton, part 3: attention without its n × m matrix, for a block of queries a program, over blocks of keys."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.tuning.tools.kernel_judge import expect_kernel
from hpml_lab.tuning.tools.written_kernels import attention_rows

if TYPE_CHECKING:
    import triton.language as tl


def attention_kernel(q_start, k_start, v_start, o_start, queries, keys, WIDTH: "tl.constexpr", BLOCK: "tl.constexpr"):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    q = tl.load(q_start + row * WIDTH + column, mask=row < queries, other=0.0).to(tl.float32)
    maximum = tl.full([BLOCK, 1], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK, 1], tl.float32)
    output = tl.zeros([BLOCK, WIDTH], tl.float32)
    for first in range(0, keys, BLOCK):
        key = first + tl.arange(0, BLOCK)[:, None]
        k = tl.load(k_start + key * WIDTH + column, mask=key < keys, other=0.0).to(tl.float32)
        v = tl.load(v_start + key * WIDTH + column, mask=key < keys, other=0.0).to(tl.float32)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") / WIDTH**0.5
        scores = tl.where(tl.trans(key) < keys, scores, -float("inf"))
        higher = tl.maximum(maximum, tl.max(scores, 1, keep_dims=True))
        weights = tl.exp(scores - higher)
        correction = tl.exp(maximum - higher)
        total = total * correction + tl.sum(weights, 1, keep_dims=True)
        output = output * correction + tl.dot(weights, v, input_precision="ieee")
        maximum = higher
    tl.store(o_start + row * WIDTH + column, output / total, mask=row < queries)


def case(queries: int, keys: int, width: int, block: int, shift: float = 0.0, dtype: torch.dtype = torch.float32):
    """q, k and v, with scores that are `shift` higher and become larger from block to block."""
    generator = torch.Generator().manual_seed(queries + keys)
    q, k, v = (torch.randn(rows, width, generator=generator) for rows in (queries, keys, keys))
    k *= torch.linspace(1, 3, keys)[:, None]
    q[:, 0], k[:, 0] = 1.0, k[:, 0] + shift * width**0.5
    return q.to(dtype), k.to(dtype), v.to(dtype), block


CASES = {
    "16 queries, 32 keys of 16 numbers, BLOCK = 16": case(16, 32, 16, 16),
    "20 queries, 40 keys of 32 numbers, BLOCK = 16": case(20, 40, 32, 16),
    "3 queries, 1 key of 16 numbers, BLOCK = 16": case(3, 1, 16, 16),
    "scores near 110, 5 queries, 20 keys": case(5, 20, 16, 16, shift=110.0),
    "scores near -110, 5 queries, 20 keys": case(5, 20, 16, 16, shift=-110.0),
    "8 queries, 30 keys of 16 numbers in float16": case(8, 30, 16, 16, dtype=torch.float16),
}
RUBRIC = Rubric(
    attention_kernel,
    """
scores = tl.where(tl.trans(key) < keys, scores, -float("inf"))
    padding-counts :: scores = scores + 0.0 :: $PADDING
range(0, keys, BLOCK)
    last-keys-left-out :: range(0, keys // BLOCK * BLOCK, BLOCK) :: The last block of keys may be shorter, and counts, too.
/ WIDTH**0.5
    scores-not-scaled :: + 0.0 :: The scores are S = Q Kᵀ / √d, with d = WIDTH.
    divided-by-the-width :: / WIDTH :: The scores are S = Q Kᵀ / √d, with the root.
tl.maximum(maximum, tl.max(scores, 1, keep_dims=True))
    no-maximum :: tl.zeros([BLOCK, 1], tl.float32) :: exp(110) is infinite in float32: subtract the largest score so far.
total * correction + tl.sum(weights, 1, keep_dims=True)
    sum-not-corrected :: total + tl.sum(weights, 1, keep_dims=True) :: $CORRECTION
output * correction + tl.dot(weights, v, input_precision="ieee")
    output-not-corrected :: output + tl.dot(weights, v, input_precision="ieee") :: $CORRECTION
    last-block-only :: tl.dot(weights, v, input_precision="ieee") :: Each block adds its part to what the blocks before it gave.
output / total
    not-normalized :: output :: At the end each row is divided by the sum of its weights.
only in cases
    half-precision :: float16 :: float16 keeps 11 bits of a number, too few for scores and sums. Convert what was loaded:
        .to(tl.float32).
""",
    wrap=lambda kernel: lambda *given: attention_rows(kernel, *given),
    CORRECTION="What was computed with a lower maximum is too large: when the maximum rises from m to m', multiply the sum and "
    "the output so far by exp(m - m').",
    PADDING="A lane beyond the last key has the score 0, where k was loaded as 0, and the weight exp(0 - m). Which score has "
    "the weight 0?",
)


@exercise(
    "attention-kernel",
    notebook="11_tuning",
    takes="q_start, k_start, v_start, o_start, queries, keys, WIDTH, BLOCK",
    returns=None,
)
def judge_attention_kernel(answer: Callable[..., None]) -> None:
    """A kernel in Triton: softmax(Q Kᵀ / √d) V by the online softmax, with every number of Q, K and V loaded once a program."""
    few = "dtype", "large", "small", "mixed"  # the text says float32 and float16; a launch in the interpreter takes long
    expect_kernel(attention_rows, answer, RUBRIC, CASES, tolerance=1e-4, but=few)
