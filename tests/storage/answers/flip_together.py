"""Answers to `flip-together`: image and points mirrored from left to right, left and right exchanged, both new."""

import torch
from edited_source import wrong_answers


def solution(image, points, pairs):
    height, width = image.shape[-2:]
    moved = points.clone()
    moved[:, 0] = width - 1 - points[:, 0]
    for left, right in pairs:
        moved[[left, right]] = moved[[right, left]]
    return image.flip(-1), moved


X, DOWN = "moved[:, 0] = width - 1 - points[:, 0]", "moved[:, 1] = height - 1 - points[:, 1]"
EXCHANGE = "moved[[left, right]] = moved[[right, left]]"
NOT_EXCHANGED = (EXCHANGE, "pass")
WRONG = wrong_answers(
    solution,
    [
        ("image-only", (X, "pass"), NOT_EXCHANGED),
        ("image-only", (X, "pass")),
        ("points-only", ("image.flip(-1)", "image")),
        ("nothing-moved", ("image.flip(-1)", "image"), (X, "pass"), NOT_EXCHANGED),
        ("upside-down", ("image.flip(-1)", "image.flip(-2)"), (X, DOWN), NOT_EXCHANGED),
        ("upside-down", ("image.flip(-1)", "image.flip(1)"), (X, DOWN)),
        ("wrong-axis", (X, DOWN), NOT_EXCHANGED),
        ("wrong-axis-of-the-image", ("image.flip(-1)", "image.flip(1)")),
        ("wrong-axis-of-the-image", ("image.flip(-1)", "torch.fliplr(image)")),
        ("off-by-one", (X, "moved[:, 0] = width - points[:, 0]")),
        ("off-by-one", (X, "moved[:, 0] = width - points[:, 0]"), NOT_EXCHANGED),
        ("height-for-width", (X, "moved[:, 0] = height - 1 - points[:, 0]")),
        ("sign-only", (X, "moved[:, 0] = -points[:, 0]")),
        ("left-and-right-not-exchanged", NOT_EXCHANGED),
        ("wrong-value", ("image.flip(-1)", "torch.zeros_like(image)"), (X, "pass"), NOT_EXCHANGED),
        ("minus-reversed", (X, "moved[:, 0] = points[:, 0] - width - 1")),
        ("minus-reversed", (X, "moved[:, 0] = points[:, 0] - (width - 1)")),
        ("off-by-one-the-other-way", (X, "moved[:, 0] = width - 2 - points[:, 0]")),
        ("off-by-one-the-other-way", (X, "moved[:, 0] = width + 1 - points[:, 0]")),
        ("half-the-width", (X, "moved[:, 0] = (width - 1) / 2 - points[:, 0]")),
        ("wrong-value", (X, "moved[:, 0] = 13 - points[:, 0]")),
        ("wrong-value", (X, "moved[:, 0] = (width - 1 - points[:, 0]).round()")),
        ("channels-for-width", (X, "moved[:, 0] = 2 - points[:, 0]")),
        ("width-of-the-example", (X, "moved[:, 0] = 9 - points[:, 0]")),
        ("both-axes", ("image.flip(-1)", "image.flip(-1, -2)"), (X, f"{X}; {DOWN}")),
        ("both-axes-of-the-points", (X, f"{X}; {DOWN}"), NOT_EXCHANGED),
        ("both-axes-of-the-image", ("image.flip(-1)", "image.flip(-1, -2)")),
        ("channels-reversed", ("image.flip(-1)", "image.flip(0)")),
        ("everything-reversed", ("image.flip(-1)", "image.flip(0, 1, 2)")),
        ("points-first", ("return image.flip(-1), moved", "return moved, image.flip(-1)")),
        ("rows-reversed", ("image.flip(-1), moved", "image.flip(-1), moved.flip(0)"), NOT_EXCHANGED),
        ("columns-exchanged", ("image.flip(-1), moved", "image.flip(-1), moved.flip(-1)"), NOT_EXCHANGED),
        ("points-rounded", ("image.flip(-1), moved", "image.flip(-1), moved.long()")),
        ("kept-inside", ("image.flip(-1), moved", "image.flip(-1), moved.clamp_min(0)")),
        ("kept-inside", ("return", "moved[:, 0].clamp_(0, width - 1); return")),
        ("only-one-pair-exchanged", ("in pairs", "in pairs[:1]")),
        ("only-x-exchanged", (EXCHANGE, "moved[[left, right], 0] = moved[[right, left], 0]")),
        ("rows-lost-in-the-exchange", (EXCHANGE, "moved[left], moved[right] = moved[right], moved[left]")),  # rows are views
        ("wrong-value", ("in pairs", "in ((0, 1), (3, 4))")),
        ("left-and-right-not-exchanged", ("in pairs", "in ()")),
        ("returns-one", ("image.flip(-1), moved", "image.flip(-1)")),
    ],
)


def exchange(points, pairs):
    for left, right in pairs:
        points[[left, right]] = points[[right, left]]
    return points


def in_place(image, points, pairs):
    points[:, 0] = image.shape[-1] - 1 - points[:, 0]
    return image.flip(-1), exchange(points, pairs)


def image_in_place(image, points, pairs):
    image[:] = image.flip(-1)
    return image, solution(image, points, pairs)[1]


def through_numpy(image, points, pairs):
    view = points.numpy()
    view[:, 0] = image.shape[-1] - 1 - view[:, 0]
    return image.flip(-1), exchange(points, pairs)


def by_chance(image, points, pairs):
    return solution(image, points, pairs) if torch.rand(()) < 0.5 else (image.clone(), points.clone())


def only_the_paired(image, points, pairs):
    rows = [row for pair in pairs for row in pair]
    moved = points.clone()
    moved[rows] = solution(image, points, pairs)[1][rows]
    return image.flip(-1), moved


WRONG += [
    ("changed-in-place", in_place),
    ("changed-in-place", image_in_place),
    ("changed-in-place", through_numpy),
    ("by-chance", by_chance),
    ("only-paired-points-moved", only_the_paired),
    ("returns-nothing", lambda image, points, pairs: None),
]


def by_numpy(image, points, pairs):
    image, points = image.numpy()[:, :, ::-1], points.numpy() * [-1, 1] + [image.shape[2] - 1, 0]
    for left, right in pairs:
        points[[left, right]] = points[[right, left]]
    return image, points


def by_rows(image, points, pairs):
    partner = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
    width = image.shape[-1]
    rows = [points[partner.get(i, i)] for i in range(len(points))]
    return image[:, :, torch.arange(width - 1, -1, -1)], torch.stack([torch.stack([width - 1 - x, y]) for x, y in rows])


def by_gather(image, points, pairs):
    order = torch.arange(len(points))
    for left, right in pairs:
        order[left], order[right] = right, left
    return torch.flip(image, [2]), (points * torch.tensor([-1.0, 1.0]) + torch.tensor([image.shape[2] - 1.0, 0.0]))[order]


def sum_first(image, points, pairs):
    points = points.clone()
    points[:, 0] = -points[:, 0] + image.shape[-1] - 1
    return image.flip(-1), exchange(points, pairs)


ALSO_RIGHT = [
    by_numpy,
    by_rows,
    by_gather,
    sum_first,
    lambda image, points, pairs: list(solution(image, points, pairs)),
    lambda image, points, pairs: (
        torch.fliplr(image.transpose(0, 1).transpose(0, 1).permute(1, 2, 0)).permute(2, 0, 1),
        solution(image, points, pairs)[1],
    ),
]
