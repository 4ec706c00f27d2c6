"""Which parts to compute again, so that enough memory is freed and the extra time is the shortest."""

import itertools
from collections.abc import Callable, Iterable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric

Plan = dict[str, tuple[float, float]]  # {part: (MB kept, ms to compute again)}

# The plan and the MB that must be freed. In each, exactly one choice is the best.
PLANS: dict[str, tuple[Plan, float]] = {
    "450 MB of a transformer block": (
        {"attention": (200.0, 40.0), "gelu": (400.0, 2.0), "layer norm": (100.0, 1.0), "linear": (300.0, 30.0)},
        450.0,
    ),
    "550 MB of a convolutional block": (
        {"conv": (600.0, 90.0), "batch norm": (300.0, 4.0), "relu": (300.0, 1.0), "pool": (10.0, 0.5)},
        550.0,
    ),
    "480 MB of wide, narrow and tiny": ({"wide": (500.0, 10.0), "narrow": (100.0, 9.0), "tiny": (5.0, 0.2)}, 480.0),
    "300 MB of ReLU, GELU and linear": ({"relu": (100.0, 1.0), "gelu": (300.0, 4.0), "linear": (500.0, 60.0)}, 300.0),
    "340 MB, which takes every part": ({"relu": (100.0, 5.0), "gelu": (200.0, 1.0), "pool": (50.0, 2.0)}, 340.0),
    "120.5 MB of parts that differ by fractions": (
        {"embedding": (120.5, 3.0), "softmax": (120.25, 1.0), "mask": (0.5, 0.5)},
        120.5,
    ),
    "500 MB of five parts": (
        {"attention": (310.0, 7.0), "relu": (120.0, 2.0), "gelu": (240.0, 4.5), "pool": (75.0, 3.0), "linear": (410.0, 12.0)},
        500.0,
    ),
    "3 MB of small parts that take long": ({"mask": (2.0, 4.0), "bias": (3.0, 6.0), "scale": (1.5, 1.0)}, 3.0),
    "100 MB of parts of similar size": ({"relu": (60.0, 1.0), "gelu": (100.0, 2.5), "sigmoid": (45.0, 1.2)}, 100.0),
}


def freed(plan: Plan, names: Iterable[str]) -> float:
    return sum(plan[name][0] for name in names)


def cost(plan: Plan, names: Iterable[str]) -> float:
    return sum(plan[name][1] for name in names)


def cheapest(plan: Plan, need: float) -> list[str]:
    choices = [choice for count in range(len(plan) + 1) for choice in itertools.combinations(plan, count)]
    enough = [choice for choice in choices if freed(plan, choice) >= need]
    return sorted(min(enough, key=lambda choice: cost(plan, choice)))


def greedy(key: Callable[[float, float], float]) -> Callable[[Plan, float], list[str]]:
    """The wrong rule that takes parts in the order of key(MB, ms) until enough is freed."""

    def choose(plan: Plan, need: float) -> list[str]:
        taken: list[str] = []
        for name in sorted(plan, key=lambda name: key(*plan[name])):
            if freed(plan, taken) >= need:
                break
            taken.append(name)
        return sorted(taken)

    return choose


def names_chosen(answer: Callable[[Plan, float], Iterable[str]]) -> Callable[[Plan, float], list[str]]:
    """The answer, whose choice is looked at: a list of the plan's names, sorted."""

    def chosen(plan: Plan, need: float) -> list[str]:
        names = list(answer(dict(plan), need))
        if unknown := [name for name in names if name not in plan]:
            raise Mistake("not-names", f"{unknown[0]!r} is not a part of the plan: return names.")
        if len(set(names)) < len(names):
            raise Mistake("named-twice", f"You name a part twice: {names}. Its memory is freed once.")
        return sorted(str(name) for name in names)  # also NumPy's strings

    return chosen


RUBRIC = Rubric(
    cheapest,
    """
freed(plan, choice) >= need
    more-than-needed :: freed(plan, choice) > need :: A choice that frees exactly what is needed frees enough: at least `need`
        is >=, not >.
cost(plan, choice)
    frees-least :: freed(plan, choice) :: Free at least what is needed, then compare the ms: how many MB more are freed does not
        matter.
    fewest-parts :: (len(choice), cost(plan, choice)) :: You look for the fewest parts. Two quick parts may take less time than
        a slow one.
whole answer
    everything :: lambda plan, need: sorted(plan) :: Everything is computed again: that frees enough memory, but costs a second
        forward pass.
    largest-first :: greedy(lambda megabytes, ms: -megabytes) :: The largest part may be the most expensive to compute again.
        Compare its ms with its MB.
    quickest-first :: greedy(lambda megabytes, ms: ms) :: The quickest part may free next to nothing. Compare its ms with its
        MB.
    cheapest-by-the-megabyte :: greedy(lambda megabytes, ms: ms / megabytes) :: You take the parts with the fewest ms per MB
        first, and then one that frees enough without them. Try every choice.
error
    not-all-sizes :: empty :: For one of the plans your function finds no choice that frees enough. Does it try every size, up
        to all parts?
""",
    wrap=names_chosen,
)


@exercise("choose-checkpoints", notebook="11_tuning", takes="plan, need", returns={str})
def judge_choose_checkpoints(answer: Callable[[Plan, float], Iterable[str]]) -> None:
    """Which parts to compute again, so that enough memory is freed and the extra time is the shortest."""
    RUBRIC.expect(answer, PLANS, explain=explain)
    if names := names_chosen(answer)({"gelu": (400.0, 2.0), "relu": (300.0, 1.0)}, 0.0):
        raise Mistake("nothing-needed", f"If 0 MB must be freed, checkpoint nothing. You return {names}.")


def explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake of choices that no row makes: one frees too little, or one costs too much."""
    for _, (plan, need), names, _ in judged:
        if freed(plan, names) < need:
            text = f"{need:g} MB must be freed, but your choice frees {freed(plan, names):g} MB in one of the plans."
            raise Mistake("frees-too-little", text)
    for _, (plan, need), names, best in judged:
        if names != best:
            spare = [name for name in names if freed(plan, names) - plan[name][0] >= need]
            why = (
                f"Without {spare[0]} it still frees enough." if spare else "Each part in it is needed, but others are quicker."
            )
            costs = f"Your choice {names} costs {cost(plan, names):g} ms; {cost(plan, best):g} ms would free enough."
            raise Mistake("too-expensive", f"{costs} {why}")
