"""Answers to `loss-of-logits`: the loss in terms of z, never through a rounded σ(z)."""

import math

import torch
import torch.nn.functional as F


def solution(z, y):
    return (z.clamp(min=0) - z * y + torch.log1p(torch.exp(-z.abs()))).mean()


def sigmoid_twice(z, y):
    return F.binary_cross_entropy_with_logits(torch.sigmoid(z), y)


def no_sigmoid(z, y):
    return F.binary_cross_entropy(z, y)


def through_bceloss(z, y):
    return F.binary_cross_entropy(torch.sigmoid(z), y)


def slide_formula(z, y):
    p = torch.sigmoid(z)
    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()


def naive_softplus(z, y):
    return (torch.log(1 + torch.exp(z)) - z * y).mean()


def added_up(z, y):
    return F.binary_cross_entropy_with_logits(z, y, reduction="sum")


def one_by_one(z, y):
    return F.binary_cross_entropy_with_logits(z, y, reduction="none")


def no_minus(z, y):
    return (y * F.logsigmoid(z) + (1 - y) * F.logsigmoid(-z)).mean()


def swapped_halves(z, y):
    return -(y * F.logsigmoid(-z) + (1 - y) * F.logsigmoid(z)).mean()


def first_half(z, y):
    return -(y * F.logsigmoid(z)).mean()


def as_a_number(z, y):
    return F.binary_cross_entropy_with_logits(z, y).item()


def from_a_new_leaf(z, y):
    return F.binary_cross_entropy_with_logits(z.detach().clone().requires_grad_(), y)


WRONG = [
    ("double-sigmoid", sigmoid_twice),
    ("not-probabilities", no_sigmoid),
    ("clamped", through_bceloss),
    ("overflows", slide_formula),
    ("overflows", naive_softplus),
    ("summed", added_up),
    ("not-averaged", one_by_one),
    ("sign", no_minus),
    ("targets-flipped", swapped_halves),
    ("half-of-it", first_half),
    ("wrong-type", as_a_number),
    ("detached", from_a_new_leaf),
]


def clamped(z, y):
    p = torch.sigmoid(z).clamp(1e-7, 1 - 1e-7)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def chosen_by_where(z, y):
    return torch.where(z > 0, z + torch.log1p(torch.exp(-z)), torch.log1p(torch.exp(z))).sub(z * y).mean()


def softplus(z, y):
    return (F.softplus(z) - z * y).mean()


WRONG += [
    ("clamped", clamped),
    ("gradient-overflows", chosen_by_where),
    ("with-another-base", lambda z, y: softplus(z, y) / math.log(2)),
    ("squared-error", lambda z, y: F.mse_loss(torch.sigmoid(z), y)),
    ("no-sigmoid", lambda z, y: F.mse_loss(z, y)),
    ("divided-twice", lambda z, y: softplus(z, y) / len(z)),
    ("half-of-it", lambda z, y: -((1 - y) * F.logsigmoid(-z)).mean()),
    ("label-term-missing", lambda z, y: F.softplus(z).mean()),
    ("sign-of-the-label-term", lambda z, y: (F.softplus(z) + z * y).mean()),
    ("targets-flipped", lambda z, y: (F.softplus(z) - z * (1 - y)).mean()),
    ("wrong-value", lambda z, y: (F.softplus(z) - z * y).sum() / 4),
    ("wrong-value", lambda z, y: F.cross_entropy(torch.stack([z, -z], 1), y.long())),
    ("detached", lambda z, y: softplus(z.data, y)),
    ("returns-nothing", lambda z, y: print(end="")),
]
ALSO_RIGHT = [
    softplus,
    lambda z, y: torch.nn.BCEWithLogitsLoss()(z, y),
    lambda z, y: -(y * F.logsigmoid(z) + (1 - y) * F.logsigmoid(-z)).mean(),
    lambda z, y: torch.logaddexp(torch.zeros_like(z), z).sub(z * y).mean(0, keepdim=True),
    lambda z, y: F.softplus(z * (1 - 2 * y)).mean(),
    lambda z, y: F.cross_entropy(torch.stack([torch.zeros_like(z), z], 1), y.long()),
]


def of_two_classes(z, y):
    return F.cross_entropy(torch.stack([torch.zeros_like(z), z], 1), y.long())


def sample_by_sample(z, y):
    total = 0
    for a, b in zip(z, y, strict=True):
        total = total + torch.relu(a) - a * b + torch.log1p(torch.exp(-abs(a)))
    return total / len(z)


WRONG += [
    ("arguments-swapped", lambda z, y: F.binary_cross_entropy_with_logits(y, z)),
    ("labels-as-signs", lambda z, y: F.softplus(-y * z).mean()),
]
ALSO_RIGHT += [of_two_classes, sample_by_sample, torch.nn.BCEWithLogitsLoss()]
WRONG += [("another-unit", lambda z, y: solution(z, y) / math.log(10))]
