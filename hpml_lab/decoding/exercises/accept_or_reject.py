"""accept-or-reject: a proposed token, or another in its place, so that what comes out has the target's distribution."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same, shown

# Binary fractions, so that p/q and the sums of the residual have no rounding: a draw can lie on a limit exactly.
P, Q = (0.125, 0.5, 0.25, 0.125), (0.5, 0.125, 0.125, 0.25)  # p/q is 1/4, 4, 2, 1/2; the residual is 0, 3/4, 1/4, 0
FIVE = [n / 16 for n in (2, 3, 4, 1, 6)], [n / 16 for n in (8, 2, 2, 3, 1)]  # p/q is 1/4, 3/2, 2, 1/3, 6; 0, 1, 2, 0, 5 eighths
APART = (0.0, 0.75, 0.25, 0.0), (0.5, 0.0, 0.0, 0.5)  # no token in common
HALF = (0.5, 0.25, 0.25)


def _case(p: Sequence[float], q: Sequence[float], token: int, u: float, v: float) -> tuple[Any, ...]:
    return torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64), token, u, v


CASES = {
    "p/q = 1/4, u = 0.125": _case(P, Q, 0, 0.125, 0.875),
    "p/q = 1/4, u = 0.5, v = 0.5": _case(P, Q, 0, 0.5, 0.5),
    "p/q = 1/4, u = 0.5, v = 0.875": _case(P, Q, 0, 0.5, 0.875),
    "p/q = 1/4, u = 0.875, v = 0.0625": _case(P, Q, 0, 0.875, 0.0625),
    "p/q = 1/4, u = 0.25 = p/q": _case(P, Q, 0, 0.25, 0.625),
    "p/q = 1/2, u = 0.75, v = 0, where the residual begins with 0": _case(P, Q, 3, 0.75, 0.0),
    "p/q = 1/2, u = 0.75, v = 0.75, a limit between two tokens": _case(P, Q, 3, 0.75, 0.75),
    "p/q = 1/2, u = 0.375": _case(P, Q, 3, 0.375, 0.5),
    "p/q = 2, u = 0.875": _case(P, Q, 2, 0.875, 0.25),
    "p/q = 4, u = 0.625": _case(P, Q, 1, 0.625, 0.875),
    "five tokens, p/q = 1/4, u = 0.5, v = 0.3125": _case(*FIVE, 0, 0.5, 0.3125),
    "five tokens, p/q = 1/4, u = 0.75, v = 0.140625": _case(*FIVE, 0, 0.75, 0.140625),
    "five tokens, p/q = 1/3, u = 0.5, v = 0.375, a limit": _case(*FIVE, 3, 0.5, 0.375),
    "no token in common, u = 0": _case(*APART, 0, 0.0, 0.625),
    "no token in common, u = 0.5, v = 0.875": _case(*APART, 3, 0.5, 0.875),
    "p = q, u = 0.875": _case(HALF, HALF, 1, 0.875, 0.875),
    "p = q, u = 0": _case(HALF, HALF, 2, 0.0, 0.0),
}
# For u and v with five tokens: of these as large a share is below each limit as of all numbers from 0 to 1.
GRID = [i / 12 for i in range(12)], [i / 8 for i in range(8)]


def right(p: Tensor, q: Tensor, token: int, u: float, v: float) -> int:
    if u < p[token] / q[token]:
        return token
    residual = (p - q).clamp(min=0)
    residual = residual / residual.sum()
    return int((residual.cumsum(0) <= v).sum())


def drawn_without_the_token(p: Tensor, q: Tensor, token: int, u: float, v: float) -> int:
    """After a rejection a draw from p without the rejected token."""
    if u < p[token] / q[token]:
        return token
    left = p.clone()
    left[token] = 0
    return int(((left / left.sum()).cumsum(0) <= v).sum())


def uniform_again(p: Tensor, q: Tensor, token: int, u: float, v: float) -> int:
    """u draws twice."""
    return right(p, q, token, u, u)


def most_likely_of_the_rest(p: Tensor, q: Tensor, token: int, u: float, v: float) -> int:
    return token if u < p[token] / q[token] else int((p - q).argmax())


RUBRIC = Rubric(
    right,
    """
