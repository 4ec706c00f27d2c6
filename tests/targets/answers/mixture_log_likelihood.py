"""Answers to `mixture-log-likelihood`: log-sum-exp over the components of a mixture of Gaussians."""

import math

import numpy as np
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


def naive(logits, mu, sigma, t):
    pi = torch.softmax(logits, 1)
    density = torch.exp(-((t[:, None] - mu) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
    return torch.log((pi * density).sum(1))


def naive_clamped(logits, mu, sigma, t):
    return naive(logits, mu, sigma, t).clamp(min=-100)


def naive_with(epsilon):
    def log_likelihood(logits, mu, sigma, t):
        pi = torch.softmax(logits, 1)
        return torch.log((pi * Normal(mu, sigma).log_prob(t[:, None]).exp()).sum(1) + epsilon)

    return log_likelihood


def one_gaussian(logits, mu, sigma, t):
    pi = torch.softmax(logits, 1)
    return Normal((pi * mu).sum(1), (pi * sigma).sum(1)).log_prob(t)


def squared_scale(logits, mu, sigma, t):
    return MixtureSameFamily(Categorical(logits=logits), Normal(mu, sigma**2)).log_prob(t)


def logits_as_probabilities(logits, mu, sigma, t):
    return torch.logsumexp(torch.softmax(logits, 1) * Normal(mu, sigma).log_prob(t[:, None]), 1)


def in_place(logits, mu, sigma, t):
    mu -= t[:, None]
    log_normal = -0.5 * (mu / sigma) ** 2 - torch.log(sigma) - 0.5 * math.log(2 * math.pi)
    return torch.logsumexp(torch.log_softmax(logits, 1) + log_normal, 1)


def nothing(logits, mu, sigma, t):
    solution(logits, mu, sigma, t)


def weights_by_exp(logits, mu, sigma, t):
    log_pi = logits - logits.exp().sum(1, keepdim=True).log()
    return torch.logsumexp(log_pi + Normal(mu, sigma).log_prob(t[:, None]), 1)


def largest_not_added(logits, mu, sigma, t):
    joint = torch.log_softmax(logits, 1) + Normal(mu, sigma).log_prob(t[:, None])
    return (joint - joint.amax(1, keepdim=True)).exp().sum(1).log()


def by_another_density(logits, mu, sigma, t):
    return torch.logsumexp(torch.log_softmax(logits, 1) + torch.distributions.Laplace(mu, sigma).log_prob(t[:, None]), 1)


def averaged_by_the_responsibilities(logits, mu, sigma, t):
    joint = torch.log_softmax(logits, 1) + Normal(mu, sigma).log_prob(t[:, None])
    return (joint.softmax(1) * joint).sum(1)


WRONG = [
    ("underflows", naive),
    ("epsilon-in-the-log", naive_clamped),
    ("epsilon-in-the-log", naive_with(1e-8)),
    ("mean-of-parameters", one_gaussian),
    ("variance-for-sigma", squared_scale),
    ("inputs-changed", in_place),
    ("returns-nothing", nothing),
    *wrong_answers(
        solution,
        [
            ("underflows", (SUM, "torch.log(torch.exp(log_pi + log_normal).sum(1))")),
            ("log-of-softmax", (LOG_PI, "torch.log(torch.softmax(logits, dim=1))")),
            ("not-a-gaussian", (SQUARE, "-0.5 * z")),
            ("wrong-factor", (CONSTANT, "- 0.5 * math.log(math.pi)")),
            ("wrong-factor", (WIDTH, ""), (CONSTANT, "")),
            ("wrong-factor", (SQUARE, "-0.25 * z**2"), (WIDTH, "- 3 * torch.log(sigma)")),
            ("wrong-factor", (LOG_PI, "torch.softmax(logits, dim=1)"), (CONSTANT, "")),
        ],
    ),
    ("other-weights", logits_as_probabilities),
    ("logits-overflow", weights_by_exp),
    ("maximum-not-added", largest_not_added),
    ("other-weights", lambda logits, *rest: solution(logits.softmax(1), *rest)),
    ("another-gaussian", lambda logits, mu, sigma, t: solution(logits, mu, sigma.exp(), t)),
    ("depends-on-the-others", lambda logits, mu, sigma, t: solution(logits, mu, sigma, t - t.mean())),
    ("depends-on-the-others", lambda logits, mu, sigma, t: solution(logits, mu, sigma[:1].expand_as(mu), t)),
    ("not-a-gaussian", by_another_density),
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


def by_numpy(logits, mu, sigma, t):
    logits, mu, sigma, t = (part.numpy().astype(np.float64) for part in (logits, mu, sigma, t))
    log_pi = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return np.logaddexp.reduce(log_pi - ((t[:, None] - mu) / sigma) ** 2 / 2 - np.log(sigma * np.sqrt(2 * np.pi)), axis=1)


def sample_by_sample(logits, mu, sigma, t):
    found = []
    for row, means, widths, target in zip(logits.tolist(), mu.tolist(), sigma.tolist(), t.tolist(), strict=True):
        highest = max(row)
        normalizer = highest + math.log(sum(math.exp(logit - highest) for logit in row))
        terms = [
            logit - normalizer - (target - m) ** 2 / (2 * s * s) - math.log(s) - math.log(2 * math.pi) / 2
            for logit, m, s in zip(row, means, widths, strict=True)
        ]
        highest = max(terms)
        found.append(highest + math.log(sum(math.exp(term - highest) for term in terms)))
    return found


def difference_of_two(logits, mu, sigma, t):
    joint = logits + Normal(mu, sigma).log_prob(t[:, None])
    return torch.logsumexp(joint, 1) - torch.logsumexp(logits, 1)


def through_the_variance(logits, mu, sigma, t):
    v = sigma * sigma
    terms = torch.log_softmax(logits, 1) - (t.reshape(-1, 1) - mu).square().div(2 * v) - (2 * torch.pi * v).log() / 2
    return terms.T.logsumexp(0)


def with_the_package(logits, mu, sigma, t):
    from hpml_lab.targets.lessons import mdn

    softplus_of = sigma - mdn.LEAST_WIDTH
    return mdn.log_likelihood(torch.cat([logits, mu, softplus_of + (-softplus_of).expm1().neg().log()], 1), t)


ALSO_RIGHT = [by_distributions, by_largest, component_by_component, difference_of_two, through_the_variance]


def only_components_within_5_sigma(logits, mu, sigma, t):
    near = (t[:, None] - mu).abs() < 5 * sigma
    near |= ~near.any(1, keepdim=True)
    return solution(logits, mu, torch.where(near, sigma, 1e-3 * sigma), t)


def weights_of_the_first_call(logits, mu, sigma, t, kept={}):  # noqa: B006
    return solution(kept.setdefault(logits.shape, logits), mu, sigma, t)


WRONG += [
    ("wrong-value", only_components_within_5_sigma),
    ("remembers-calls", weights_of_the_first_call),
    ("wrong-value", lambda logits, mu, sigma, t: solution(logits, mu, sigma.clamp(min=0.1), t)),
    ("wrong-value", lambda logits, mu, sigma, t: solution(logits, mu, sigma + 1e-6, t)),
    ("wrong-dtype", lambda *given: solution(*(part.bfloat16() for part in given)).float()),
]


def shifted_by_the_densities(log_of):
    """The largest log N is subtracted before exp, and not the largest log π + log N."""

    def log_likelihood(logits, mu, sigma, t):
        log_normal = torch.distributions.Normal(mu, sigma).log_prob(t[:, None])
        largest = log_normal.max(1, keepdim=True).values
        return largest[:, 0] + (log_of(logits) + log_normal - largest).exp().sum(1).log()

    return log_likelihood


WRONG += [
    ("shifted-by-one-part", shifted_by_the_densities(lambda logits: logits.softmax(1).log())),
    ("shifted-by-one-part", shifted_by_the_densities(lambda logits: logits.log_softmax(1))),
]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", by_numpy),
    ("wrong-type", sample_by_sample),
]

WRONG += [("one-scale", with_the_package)]  # the widths of the package have a floor
