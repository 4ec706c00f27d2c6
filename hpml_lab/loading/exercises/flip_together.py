"""flip-together: an image and its landmarks mirrored together, with left and right exchanged."""

from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.same import same

NOTEBOOK = "08_loading"

# (channels, height, width), pairs, and how far the points spread: in the last image some lie outside of it.
CASES = (((3, 8, 14), ((0, 1), (3, 4)), 1), ((1, 11, 6), ((2, 4),), 1), ((2, 5, 9), ((1, 3),), 1), ((3, 6, 7), ((0, 4),), 3))
CALLS = 10  # with the same arguments: an answer that draws a random number does not give the same each time


def _flip(image: torch.Tensor, points: torch.Tensor, pairs: tuple) -> tuple[torch.Tensor, torch.Tensor]:
    """x → W − 1 − x for both, then the rows of each pair are exchanged."""
    moved = _mirrored(points, image.shape[-1] - 1)
    return image.flip(-1), _swapped(moved, pairs)


def _mirrored(points: torch.Tensor, around: float, axis: int = 0) -> torch.Tensor:
    points = points.clone()
    points[:, axis] = around - points[:, axis]
    return points


def _shifted(points: torch.Tensor, by: float) -> torch.Tensor:
    points = points.clone()
    points[:, 0] -= by
    return points


def _swapped(points: torch.Tensor, pairs: tuple) -> torch.Tensor:
    rows = list(range(len(points)))
    for left, right in pairs:
        rows[left], rows[right] = right, left
    return points[rows]


