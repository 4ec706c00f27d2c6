"""Answers to `flip-together`: image and points mirrored from left to right, left and right exchanged, both new."""

import torch


def solution(image, points, pairs):
    width = image.shape[-1]
    moved = points.clone()
    moved[:, 0] = width - 1 - points[:, 0]
    for left, right in pairs:
        moved[[left, right]] = moved[[right, left]]
    return image.flip(-1), moved


def exchange(points, pairs):
    for left, right in pairs:
        points[[left, right]] = points[[right, left]]
    return points


def mirrored(points, around, column=0):
    points = points.clone()
    points[:, column] = around - points[:, column]
    return points


def in_place(image, points, pairs):
    points[:, 0] = image.shape[-1] - 1 - points[:, 0]
    return image.flip(-1), exchange(points, pairs)


def image_in_place(image, points, pairs):
    image[:] = image.flip(-1)
    return image, exchange(mirrored(points, image.shape[-1] - 1), pairs)


def exchanged_as_views(image, points, pairs):
    moved = mirrored(points, image.shape[-1] - 1)
    for left, right in pairs:
        moved[left], moved[right] = moved[right], moved[left]  # rows are views: the second assignment copies the new row
    return image.flip(-1), moved


WRONG = [
    ("image-only", lambda image, points, pairs: (image.flip(-1), points)),
    ("image-only", lambda image, points, pairs: (image.flip(-1), exchange(points.clone(), pairs))),
    ("points-only", lambda image, points, pairs: (image, exchange(mirrored(points, image.shape[-1] - 1), pairs))),
    ("nothing-moved", lambda image, points, pairs: (image, points)),
    ("upside-down", lambda image, points, pairs: (image.flip(-2), mirrored(points, image.shape[-2] - 1, 1))),
    ("wrong-axis", lambda image, points, pairs: (image.flip(-1), mirrored(points, image.shape[-2] - 1, 1))),
    (
        "wrong-axis-of-the-image",
        lambda image, points, pairs: (image.flip(1), exchange(mirrored(points, image.shape[-1] - 1), pairs)),
    ),
    ("off-by-one", lambda image, points, pairs: (image.flip(-1), exchange(mirrored(points, image.shape[-1]), pairs))),
    ("off-by-one", lambda image, points, pairs: (image.flip(-1), mirrored(points, image.shape[-1]))),
    ("height-for-width", lambda image, points, pairs: (image.flip(-1), exchange(mirrored(points, image.shape[1] - 1), pairs))),
    ("sign-only", lambda image, points, pairs: (image.flip(-1), exchange(mirrored(points, 0), pairs))),
    ("left-and-right-not-exchanged", lambda image, points, pairs: (image.flip(-1), mirrored(points, image.shape[-1] - 1))),
    ("changed-in-place", in_place),
    ("changed-in-place", image_in_place),
    ("rows-lost-in-the-exchange", exchanged_as_views),
    ("returns-one", lambda image, points, pairs: image.flip(-1)),
    ("returns-nothing", lambda image, points, pairs: None),
    ("wrong-value", lambda image, points, pairs: (torch.zeros_like(image), points)),
]
