"""Exercise: the number of parameters of a fully connected net, from its sizes."""

import math
from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric


def right(sizes: list[int]) -> int:
    count = 0
    for a, b in zip(sizes, sizes[1:], strict=False):
        count = count + a * b + b
    return count


def product(sizes: list[int]) -> int:
    return math.prod(a * b for a, b in zip(sizes, sizes[1:], strict=False))


RUBRIC = Rubric(
    right,
    """
a * b + b
    bias-per-input :: a * b + a :: b in Wx + b is added to the layer's output: how long is it?
    one-bias-per-layer :: a * b + 1 :: b is a vector, not one number: one bias for each output.
zip(sizes, sizes[1:], strict=False)
    last-layer-missing :: zip(sizes, sizes[1:-1], strict=False) :: Four sizes make three layers: a loop must not stop before the
        last one.
    first-layer-only :: [sizes[:2]] :: That is the first layer alone: the loop ends after one round.
    last-layer-only :: [sizes[-2:]] :: That is the last layer alone: is the sum started anew in the loop?
    every-pair :: [(a, b) for i, a in enumerate(sizes) for b in sizes[i + 1 :]] :: A layer joins two sizes that follow each
        other, not any two of them.
count = 0
    input-has-biases :: count = sizes[0] :: The inputs are given, not computed: no layer ends there, so they have no biases.
    output-has-no-biases :: count = -sizes[-1] :: The last layer computes Wx + b as well: its outputs have biases, too.
    one-bias-in-all :: count = 1 - sum(sizes[1:]) :: b is a vector in each layer: one bias for each output.
    multiplies-layers :: return product(sizes) :: The layers lie next to each other
        in memory: add their numbers up.
return count
    counts-units :: return sum(sizes) :: Parameters are what training adjusts, not the values that flow through the net.
    counts-layers :: return len(sizes) - 1 :: That is the number of layers. Each has (inputs + 1) · outputs numbers.
    one-net-only :: return 41_854 :: That is the answer for 256-120-84-10; compute it from `sizes`.
error
    past-the-end :: out of range :: An index runs past the end: n sizes make n - 1 layers, and a net may have fewer layers than
        the lecture's.
""",
)


@exercise("parameter-count", notebook="03_nets", takes="sizes", returns=int)
def judge_parameter_count(answer: Callable) -> None:
    """Σ (inputs + 1) · outputs."""
    cases = {
        "sizes = [256, 120, 84, 10]": ([256, 120, 84, 10],),
        "sizes = [2, 4, 1]": ([2, 4, 1],),
        "sizes = [784, 10], a single layer": ([784, 10],),
        "sizes = [3, 5, 4, 7, 2], four layers": ([3, 5, 4, 7, 2],),
        "sizes = [3, 5, 5, 5, 2], equal layers": ([3, 5, 5, 5, 2],),
        "sizes = [4000, 4099, 4099, 3]": ([4000, 4099, 4099, 3],),
    }
    RUBRIC.expect(answer, cases)
