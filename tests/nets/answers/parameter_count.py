"""Answers to `parameter-count`: a layer from a to b values has (a + 1)·b parameters."""


def solution(sizes):
    return sum((a + 1) * b for a, b in zip(sizes, sizes[1:]))


def weights_only(sizes):
    return sum(a * b for a, b in zip(sizes, sizes[1:]))


def bias_on_the_input_side(sizes):
    return sum(a * b + a for a, b in zip(sizes, sizes[1:]))


def single_bias(sizes):
    return sum(a * b + 1 for a, b in zip(sizes, sizes[1:]))


def all_units_have_biases(sizes):
    return sum(a * b for a, b in zip(sizes, sizes[1:])) + sum(sizes)


def units(sizes):
    return sum(sizes)


def stops_early(sizes):
    total = 0
    for i in range(len(sizes) - 2):
        total += (sizes[i] + 1) * sizes[i + 1]
    return total


def product(sizes):
    total = 1
    for a, b in zip(sizes, sizes[1:]):
        total *= a * b
    return total


def the_lectures_net(sizes):
    return 30840 + 10164 + 850


WRONG = [
    ("no-biases", weights_only),
    ("bias-per-input", bias_on_the_input_side),
    ("one-bias-per-layer", single_bias),
    ("input-has-biases", all_units_have_biases),
    ("counts-units", units),
    ("last-layer-missing", stops_early),
    ("multiplies-layers", product),
    ("one-net-only", the_lectures_net),
]
