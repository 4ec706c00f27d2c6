"""flip-together: an image and its landmarks mirrored together, with left and right exchanged."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
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


_HEIGHT = "You mirror x about the image's height. The image is (C, H, W)."
_INSIDE = "A point that lies outside the image stays outside, as far from its edge as it was: do not clamp its coordinates."
RUBRIC = Rubric(
    flip,
    """
image.shape[-1] - 1 - x, y
    image-only :: x, y :: Image and landmarks move together: the landmarks do not stay where they were.
    wrong-axis :: x, image.shape[-2] - 1 - y :: The image is mirrored from left to right, the landmarks from top to bottom:
        column 0 of `points` is x.
    off-by-one :: image.shape[-1] - x, y :: Off by one pixel: columns are numbered 0 to W − 1. Where does column 0 go?
    height-for-width :: image.shape[-2] - 1 - x, y :: $HEIGHT
    height-for-width :: image.shape[-2] - x, y :: $HEIGHT
    both-axes-of-the-points :: image.shape[-1] - 1 - x, image.shape[-2] - 1 - y :: The image is mirrored from left to right
        only, your points also from top to bottom: y stays as it is.
return across, moved
    columns-exchanged :: return across, moved.flip(-1) :: You exchange x and y, the columns of `points`. A pair names two of its
        rows.
    rows-reversed :: return across, moved.flip(0) :: You reverse all rows of `points`: exchange those that `pairs` names.
    kept-inside :: return across, moved.clamp_min(0) :: $INSIDE
    kept-inside :: x = moved[:, :1].clamp(0, image.shape[-1] - 1); return across, torch.cat([x, moved[:, 1:]], 1) :: $INSIDE
    kept-inside :: frame = torch.tensor(image.shape[:0:-1]); return across, moved.clamp_min(0).minimum(frame - 1) :: $INSIDE
moved[[left, right]] = moved[[right, left]]
    only-x-exchanged :: moved[[left, right], 0] = moved[[right, left], 0] :: Of each pair you exchange x and leave y where it
        was: exchange whole rows.
    rows-lost-in-the-exchange :: moved[left] = moved[right] :: Both rows of a pair are now the same. points[left] is a view:
        one row is overwritten before it is read.
""",
    HEIGHT=_HEIGHT,
    INSIDE=_INSIDE,
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
    notebook="09_storage",
    takes="image, points, pairs",
    returns=(like("image", new=True), like("points", new=True)),
)
def judge_flip_together(answer: Callable) -> None:
    """(image mirrored, points at W − 1 − x with left and right exchanged), both new."""
    for image, points, pairs in _cases().values():
        given = image.clone(), points.clone()
        got = answer(*given, pairs)
        for name, now, before in zip(("image", "points"), given, (image, points), strict=True):
            if not torch.equal(now, before):
                hint = f"Your function changes the `{name}` it is given: a second call mirrors it again. Work on a copy."
                raise Mistake("changed-in-place", hint)
        if not all(same(answer(image.clone(), points.clone(), pairs), got, 1e-5) for _ in range(CALLS)):
            raise Mistake("by-chance", "The same call gives sometimes one result and sometimes another: mirror every time.")
    RUBRIC.expect(answer, _cases(), tolerance=1e-5, explain=_explain)


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says whether the image or the points are wrong."""
    for row in judged:
        if not isinstance(row.got, tuple | list) or len(row.got) != 2:
            raise Mistake("returns-one", "Return two things: the image and its points.")
        if not same(row.got[0], row.wanted[0], 1e-5):
            hint = f"For {row.case}, your image should be different: its columns come in reverse order."
            raise Mistake("wrong-value", hint)