u < p[token] / q[token]
    ratio-inverted :: u < q[token] / p[token] :: A token that the small net proposes more often than the large one gives it is
        rejected sometimes, and no other: which of p and q is divided by which?
    always-accepted :: u < 1 :: You accept every proposal, so that the text is the small net's. || What makes a token rarer that
        it proposes too often?
    accepted-by-p-alone :: u < p[token] :: The token was proposed with probability q already. How often is it accepted, so
        that it comes with probability p in all?
    without-chance :: p[token] >= q[token] :: You always reject a token with p < q, so that it never comes. || Whether a token
        is accepted is left to u.
    without-chance :: p[token] > q[token] :: You always reject a token with p ≤ q, also where p = q and nothing is left to draw
        from. || Whether a token is accepted is left to u.
    accepted-at-the-limit :: u <= p[token] / q[token] :: u may be 0. A token that p never gives, so that p/q = 0, may not be
        accepted then.
(p - q).clamp(min=0)
    drawn-from-p :: p :: After a rejection you draw from p. || Accepted proposals have given a part of p already: what is
        missing?
    not-clamped :: p - q :: Where q is larger than p the difference is negative, and no probability.
    absolute-difference :: (p - q).abs() :: You also draw tokens that were proposed too often. || Only where p is larger
        something is missing.
    reversed :: (q - p).clamp(min=0) :: After a rejection you draw what the small net proposes too often. || Which tokens come
        too rarely?
residual / residual.sum()
    not-normalized :: residual :: v goes up to 1, and what is left of p adds up to less: make probabilities of it.
residual.cumsum(0) <= v
    limit-of-v :: residual.cumsum(0) < v :: v may be 0, or lie on the limit between two tokens. A token with probability 0 never
        comes: to each belong the numbers from its lower limit on, without its upper one.
    one-token-on :: residual.cumsum(0) - residual <= v :: Your draw lands one token too far. || How many tokens end at or
        below v?
whole answer
    without-the-token :: drawn_without_the_token :: After a rejection you draw from p without the rejected token. || Other
        tokens were proposed too often or too rarely, too: what does p have that q has not?
    u-again :: uniform_again :: After a rejection it is known that u was not below p/q: it is no longer uniform from 0 to 1.
    the-best-of-the-rest :: most_likely_of_the_rest :: After a rejection you take the most likely token. || One is drawn, by v.
""",
)


@exercise("accept-or-reject", notebook="22_decoding", takes="p, q, token, u, v", returns=int)
def judge_accept_or_reject(answer: Callable[..., Any]) -> None:
    """The token if u < p/q, else the one at v in the cumulative sums of the normalized (p − q)₊."""
    RUBRIC.expect(answer, CASES, but=("p", "q", "mixed"), explain=_explain)


def _explain(answer: Callable[..., Any], judged: list[Judged]) -> None:
    """Raise the Mistake that says what a wrong answer does: an impossible token, a wrong decision, or its distribution."""
    for case, (p, q, token, u, _), got, wanted in judged:
        got = int(got)
        if not 0 <= got < len(p):
            raise Mistake("no-such-token", f"For {case} you return {got}; the tokens are 0 to {len(p) - 1}.")
        if p[got] == 0:
            hint = f"For {case} you return token {got}, which the large net never gives: p is 0 there."
            raise Mistake("impossible-token", hint)
        if got == token != wanted and any(int(answer(p.clone(), q.clone(), token, u, v)) != token for v in GRID[1]):
            hint = f"For {case} token {token} is rejected, and your draw gives it again. The residual has nothing of it."
            raise Mistake("rejected-token-drawn", hint)
        if (got == token) != (wanted == token):
            did, should = ("return", "rejected") if got == token else ("do not return", "accepted")
            raise Mistake("wrong-decision", f"For {case} you {did} the proposed token {token}, which is to be {should}.")
    p, q, *_ = _case(*FIVE, 0, 0.0, 0.0)
    found = torch.zeros_like(p)
    for token, u, v in itertools.product(range(len(p)), *GRID):
        if 0 <= (got := int(answer(p.clone(), q.clone(), token, u, v))) < len(p):
            found[got] += q[token] / 96
    if not same(found, p):
        of = f"p = {shown(p)} and q = {shown(q)}"
        hint = f"Over all u and v your tokens have another distribution than p: with {of} it is {shown(found)}."
        raise Mistake("another-distribution", hint)
