"""Answers to `order-the-slices`: indices of the slices of a series, by position along the normal."""

import bisect
import re

import numpy as np
import torch


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


def by(key, reverse=False):
    def answer(headers):
        order = sorted(range(len(headers)), key=lambda i: key(headers[i]), reverse=reverse)
        return once(along_of(headers), order)

    return answer


def by_all(key, reverse=False):
    """The same without a thought of repeated slices."""
    return lambda headers: sorted(range(len(headers)), key=lambda i: key(headers[i]), reverse=reverse)


def argsort_of_argsort(headers):
    along = along_of(headers)
    return np.argsort(np.argsort(along)).tolist()


def ranks_once(headers):
    order = solution(headers)
    return [order.index(i) for i in sorted(order)]


def argsort(headers):
    return np.argsort(along_of(headers))


def unique(headers):
    return np.unique(along_of(headers), return_index=True)[1]


def unique_rounded(headers):
    return np.unique(along_of(headers).round(), return_index=True)[1].tolist()


def swapped_cross(headers):
    return solution(headers)[::-1]


def swapped_cross_and_all(headers):
    return np.argsort(-along_of(headers), kind="stable").tolist()


def lower_of_two(headers):
    along = along_of(headers)
    order = np.argsort(along).tolist()
    return [i for n, i in enumerate(order) if n == 0 or along[i] - along[order[n - 1]] >= 0.01]


def dictionary(headers):
    """Later slices overwrite earlier ones."""
    found = {}
    for i, position in enumerate(along_of(headers)):
        found[round(float(position), 2)] = i
    return [found[position] for position in sorted(found)]


def none_of_two(headers):
    along = along_of(headers)
    keep = [i for i in range(len(along)) if (abs(along - along[i]) < 0.01).sum() == 1]
    return sorted(keep, key=lambda i: along[i])


def by_number_once(headers):
    found = {}
    for i, header in enumerate(headers):
        found.setdefault(header["number"], i)
    along = along_of(headers)
    return sorted(found.values(), key=lambda i: along[i])


def names(headers):
    return [headers[i]["name"] for i in solution(headers)]


def the_headers(headers):
    return [headers[i] for i in solution(headers)]


def positions(headers):
    return [float(along_of(headers)[i]) for i in solution(headers)]


def from_1(headers):
    return [i + 1 for i in solution(headers)]


def sorts_in_place(headers):
    order = solution(headers)
    headers.sort(key=lambda header: header["position"][2])
    return order


def sorts_first(headers):
    """Indices into the list that it has sorted."""
    headers = sorted(headers, key=lambda header: header["name"], reverse=True)
    return solution(headers)


def by_dominant_axis(headers):
    axis = int(np.abs(normal_of(headers)).argmax())
    return by(lambda header: header["position"][axis])(headers)


def by_dominant_axis_with_its_sign(headers):
    normal = normal_of(headers)
    axis = int(np.abs(normal).argmax())
    return by(lambda header: header["position"][axis] * np.sign(normal[axis]))(headers)


def from_the_first(headers):
    first = np.array(headers[0]["position"])
    return by(lambda header: float(np.linalg.norm(header["position"] - first)))(headers)


def too_coarse(headers):
    along = along_of(headers)
    kept = []
    for i in range(len(along)):
        if all(abs(along[i] - along[k]) >= 1.0 for k in kept):
            kept.append(i)
    return sorted(kept, key=lambda i: along[i])


def too_fine(headers):
    along = along_of(headers)
    order = np.argsort(along, kind="stable").tolist()
    return [i for n, i in enumerate(order) if n == 0 or abs(along[i] - along[order[n - 1]]) > 1e-6]


def forgets_to_return(headers):
    solution(headers)


def last_of_two(headers):
    along = along_of(headers)
    order = np.argsort(along, kind="stable").tolist()
    return [max(j for j in order if abs(along[j] - along[i]) < 0.01) for i in once(along, order)]


def by_rounding(headers):
    return np.unique(along_of(headers).round(2), return_index=True)[1]


def with_a_dictionary(headers):
    found = {}
    for i, position in enumerate(along_of(headers)):
        found.setdefault(f"{position:.2f}", i)
    return sorted(found.values(), key=lambda i: along_of(headers)[i])


def to_a_tenth(headers):
    return np.unique(along_of(headers).round(1), return_index=True)[1]


def relative_tolerance(headers):
    """isclose with a tolerance of 1 % of the position."""
    along, kept = along_of(headers), []
    for i in np.argsort(along, kind="stable").tolist():
        if kept and np.isclose(along[i], along[kept[-1]], rtol=0.01):
            kept[-1] = min(i, kept[-1])
        else:
            kept.append(i)
    return kept


def own_distances_once(headers):
    keys = [float(np.linalg.norm(header["position"])) for header in headers]
    kept = [i for i in range(len(keys)) if all(abs(keys[i] - other) >= 0.01 for other in keys[:i])]
    return sorted(kept, key=keys.__getitem__)


def across_the_rows_once(headers):
    """All slices have the same key: one is left."""
    keys = np.round([np.dot(header["position"], header["orientation"][:3]) for header in headers], 3)
    return np.unique(keys, return_index=True)[1].tolist()


def as_text(headers):
    return once(along_of(headers), sorted(range(len(headers)), key=lambda i: f"{along_of(headers)[i]:.2f}"))


def sorts_the_list(headers):
    along = dict(zip([header["name"] for header in headers], along_of(headers), strict=True))
    headers.sort(key=lambda header: along[header["name"]])
    return list(range(len(headers)))


