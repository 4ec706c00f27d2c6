"""Answers to `fix-the-backward`."""

import torch
from edited_source import wrong_answers


def solution(g, a, b):
    grad_b = -g * a / b**2
    return g / b, grad_b.sum(0)


def keeps_two_features(g, a, b):
    return g / b, torch.stack([(-g * a / b**2)[:, 0].sum(), (-g * a / b**2)[:, 1].sum()])


WRONG = wrong_answers(
    solution,
    [
        ("wrong-shape", ("-g * a", "-a"), ("g / b,", "1 / b,")),
        ("wrong-value", ("grad_b.sum(0)", "grad_b.amax(0)")),
        ("wrong-value", ("return g / b", "return (g / b).half().to(g.dtype)")),
        ("wrong-value", ("-g * a", "-g.clamp(-1, 1) * a")),
    ],
)
WRONG += [("raises", keeps_two_features)]
ALSO_RIGHT = [
    lambda g, a, b: [g / b, -(g * a).sum(0) / b.square()],
    lambda g, a, b: (g * b.reciprocal(), -torch.einsum("nf,nf->f", g, a) / (b * b)),
    lambda g, a, b: torch.autograd.functional.vjp(torch.div, (a, b), g)[1],
    lambda g, a, b: (torch.stack([row / b for row in g]), sum(-row * use / b**2 for row, use in zip(g, a, strict=True))),
]


def through_the_result(g, a, b):
    y = a / b
    return g * y / a, -(g * y / b).sum(0)


WRONG += [("not-at-zero", through_the_result)]
