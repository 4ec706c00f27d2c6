"""Answers to `fix-the-backward`."""

import torch
from edited_source import wrong_answers


def solution(g, a, b):
    grad_b = -g * a / b**2
    return g / b, grad_b.sum(0)


FOR_A, FOR_B = "return g / b", "grad_b.sum(0)"
WRONG = wrong_answers(
    solution,
    [
        ("wrong-value", ("-g * a", "-a"), ("g / b,", "1 / b,")),
        ("wrong-type", (", grad_b.sum(0)", "")),
        ("wrong-type", ("g / b, grad_b.sum(0)", "torch.stack([(g / b).sum(0), grad_b.sum(0)]).sum(0)")),
        ("wrong-value", (FOR_B, "grad_b.sum(0) / 3 * len(b) * 1.5 + 1")),
        ("wrong-value", (FOR_B, "grad_b.amax(0)")),
        ("wrong-value", (FOR_A, "return (g / b).half().to(g.dtype)")),
    ],
)


def divides_in_place(g, a, b):
    grad_b = (-g * a / b**2).sum(0)
    g /= b
    return g, grad_b


def keeps_two_features(g, a, b):
    return g / b, torch.stack([(-g * a / b**2)[:, 0].sum(), (-g * a / b**2)[:, 1].sum()])


WRONG += [
    ("raises", keeps_two_features),
    ("inputs-changed", divides_in_place),
    ("returns-nothing", lambda g, a, b: None),
    ("wrong-value", lambda g, a, b: (g / b, torch.einsum("nf,nf->f", g.clamp(-1, 1), -a) / b**2)),
]
ALSO_RIGHT = [
    lambda g, a, b: [g / b, -(g * a).sum(0) / b.square()],
    lambda g, a, b: (g * b.reciprocal(), -torch.einsum("nf,nf->f", g, a) / (b * b)),
    lambda g, a, b: torch.autograd.functional.vjp(torch.div, (a, b), g)[1],
    lambda g, a, b: (torch.stack([row / b for row in g]), sum(-row * use / b**2 for row, use in zip(g, a, strict=True))),
]


WRONG += [  # right numbers in another kind than the exercise asks for
]
