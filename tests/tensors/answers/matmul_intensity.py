"""Answers to `matmul-intensity`."""


def solution(n, m, k, width):
    return 2 * n * m * k / ((n * k + k * m + n * m) * width)


def multiply_add_is_one(n, m, k, width):
    return n * m * k / ((n * k + k * m + n * m) * width)


def only_reads(n, m, k, width):
    return 2 * n * m * k / ((n * k + k * m) * width)


def elements(n, m, k, width):
    return 2 * n * m * k / (n * k + k * m + n * m)


def bytes_per_flop(n, m, k, width):
    return (n * k + k * m + n * m) * width / (2 * n * m * k)


def only_writes(n, m, k, width):
    return 2 * n * m * k / (n * m * width)


def square_only(n, m, k, width):
    return 2 * n / (3 * width)


WRONG = [
    ("one-flop-a-multiply-add", multiply_add_is_one),
    ("result-not-counted", only_reads),
    ("elements-instead-of-bytes", elements),
    ("upside-down", bytes_per_flop),
    ("only-the-result", only_writes),
    ("wrong-value", square_only),
]
