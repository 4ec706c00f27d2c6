"""Answers to `choose-checkpoints`: the fewest milliseconds that free enough megabytes."""


def solution(plan, need):
    from itertools import combinations

    choices = [choice for count in range(len(plan) + 1) for choice in combinations(plan, count)]
    enough = [choice for choice in choices if sum(plan[name][0] for name in choice) >= need]
    return min(enough, key=lambda choice: sum(plan[name][1] for name in choice))


def in_order(key):
    def choose(plan, need):
        taken = []
        for name in sorted(plan, key=lambda name: key(*plan[name])):
            if sum(plan[block][0] for block in taken) >= need:
                break
            taken.append(name)
        return taken

    return choose


def one_part(plan, need):
    return [min(plan, key=lambda name: plan[name][1] / plan[name][0])] if need else []


def all_needed_and_one_more(plan, need):
    chosen = list(solution(plan, need))
    rest = [name for name in plan if name not in chosen]
    return chosen + rest[:1]


def choices(plan, counts=None):
    from itertools import combinations

    return [choice for count in counts or range(len(plan) + 1) for choice in combinations(plan, count)]


def megabytes(plan, choice):
    return sum(plan[name][0] for name in choice)


def milliseconds(plan, choice):
    return sum(plan[name][1] for name in choice)


def best(key, enough=lambda freed, need: freed >= need, counts=None):
    """The choice with the smallest key(plan, choice) of those that free enough."""

    def choose(plan, need):
        free = [choice for choice in choices(plan, counts and counts(plan)) if enough(megabytes(plan, choice), need)]
        return list(min(free, key=lambda choice: key(plan, choice)))

    return choose


def by_the_megabyte_and_pruned(plan, need):
    taken = in_order(lambda megabytes, ms: ms / megabytes)(plan, need)
    for name in sorted(taken, key=lambda name: -plan[name][1]):
        if megabytes(plan, taken) - plan[name][0] >= need:
            taken.remove(name)
    return taken


def a_run_of_neighbors(plan, need):
    names = list(plan)
    runs = [names[start:end] for start in range(len(names)) for end in range(start + 1, len(names) + 1)]
    return min(
        [[]] * (need <= 0) + [run for run in runs if megabytes(plan, run) >= need], key=lambda run: milliseconds(plan, run)
    )


def as_much_as_the_need_allows(plan, need):
    return max((c for c in choices(plan) if megabytes(plan, c) <= need), key=lambda choice: megabytes(plan, choice))


def twice_the_same(plan, need):
    from itertools import combinations_with_replacement

    found = [c for count in range(4) for c in combinations_with_replacement(plan, count) if megabytes(plan, c) >= need]
    return list(min(found, key=lambda choice: milliseconds(plan, choice)))


def nearest_size_first(plan, need):
    taken = []
    while (missing := need - megabytes(plan, taken)) > 0:
        taken.append(min((name for name in plan if name not in taken), key=lambda name: abs(plan[name][0] - missing)))
    return taken


def only_what_fits_the_need(plan, need):
    return in_order(lambda megabytes, ms: ms / megabytes)({n: part for n, part in plan.items() if part[0] <= need}, need)


def one_part_or_all(plan, need):
    enough = [name for name in plan if plan[name][0] >= need]
    return [min(enough, key=lambda name: plan[name][1])] if enough and need else list(plan) if need else []


def in_whole_megabytes(plan, need):
    return solution({name: (int(mb), ms) for name, (mb, ms) in plan.items()}, int(need))


def recursive(plan, need):
    if need <= 0:
        return []
    if not plan:
        return None
    (name, (freed, _)), rest = next(iter(plan.items())), dict(list(plan.items())[1:])
    found = [recursive(rest, need), recursive(rest, need - freed)]
    found = [found[0], None if found[1] is None else [name, *found[1]]]
    return min((f for f in found if f is not None), key=lambda choice: milliseconds(plan, choice), default=None)


def by_bits(plan, need):
    import numpy as np

    names = np.array(list(plan))
    freed, cost = np.array(list(plan.values())).T
    masks = (np.arange(2 ** len(plan))[:, None] >> np.arange(len(plan))) & 1
    costs = np.where(masks @ freed >= need, masks @ cost, np.inf)
    return names[masks[costs.argmin()].astype(bool)]


def cheapest_first_from_a_heap(plan, need):
    import heapq

    heap = [(0.0, 0, ())]
    names = list(plan)
    while heap:
        spent, start, chosen = heapq.heappop(heap)
        if megabytes(plan, chosen) >= need:
            return {name for name in chosen}
        for index in range(start, len(names)):
            heapq.heappush(heap, (spent + plan[names[index]][1], index + 1, (*chosen, names[index])))


WRONG = [
    ("largest-first", in_order(lambda megabytes, ms: -megabytes)),
    ("quickest-first", in_order(lambda megabytes, ms: ms)),
    ("cheapest-by-the-megabyte", in_order(lambda megabytes, ms: ms / megabytes)),
    ("everything", lambda plan, need: list(plan)),
    ("kept-not-recomputed", lambda plan, need: [name for name in plan if name not in solution(plan, need)]),
    ("frees-too-little", one_part),
    ("too-expensive", all_needed_and_one_more),
    ("not-names", lambda plan, need: "gelu"),
    ("not-names", lambda plan, need: 3),
    ("returns-nothing", lambda plan, need: None),
    ("more-than-needed", best(milliseconds, enough=lambda freed, need: freed > need)),
    ("frees-least", best(megabytes)),
    ("fewest-parts", best(lambda plan, choice: (len(choice), milliseconds(plan, choice)))),
    ("not-all-sizes", best(milliseconds, counts=lambda plan: range(3))),
    ("not-all-sizes", best(milliseconds, counts=lambda plan: range(len(plan)))),
    ("too-expensive", by_the_megabyte_and_pruned),
    ("too-expensive", a_run_of_neighbors),
    ("frees-too-little", as_much_as_the_need_allows),
    ("named-twice", twice_the_same),
    ("frees-too-little", in_whole_megabytes),
    ("everything", best(lambda plan, choice: -milliseconds(plan, choice))),
    ("not-names", lambda plan, need: (solution(plan, need), milliseconds(plan, solution(plan, need)))),
    ("too-expensive", best(lambda plan, choice: milliseconds(plan, choice) / (megabytes(plan, choice) or 1))),
    ("too-expensive", nearest_size_first),
    ("frees-too-little", only_what_fits_the_need),
    ("too-expensive", one_part_or_all),
    ("nothing-needed", lambda plan, need: solution(plan, max(need, 1))),
]
ALSO_RIGHT = [
    lambda plan, need: set(solution(plan, need)),
    lambda plan, need: (name for name in solution(plan, need)),
    recursive,
    by_bits,
    cheapest_first_from_a_heap,
    lambda plan, need: {name: plan[name] for name in solution(plan, need)}.keys(),
]


def numbers_swapped(plan, need):
    return solution({name: (ms, megabytes) for name, (megabytes, ms) in plan.items()}, need)


WRONG += [("numbers-swapped", numbers_swapped)]