def first_of_each_number_in_order(headers):
    found = {}
    for i in np.argsort(along_of(headers), kind="stable").tolist():
        found.setdefault(headers[i]["number"], i)
    return list(found.values())


def by_number_and_position_once(headers):
    """The order of the numbers, with the comparison of positions."""
    kept = []
    for i in sorted(range(len(headers)), key=lambda i: headers[i]["number"]):
        if all(abs(along_of(headers)[i] - along_of(headers)[k]) >= 0.01 for k in kept):
            kept.append(i)
    return kept


def in_turn(along):
    """Indices by position, each slice at least 0.01 mm after the one kept before: of a repeated one the lowest."""
    kept = []
    for i in sorted(range(len(along)), key=along.__getitem__):
        if not kept or along[i] - along[kept[-1]] >= 0.01:
            kept.append(i)
    return kept


def by_z_in_turn(headers):
    return in_turn([header["position"][2] for header in headers])


def every_other_number(headers):
    orientation = headers[0]["orientation"]
    normal = np.cross(orientation[0::2], orientation[1::2])
    along = [float(normal @ header["position"]) for header in headers]
    return once(along, sorted(range(len(along)), key=along.__getitem__))


def compared_with_the_next(headers):
    along = along_of(headers)
    order = np.argsort(along, kind="stable")
    return order[np.append(np.diff(along[order]) >= 0.01, True)].tolist()


WRONG = [
    ("nearest-duplicate", compared_with_the_next),
    ("by-z", by_z_in_turn),
    ("orientation-in-turns", every_other_number),
    ("by-name", by(lambda header: header["name"])),
    ("by-name", by_all(lambda header: header["name"])),
    ("by-name", by(lambda header: [int(part) for part in re.findall(r"\d+", header["name"])])),
    ("by-number", by(lambda header: header["number"])),
    ("by-number", by_all(lambda header: header["number"])),
    ("by-z", by(lambda header: header["position"][2])),
    ("by-z", by_all(lambda header: header["position"][2])),
    ("by-z", by_all(lambda header: header["position"][2], reverse=True)),
    ("by-x", by(lambda header: header["position"][0])),
    ("by-y", by(lambda header: header["position"][1])),
    ("by-position", by(lambda header: header["position"])),
    ("by-position", by(lambda header: header["position"][::-1])),
    ("by-distance", by(lambda header: np.linalg.norm(header["position"]))),
    ("by-distance", from_the_first),
    ("size-of-the-projection", lambda headers: once(along_of(headers), np.argsort(abs(along_of(headers))).tolist())),
    ("along-the-rows", by(lambda header: float(np.dot(header["position"], header["orientation"][:3])))),
    ("along-the-columns", by(lambda header: float(np.dot(header["position"], header["orientation"][3:])))),
    ("sum-of-the-position", by(lambda header: sum(header["position"]))),
    ("by-the-main-axis", by_dominant_axis),
    ("by-the-main-axis", by_dominant_axis_with_its_sign),
    ("reversed", swapped_cross),
    ("reversed", swapped_cross_and_all),
    ("duplicates-kept", argsort),
    ("duplicates-kept", lambda headers: sorted(range(len(headers)), key=lambda i: along_of(headers)[i])),
    ("duplicates-to-the-last-digit", unique),
    ("duplicates-to-the-last-digit", too_fine),
    ("slices-lost", unique_rounded),
    ("slices-lost", too_coarse),
    ("last-duplicate", last_of_two),
    ("other-duplicate", dictionary),
    ("other-duplicate", lower_of_two),
    ("duplicates-dropped", none_of_two),
    ("by-number-once", by_number_once),
    ("ranks", ranks_once),
    ("ranks", argsort_of_argsort),
    ("names", names),
    ("headers", the_headers),
    ("positions", positions),
    ("counted-from-1", from_1),
    ("inputs-changed", sorts_in_place),
    ("not-in-order", sorts_first),
    ("not-ordered", lambda headers: list(range(len(headers)))),
    ("returns-nothing", forgets_to_return),
    ("duplicates-by-rounding", by_rounding),
    ("duplicates-by-rounding", with_a_dictionary),
    ("slices-lost", to_a_tenth),
    ("slices-lost", relative_tolerance),
    ("by-distance", own_distances_once),
    ("along-the-rows", across_the_rows_once),
    ("ordered-as-text", as_text),
    ("inputs-changed", sorts_the_list),
    ("slices-lost", first_of_each_number_in_order),
    ("by-number", by_number_and_position_once),
    ("no-order", lambda headers: set(solution(headers))),
    ("not-a-list", lambda headers: (i for i in solution(headers))),
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


def normal_of_the_first_call(headers, kept=[]):  # noqa: B006
    kept += [] if kept else [normal_of(headers)]
    along = np.array([header["position"] for header in headers]) @ kept[0]
    return once(along, along.argsort(kind="stable").tolist())


def orientation_rounded(headers):
    rounded = [header | {"orientation": np.round(header["orientation"], 1).tolist()} for header in headers]
    return solution(rounded)


WRONG += [("remembers-calls", normal_of_the_first_call), ("not-the-normal", orientation_rounded)]


def indices_into_the_kept(headers):
    along = along_of(headers)
    first = [i for i in range(len(along)) if all(abs(along[i] - along[k]) >= 0.01 for k in range(i))]
    return along[first].argsort().tolist()


WRONG += [("indices-of-the-kept", indices_into_the_kept)]
