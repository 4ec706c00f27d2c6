"""attention-backward: the gradients of attention over some of the keys, from what the forward pass over all keys has kept."""

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor

from hpml_lab.core.judge.asked import value_or_error
from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same
from hpml_lab.core.judge.variations import VARIATIONS
from hpml_lab.tuning.lessons.attention import one_pass

TOLERANCE = 1e-4  # of float32, in another order


def right(q: Tensor, k: Tensor, v: Tensor, output: Tensor, logarithm: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    kind, scale = q.dtype, 1 / math.sqrt(q.shape[-1])
    q, k, v, output, grad = (each.to(logarithm.dtype) for each in (q, k, v, output, grad))
    p = torch.exp(q @ k.mT * scale - logarithm)
    mean = (grad * output).sum(-1, keepdim=True)
    ds = p * (grad @ v.mT - mean) * scale
    dq = ds @ k
    dk = ds.mT @ q
    dv = p.mT @ grad
    return dq.to(kind), dk.to(kind), dv.to(kind)


RUBRIC = Rubric(
    right,
    """
torch.exp(q @ k.mT * scale - logarithm)
    softmax-again :: torch.softmax(q @ k.mT * scale, -1) :: P is exp(S - L), with the L that was kept. It belongs to all
        keys, and the k of a call may be some of them: a softmax over these has another sum.
    score-not-scaled :: torch.exp(q @ k.mT - logarithm) :: L was computed from S = Q Kᵀ / √d.
    logarithm-forgotten :: torch.exp(q @ k.mT * scale) :: $NORMALIZED
    divided-by-the-logarithm :: torch.exp(q @ k.mT * scale) / logarithm :: $NORMALIZED
(grad * output).sum(-1, keepdim=True)
    mean-forgotten :: 0 :: The weights of a row sum to 1, so one that grows takes from the others: ∂S = P (∂P - D).
    mean-of-these-keys :: (p * (grad @ v.mT)).sum(-1, keepdim=True) :: D = Σ P ∂P is a sum over all keys, and the k and
        v of a call may be some of them. Σ ∂O · O over the d numbers of a row is the same sum.
    mean-over-the-width :: (grad * output).mean(-1, keepdim=True) :: D is a sum over the d numbers of a row, not their mean.
p * (grad @ v.mT - mean) * scale
    scale-forgotten :: p * (grad @ v.mT - mean) :: $SCALE
    scale-twice :: p * (grad @ v.mT - mean) * scale * scale :: $SCALE
    only-one-part-weighted :: (p * (grad @ v.mT) - mean) * scale :: P multiplies both: ∂S = P (∂P - D).
    weights-forgotten :: (grad @ v.mT - mean) * scale :: $SOFTMAX
    weights-for-their-derivative :: p * scale :: $SOFTMAX
dk = ds.mT @ q
    not-transposed :: dk = ds @ q :: S = Q Kᵀ / √d: row j of ∂K adds what key j does in each row of S, which is column j of ∂S.
dv = p.mT @ grad
    values-from-the-scores :: dv = ds.mT @ grad :: O = P V: ∂V = Pᵀ ∂O has no derivative of the softmax in it.
    values-scaled :: dv = p.mT @ grad * scale :: $SCALE
whole answer
    in-another-order :: lambda *given: right(*given)[::-1] :: Return ∂Q, ∂K and ∂V, in this order.
error
    half-precision :: Half :: $HALF
only in cases
    half-precision :: float16 :: $HALF
""",
    HALF="In float16 a score near 100 is off by up to 1/32, and the exponential makes that 3 % of P. Convert what comes in "
    "float16 to the dtype of L, float32, before the first product, and the gradients back at the end.",
    NORMALIZED="exp(S) / Σ exp(S) is exp(S - L), since L = log Σ exp(S).",
    SCALE="S = Q Kᵀ / √d: on the way back ∂Q and ∂K have the factor 1/√d once, and ∂V has none.",
    SOFTMAX="The derivative of the softmax is ∂S = P (∂P - D), with ∂P = ∂O Vᵀ.",
)


def _case(queries: int, keys: int, of_all: int, *before: int, width: int = 4, dtype: torch.dtype = torch.float32) -> tuple:
    """Attention of some queries to `of_all` keys, of which the call is given the first `keys`."""
    generator = torch.Generator().manual_seed(queries + 10 * keys)
    q, k, v, grad = (
        torch.randn(*before, rows, width, dtype=torch.float64, generator=generator)
        for rows in (queries, of_all, of_all, queries)
    )
    if dtype is torch.float16:  # scores near 120
        q, k = 5.5 + 0.4 * q, 5.5 + 0.4 * k
    q, k, v, grad = (each.to(dtype) for each in (q, k, v, grad))
    output, logarithm = one_pass(q.float(), k.float(), v.float(), of_all)
    return q, k[..., :keys, :].clone(), v[..., :keys, :].clone(), output.to(dtype), logarithm, grad


def _in_half(case: tuple, *positions: int) -> tuple:
    return tuple(each.half() if i in positions else each for i, each in enumerate(case))


CASES = {
    "5 queries, all of 5 keys": _case(5, 5, 5),
    "3 queries, all of 6 keys, 2 heads": _case(3, 6, 6, 2),
    "5 queries, 4 of 9 keys": _case(5, 4, 9),
    "4 queries, 6 of 8 keys, 2 × 3 heads": _case(4, 6, 8, 2, 3),
    "1 query, 1 of 2 keys": _case(1, 1, 2),
}
HALF = {
    (FAR := "12 queries and 12 keys in float16, scores near 120"): _case(12, 12, 12, width=16, dtype=torch.float16),
    "q, k and v in float16, and output and grad in float32": _in_half(_case(4, 5, 7, 2), 0, 1, 2),
    "output and grad in float16, and q, k and v in float32": _in_half(_case(4, 5, 7, 2), 3, 5),
}


@exercise(
    "attention-backward",
    notebook="11_tuning",
    takes="q, k, v, output, logarithm, grad",
    returns=(like("q"), like("k"), like("v")),
)
def judge_attention_backward(answer: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> None:
    """P = exp(S - L), D = Σ ∂O · O, ∂S = P (∂O Vᵀ - D): ∂Q = ∂S K / √d, ∂K = ∂Sᵀ Q / √d, ∂V = Pᵀ ∂O."""
    RUBRIC.expect(answer, CASES, tolerance=TOLERANCE, but=("mixed", "dtype"), explain=_explain)  # the text says float32
    found = value_or_error(answer, copy.deepcopy(HALF[FAR]))
    if not isinstance(found, Exception) and any(part.isnan().any() for part in found):
        hint = "With scores near 120 gradients of yours are nan: exp(120) is more than float32 can hold, exp(S - L) is not."
        raise Mistake("overflows", hint)
    RUBRIC.expect(answer, HALF, tolerance=5e-3, but=("mixed", *VARIATIONS))


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says which gradients are right everywhere, and by what another is off."""
    names = "∂Q", "∂K", "∂V"
    wrong = [
        name for part, name in enumerate(names) if any(not same(row.got[part], row.wanted[part], TOLERANCE) for row in judged)
    ]
    if not wrong or len(wrong) == 3:
        return
    first = names.index(wrong[0])
    row = next(row for row in judged if not same(row.got[first], row.wanted[first], TOLERANCE))
    rights = " and ".join(name for name in names if name not in wrong)
    hint = f"In all cases {rights} {'are' if len(wrong) == 1 else 'is'} right. {wrong[0]} is not: for {row.case}"
    if row.got[first].shape != row.wanted[first].shape:
        raise Mistake("another-gradient", f"{hint} its shape is {tuple(row.got[first].shape)}.")
    ratio = row.got[first] / row.wanted[first]
    alike = same(ratio, ratio.flatten()[0].expand(ratio.shape), 1e-4)
    raise Mistake(
        "another-gradient",
        f"{hint} it is {ratio.flatten()[0]:.4g} times the right one." if alike else f"{hint} numbers differ.",
    )
