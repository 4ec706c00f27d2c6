"""Answers to `loss-of-logits`: the loss in terms of z, never through a rounded σ(z)."""

import math

import torch
import torch.nn.functional as F


def solution(z, y):
    return (z.clamp(min=0) - z * y + torch.log1p(torch.exp(-z.abs()))).mean()


def slide_formula(z, y):
    p = torch.sigmoid(z)
    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()


def clamped(z, y):
    p = torch.sigmoid(z).clamp(1e-7, 1 - 1e-7)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def chosen_by_where(z, y):
    return torch.where(z > 0, z + torch.log1p(torch.exp(-z)), torch.log1p(torch.exp(z))).sub(z * y).mean()


WRONG = [
    ("float32-on-the-way", lambda z, y: F.binary_cross_entropy_with_logits(z.float(), y.float()).to(z.dtype)),
    ("not-probabilities", lambda z, y: F.binary_cross_entropy(z, y)),
    ("clamped", lambda z, y: F.binary_cross_entropy(torch.sigmoid(z), y)),
    ("clamped", clamped),
    ("overflows", slide_formula),
    ("overflows", lambda z, y: (torch.log(1 + torch.exp(z)) - z * y).mean()),
    ("gradient-overflows", chosen_by_where),
    ("sign", lambda z, y: -slide_formula(z, y)),
    ("half-of-it", lambda z, y: -(y * F.logsigmoid(z)).mean()),
    ("detached", lambda z, y: F.binary_cross_entropy_with_logits(z.detach().clone().requires_grad_(), y)),
    ("detached", lambda z, y: solution(z.data, y)),
    ("wrong-value", lambda z, y: (F.softplus(z) - z * y).sum() / 4),
    ("wrong-value", lambda z, y: F.cross_entropy(torch.stack([z, -z], 1), y.long())),
    ("another-unit", lambda z, y: solution(z, y) / math.log(10)),
]


def sample_by_sample(z, y):
    total = 0
    for a, b in zip(z, y, strict=True):
        total = total + torch.relu(a) - a * b + torch.log1p(torch.exp(-abs(a)))
    return total / len(z)


ALSO_RIGHT = [
    sample_by_sample,
    torch.nn.BCEWithLogitsLoss(),
    lambda z, y: (F.softplus(z) - z * y).mean(),
    lambda z, y: -(y * F.logsigmoid(z) + (1 - y) * F.logsigmoid(-z)).mean(),
    lambda z, y: torch.logaddexp(torch.zeros_like(z), z).sub(z * y).mean(0, keepdim=True),
    lambda z, y: F.softplus(z * (1 - 2 * y)).mean(),
    lambda z, y: F.cross_entropy(torch.stack([torch.zeros_like(z), z], 1), y.long()),
]
