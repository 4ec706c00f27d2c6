"""Answers to `loss-of-logits`: the loss in terms of z, never through a rounded σ(z)."""

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
    ("detached", as_a_number),
    ("detached", from_a_new_leaf),
]
