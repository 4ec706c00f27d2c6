"""Answers to `fix-the-backward`."""

import torch


def solution(g, a, b):
    grad_b = -g * a / b**2
    return g / b, grad_b.sum(0)


def plus(g, a, b):
    return g / b, (g * a / b**2).sum(0)


def not_summed(g, a, b):
    return g / b, -g * a / b**2


def averaged(g, a, b):
    return g / b, (-g * a / b**2).mean(0)


def one_number(g, a, b):
    return g / b, (-g * a / b**2).sum()


def no_square(g, a, b):
    return g / b, (-g * a / b).sum(0)


def slopes(g, a, b):
    return 1 / b, (-a / b**2).sum(0)


def half_the_chain(g, a, b):
    return g / b, (-a / b**2).sum(0)


def swapped(g, a, b):
    return (-g * a / b**2).sum(0), g / b


def times_b(g, a, b):
    return g * b, (-g * a / b**2).sum(0)


def both_summed(g, a, b):
    return (g / b).sum(0), (-g * a / b**2).sum(0)


def only_a(g, a, b):
    return g / b


WRONG = [
    ("sign", plus),
    ("not-summed", not_summed),
    ("averaged", averaged),
    ("summed-to-one-number", one_number),
    ("square-missing", no_square),
    ("upstream-missing", slopes),
    ("upstream-missing", half_the_chain),
    ("swapped", swapped),
    ("multiplied", times_b),
    ("summed-where-not-repeated", both_summed),
    ("not-a-pair", only_a),
]


def divides_in_place(g, a, b):
    grad_b = (-g * a / b**2).sum(0)
    g /= b
    return g, grad_b


def keeps_two_features(g, a, b):
    return g / b, torch.stack([(-g * a / b**2)[:, 0].sum(), (-g * a / b**2)[:, 1].sum()])


def b_of(grad_b):
    return lambda g, a, b: (g / b, grad_b(g, a, b))


WRONG += [
    ("untouched", b_of(lambda g, a, b: (g * a / b).mean(0))),
    ("still-averaged", b_of(lambda g, a, b: (-g * a / b).mean(0))),
    ("still-averaged", b_of(lambda g, a, b: (g * a / b**2).mean(0))),
    ("square-missing", b_of(lambda g, a, b: (g * a / b).sum(0))),
    ("a-missing", b_of(lambda g, a, b: (-g / b**2).sum(0))),
    ("summed-along-the-wrong-axis", b_of(lambda g, a, b: (-g * a / b**2).sum(1))),
    ("not-reduced-to-its-shape", b_of(lambda g, a, b: (-g * a / b**2).sum(0, keepdim=True))),
    ("raises", keeps_two_features),
    ("inputs-changed", divides_in_place),
    ("wrong-value", b_of(lambda g, a, b: (-g * a / b**2).sum(0) / 3 * len(b) * 1.5 + 1)),
    ("not-a-pair", lambda g, a, b: torch.stack([(g / b).sum(0), (-g * a / b**2).sum(0)]).sum(0)),
    ("wrong-value", b_of(lambda g, a, b: (-g * a / b**2).amax(0))),
    ("returns-nothing", lambda g, a, b: None),
    ("sums-multiplied", lambda g, a, b: (g / b, -g.sum(0) * a.sum(0) / b**2)),
]
ALSO_RIGHT = [
    lambda g, a, b: [g / b, -(g * a).sum(0) / b.square()],
    lambda g, a, b: ((g.numpy() / b.numpy()), (-g * a / b**2).sum(0).numpy()),
    lambda g, a, b: (g * b.reciprocal(), -torch.einsum("nf,nf->f", g, a) / (b * b)),
    lambda g, a, b: torch.autograd.functional.vjp(torch.div, (a, b), g)[1],
    lambda g, a, b: (torch.stack([row / b for row in g]), sum(-row * use / b**2 for row, use in zip(g, a, strict=True))),
]

WRONG += [("wrong-value", lambda g, a, b: ((g / b).half().to(g.dtype), solution(g, a, b)[1]))]
