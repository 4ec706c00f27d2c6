"""Answers to `fix-the-backward`."""


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
