"""Answers to `route-tokens`: top-k experts with weights and places."""

import torch
from edited_source import wrong_answers


def solution(scores, k, capacity):
    best, experts = scores.topk(k, dim=1)
    weights = torch.softmax(best, dim=1)  # the same as the chosen probabilities over their sum
    taken = [0] * scores.shape[1]
    places = torch.full_like(experts, -1)
    for choice in range(k):
        for token in range(len(scores)):
            expert = int(experts[token, choice])
            if taken[expert] < capacity:
                places[token, choice] = taken[expert]
                taken[expert] += 1
    return experts, weights, places


# ---- unusual, and right -------------------------------------------------------------------------------------------------


def by_sorting(scores, k, capacity):
    probabilities = scores.exp() / scores.exp().sum(1, keepdim=True)
    experts = probabilities.argsort(1, descending=True)[:, :k]
    weights = probabilities.gather(1, experts)
    order = experts.t().reshape(-1)
    places = torch.stack([(order[:row] == expert).sum() for row, expert in enumerate(order)]).view(k, -1).t().clone()
    places[places >= capacity] = -1
    return [experts, weights / weights.sum(1, keepdim=True), places]


ALSO_RIGHT = [by_sorting]
WRONG = [
    *wrong_answers(
        solution,
        [
            ("wrong-experts", ("return experts, weights", "return experts.flip(1), weights")),
            ("wrong-weights", ("weights = torch.softmax(best, dim=1)", "weights = torch.softmax(2 * best, dim=1)")),
            ("shapes-do-not-fit", ("torch.softmax(best, dim=1)", "best.exp() / best.exp().sum(1)")),  # without keepdim
            ("wrong-places", ("range(len(scores))", "reversed(range(len(scores)))")),
        ],
    )
]
