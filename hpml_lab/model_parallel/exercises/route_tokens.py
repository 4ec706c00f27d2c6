"""route-tokens: each token's experts, their weights, and a place in their buffers, first choices first."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from hpml_lab.core.judge.declared import tensor
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric, by_part

Routed = tuple[Tensor, Tensor, Tensor]


def right(scores: Tensor, k: int, capacity: int) -> Routed:
    weights, experts = torch.softmax(scores, 1).topk(k, 1)
    weights = weights / weights.sum(1, keepdim=True)
    order = experts.T.flatten()
    chosen = F.one_hot(order, scores.shape[1])
    before = chosen.cumsum(0) - 1
    places = before.gather(1, order[:, None]).view(k, len(scores)).T
    places = torch.where(places < capacity, places, -1)
    return experts, weights, places


def places_in(order: Tensor) -> Tensor:
    """For each of a list of experts, how many of the same stand before it."""
    return torch.tensor([int((order[:row] == expert).sum()) for row, expert in enumerate(order)])


def each_choice_alone(scores: Tensor, k: int, capacity: int) -> Routed:
    """Every choice counts its places from 0 again."""
    experts, weights, _ = right(scores, k, capacity)
    places = torch.stack([places_in(column) for column in experts.T], 1)
    return experts, weights, torch.where(places < capacity, places, -1)


def token_by_token(scores: Tensor, k: int, capacity: int) -> Routed:
    """All choices of a token before the next token, as in the lesson."""
    experts, weights, _ = right(scores, k, capacity)
    places = places_in(experts.flatten()).view_as(experts)
    return experts, weights, torch.where(places < capacity, places, -1)


def renormalized(scores: Tensor, k: int, capacity: int) -> Routed:
    """Weights of the kept choices alone, divided by their sum."""
    experts, weights, places = right(scores, k, capacity)
    kept = weights * (places >= 0)
    return experts, kept / kept.sum(1, keepdim=True).clamp(min=1e-12), places


RUBRIC = Rubric(
    right,
    """
torch.softmax(scores, 1)
    softmax-over-tokens :: torch.softmax(scores, 0) :: Each token has probabilities of its own: they add up to 1 over its
        experts.
    scores-for-weights :: scores :: Weights are shares of probabilities: without the softmax a score can be below 0.
    sigmoid :: torch.sigmoid(scores) :: The router's probabilities are a softmax over the experts.
topk(k, 1)
    smallest :: topk(k, 1, largest=False) :: A token goes to the experts with the largest probabilities.
    sorted-by-number :: sort(1, descending=True) :: A token goes to k experts, not to all of them.
weights / weights.sum(1, keepdim=True)
    weights-not-divided :: weights :: $SUM
    weights-all-alike :: torch.full_like(weights, 1 / k) :: An expert of larger probability counts more.
    weights-over-tokens :: weights / weights.sum(0, keepdim=True) :: $SUM
chosen.cumsum(0) - 1
    places-from-1 :: chosen.cumsum(0) :: The first token of an expert has place 0.
    counts-all-experts :: torch.arange(len(order))[:, None].expand(len(order), scores.shape[1]) :: Each expert has places of
        its own, from 0 on.
places < capacity
    one-place-too-many :: places <= capacity :: With a capacity of C the places are 0 to C − 1.
    nothing-dropped :: places < len(order) :: An expert has no more than `capacity` places. What does a later token get?
places, -1)
    last-place :: places, capacity - 1) :: A token that is dropped has no place; yours takes that of another token.
    dropped-at-capacity :: places, capacity) :: The place of a token that is dropped is −1.
return experts, weights, places
    none-for-the-dropped :: return experts, weights * (places >= 0), places :: Weights do not depend on what is dropped: that
        the choice adds nothing follows from its place alone.
whole answer
    token-by-token :: token_by_token :: You serve all choices of a token before the next token. Here every token's first choice
        is served before any second one.
    each-choice-alone :: each_choice_alone :: Two tokens have the same place of an expert: those that come by their second
        choice stand behind all that came by their first.
    renormalized :: renormalized :: Weights do not depend on what is dropped: what an expert cannot take is missing, and the
        others do not count more for it.
error
    shapes-do-not-fit :: must match :: A token is a row of scores, an expert a column.
""",
    SUM="A token's k weights add up to 1.",
)


def _cases() -> dict[str, tuple[Tensor, int, int]]:
    generator = torch.Generator().manual_seed(0)

    def draw(tokens: int, experts: int, toward: float) -> Tensor:
        scores = torch.randn(tokens, experts, generator=generator, dtype=torch.float64)
        scores[:, 1] += toward
        return scores

    return {
        "8 tokens, 4 experts with 3 places, 2 choices": (draw(8, 4, 1.5), 2, 3),
        "6 tokens, 3 experts with 2 places, 1 choice": (draw(6, 3, 2.0), 1, 2),
        "7 tokens, 5 experts with 4 places, 3 choices": (draw(7, 5, 1.0), 3, 4),
        "300 tokens, 2 experts with places for all, 1 choice": (draw(300, 2, 0.5), 1, 300),
        "12 tokens, 4 experts with places for all, 2 choices": (draw(12, 4, 0.5), 2, 12),
    }


CASES = _cases()


@exercise(
    "route-tokens",
    notebook="23_model_parallel",
    takes="scores, k, capacity",
    returns=(tensor(int), tensor("scores"), tensor(int)),
)
def judge_route_tokens(answer: Callable) -> None:
    """Experts in the order of their probabilities, weights that add up to 1, places with first choices first."""
    RUBRIC.expect(answer, CASES, but=("large",), explain=by_part("experts", "weights", "places"))
