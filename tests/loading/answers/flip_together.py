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
        ("wrong-axis", (X, DOWN), NOT_EXCHANGED),
        ("off-by-one", (X, "moved[:, 0] = width - points[:, 0]"), NOT_EXCHANGED),
        ("wrong-value", ("image.flip(-1)", "torch.zeros_like(image)"), (X, "pass"), NOT_EXCHANGED),
        ("wrong-value", (X, "moved[:, 0] = 13 - points[:, 0]")),
        ("wrong-value", (X, "moved[:, 0] = (width - 1 - points[:, 0]).round()")),
        ("both-axes-of-the-points", (X, f"{X}; {DOWN}"), NOT_EXCHANGED),
        ("rows-reversed", ("image.flip(-1), moved", "image.flip(-1), moved.flip(0)"), NOT_EXCHANGED),
        ("columns-exchanged", ("image.flip(-1), moved", "image.flip(-1), moved.flip(-1)"), NOT_EXCHANGED),
        ("wrong-value", ("in pairs", "in ((0, 1), (3, 4))")),
    ],
)


def exchange(points, pairs):
    for left, right in pairs:
        points[[left, right]] = points[[right, left]]
    return points


def by_chance(image, points, pairs):
    return solution(image, points, pairs) if torch.rand(()) < 0.5 else (image.clone(), points.clone())


WRONG += [("by-chance", by_chance)]


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
    by_rows,
    by_gather,
    sum_first,
    lambda image, points, pairs: list(solution(image, points, pairs)),
    lambda image, points, pairs: (
        torch.fliplr(image.transpose(0, 1).transpose(0, 1).permute(1, 2, 0)).permute(2, 0, 1),
        solution(image, points, pairs)[1],
    ),
]
