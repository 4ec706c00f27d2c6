"""Answers to `choose-checkpoints`: the fewest milliseconds that free enough megabytes."""

from edited_source import wrong_answers


def solution(plan, need):
    from itertools import combinations

    choices = [choice for count in range(len(plan) + 1) for choice in combinations(plan, count)]
    enough = [choice for choice in choices if sum(plan[name][0] for name in choice) >= need]
    return min(enough, key=lambda choice: sum(plan[name][1] for name in choice))


def all_needed_and_one_more(plan, need):
    chosen = list(solution(plan, need))
    rest = [name for name in plan if name not in chosen]
    return chosen + rest[:1]


def megabytes(plan, choice):
    return sum(plan[name][0] for name in choice)


def milliseconds(plan, choice):
    return sum(plan[name][1] for name in choice)


FREED, COST = "sum(plan[name][0] for name in choice)", "sum(plan[name][1] for name in choice)"
COUNTS, ENOUGH = "range(len(plan) + 1)", ">= need"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("frees-too-little", (ENOUGH, "<= need"), ("min(", "max("), (COST, FREED)),
            ("too-expensive", (COST, f"{COST} / ({FREED} or 1)")),
            ("not-all-sizes", (COUNTS, "range(3)")),
            ("not-all-sizes", (COUNTS, "range(len(plan))")),
            ("named-twice", (COUNTS, "range(4)"), ("combinations", "combinations_with_replacement")),
            ("frees-too-little", (FREED, "sum(int(plan[name][0]) for name in choice)"), (ENOUGH, ">= int(need)")),
            ("nothing-needed", (ENOUGH, ">= max(need, 1)")),
        ],
    ),
    ("too-expensive", all_needed_and_one_more),
    ("not-names", lambda plan, need: [name.upper() for name in plan]),
]


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


ALSO_RIGHT = [
    lambda plan, need: set(solution(plan, need)),
    lambda plan, need: (name for name in solution(plan, need)),
    recursive,
    by_bits,
    cheapest_first_from_a_heap,
    lambda plan, need: {name: plan[name] for name in solution(plan, need)}.keys(),
]
