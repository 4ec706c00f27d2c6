"""Answers to `order-the-slices`: indices of the slices of a series, by position along the normal."""

import bisect

import numpy as np
import torch
from edited_source import wrong_answers


def solution(headers):
    row, column = np.reshape(headers[0]["orientation"], (2, 3))
    along = [float(np.dot(np.cross(row, column), header["position"])) for header in headers]
    kept = []
    for i in range(len(headers)):
        if all(abs(along[i] - along[k]) >= 0.01 for k in kept):
            kept.append(i)
    return sorted(kept, key=along.__getitem__)


def normal_of(headers):
    return np.cross(headers[0]["orientation"][:3], headers[0]["orientation"][3:])


def along_of(headers):
    return np.array([header["position"] for header in headers]) @ normal_of(headers)


def once(along, order):
    """Of an order its indices without repeated positions, the first in the list."""
    kept = []
    for i in sorted(order):
        if not any(abs(along[i] - along[k]) < 0.01 for k in kept):
            kept.append(i)
    return [i for i in order if i in kept]


def sorts_the_list(headers):
    along = dict(zip([header["name"] for header in headers], along_of(headers), strict=True))
    headers.sort(key=lambda header: along[header["name"]])
    return list(range(len(headers)))


def compared_with_the_next(headers):
    along = along_of(headers)
    order = np.argsort(along, kind="stable")
    return order[np.append(np.diff(along[order]) >= 0.01, True)].tolist()


INDICES = "range(len(headers))"
ORDERED = "sorted(kept, key=along.__getitem__)"
KEPT = "np.diff(along[order]) >= 0.01, True"
ALL = ("sorted(kept", f"sorted({INDICES}")  # without a thought of repeated slices


WRONG = [
    *wrong_answers(
        solution,
        [
            ("not-the-normal", ('headers[0]["orientation"]', 'np.round(headers[0]["orientation"], 1)')),
            ("reversed", ("np.cross(row, column)", "np.cross(column, row)"), ALL),
            ("duplicates-kept", (ORDERED, "np.argsort(along)")),
            ("slices-lost", ("0.01", "1.0")),
            ("ranks", (ORDERED, "np.argsort(np.argsort(along)).tolist()")),
            (
                "not-in-order",
                ("row, column =", 'headers = sorted(headers, key=lambda h: h["name"], reverse=True)\n    row, column ='),
            ),
        ],
    ),
    *wrong_answers(
        compared_with_the_next, [("other-duplicate", (', kind="stable"', ""), (KEPT, "True, np.diff(along[order]) >= 0.01"))]
    ),
    ("inputs-changed", sorts_the_list),
]


def by_torch(headers):
    orientation = torch.tensor(headers[0]["orientation"], dtype=torch.float64)
    positions = torch.tensor([header["position"] for header in headers], dtype=torch.float64)
    along = positions @ torch.linalg.cross(orientation[:3], orientation[3:])
    repeated = ((along[:, None] - along).abs() < 0.01).tril(-1).any(1)
    return torch.tensor([i for i in along.argsort().tolist() if not repeated[i]])


def by_hand(headers):
    a, b, c, d, e, f = headers[0]["orientation"]
    n = (b * f - c * e, c * d - a * f, a * e - b * d)
    pairs = []
    for i, header in enumerate(headers):
        position = sum(p * q for p, q in zip(header["position"], n, strict=True))
        if not any(abs(position - other) < 0.01 for other, _ in pairs):
            pairs.append((position, i))
    return tuple(i for _, i in sorted(pairs))


def by_insertion(headers):
    normal, found = normal_of(headers), []
    for i, header in enumerate(headers):
        key = float(normal @ header["position"])
        at = bisect.bisect([position for position, _ in found], key)
        if any(abs(position - key) < 0.01 for position, _ in found[max(at - 1, 0) : at + 1]):
            continue
        found.insert(at, (key, i))
    return [i for _, i in found]


def in_float32(headers):
    orientation = torch.tensor(headers[0]["orientation"])
    along = torch.tensor([header["position"] for header in headers]) @ torch.linalg.cross(orientation[:3], orientation[3:])
    return once(along, along.argsort().tolist())


def by_quicksort(headers):
    along = along_of(headers).tolist()

    def ordered(indices):
        if not indices:
            return []
        first, *rest = indices
        rest = [i for i in rest if abs(along[i] - along[first]) >= 0.01]
        below = [i for i in rest if along[i] < along[first]]
        return [*ordered(below), first, *ordered([i for i in rest if along[i] > along[first]])]

    return ordered(list(range(len(headers))))


def relative_to_the_first(headers):
    """Signed distances from the first slice, in an array of floats."""
    offsets = np.array([np.subtract(h["position"], headers[0]["position"]) for h in headers]) @ normal_of(headers)
    order = np.argsort(offsets, kind="stable")
    return np.array(once(offsets, order.tolist()))


def own_normal_of_each(headers):
    along = [np.linalg.det([header["position"], header["orientation"][:3], header["orientation"][3:]]) for header in headers]
    return once(along, sorted(range(len(headers)), key=lambda i: along[i]))


ALSO_RIGHT = [by_torch, by_hand, by_insertion, in_float32, by_quicksort, relative_to_the_first, own_normal_of_each]
