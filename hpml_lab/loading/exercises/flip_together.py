"""flip-together: an image and its landmarks mirrored together, with left and right exchanged."""

from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.exercises import Mistake, exercise, same

NOTEBOOK = "08_loading"

FLIP_PAIRS = (((0, 1), (3, 4)), ((2, 4),), ((1, 3),))  # one for each image


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
        "off-by-one": (
            across,
            (_mirrored(points, width), _swapped(_mirrored(points, width), pairs)),
            "Off by one pixel: columns are numbered 0 to W − 1. Where does column 0 go?",
        ),
        "height-for-width": (
            across,
            tuple(_swapped(p, q) for h in (height - 1, height) for p in [_mirrored(points, h)] for q in ((), pairs)),
            "You mirror x about the image's height. The image is (C, H, W).",
        ),
        "minus-reversed": (
            across,
            tuple(
                q
                for around in (width - 1, width, width + 1)
                for p in [_shifted(points, around)]
                for q in (p, _swapped(p, pairs))
            ),
            "x − (W − 1) is the negative of what you want: a point near the left edge must come to lie near the right one.",
        ),
        "off-by-one-the-other-way": (
            across,
            tuple(q for p in [_mirrored(points, width - 2), _mirrored(points, width + 1)] for q in (p, _swapped(p, pairs))),
            "Off by some pixels: columns are numbered 0 to W − 1. Where does column 0 go?",
        ),
        "half-the-width": (
            across,
            tuple(q for p in [_mirrored(points, (width - 1) / 2)] for q in (p, _swapped(p, pairs))),
            "Column 0 goes to W − 1, not to the middle: as far from the right edge as it was from the left one.",
        ),
        "both-axes": (
            image.flip(-1, -2),
            tuple(q for p in [_mirrored(right, height - 1, axis=1)] for q in (p, _swapped(p, pairs))),
            "You turned everything by 180°: mirror from left to right only.",
        ),
        "sign-only": (
            across,
            (_mirrored(points, 0), _swapped(_mirrored(points, 0), pairs)),
            "Your x is negative: outside the image. A mirror image lies in the same frame.",
        ),
        "left-and-right-not-exchanged": (
            across,
            (right,),
            "Each point is in the right position, but the mirror makes the left eye the right one: swap the rows of `pairs`.",
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
    for (channels, height, width), pairs in zip(((3, 8, 14), (1, 11, 6), (2, 5, 9)), FLIP_PAIRS, strict=True):
        image = torch.rand(channels, height, width, generator=generator)
        points = torch.rand(5, 2, generator=generator) * torch.tensor([width - 1.0, height - 1.0])
        right = _flip(image, points, pairs)
        given = image.clone(), points.clone()
        got = answer(*given, pairs)
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
        if same(got, right, 1e-5):
            continue
        for name, (values, hint) in _flip_mistakes(image, points, pairs).items():
            if any(same(got, value, 1e-5) for value in values):
                raise Mistake(name, hint)
        wrong = "image" if not same(got[0], right[0], 1e-5) else "points"
        ask = (
            f"x = {points[2, 0]:.2f} goes to {right[1][2, 0]:.2f}" if wrong == "points" else "its columns come in reverse order"
        )
        raise Mistake("wrong-value", f"With an image of {width} × {height} pixels, your {wrong} should be different: {ask}.")
