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


def right_for(pairs):
    return lambda image, points, _: (image.flip(-1), exchange(mirrored(points, image.shape[-1] - 1), pairs))


def moved_by(move):
    def flip(image, points, pairs):
        points = points.clone()
        points[:, 0] = move(points[:, 0], image.shape[-1])
        return image.flip(-1), exchange(points, pairs)

    return flip


def through_numpy(image, points, pairs):
    view = points.numpy()
    view[:, 0] = image.shape[-1] - 1 - view[:, 0]
    return image.flip(-1), exchange(points, pairs)


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


WRONG += [
    ("minus-reversed", moved_by(lambda x, width: x - width - 1)),
    ("minus-reversed", moved_by(lambda x, width: x - (width - 1))),
    ("off-by-one-the-other-way", moved_by(lambda x, width: width - 2 - x)),
    ("off-by-one-the-other-way", moved_by(lambda x, width: width + 1 - x)),
    ("half-the-width", moved_by(lambda x, width: (width - 1) / 2 - x)),
    ("wrong-value", right_for(((0, 1), (3, 4)))),
    ("left-and-right-not-exchanged", right_for(())),
    ("changed-in-place", through_numpy),
    ("rows-reversed", lambda image, points, pairs: (image.flip(-1), mirrored(points, image.shape[-1] - 1).flip(0))),
    (
        "both-axes",
        lambda im, pt, q: (im.flip(-1, -2), exchange(mirrored(mirrored(pt, im.shape[2] - 1), im.shape[1] - 1, 1), q)),
    ),
    ("upside-down", lambda im, pt, q: (im.flip(1), exchange(mirrored(pt, im.shape[1] - 1, 1), q))),
    ("wrong-value", lambda im, pt, q: (im.flip(-1), exchange(mirrored(pt, 13), q))),
    ("channels-reversed", lambda im, pt, q: (im.flip(0), exchange(mirrored(pt, im.shape[-1] - 1), q))),
    ("points-first", lambda im, pt, q: (exchange(mirrored(pt, im.shape[-1] - 1), q), im.flip(-1))),
    ("wrong-value", moved_by(lambda x, width: (width - 1 - x).round())),
]


def right(image, points, pairs):
    """The right answer, without the exchange."""
    return image.flip(-1), mirrored(points, image.shape[-1] - 1)


def by_chance(image, points, pairs):
    return solution(image, points, pairs) if torch.rand(()) < 0.5 else (image.clone(), points.clone())


def only_x_exchanged(image, points, pairs):
    image, points = right(image, points, pairs)
    points[:, 0] = exchange(points[:, 0].clone(), pairs)
    return image, points


def only_the_paired(image, points, pairs):
    rows = [row for pair in pairs for row in pair]
    moved = points.clone()
    moved[rows] = solution(image, points, pairs)[1][rows]
    return image.flip(-1), moved


WRONG += [
    ("by-chance", by_chance),
    ("only-one-pair-exchanged", lambda im, pt, q: solution(im, pt, q[:1])),
    ("only-x-exchanged", only_x_exchanged),
    ("only-paired-points-moved", only_the_paired),
    ("columns-exchanged", lambda im, pt, q: (im.flip(-1), mirrored(pt, im.shape[-1] - 1).flip(-1))),
    ("both-axes-of-the-points", lambda im, pt, q: (im.flip(-1), mirrored(right(im, pt, q)[1], im.shape[1] - 1, 1))),
    ("both-axes-of-the-image", lambda im, pt, q: (im.flip(-1, -2), solution(im, pt, q)[1])),
    ("everything-reversed", lambda im, pt, q: (im.flip(0, 1, 2), solution(im, pt, q)[1])),
    ("channels-for-width", moved_by(lambda x, width: 2 - x)),
    ("width-of-the-example", moved_by(lambda x, width: 9 - x)),
    ("wrong-axis-of-the-image", lambda im, pt, q: (torch.fliplr(im), solution(im, pt, q)[1])),
    ("points-rounded", lambda im, pt, q: (im.flip(-1), solution(im, pt, q)[1].long())),
]
ALSO_RIGHT = [
    by_numpy,
    by_rows,
    moved_by(lambda x, width: -x + width - 1),
    lambda image, points, pairs: list(solution(image, points, pairs)),
    lambda image, points, pairs: (
        torch.fliplr(image.transpose(0, 1).transpose(0, 1).permute(1, 2, 0)).permute(2, 0, 1),
        solution(image, points, pairs)[1],
    ),
]


def kept_inside(image, points, pairs):
    mirror, moved = solution(image, points, pairs)
    moved[:, 0].clamp_(0, image.shape[-1] - 1)
    return mirror, moved


def kept_positive(image, points, pairs):
    mirror, moved = solution(image, points, pairs)
    return mirror, moved.clamp_min(0)


WRONG += [("kept-inside", kept_inside), ("kept-inside", kept_positive)]
