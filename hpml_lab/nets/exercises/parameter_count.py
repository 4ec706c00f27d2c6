"""Exercise: the number of parameters of a fully connected net, from its sizes."""

import math
from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function

NOTEBOOK = "03_nets"


def layers(sizes: list[int]) -> list[tuple[int, int]]:
    """(inputs, outputs) of each layer."""
    return list(zip(sizes, sizes[1:], strict=False))


def right(sizes: list[int]) -> int:
    return sum((a + 1) * b for a, b in layers(sizes))


def weights(sizes: list[int]) -> int:
    return sum(a * b for a, b in layers(sizes))


MISTAKES = {
    "no-biases": (weights, "You have all weights. Each output of a layer adds one more number, b in Wx + b."),
    "bias-per-input": (
        lambda sizes: sum(a * (b + 1) for a, b in layers(sizes)),
        "b in Wx + b is added to the layer's output: how long is it?",
    ),
    "one-bias-per-layer": (
        lambda sizes: weights(sizes) + len(layers(sizes)),
        "b is a vector, not one number: one bias for each output.",
    ),
    "input-has-biases": (
        lambda sizes: weights(sizes) + sum(sizes),
        "The inputs are given, not computed: no layer ends there, so they have no biases.",
    ),
    "counts-units": (sum, "That is how many values flow through the net. Which numbers does training adjust?"),
    "last-layer-missing": (
        lambda sizes: right(sizes[:-1]),
        "Four sizes make three layers; one is missing. Does your loop stop too early?",
    ),
    "multiplies-layers": (
        lambda sizes: math.prod(a * b for a, b in layers(sizes)),
        "The layers lie next to each other in memory: add their numbers up.",
    ),
    "output-has-no-biases": (
        lambda sizes: weights(sizes) + sum(sizes[1:-1]),
        "The last layer computes Wx + b as well: its outputs have biases, too.",
    ),
    "one-bias-in-all": (lambda sizes: weights(sizes) + 1, "b is a vector in each layer: one bias for each output."),
    "first-layer-only": (lambda sizes: right(sizes[:2]), "That is the first layer alone: the loop ends after one round."),
    "last-layer-only": (lambda sizes: right(sizes[-2:]), "That is the last layer alone: is the sum started anew in the loop?"),
    "every-pair": (
        lambda sizes: sum((a + 1) * b for i, a in enumerate(sizes) for b in sizes[i + 1 :]),
        "A layer joins two sizes that follow each other, not any two of them.",
    ),
    "counts-layers": (lambda sizes: len(sizes) - 1, "That is the number of layers. Each has (inputs + 1) · outputs numbers."),
    "one-net-only": (lambda sizes: 41_854, "That is the answer for 256-120-84-10; compute it from `sizes`."),
}


@exercise("parameter-count", notebook=NOTEBOOK)
def judge_parameter_count(answer: Callable) -> None:
    cases = {
        "sizes = [256, 120, 84, 10]": ([256, 120, 84, 10],),
        "sizes = [2, 4, 1]": ([2, 4, 1],),
        "sizes = [784, 10], a single layer": ([784, 10],),
        "sizes = [3, 5, 4, 7, 2], four layers": ([3, 5, 4, 7, 2],),
        "sizes = [4000, 4099, 4099, 3]": ([4000, 4099, 4099, 3],),
    }
    past_the_end = "An index runs past the end: n sizes make n - 1 layers, and a net may have fewer layers than the lecture's."
    expect_function(answer, right, cases, mistakes=MISTAKES, errors={"out of range": ("past-the-end", past_the_end)})
