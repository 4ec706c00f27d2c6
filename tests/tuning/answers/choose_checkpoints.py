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
]
