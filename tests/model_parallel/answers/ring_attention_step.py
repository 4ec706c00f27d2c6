"""Answers to `ring-attention-step`: one block of keys more, for a rank's queries."""

import torch
from edited_source import wrong_answers


def solution(q, k, v, rank, source, maximum, total, output):
    if source > rank:  # all of it is later
        return maximum.clone(), total.clone(), output.clone()
    scores = q @ k.T / q.shape[1] ** 0.5
    if source == rank:
        scores = scores.masked_fill(torch.ones(len(q), len(k), dtype=torch.bool).triu(1), float("-inf"))
    new = torch.maximum(maximum, scores.max(1).values)
    old = torch.exp(maximum - new)
    weights = torch.exp(scores - new[:, None])
    return new, total * old + weights.sum(1), output * old[:, None] + weights @ v


# ---- unusual, and right -------------------------------------------------------------------------------------------------


def with_zeros_for_hidden(q, k, v, rank, source, maximum, total, output):
    scores = torch.einsum("qd,kd->qk", q, k) * q.shape[1] ** -0.5
    hidden = source * len(k) + torch.arange(len(k)) > rank * len(q) + torch.arange(len(q))[:, None]
    scores[hidden] = float("-inf")
    new = torch.cat([maximum[:, None], scores], 1).amax(1)
    old = torch.where(maximum.isinf(), 0, torch.exp(maximum - new)).to(maximum.dtype)
    weights = torch.where(hidden, 0, torch.exp(scores - new[:, None])).to(maximum.dtype)
    return [new, old * total + weights.sum(1), old[:, None] * output + weights @ v]


def query_by_query(q, k, v, rank, source, maximum, total, output):
    m, s, o = maximum.clone(), total.clone(), output.clone()
    for i, query in enumerate(q):
        for j, (key, value) in enumerate(zip(k, v, strict=True)):
            if source * len(k) + j > rank * len(q) + i:
                continue
            score = query @ key / len(query) ** 0.5
            new = torch.maximum(m[i], score)
            old, weight = torch.exp(m[i] - new), torch.exp(score - new)
            m[i], s[i], o[i] = new, s[i] * old + weight, o[i] * old + weight * value
    return m, s, o


ALSO_RIGHT = [with_zeros_for_hidden, query_by_query]


def by_logarithm(q, k, v, rank, source, maximum, total, output):
    """The first is the logarithm of the sum, as kernels keep it."""
    new, total, output = solution(q, k, v, rank, source, maximum, total, output)
    return new + torch.where(total > 0, total.log(), 0), total, output


WRONG = [
    *wrong_answers(
        solution,
        [
            ("one-block-off", ("source > rank", "source > rank + 1"), ("source == rank", "source == rank + 1")),
            ("wrong-total", ("weights.sum(1)", "weights.sum(0)")),
            ("wrong-output", ("+ weights @ v", "- weights @ v")),
            ("shapes-do-not-fit", ("output * old[:, None]", "output * old")),
        ],
    ),
    ("wrong-maximum", by_logarithm),
]
