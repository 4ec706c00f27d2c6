"""The judge of exercises in which a student writes an update rule.

The student's form, the same in every exercise:

    def step(params, grads, state, lr=0.1, momentum=0.9):
        '''Change each tensor of the list `params` in place; keep in the dict `state` what the next call needs.'''

`state` is an empty dict at the first call. An exercise that needs gradients elsewhere than at θ gets, in place of `grads`, a
function: `gradient(points)` returns the list of gradients at a list of points.

In a room's exercises.py:

    @exercise("write-adagrad", notebook="05_adaptive")
    def judge_write_adagrad(answer):
        judge_rule(answer, as_rule(FORMULAS["adagrad"]), ADAGRAD_MISTAKES, lr=0.1, eps=0.01)

mistakes.py has catalogues of wrong rules, {name: (rule in the student's form, hint)}. A wrong rule is found only where it
differs from the right one, so choose the hyperparameters so that all of them matter: an ε of 0.01, not 1e-8.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from hpml_lab.core.exercises import Mistake
from hpml_lab.optim.formulas import Formula

Rule = Callable[..., None]
Points = list[torch.Tensor]

STEPS, TURN = 60, 30  # the learning rate is quartered before step 31, so that a rate inside the velocity shows
SHAPES = ((3,), (2, 3), (1,), (3,))
SAME, NEAR = 1e-9, 1e-4  # relative: another order of the operations; the rounding of float32


# ---- The right rule, in the student's form -----------------------------------------------------------------


def as_rule(formula: Formula | Callable, *, look_ahead: bool = False, **state: float) -> Rule:
    """A formula as a rule in the student's form.

    formula     one of FORMULAS, or a function `(theta, g, s, t, **hyper)` of that shape, with its state's start in `state`
    look_ahead  the rule gets `gradient(points)` instead of gradients, and asks it at `formula.gradient_point`
    """
    if not isinstance(formula, Formula):
        formula = Formula(formula.__name__, formula.__name__, formula, state)

    def step(params: Points, grads: Any, state: dict, **hyper: float) -> None:
        state["t"] = state.get("t", 0) + 1
        if state["t"] == 1:
            state.update({i: formula.start(p) for i, p in enumerate(params)})
        kept = [state[i] for i in range(len(params))]
        if look_ahead:
            grads = grads([formula.gradient_point(p, s, **hyper) for p, s in zip(params, kept, strict=True)])
        for p, g, s in zip(params, grads, kept, strict=True):
            p.copy_(formula.step(p, g, s, state["t"], **hyper))

    return step


# ---- One run -----------------------------------------------------------------------------------------------


def _tensors(shapes: tuple, seed: int, steps: int = 0) -> list:
    """Seeded float64 tensors of `shapes`; with `steps`, a list of them for each step, from 0.01 to 10 and with some zeros."""
    made = torch.Generator().manual_seed(seed)

    def draw() -> Points:
        return [torch.randn(shape, dtype=torch.float64, generator=made) for shape in shapes]

    if not steps:
        return draw()
    sizes = [torch.logspace(-2, 1, 7, dtype=torch.float64)[(3 * t) % 7] for t in range(steps)]
    grads = [[g * size for g in draw()] for size in sizes]
    grads[0][0][0] = 0.0  # a gradient that starts at zero, as for a feature that has not been seen yet
    return grads


class _Run:
    """A rule on its way: parameters, state and gradients of its own; `advance()` takes one step."""

    def __init__(self, rule: Rule, start: Points, grads: list[Points], hyper: dict, look_ahead: bool, params: Points = None):
        self.rule, self.grads, self.hyper, self.look_ahead = rule, grads, hyper, look_ahead
        self.params = [p.clone() for p in start] if params is None else params
        for p, value in zip(self.params, start, strict=True):
            p.copy_(value)
        self.state: dict = {}
        self.lent: list[tuple[torch.Tensor, torch.Tensor]] = []  # (gradient handed out, its true value)
        self.t = 0

    def advance(self) -> None:
        hyper = dict(self.hyper)
        if self.t >= TURN:
            hyper["lr"] = hyper["lr"] / 4
        slopes = self.grads[self.t]
        self.t += 1
        held = list(self.params)

        def lend(values: Points) -> Points:
            made = [value.clone() for value in values]
            self.lent += zip(made, [value.clone() for value in values], strict=True)
            return made

        def gradient(points: Points) -> Points:  # of ½ Σ p² + slope · p: it depends on where it is asked
            points = list(points)
            if len(points) != len(slopes):
                raise Mistake(
                    "gradient-of-some",
                    f"gradient(points) takes one point for each of the {len(slopes)} parameters in one list.",
                )
            return lend([0.5 * p + slope for p, slope in zip(points, slopes, strict=True)])

        self.rule(held, gradient if self.look_ahead else lend(slopes), self.state, **hyper)
        if any(a is not b for a, b in zip(held, self.params, strict=False)) or len(held) != len(self.params):
            raise Mistake(
                "replaces-the-tensors",
                "The list now holds new tensors, but the net still holds the old ones: change each tensor in place (p -= …).",
            )

    def edited(self) -> bool:
        """True where a gradient that was handed out, in this or an earlier step, no longer has its value."""
        return any(not torch.equal(now, true) for now, true in self.lent)

    def flat(self) -> torch.Tensor:
        """All parameters, one after the other."""
        return torch.cat([p.detach().reshape(-1) for p in self.params])

    def steps(self, count: int = STEPS) -> Iterator[torch.Tensor]:
        for _ in range(count):
            self.advance()
            yield self.flat()


def _close(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def _equals(track: torch.Tensor, run: _Run, tolerance: float) -> bool:
    """True where the run passes through every point of `track` (steps, numbers); stops at the first that differs."""
    return all(_close(point, here, tolerance) for point, here in zip(track, run.steps(len(track)), strict=True))


def _tensors_in(kept: Any) -> Iterator[torch.Tensor]:
    """Every tensor in a state, however it is nested."""
    if isinstance(kept, torch.Tensor):
        yield kept
    elif isinstance(kept, Mapping):
        for one in kept.values():
            yield from _tensors_in(one)
    elif isinstance(kept, list | tuple | set):
        for one in kept:
            yield from _tensors_in(one)
    elif hasattr(kept, "__dict__"):
        yield from _tensors_in(vars(kept))


# ---- The judge ---------------------------------------------------------------------------------------------


def judge_rule(
    answer: Rule, right: Rule, mistakes: Mapping[str, tuple[Rule, str]], *, look_ahead: bool = False, **hyper: float
) -> None:
    """Return where `answer` moves four parameters as `right` does, over 60 steps; else raise the Mistake that it makes.

    answer, right  rules in the student's form
    mistakes       {name: (wrong rule in the student's form, hint)}; what follows a comma in a name tells variants of one
                   mistake apart, and is not shown
    look_ahead     the rule gets `gradient(points)` in place of gradients
    hyper          handed to every rule by name; it must have `lr`, which the judge quarters half-way

    For every rule it also finds: parameters that do not move, new tensors in the list, gradients edited or kept by
    reference, state shared between optimizers or between parameters, steps counted once per parameter, the wrong sign,
    float32 state under float64 parameters.
    """
    _judge_state(answer, look_ahead, hyper)
    start, grads = _tensors(SHAPES, 1), _tensors(SHAPES, 2, STEPS)

    def run(rule: Rule) -> _Run:
        return _Run(rule, start, grads, hyper, look_ahead)

    mine = run(answer)
    track = torch.stack(list(mine.steps()))
    if mine.edited():
        raise Mistake(
            "gradient-edited-in-place",
            "A gradient that you were given has changed. An operation that ends in _ or an assignment like g += … writes into "
            "the tensor that .grad points to, and clipping, logging or a second optimizer would see that: make a new tensor.",
        )
    if torch.equal(track[-1], mine_start := torch.cat([p.reshape(-1) for p in start])) and torch.equal(track[0], mine_start):
        raise Mistake(
            "rebinds",
            "No parameter has moved. `p = p - …` only gives a new tensor the name p: change the tensor in place, p -= ….",
        )
    goal = torch.stack(list(run(right).steps()))
    if _close(track, goal, SAME):
        return
    catalogue = {"wrong-sign": (_mirrored(right), _UPHILL), **mistakes}
    for name, (rule, hint) in catalogue.items():
        if _equals(track, run(rule), SAME):
            raise Mistake(name.split(",")[0], hint)
    small = any(one.dtype in (torch.float32, torch.float16, torch.bfloat16) for one in _tensors_in(mine.state))
    if _close(track, goal, NEAR) and (small or _close(track, goal, 3e-7)):
        raise Mistake(
            "float32-state-under-float64",
            "Right to about seven digits only: somewhere float64 numbers pass through float32. torch.zeros(shape) makes "
            "float32; torch.zeros_like(p) takes the type of p.",
        )
    for name, (rule, hint) in catalogue.items():
        if small and _equals(track, run(rule), NEAR):
            raise Mistake(name.split(",")[0], hint)
    if not torch.isfinite(track).all():
        first = int((~torch.isfinite(track).all(1)).nonzero()[0]) + 1
        raise Mistake(
            "not-a-number",
            f"After step {first} a parameter is nan or inf, though all gradients are finite. One gradient starts at exactly 0: "
            "what does your rule divide by then?",
        )
    raise Mistake("wrong-value", _where(track, goal))


_UPHILL = "Each step has the right length and the wrong direction: it climbs. Mind the sign."


def _judge_state(answer: Rule, look_ahead: bool, hyper: dict) -> None:
    """Raise a Mistake where the state is shared: two parameters of one shape, so that nothing stops at a shape before."""
    shapes, count = ((3,), (3,)), 8
    start, grads, other = _tensors(shapes, 4), _tensors(shapes, 5, count), _tensors(shapes, 6, count)
    for g in grads[0] + other[0]:
        g[0] = 0.5
    tensors = [p.clone() for p in start]

    def track(grads: list[Points], params: Points = tensors) -> torch.Tensor:
        """The first parameter over a run with a fresh `state`, on the same tensors."""
        run = _Run(answer, start[: len(params)], grads, hyper, look_ahead, params)
        return torch.stack([point[:3].clone() for point in run.steps(count)])

    beside = _Run(answer, start, other, hyper, look_ahead)
    first = _Run(answer, start, grads, hyper, look_ahead, tensors)
    between = []
    for point in first.steps(count):  # two optimizers in turn
        between.append(point[:3].clone())
        beside.advance()
    alone = track(grads)
    if not _close(torch.stack(between), alone, SAME):
        raise Mistake(
            "state-shared-between-optimizers",
            "The same run twice, each time with an empty `state`, gives two results: something outlives the optimizer. A "
            "global or a mutable default argument is shared by all of them; keep everything in `state`.",
        )
    if not _close(track([[a, b] for (a, _), (_, b) in zip(grads, other, strict=True)]), alone, SAME):
        raise Mistake(
            "state-shared-between-parameters",
            "Other gradients for the second parameter move the first one elsewhere: both use one entry of `state`. Each "
            "parameter needs its own.",
        )
    if not _close(track([[a] for a, _ in grads], tensors[:1]), alone, SAME):
        raise Mistake(
            "step-counted-per-parameter",
            "With two parameters the first one moves otherwise than alone: is the step t counted once for each parameter, "
            "instead of once for each call?",
        )
    reused = _Run(answer, start, grads, hyper, look_ahead, tensors)
    if not look_ahead and not first.edited():
        _judge_reuse(reused, count, alone)


def _judge_reuse(run: _Run, count: int, alone: torch.Tensor) -> None:
    """Raise a Mistake where the rule keeps the gradient's tensor itself: the next backward writes over it."""
    buffers = [g.clone() for g in run.grads[0]]
    for t in range(count):
        for buffer, value in zip(buffers, run.grads[t], strict=True):
            buffer.copy_(value)
        run.rule(run.params, buffers, run.state, **run.hyper)
        if not _close(run.flat()[:3], alone[t], SAME):
            raise Mistake(
                "gradient-kept-by-reference",
                "Where the next gradient is written into the same tensor, your steps change: `state` holds the gradient's "
                "tensor itself. Keep a copy (g.clone()) or start from zeros.",
            )


def _mirrored(right: Rule) -> Rule:
    """The right rule, walked backwards."""

    def step(params: Points, grads: Any, state: dict, **hyper: float) -> None:
        shadow = state.setdefault("shadow", {})
        before = [p.clone() for p in params]
        right(params, grads, shadow, **hyper)
        for p, old in zip(params, before, strict=True):
            p.copy_(2 * old - p)

    return step


def _where(track: torch.Tensor, goal: torch.Tensor) -> str:
    """A sentence on where a track leaves the right one."""
    wrong = ~torch.isclose(track, goal, rtol=SAME, atol=SAME)
    t = int(wrong.any(1).nonzero()[0])
    place = int(wrong[t].nonzero()[0])
    told = f"is {track[t, place]:.6g} where it should be {goal[t, place]:.6g}"
    if t == 0:
        return f"Already after the first step a parameter {told}. Work that step out by hand: the state is still at its start."
    if t == TURN:
        return f"Right for {t} steps, until the learning rate was quartered: then a parameter {told}. Where does lr enter?"
    return f"Right for {t} step{'s' * (t > 1)}; after step {t + 1} a parameter {told}. What does the rule remember by then?"
