"""Answers to `winner-by-seeds`: pair by pair, a diverged run loses, and every seed counts."""

import math

import numpy as np
import torch


def solution(a, b):
    pairs = [tuple(math.inf if math.isnan(loss) else loss for loss in pair) for pair in zip(a, b)]
    if all(x < y for x, y in pairs):
        return "a"
    if all(y < x for x, y in pairs):
        return "b"
    return "undecided"


def pairs_of(a, b):
    """The losses pair by pair; a training that diverged has an infinite loss."""
    return [tuple(math.inf if math.isnan(loss) else loss for loss in pair) for pair in zip(a, b)]


def lower_in_every(pairs):
    if all(x < y for x, y in pairs):
        return "a"
    return "b" if all(y < x for x, y in pairs) else "undecided"


def by_bands(a, b):
    if max(a) < min(b):
        return "a"
    return "b" if max(b) < min(a) else "undecided"


def by_mean(a, b):
    return "a" if sum(a) / len(a) < sum(b) / len(b) else "b"


def by_best_seed(a, b):
    return "a" if min(a) < min(b) else "b"


def by_best_seed_or_even(a, b):
    return "undecided" if min(a) == min(b) else by_best_seed(a, b)


def by_majority(a, b):
    wins = sum(x < y for x, y in zip(a, b))
    return "a" if wins > len(a) / 2 else "b" if wins < len(a) / 2 else "undecided"


def by_height(a, b):
    if all(x > y for x, y in zip(a, b)):
        return "a"
    return "b" if all(y > x for x, y in zip(a, b)) else "undecided"


def one_sided(a, b):
    return "a" if all(x < y for x, y in zip(a, b)) else "undecided"


def not_higher(a, b):
    if not any(y < x for x, y in zip(a, b)):
        return "a"
    return "b" if not any(x < y for x, y in zip(a, b)) else "undecided"


def nan_forgotten(a, b):
    return lower_in_every(list(zip(a, b)))


def drops_nan(a, b):
    return lower_in_every([(x, math.inf if math.isnan(y) else y) for x, y in zip(a, b) if not math.isnan(x)])


def or_equal(a, b):
    pairs = pairs_of(a, b)
    if all(x <= y and x < math.inf for x, y in pairs):
        return "a"
    return "b" if all(y <= x and y < math.inf for x, y in pairs) else "undecided"


def skips_both_diverged(a, b):
    return lower_in_every([pair for pair in pairs_of(a, b) if min(pair) < math.inf])


def sorted_first(a, b):
    return solution(sorted(a), sorted(b))


def sorted_without_nan(a, b):
    return solution(*(sorted(math.inf if math.isnan(loss) else loss for loss in losses) for losses in (a, b)))


def infinite_for_b_only(a, b):
    return lower_in_every([(x, math.inf if math.isnan(y) else y) for x, y in zip(a, b)])


def nan_is_zero(a, b):
    return lower_in_every([tuple(0.0 if math.isnan(loss) else loss for loss in pair) for pair in zip(a, b)])


def last_seed(a, b):
    return lower_in_every(pairs_of(a, b)[-1:])


def first_seed(a, b):
    return lower_in_every(pairs_of(a, b)[:1])


def by_median(a, b):
    (x, y), _ = zip(*[[sorted(losses)[len(losses) // 2] for losses in (a, b)]] * 2), None
    return "a" if x[0] < y[0] else "b"


def capital(a, b):
    found = solution(a, b)
    return found.upper() if len(found) == 1 else found


def booleans(a, b):
    return all(x < y for x, y in pairs_of(a, b))


def any_seed(a, b):
    return "a" if any(x < y for x, y in pairs_of(a, b)) else "b"


def tie_is_a(a, b):
    found = solution(a, b)
    return "a" if found == "undecided" else found


def never_decides(a, b):
    return "undecided"


def prints(a, b):
    print(solution(a, b))


def with_a_large_number(a, b):
    return solution(*([1e3 if math.isnan(loss) else loss for loss in losses] for losses in (a, b)))


def repairs_the_lists(a, b):
    for losses in (a, b):
        losses[:] = [math.inf if math.isnan(loss) else loss for loss in losses]
    return solution(a, b)


def says_nothing_if_undecided(a, b):
    return None if solution(a, b) == "undecided" else solution(a, b)


WRONG = [
    ("bands-must-not-touch", by_bands),
    ("majority-or-mean", by_mean),
    ("always-a-winner", by_best_seed),
    ("best-seed", by_best_seed_or_even),
    ("majority-or-mean", by_majority),
    ("higher-wins", by_height),
    ("only-a-can-win", one_sided),
    ("nan-wins", not_higher),
    ("nan-is-no-loss", nan_forgotten),
    ("nan-wins", drops_nan),
    ("equal-counts-as-lower", or_equal),
    ("both-diverged", skips_both_diverged),
    ("pairing-lost", sorted_first),
    ("pairing-lost", sorted_without_nan),
    ("nan-is-no-loss", infinite_for_b_only),
    ("nan-wins", nan_is_zero),
    ("one-seed", last_seed),
    ("one-seed", first_seed),
    ("majority-or-mean", by_median),
    ("not-one-of-the-three", capital),
    ("not-one-of-the-three", booleans),
    ("always-a-winner", any_seed),
    ("always-a-winner", tie_is_a),
    ("never-decides", never_decides),
    ("returns-nothing", prints),
    ("nan-as-a-number", with_a_large_number),
    ("inputs-changed", repairs_the_lists),
    ("undecided-missing", says_nothing_if_undecided),
    ("one-seed", lambda a, b: "a" if a[0] < b[0] else "b" if b[0] < a[0] else "undecided"),
]


def with_numpy(a, b):
    x, y = (np.nan_to_num(losses, nan=np.inf) for losses in (a, b))
    return np.array(["undecided", "a", "b"])[int((x < y).all()) + 2 * int((y < x).all())]


def with_torch(a, b):
    x, y = (torch.tensor(losses).nan_to_num(torch.inf) for losses in (a, b))
    return {(True, False): "a", (False, True): "b"}.get((bool((x < y).all()), bool((x > y).all())), "undecided")


def by_counting(a, b):
    wins = [0, 0]
    for x, y in zip(a, b):
        wins[0] += x < y or (y != y and x == x)
        wins[1] += y < x or (x != x and y == y)
    return "a" if wins[0] == len(a) else "b" if wins[1] == len(a) else "undecided"


def sorts_the_pairs(a, b):
    return lower_in_every(sorted(pairs_of(a, b)))


class Verdict(str):
    pass


def own_string(a, b):
    return Verdict(solution(a, b))


ALSO_RIGHT = [with_numpy, with_torch, by_counting, sorts_the_pairs, own_string]

WRONG += [
    ("rounded", lambda a, b: solution([round(x, 3) for x in a], [round(x, 3) for x in b])),
    ("rounded", lambda a, b: solution(*(torch.tensor(losses).bfloat16().tolist() for losses in (a, b)))),
    ("majority-or-mean", lambda a, b: solution(a[:-1], b[:-1]) if len(a) > 15 else solution(a, b)),
]


def diverged_above(limit):
    return lambda a, b: solution(*([math.nan if loss > limit else loss for loss in losses] for losses in (a, b)))


def cut_off_at(limit):
    return lambda a, b: solution(*([min(loss, limit) for loss in losses] for losses in (a, b)))


WRONG += [("large-taken-for-nan", diverged_above(limit)) for limit in (10, 1e6)]
WRONG += [("large-taken-for-nan", cut_off_at(10))]
