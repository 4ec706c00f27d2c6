"""Answers to `accept-or-reject`: min(1, p/q), then a draw from the normalized positive part of p − q."""

import torch
from edited_source import wrong_answers


def solution(p, q, token, u, v):
    if u * q[token] < p[token]:
        return token
    left = torch.relu(p - q)
    limits = torch.cumsum(left / left.sum(), 0)
    return torch.searchsorted(limits, v, right=True).item()


# ---- unusual, and right -------------------------------------------------------------------------------------------------


def token_by_token(p, q, token, u, v):
    if u < min(1, p[token] / q[token]):
        return token
    left = [max(a - b, 0) for a, b in zip(p.tolist(), q.tolist(), strict=True)]
    v = v * sum(left)
    for number, share in enumerate(left):
        if v < share:
            return number
        v -= share
    raise AssertionError("v is below 1")


def residual_first(p, q, token, u, v):
    """Where p = q the residual is 0/0, and not used."""
    residual = (p - torch.minimum(p, q)) / (p - torch.minimum(p, q)).sum()
    other = torch.nonzero(residual.cumsum(0) > v)
    return torch.tensor(token) if p[token] > u * q[token] else other[0, 0]


ALSO_RIGHT = [token_by_token, residual_first]


def accepted_by_half(p, q, token, u, v):
    """Accepts with half the probability and draws from p otherwise."""
    return token if u < p[token] / q[token] / 2 else int((p.cumsum(0) <= v).sum())


def last_token_for_what_is_missing(p, q, token, u, v):
    """The residual is not divided by its sum, and what v finds behind it is the last token."""
    if u * q[token] < p[token]:
        return token
    return min(int((torch.relu(p - q).cumsum(0) <= v).sum()), len(p) - 1)


def uniform_over_the_rest(p, q, token, u, v):
    """After a rejection each token with p > q is as likely as the others."""
    if u * q[token] < p[token]:
        return token
    rest = torch.nonzero(p > q).flatten()
    return rest[int(v * len(rest))].item()


def weighted_by_the_ratio(p, q, token, u, v):
    """After a rejection tokens are drawn by p/q where it is above 1, by p where q is 0."""
    if u * q[token] < p[token]:
        return token
    left = torch.where(p > q, torch.where(q > 0, p / q, p), 0)
    return torch.searchsorted(torch.cumsum(left / left.sum(), 0), v, right=True).item()


def proposed_again(p, q, token, u, v):
    """After a rejection the small net proposes once more, and no longer what was rejected."""
    if u * q[token] < p[token]:
        return token
    left = torch.where(torch.arange(len(q)) == token, 0, q)
    return torch.searchsorted(torch.cumsum(left / left.sum(), 0), v, right=True).item()


WRONG = [
    *wrong_answers(solution, [("no-such-token", ("v, right=True).item()", "v, right=True).item() + 4"))]),
    ("wrong-decision", accepted_by_half),
    ("rejected-token-drawn", last_token_for_what_is_missing),
    ("another-distribution", uniform_over_the_rest),
    ("another-distribution", weighted_by_the_ratio),
    ("impossible-token", proposed_again),
]
