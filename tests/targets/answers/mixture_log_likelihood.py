"""Answers to `mixture-log-likelihood`: log-sum-exp over the components of a mixture of Gaussians."""

import math

import torch
from edited_source import wrong_answers
from torch.distributions import Categorical, MixtureSameFamily, Normal


def solution(logits, mu, sigma, t):
    log_pi = torch.log_softmax(logits, dim=1)
    z = (t[:, None] - mu) / sigma
    log_normal = -0.5 * z**2 - torch.log(sigma) - 0.5 * math.log(2 * math.pi)
    return torch.logsumexp(log_pi + log_normal, dim=1)


LOG_PI = "torch.log_softmax(logits, dim=1)"
SQUARE = "-0.5 * z**2"
WIDTH = "- torch.log(sigma)"
CONSTANT = "- 0.5 * math.log(2 * math.pi)"
SUM = "torch.logsumexp(log_pi + log_normal, dim=1)"


def averaged_by_the_responsibilities(logits, mu, sigma, t):
    joint = torch.log_softmax(logits, 1) + Normal(mu, sigma).log_prob(t[:, None])
    return (joint.softmax(1) * joint).sum(1)


def shifted_by_the_densities(logits, mu, sigma, t):
    """The largest log N is subtracted before exp, and not the largest log π + log N."""
    log_normal = Normal(mu, sigma).log_prob(t[:, None])
    largest = log_normal.max(1, keepdim=True).values
    return largest[:, 0] + (logits.log_softmax(1) + log_normal - largest).exp().sum(1).log()


WRONG = [
    *wrong_answers(
        solution,
        [
            ("underflows", (SUM, "torch.log(torch.exp(log_pi + log_normal).sum(1))")),
            ("underflows", (SUM, "torch.log(torch.exp(log_pi + log_normal).sum(1)).nan_to_num()")),
            ("epsilon-in-the-log", (SUM, "torch.log(torch.exp(log_pi + log_normal).sum(1) + 1e-8)")),
            ("epsilon-in-the-log", (LOG_PI, "torch.log(torch.softmax(logits, dim=1) + 1e-30)")),
            ("logits-overflow", (LOG_PI, "logits - logits.exp().sum(1, keepdim=True).log()")),
            ("wrong-shape", (SUM, f"{SUM}[:, None]")),
            ("log-of-softmax", (LOG_PI, "torch.log(torch.softmax(logits, dim=1))")),
            ("not-a-gaussian", (SQUARE, "-0.5 * z")),
            ("wrong-factor", (CONSTANT, "- 0.5 * math.log(math.pi)")),
            ("wrong-factor", (SQUARE, "-0.25 * z**2"), (WIDTH, "- 3 * torch.log(sigma)")),
        ],
    ),
    ("other-weights", lambda logits, *rest: solution(logits.softmax(1), *rest)),
    ("depends-on-the-others", lambda logits, mu, sigma, t: solution(logits, mu, sigma, t - t.mean())),
    ("shifted-by-one-part", shifted_by_the_densities),
    ("wrong-value", lambda logits, mu, sigma, t: solution(logits, mu, sigma.clamp(min=0.1), t)),
    ("wrong-value", lambda logits, mu, sigma, t: solution(logits, mu, sigma.clamp(min=1e-12), t)),
    ("wrong-sum", averaged_by_the_responsibilities),
]


def by_distributions(logits, mu, sigma, t):
    return MixtureSameFamily(Categorical(logits=logits), Normal(mu, sigma)).log_prob(t)


def by_largest(logits, mu, sigma, t):
    terms = torch.log_softmax(logits, -1) + Normal(mu, sigma).log_prob(t.unsqueeze(-1))
    largest = terms.max(-1, keepdim=True).values
    return (largest + (terms - largest).exp().sum(-1, keepdim=True).log()).squeeze(-1)


def component_by_component(logits, mu, sigma, t):
    total = torch.full_like(t, -torch.inf)
    log_pi = logits - torch.logsumexp(logits, 1, keepdim=True)
    for k in range(mu.shape[1]):
        total = torch.logaddexp(total, log_pi[:, k] + Normal(mu[:, k], sigma[:, k]).log_prob(t))
    return total


def difference_of_two(logits, mu, sigma, t):
    joint = logits + Normal(mu, sigma).log_prob(t[:, None])
    return torch.logsumexp(joint, 1) - torch.logsumexp(logits, 1)


def through_the_variance(logits, mu, sigma, t):
    v = sigma * sigma
    terms = torch.log_softmax(logits, 1) - (t.reshape(-1, 1) - mu).square().div(2 * v) - (2 * torch.pi * v).log() / 2
    return terms.T.logsumexp(0)


ALSO_RIGHT = [by_distributions, by_largest, component_by_component, difference_of_two, through_the_variance]
