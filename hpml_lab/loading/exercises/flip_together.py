"""flip-together: an image and its landmarks mirrored together, with left and right exchanged."""

import copy
from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import same

Points = torch.Tensor
Pairs = tuple[tuple[int, int], ...]

# (channels, height, width), pairs, and how far the points spread: in the last image some lie outside of it.
SIZES = (
    ((3, 8, 14), ((0, 1), (3, 4)), 1),
    ((1, 11, 6), ((2, 4),), 1),
    ((2, 5, 9), ((1, 3),), 1),
    ((3, 6, 7), ((0, 4),), 3),
    ((1, 4, 1), (), 1),
)
CALLS = 10  # with the same arguments: an answer that draws a random number does not give the same each time


def flip(image: torch.Tensor, points: Points, pairs: Pairs) -> tuple[torch.Tensor, Points]:
    across = image.flip(-1)
    x, y = points.unbind(-1)
    moved = torch.stack([image.shape[-1] - 1 - x, y], -1)
    for left, right in pairs:
        moved[[left, right]] = moved[[right, left]]
    return across, moved


def paired(points: Points, pairs: Pairs) -> torch.Tensor:
    """(K, 1): whether a row belongs to a pair."""
    return torch.tensor([[any(row in pair for pair in pairs)] for row in range(len(points))])


def turned(image: torch.Tensor, points: Points, pairs: Pairs) -> tuple[torch.Tensor, Points]:
    """Mirrored from top to bottom."""
    across, moved = flip(image.mT, points.flip(-1), pairs)
    return across.mT, moved.flip(-1)


