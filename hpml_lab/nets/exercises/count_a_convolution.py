"""Exercise: the size, the parameters and the FLOPs of a convolution, from its settings."""

from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import plain, same

Counts = tuple[int, int, int]


def right(c_in: int, c_out: int, k: int, stride: int, padding: int, groups: int, side: int) -> Counts:
    if c_in % groups or c_out % groups or side + 2 * padding < k:
        raise ValueError("there is no such convolution")
    n = (side + 2 * padding - k) // stride + 1
    kernel = c_in // groups * k * k
    parameters = c_out * kernel + c_out
    flops = n * n * c_out * 2 * kernel
    return n, parameters, flops


RUBRIC = Rubric(
    right,
    """
(side + 2 * padding - k) // stride + 1
    last-place-forgotten :: (side + 2 * padding - k) // stride :: From the first place the kernel moves so many times; the first
        place counts, too.
    padded-at-one-end :: (side + padding - k) // stride + 1 :: Zeros are added at both ends of a row.
    unpadded :: (side - k) // stride + 1 :: Padding makes each row longer, at both ends.
    rounded-up :: -((k - side - 2 * padding) // stride) + 1 :: Where the last move would leave the image, it is not made.
    stride-forgotten :: side + 2 * padding - k + 1 :: The kernel moves by `stride` pixels.
    kernel-forgotten :: (side + 2 * padding) // stride :: The whole kernel has to be inside the padded image.
c_in // groups * k * k
    groups-forgotten :: c_in * k * k :: In each group a kernel reads the channels of its group alone: c_in / groups.
    one-axis :: c_in // groups * k :: A kernel has k rows *and* k columns.
    one-channel :: k * k :: Each kernel reads all input channels of its group, not one.
    groups-times :: c_in * groups * k * k :: More groups make the kernels thinner: each reads c_in / groups channels.
c_out * kernel + c_out
    no-bias :: c_out * kernel :: Each output channel has a bias, too.
    one-bias :: c_out * kernel + 1 :: Each output channel has a bias of its own.
    bias-per-input :: c_out * kernel + c_in :: The bias is added to what comes out: one for each output channel.
    one-kernel :: kernel + 1 :: Each output channel has a kernel of its own.
n * n * c_out * 2 * kernel
    multiplications :: n * n * c_out * kernel :: A multiplication and its addition are two FLOPs.
    at-the-input :: side * side * c_out * 2 * kernel :: A kernel stands at each place of the *output*.
    one-place :: c_out * 2 * kernel :: That is one place of the output: there are n · n.
    one-row :: n * c_out * 2 * kernel :: The output has n rows *and* n columns.
    one-output-channel :: n * n * 2 * kernel :: That is one output channel.
    bias-counted :: n * n * c_out * (2 * kernel + 1) :: Adding the bias is not to be counted here.
return n, parameters, flops
    another-order :: return parameters, flops, n :: All three are right: the order is side, parameters, FLOPs.
    bytes :: return n, 4 * parameters, flops :: Those are bytes of float32; asked is how many numbers.
""",
)
CASES = {
    "AlexNet's first convolution": (3, 64, 11, 4, 2, 1, 224),
    "VGG-19's second": (64, 64, 3, 1, 1, 1, 224),
    "ResNet-18's first": (3, 64, 7, 2, 3, 1, 224),
    "1 × 1": (256, 64, 1, 1, 0, 1, 56),
    "1 × 1, every second pixel": (64, 128, 1, 2, 0, 1, 56),
    "four groups": (32, 48, 5, 2, 1, 4, 30),
    "a group for each channel": (32, 32, 3, 1, 1, 32, 14),
    "a kernel as large as the image": (16, 10, 5, 1, 0, 1, 5),
}


@exercise(
    "count-a-convolution", notebook="03_nets", takes="c_in, c_out, k, stride, padding, groups, side", returns=(int, int, int)
)
def judge_count_a_convolution(answer: Callable[..., Counts]) -> None:
    """n = ⌊(side + 2p − k)/s⌋ + 1; c_out (c_in/groups · k² + 1); 2 n² c_out c_in/groups · k²."""
    RUBRIC.expect(answer, CASES, explain=_explain)


def _explain(_: Callable[..., Counts], judged: list[Judged]) -> None:
    """Raise a Mistake if one of the three alone is wrong."""
    names = ("side", "parameters", "flops")
    differ = [[row for row in judged if not same(row.got[index], row.wanted[index])] for index in range(len(names))]
    wrong = [index for index, rows in enumerate(differ) if rows]
    if len(wrong) != 1:
        return
    [index] = wrong
    row = differ[index][0]
    figures = f"for {row.case} it should be {row.wanted[index]:,}; yours is {plain(row.got[index]):,}."
    what = ("The side of the output", "The number of parameters", "The number of FLOPs")[index]
    raise Mistake(f"{names[index]}-alone", f"{what} alone is wrong: {figures}")