def _flip_mistakes(image: torch.Tensor, points: torch.Tensor, pairs: tuple) -> dict[str, tuple[Any, str]]:
    """Each mistake's (image, points): with and without the exchange of left and right if that is a separate mistake."""
    height, width = image.shape[-2:]
    across, down = image.flip(-1), image.flip(-2)
    right = _mirrored(points, width - 1)
    turned = _mirrored(right, height - 1, axis=1)
    paired = torch.tensor([[any(row in pair for pair in pairs)] for row in range(len(points))])

    moved, frame = _swapped(right, pairs), torch.tensor([width - 1.0, height - 1.0])
    inside = moved[:, :1].clamp(0, width - 1)

    def either(*moved: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *moved, *(_swapped(p, pairs) for p in moved)

    def about(*centers: float) -> tuple[torch.Tensor, ...]:
        return either(*(_mirrored(points, center) for center in centers))

    twice = _mirrored(points, height - 1, axis=1)
    table = {
        "image-only": (
            across,
            (points, _swapped(points, pairs)),
            "The image is mirrored, and its landmarks stayed where they were.",
        ),
        "points-only": (image, (right, _swapped(right, pairs)), "The landmarks moved, and the image stayed as it was."),
        "nothing-moved": (image, (points,), "Image and landmarks are as they were."),
        "upside-down": (
            down,
            (twice, _swapped(twice, pairs)),
            "You mirror from top to bottom. The last dimension of an image (C, H, W) is its width.",
        ),
        "wrong-axis": (
            across,
            (twice, _swapped(twice, pairs)),
            "The image is mirrored from left to right, the landmarks from top to bottom: column 0 of `points` is x.",
        ),
        "wrong-axis-of-the-image": (
            down,
            (right, _swapped(right, pairs)),
            "The landmarks are mirrored from left to right, the image from top to bottom: its last dimension is the width.",
        ),
        "off-by-one": (across, about(width), "Off by one pixel: columns are numbered 0 to W − 1. Where does column 0 go?"),
        "height-for-width": (
            across,
            about(height - 1, height),
            "You mirror x about the image's height. The image is (C, H, W).",
        ),
        "minus-reversed": (
            across,
            either(*(_shifted(points, by) for by in (width - 1, width, width + 1))),
            "x − (W − 1) is the negative of what you want: a point near the left edge must come to lie near the right one.",
        ),
        "off-by-one-the-other-way": (
            across,
            about(width - 2, width + 1),
            "Off by some pixels: columns are numbered 0 to W − 1. Where does column 0 go?",
        ),
        "half-the-width": (
            across,
            about((width - 1) / 2),
            "Column 0 goes to W − 1, not to the middle: as far from the right edge as it was from the left one.",
        ),
        "both-axes": (image.flip(-1, -2), either(turned), "You turned everything by 180°: mirror from left to right only."),
        "both-axes-of-the-points": (
            across,
            either(turned),
            "The image is mirrored from left to right only, your points also from top to bottom: y stays as it is.",
        ),
        "both-axes-of-the-image": (
            image.flip(-1, -2),
            either(right),
            "Your image is turned by 180°: mirror it from left to right only, along its last dimension.",
        ),
        "channels-reversed": (image.flip(0), either(right), "You reverse the channels. The image is (C, H, W)."),
        "everything-reversed": (
            image.flip(0, 1, 2),
            either(right),
            "You reverse all dimensions of the image, channels and rows, too: name the one that is its width.",
        ),
        "sign-only": (across, about(0, 1), "Your x is negative: outside the image. A mirror image lies in the same frame."),
        "channels-for-width": (
            across,
            about(image.shape[0], image.shape[0] - 1),
            "You mirror x about the number of channels. The image is (C, H, W).",
        ),
        "width-of-the-example": (
            across,
            about(9, 10),
            "That is right for the example, 10 pixels wide: take the width from the image.",
        ),
        "columns-exchanged": (
            across,
            tuple(p.flip(-1) for p in either(right)),
            "You exchange x and y, the columns of `points`. A pair names two of its rows.",
        ),
        "only-x-exchanged": (
            across,
            (torch.stack([_swapped(right, pairs)[:, 0], right[:, 1]], 1),),
            "Of each pair you exchange x and leave y where it was: exchange whole rows.",
        ),
        "rows-reversed": (across, (right.flip(0),), "You reverse all rows of `points`: exchange those that `pairs` names."),
        "only-one-pair-exchanged": (
            across,
            (_swapped(right, pairs[:1]), _swapped(right, pairs[-1:])),
            "Only the rows of one pair are exchanged: `pairs` may hold several.",
        ),
        "only-paired-points-moved": (
            across,
            (torch.where(paired, _swapped(right, pairs), points),),
            "Points that belong to no pair stay where they were: mirror all of them, then exchange.",
        ),
        "points-rounded": (
            across,
            tuple(r(p) for p in either(right) for r in (torch.floor, torch.round, torch.ceil)),
            "Your points are whole numbers. Key points lie between pixels: keep their dtype.",
        ),
        "kept-inside": (
            across,
            (moved.clamp_min(0), moved.clamp(min=torch.zeros(2), max=frame), torch.cat([inside, moved[:, 1:]], 1)),
            "A point that lies outside the image stays outside, as far from its edge as it was: do not clamp its coordinates.",
        ),
        "left-and-right-not-exchanged": (
            across,
            (right,),
            "Each point is in the right position, but a mirror exchanges left and right: swap the rows of `pairs` once.",
        ),
    }
    lost = right.clone()
    for left, other in pairs:
        lost[left] = lost[other]
    table["rows-lost-in-the-exchange"] = (
        across,
        (lost,),
        "Both rows of a pair are now the same. points[left] is a view: one row is overwritten before it is read.",
    )
    return {name: ([(picture, p) for p in moved], hint) for name, (picture, moved, hint) in table.items()}


@exercise("flip-together", notebook=NOTEBOOK)
def judge_flip_together(answer: Callable) -> None:
    """(image mirrored, points at W − 1 − x with left and right exchanged), both new."""
    generator = torch.Generator().manual_seed(0)
    for (channels, height, width), pairs, spread in CASES:
        image = torch.rand(channels, height, width, generator=generator)
        points = (0.5 + spread * (torch.rand(5, 2, generator=generator) - 0.5)) * torch.tensor([width - 1.0, height - 1.0])
        right = _flip(image, points, pairs)
        given = image.clone(), points.clone()
        results = [answer(*given, pairs)]
        got = results[0]
        changed = [
            name for name, a, b in zip(("image", "points"), given, (image, points), strict=True) if not torch.equal(a, b)
        ]
        if changed:
            raise Mistake(
                "changed-in-place",
                f"Your function changes the `{changed[0]}` it is given: a second call mirrors it again. Work on a copy.",
            )
        if got is None:
            raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
        if not isinstance(got, tuple | list) or len(got) != 2:
            raise Mistake("returns-one", "Return two things: the image and its points.")
        results += [answer(image.clone(), points.clone(), pairs) for _ in range(CALLS)]
        if not all(same(result, got, 1e-5) for result in results):
            raise Mistake("by-chance", "The same call gives sometimes one result and sometimes another: mirror every time.")
        if same(got, right, 1e-5):
            continue
        if same(got[::-1], right, 1e-5):
            raise Mistake("points-first", "You return (points, image): the image comes first.")
        for name, (values, hint) in _flip_mistakes(image, points, pairs).items():
            if any(same(got, value, 1e-5) for value in values):
                raise Mistake(name, hint)
        size = f"an image of {width} × {height} pixels"
        if not same(got[0], right[0], 1e-5):
            raise Mistake("wrong-value", f"With {size}, your image should be different: its columns come in reverse order.")
        expect(got[1], right[1], case=f"{size} and pairs = {pairs}, points", tolerance=1e-5)