RUBRIC = Rubric(
    flip,
    """
image.flip(-1)
    points-only :: image :: Image and landmarks move together: mirror the image as well.
    wrong-axis-of-the-image :: image.flip(-2) :: The landmarks are mirrored from left to right, the image from top to bottom:
        its last dimension is the width.
    both-axes-of-the-image :: image.flip(-1, -2) :: Your image is turned by 180°: mirror it from left to right only, along its
        last dimension.
    channels-reversed :: image.flip(0) :: You reverse the channels. The image is (C, H, W).
    everything-reversed :: image.flip(0, 1, 2) :: You reverse all dimensions of the image, channels and rows, too: name the one
        that is its width.
image.shape[-1] - 1 - x, y
    image-only :: x, y :: Image and landmarks move together: the landmarks do not stay where they were.
    wrong-axis :: x, image.shape[-2] - 1 - y :: The image is mirrored from left to right, the landmarks from top to bottom:
        column 0 of `points` is x.
    off-by-one :: image.shape[-1] - x, y :: Off by one pixel: columns are numbered 0 to W − 1. Where does column 0 go?
    height-for-width :: image.shape[-2] - 1 - x, y :: $HEIGHT
    height-for-width :: image.shape[-2] - x, y :: $HEIGHT
    minus-reversed :: x - (image.shape[-1] - 1), y :: $MINUS
    minus-reversed :: x - image.shape[-1], y :: $MINUS
    minus-reversed :: x - image.shape[-1] - 1, y :: $MINUS
    off-by-one-the-other-way :: image.shape[-1] - 2 - x, y :: $PIXELS
    off-by-one-the-other-way :: image.shape[-1] + 1 - x, y :: $PIXELS
    half-the-width :: (image.shape[-1] - 1) / 2 - x, y :: Column 0 goes to W − 1, not to the middle: as far from the right edge
        as it was from the left one.
    both-axes-of-the-points :: image.shape[-1] - 1 - x, image.shape[-2] - 1 - y :: The image is mirrored from left to right
        only, your points also from top to bottom: y stays as it is.
    sign-only :: -x, y :: Your x is negative: outside the image. A mirror image lies in the same frame.
    channels-for-width :: len(image) - 1 - x, y :: $CHANNELS
    channels-for-width :: 2 - x, y :: $CHANNELS
    width-of-the-example :: 9 - x, y :: $EXAMPLE
    width-of-the-example :: 10 - x, y :: $EXAMPLE
return across, moved
    points-first :: return moved, across :: Return (image, points): the image comes first.
    columns-exchanged :: return across, moved.flip(-1) :: You exchange x and y, the columns of `points`. A pair names two of its
        rows.
    rows-reversed :: return across, moved.flip(0) :: You reverse all rows of `points`: exchange those that `pairs` names.
    only-paired-points-moved :: return across, torch.where(paired(points, pairs), moved, points) :: Points that belong to no
        pair stay where they were: mirror all of them, then exchange.
    points-rounded :: return across, moved.floor() :: $ROUNDED
    points-rounded :: return across, moved.round() :: $ROUNDED
    points-rounded :: return across, moved.trunc() :: $ROUNDED
    kept-inside :: return across, moved.clamp_min(0) :: $INSIDE
    kept-inside :: x = moved[:, :1].clamp(0, image.shape[-1] - 1); return across, torch.cat([x, moved[:, 1:]], 1) :: $INSIDE
    kept-inside :: frame = torch.tensor(image.shape[:0:-1]); return across, moved.clamp_min(0).minimum(frame - 1) :: $INSIDE
in pairs:
    only-one-pair-exchanged :: in pairs[:1]: :: $SEVERAL
    only-one-pair-exchanged :: in pairs[-1:]: :: $SEVERAL
moved[[left, right]] = moved[[right, left]]
    left-and-right-not-exchanged :: pass :: Each point is in the right position. || A mirror also exchanges left and right: swap
        the rows of `pairs` once.
    only-x-exchanged :: moved[[left, right], 0] = moved[[right, left], 0] :: Of each pair you exchange x and leave y where it
        was: exchange whole rows.
    rows-lost-in-the-exchange :: moved[left] = moved[right] :: Both rows of a pair are now the same. points[left] is a view:
        one row is overwritten before it is read.
whole answer
    nothing-moved :: lambda image, points, pairs: (image, points) :: Image and landmarks are as they were.
    upside-down :: turned :: $DOWN
    upside-down :: lambda image, points, pairs: turned(image, points, ()) :: $DOWN
    both-axes :: lambda image, points, pairs: turned(*flip(image, points, pairs), ()) :: $TURNED
    both-axes :: lambda image, points, pairs: turned(*flip(image, points, ()), ()) :: $TURNED
""",
    HEIGHT="You mirror x about the image's height. The image is (C, H, W).",
    MINUS="x − (W − 1) is the negative of what you want: a point near the left edge must come to lie near the right one.",
    PIXELS="Off by some pixels: columns are numbered 0 to W − 1. Where does column 0 go?",
    CHANNELS="You mirror x about the number of channels. The image is (C, H, W).",
    EXAMPLE="That is right for the example, 10 pixels wide: take the width from the image.",
    ROUNDED="Your points are whole numbers. Key points lie between pixels: keep their dtype.",
    INSIDE="A point that lies outside the image stays outside, as far from its edge as it was: do not clamp its coordinates.",
    DOWN="You mirror from top to bottom. The last dimension of an image (C, H, W) is its width.",
    TURNED="You turned everything by 180°: mirror from left to right only.",
    SEVERAL="`pairs` may hold several: exchange the rows of each pair, not of one alone.",
)


def _cases() -> dict[str, tuple[torch.Tensor, Points, Pairs]]:
    generator, cases = torch.Generator().manual_seed(0), {}
    for (channels, height, width), pairs, spread in SIZES:
        image = torch.rand(channels, height, width, generator=generator)
        points = (0.5 + spread * (torch.rand(5, 2, generator=generator) - 0.5)) * torch.tensor([width - 1.0, height - 1.0])
        cases[f"an image of {width} × {height} pixels and pairs = {pairs}"] = image, points, pairs
    return cases


@exercise(
    "flip-together",
    notebook="08_loading",
    takes="image, points, pairs",
    returns=(like("image", new=True), like("points", new=True)),
)
def judge_flip_together(answer: Callable) -> None:
    """(image mirrored, points at W − 1 − x with left and right exchanged), both new."""
    for given in _cases().values():
        first, *others = (answer(*copy.deepcopy(given)) for _ in range(CALLS))
        if not all(same(other, first, 1e-5) for other in others):
            raise Mistake("by-chance", "The same call gives sometimes one result and sometimes another: mirror every time.")
    RUBRIC.expect(answer, _cases(), tolerance=1e-5)
