"""The checks of notebook 10's exercises."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn

from hpml_lab.core.exercises import Mistake, exercise

NOTEBOOK = "10_tuning"


# ---- choose-checkpoints: what to compute again ------------------------------------------------------------------------------

# {part: (MB kept, ms to compute again)}, and the MB that must be freed. In each, one choice is the cheapest.
PLANS = (
    ({"attention": (200.0, 40.0), "gelu": (400.0, 2.0), "layer norm": (100.0, 1.0), "linear": (300.0, 30.0)}, 450.0),
    ({"conv": (600.0, 90.0), "batch norm": (300.0, 4.0), "relu": (300.0, 1.0), "pool": (10.0, 0.5)}, 550.0),
    ({"wide": (500.0, 10.0), "narrow": (100.0, 9.0), "tiny": (5.0, 0.2)}, 480.0),
    ({"relu": (100.0, 1.0), "gelu": (300.0, 4.0), "linear": (500.0, 60.0)}, 300.0),
    ({"gelu": (400.0, 2.0), "relu": (300.0, 1.0)}, 0.0),
)


def _freed(plan: dict[str, tuple[float, float]], names: Iterable[str]) -> float:
    return sum(plan[name][0] for name in names)


def _again(plan: dict[str, tuple[float, float]], names: Iterable[str]) -> float:
    return sum(plan[name][1] for name in names)


def cheapest(plan: dict[str, tuple[float, float]], need: float) -> set[str]:
    """The parts that free at least `need` MB and take the fewest ms to compute again."""
    choices = [set(one) for count in range(len(plan) + 1) for one in itertools.combinations(plan, count)]
    return min((one for one in choices if _freed(plan, one) >= need), key=lambda one: _again(plan, one))


def _in_order(plan: dict[str, tuple[float, float]], need: float, key: Callable[[str], float]) -> set[str]:
    """Parts taken in the order of `key` until enough is freed."""
    taken: set[str] = set()
    for name in sorted(plan, key=key):
        if _freed(plan, taken) >= need:
            break
        taken.add(name)
    return taken


@exercise("choose-checkpoints", notebook=NOTEBOOK)
def judge_choose_checkpoints(answer: Callable[[dict, float], Iterable[str]]) -> None:
    """Which parts to compute again, so that enough memory is freed at the least cost in time."""
    given = [answer(dict(plan), need) for plan, need in PLANS]
    if any(one is None for one in given):
        raise Mistake("returns-nothing", "Your function returns None: return the names of the parts.")
    if any(isinstance(one, str) or not isinstance(one, Iterable) for one in given):
        raise Mistake("not-names", "Return a collection of names, such as ['gelu', 'layer norm'].")
    given = [set(one) for one in given]
    if unknown := set().union(*given) - {name for plan, _ in PLANS for name in plan}:
        raise Mistake("not-names", f"{sorted(map(str, unknown))[0]!r} is no part of the plan: return names.")
    right = [cheapest(plan, need) for plan, need in PLANS]
    costs = [(_again(plan, one), _again(plan, best)) for (plan, _), one, best in zip(PLANS, given, right, strict=True)]
    enough = [_freed(plan, one) >= need for (plan, need), one in zip(PLANS, given, strict=True)]
    if all(enough) and all(math.isclose(cost, best, abs_tol=1e-9) for cost, best in costs):
        return
    if given == [set(plan) - best for (plan, _), best in zip(PLANS, right, strict=True)]:
        raise Mistake("kept-not-recomputed", "These are the parts to keep. Return those to compute again.")
    if all(one == set(plan) for (plan, _), one in zip(PLANS, given, strict=True)):
        raise Mistake("everything", "All of it is computed again: enough memory, but the forward pass is paid twice.")
    if given[:4] == [_in_order(plan, need, lambda name, plan=plan: -plan[name][0]) for plan, need in PLANS[:4]]:
        raise Mistake("largest-first", "The largest part may be the dearest to compute again. Set its ms against its MB.")
    if given[:4] == [_in_order(plan, need, lambda name, plan=plan: plan[name][1]) for plan, need in PLANS[:4]]:
        raise Mistake("quickest-first", "The quickest part may free next to nothing. Set its ms against its MB.")
    if given[:4] == [_in_order(plan, need, lambda name, plan=plan: plan[name][1] / plan[name][0]) for plan, need in PLANS[:4]]:
        hint = "The cheapest parts by the MB come first, and then one that frees enough without them. Try every choice."
        raise Mistake("cheapest-by-the-megabyte", hint)
    if not all(enough):
        plan, need = PLANS[enough.index(False)]
        freed = _freed(plan, given[enough.index(False)])
        raise Mistake("frees-too-little", f"Of {need:g} MB asked for, your choice frees {freed:g} MB in one of the plans.")
    number = next(k for k, (cost, best) in enumerate(costs) if not math.isclose(cost, best, abs_tol=1e-9))
    raise Mistake(
        "too-dear",
        f"Your choice {sorted(given[number])} costs {costs[number][0]:g} ms; {costs[number][1]:g} ms would free enough."
        " Is every part in it needed?",
    )


# ---- largest-batch: doubling and bisection ----------------------------------------------------------------------------------

LIMITS = (0, 1, 2, 3, 7, 8, 1000, 4097)


class _TooMany(Exception):
    """More tries than any sensible search takes."""


@exercise("largest-batch", notebook=NOTEBOOK)
def judge_largest_batch(answer: Callable[[Callable[[int], bool]], int]) -> None:
    """The largest batch that fits, found in about 2·log₂ tries."""
    found, tries, asked_zero = [], [], False
    for limit in LIMITS:
        tried: list[int] = []

        def fits(batch: int, limit: int = limit, tried: list[int] = tried) -> bool:
            tried.append(batch)
            if len(tried) > 10_000:
                raise _TooMany
            return batch <= limit

        try:
            found.append(answer(fits))
        except _TooMany:
            raise Mistake("never-ends", f"With room for {limit}, your search was still trying after 10 000 tries.") from None
        tries.append(len(tried))
        asked_zero |= any(not isinstance(one, int) or one < 1 for one in tried)
    if any(one is None for one in found):
        raise Mistake("returns-nothing", "Your function returns None: return the largest batch that fits.")
    if asked_zero:
        raise Mistake("asks-nonsense", "Your search tries a batch that is not a whole number of at least 1. Use //.")
    if found != list(LIMITS):
        positive = [(one, limit) for one, limit in zip(found, LIMITS, strict=True) if limit]
        if all(one == 1 << limit.bit_length() - 1 for one, limit in positive):
            raise Mistake(
                "stops-at-a-power-of-two", "Doubling only brackets the limit. Now halve the gap between the two ends."
            )
        if all(one == limit + 1 for one, limit in positive):
            raise Mistake("first-that-fails", "You return the smallest batch that does not fit: one too many.")
        if all(one == limit for one, limit in positive):
            raise Mistake("nothing-fits", "Where not even one sample fits, the answer is 0.")
        one, limit = next((one, limit) for one, limit in zip(found, LIMITS, strict=True) if one != limit)
        raise Mistake("wrong-limit", f"With room for {limit}, your search gives {one}.")
    for count, limit in zip(tries, LIMITS, strict=True):
        if count > 2 * math.log2(limit + 2) + 3:
            raise Mistake(
                "too-many-tries",
                f"Right, but with room for {limit} it took {count} tries, and each is a training step. Double, then bisect.",
            )


# ---- wasted-biases: what batch norm subtracts again -------------------------------------------------------------------------


def _chains() -> list[tuple[nn.Sequential, set[str]]]:
    """Nets, and the indices of the layers whose bias a batch norm takes away again."""
    return [
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)), {"0"}),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8)), set()),
        (nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)), {"0"}),
        (nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)), {"2"}),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Linear(4, 8), nn.LayerNorm(8)), set()),
    ]


def _before_norm(net: nn.Sequential, layers: tuple[type, ...], norms: tuple[type, ...], near: bool = True) -> set[str]:
    """Layers of a kind with a bias that stand before a norm of a kind: right before it, or (not `near`) anywhere."""
    names, modules = list(net._modules), list(net)
    found = set()
    for number, one in enumerate(modules):
        after = modules[number + 1 : number + 2] if near else modules[number + 1 :]
        if isinstance(one, layers) and one.bias is not None and any(isinstance(other, norms) for other in after):
            found.add(names[number])
    return found


_LAYERS, _NORMS = (nn.Conv2d, nn.Linear), (nn.BatchNorm1d, nn.BatchNorm2d)
_SLIPS: Sequence[tuple[str, str, Callable[[nn.Sequential], set[str]]]] = (
    ("every-convolution", "A bias is wasted only where a batch norm follows.", lambda net: _before(net, (nn.Conv2d,))),
    ("every-bias", "A bias is wasted only where a batch norm follows.", lambda net: _before(net, _LAYERS)),
    (
        "linear-forgotten",
        "A linear layer before a batch norm wastes its bias too.",
        lambda net: _before_norm(net, (nn.Conv2d,), _NORMS),
    ),
    (
        "not-next",
        "Something else stands between the layer and the batch norm: after ReLU a bias still shows. Look at the next layer.",
        lambda net: _before_norm(net, _LAYERS, _NORMS, near=False),
    ),
    (
        "any-norm",
        "GroupNorm and LayerNorm subtract the mean of several channels of a sample, and their biases differ: they still show.",
        lambda net: _before_norm(net, _LAYERS, (*_NORMS, nn.LayerNorm, nn.GroupNorm)),
    ),
    (
        "bias-already-gone",
        "One of the layers you name has no bias (bias=False): nothing is wasted there.",
        lambda net: _before_norm(net, _LAYERS, _NORMS) | _without_bias(net),
    ),
    ("names-the-norm", "These are the batch norms. Name the layers before them.", lambda net: _norms(net)),
)


def _before(net: nn.Sequential, layers: tuple[type, ...]) -> set[str]:
    return {name for name, one in net._modules.items() if isinstance(one, layers) and one.bias is not None}


def _without_bias(net: nn.Sequential) -> set[str]:
    return {name for name, one in net._modules.items() if isinstance(one, _LAYERS) and one.bias is None}


def _norms(net: nn.Sequential) -> set[str]:
    return {name for name, one in net._modules.items() if isinstance(one, _NORMS)}


@exercise("wasted-biases", notebook=NOTEBOOK)
def judge_wasted_biases(answer: Callable[[nn.Sequential], Any]) -> None:
    """The layers of a Sequential whose bias the batch norm right behind them takes away again."""
    chains = _chains()
    given = [answer(net) for net, _ in chains]
    if any(one is None for one in given):
        raise Mistake("returns-nothing", "Your function returns None: return the names, such as ['0', '3'].")
    if not all(isinstance(one, Iterable) for one in given):
        raise Mistake("not-names", "Return a collection of names, such as ['0', '3'].")
    given = [{str(name).removesuffix(".bias") for name in one} for one in given]
    if given == [right for _, right in chains]:
        return
    for name, hint, slip in _SLIPS:
        if given == [slip(net) for net, _ in chains]:
            raise Mistake(name, hint)
    net, right = next((net, right) for (net, right), one in zip(chains, given, strict=True) if one != right)
    layers = ", ".join(type(one).__name__ for one in net)
    raise Mistake("wrong-value", f"In Sequential({layers}) the wasted biases are those of {len(right)} layer(s).")


# ---- fused-bytes: what fusion saves ------------------------------------------------------------------------------------------

# Pointwise operators as (names of the tensors read, name of the tensor written).
GELU = ((("x",), "a"), (("x",), "b"), (("b",), "c"), (("c",), "d"), (("a", "d"), "y"))
SCALE = ((("x", "s"), "a"), (("a", "b"), "y"))
SQUARE = ((("x", "x"), "y"),)
PROGRAMS = (GELU, SCALE, SQUARE)


def _counts(program: Sequence[tuple[tuple[str, ...], str]]) -> tuple[int, int, int, int]:
    """Tensors read and written operator by operator, and by one fused kernel."""
    written = [out for _, out in program]
    read = [name for names, _ in program for name in set(names)]
    fused_read = {name for name in read if name not in written}
    fused_written = [name for name in written if name not in read]
    return len(read), len(written), len(fused_read), len(fused_written)


@exercise("fused-bytes", notebook=NOTEBOOK)
def judge_fused_bytes(answer: Callable[[Sequence, int], Any]) -> None:
    """Bytes that a chain of pointwise operators moves one by one and fused, for tensors of `nbytes` each."""
    given = []
    for program in PROGRAMS:
        pair = answer(program, 4000)
        if pair is None:
            raise Mistake("returns-nothing", "Your function returns None: return the two numbers of bytes.")
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise Mistake("not-two-numbers", "Return two numbers: bytes operator by operator, bytes fused.")
        given.append(tuple(pair))
    counts = [_counts(program) for program in PROGRAMS]
    repeats = [sum(len(names) for names, _ in program) for program in PROGRAMS]
    own = [sum(len(set(names)) for names, _ in program) for program in PROGRAMS]
    forms = {
        "right": [(4000 * (r + w), 4000 * (fr + fw)) for r, w, fr, fw in counts],
        "reads-only": [(4000 * r, 4000 * fr) for r, _, fr, _ in counts],
        "writes-only": [(4000 * w, 4000 * fw) for _, w, _, fw in counts],
        "tensors-not-bytes": [(r + w, fr + fw) for r, w, fr, fw in counts],
        "swapped": [(4000 * (fr + fw), 4000 * (r + w)) for r, w, fr, fw in counts],
        "fused-moves-intermediates": [(4000 * (r + w), 4000 * (r + w)) for r, w, _, _ in counts],
        "fused-still-writes": [(4000 * (r + w), 4000 * (fr + w)) for r, w, fr, _ in counts],
        "read-twice": [(4000 * (n + w), 4000 * (fr + fw)) for (_, w, fr, fw), n in zip(counts, repeats, strict=True)],
        "one-read-each": [(4000 * 2 * w, 4000 * (fr + fw)) for _, w, fr, fw in counts],
        "first-input-only": [(4000 * (n + w), 8000) for (_, w, _, _), n in zip(counts, own, strict=True)],
    }
    hints = {
        "reads-only": "These are the reads. Each operator also writes its output.",
        "writes-only": "These are the writes. Each operator also reads its inputs.",
        "tensors-not-bytes": "You count tensors. Each has nbytes bytes.",
        "swapped": "First operator by operator, then fused.",
        "fused-moves-intermediates": "A fused kernel keeps what lies between in registers: it is neither written nor read.",
        "fused-still-writes": "A fused kernel writes only what nobody else in it reads: the result.",
        "read-twice": "x·x reads x once: the second time it is in a register.",
        "one-read-each": "An operator with two inputs reads both.",
        "first-input-only": "A fused kernel reads every input that no operator in it made, not only the first.",
    }
    if given == forms["right"]:
        return
    for name, hint in hints.items():
        if given == forms[name]:
            raise Mistake(name, hint)
    raise Mistake(
        "wrong-value", f"For GELU, tensors of 4000 bytes: you say {given[0]}. Count by hand what each operator touches."
    )
