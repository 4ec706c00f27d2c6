"""ring-attention-step: a rank's attention so far, joined with the keys and values that have just arrived."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric, by_part

State = tuple[Tensor, Tensor, Tensor]


def right(q: Tensor, k: Tensor, v: Tensor, rank: int, source: int, maximum: Tensor, total: Tensor, output: Tensor) -> State:
    scores = q @ k.T / math.sqrt(q.shape[1])
    rows = rank * len(q) + torch.arange(len(q))
    columns = source * len(k) + torch.arange(len(k))
    scores = scores.masked_fill(columns > rows[:, None], -math.inf)
    largest = torch.maximum(maximum, scores.amax(1))
    base = largest.clamp(min=torch.finfo(q.dtype).min)  # -inf - -inf would be nan
    weights = torch.exp(scores - base[:, None])
    correction = torch.exp(maximum - base)
    return largest, total * correction + weights.sum(1), output * correction[:, None] + weights @ v


RUBRIC = Rubric(
    right,
    """
math.sqrt(q.shape[1])
    not-scaled :: 1 :: $SCALE
    scaled-by-width :: q.shape[1] :: $SCALE
    scaled-by-rows :: math.sqrt(len(q)) :: $SCALE
columns > rows[:, None]
    mask-reversed :: columns < rows[:, None] :: A token sees itself and what is earlier; yours sees itself and what is later.
    own-token-hidden :: columns >= rows[:, None] :: A token sees itself, too.
    later-blocks-seen :: (columns > rows[:, None]) & (rank == source) :: The mask is right within the rank's own block. The
        keys of later ranks are hidden, too, each of them.
    no-mask :: columns < 0 :: A token must not see what is later in the sequence. Which rows and columns is that in this block?
source * len(k) + torch
    one-block-off :: (source + 1) * len(k) + torch :: $OFF
    one-block-off :: (source - 1) * len(k) + torch :: $OFF
    mask-of-the-own-block :: rank * len(k) + torch :: The mask is right for the rank's own keys. Those that arrive from
        another rank are at another place of the sequence.
torch.maximum(maximum, scores.amax(1))
    maximum-of-this-block :: scores.amax(1) :: $MAXIMUM
    maximum-of-this-block :: torch.where(scores.amax(1).isinf(), maximum, scores.amax(1)) :: $MAXIMUM
    maximum-kept :: torch.where(maximum.isinf(), scores.amax(1), maximum) :: This block may have a larger score than all
        before. Without it exp(S − m) can overflow.
    one-maximum-for-all :: torch.maximum(maximum, scores.amax().expand(len(q))) :: Each query has a maximum of its own.
    maximum-behind-the-mask :: torch.maximum(maximum, (q @ k.T / math.sqrt(q.shape[1])).amax(1)) :: A score that is hidden
        is not the maximum of those that are seen.
largest.clamp(min=torch.finfo(q.dtype).min)
    hidden-block-is-nan :: largest :: Where a query has seen nothing yet and sees nothing of this block, both maxima are −inf,
        and −inf − (−inf) is nan. What should come out?
torch.exp(maximum - base)
    correction-forgotten :: torch.ones_like(maximum) :: $CORRECTION
    correction-reversed :: torch.exp(base - maximum) :: The correction makes the old numbers smaller where the maximum has
        grown.
    weight-of-the-old-maximum :: torch.exp(maximum) :: The old sum is relative to the old maximum. By how much does it
        change if the maximum becomes larger?
total * correction
    old-sum-not-corrected :: total :: $CORRECTION
    old-sum-forgotten :: 0 :: The new sum is that of all keys so far, not of this block alone.
output * correction[:, None]
    old-output-not-corrected :: output :: $CORRECTION
    old-output-forgotten :: 0 :: The new output is that of all keys so far, not of this block alone.
output * correction[:, None] + weights @ v
    divided-at-each-step :: (output * correction[:, None] + weights @ v) / (total * correction + weights.sum(1))[:, None] ::
        $DIVIDED
    divided-at-each-step :: output * correction[:, None] + weights @ v / weights.sum(1)[:, None] :: $DIVIDED
    average-of-outputs :: (output + weights @ v / weights.sum(1)[:, None]) / 2 :: Two blocks count by their sums of
        exponentials, not alike.
error
    shapes-do-not-fit :: must match :: maximum and total have one number for each query, output a row:
        maximum[:, None] has the shape (c, 1).
""",
    SCALE="The scores are divided by √d, d being the length of a query.",
    OFF="In a causal ring the keys of rank `source` are those at source · c and after, in whichever step they arrive.",
    MAXIMUM="The new maximum is that of all keys so far: this block may have only small scores.",
    CORRECTION="total and output are sums of exp(S − m) with the old m. If m becomes larger, the old sums become smaller.",
    DIVIDED="The output is not divided until the ring is closed: only then is the total that of all keys.",
)


def _cases() -> dict[str, tuple]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def begun(rows: int, width: int) -> State:
        return torch.full((rows,), -math.inf).double(), torch.zeros(rows).double(), torch.zeros(rows, width).double()

    cases = {}
    for rows, width, rank, sources in ((3, 4, 1, (1, 0, 2)), (4, 2, 2, (3, 2, 1, 0)), (2, 3, 0, (1, 0)), (5, 4, 1, (0, 1))):
        q, state = 3 * draw(rows, width), begun(rows, width)
        for step, source in enumerate(sources):
            k, v = draw(rows, width), draw(rows, width)
            cases[f"{rows} tokens a rank, rank {rank}, keys of rank {source}, step {step}"] = q, k, v, rank, source, *state
            state = right(q, k, v, rank, source, *state)
    return cases


CASES = _cases()


@exercise(
    "ring-attention-step",
    notebook="23_model_parallel",
    takes="q, k, v, rank, source, maximum, total, output",
    returns=(like("maximum"), like("total"), like("output")),
)
def judge_ring_attention_step(answer: Callable) -> None:
    """The maximum, the sum and the output of all keys so far, with a causal mask, also where nothing is seen yet."""
    RUBRIC.expect(answer, CASES, but=("mixed",), explain=by_part("maximum", "total", "output"))
