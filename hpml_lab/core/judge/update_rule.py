"""The judge of update rules: exercises in which a student writes one step of an optimizer.

    RUBRIC = Rubric(adagrad_step, "…", …)

    @exercise("write-adagrad", notebook="05_adaptive", takes=…, returns=None, changes="params, state")
    def judge_write_adagrad(answer):
        judge_rule(answer, RUBRIC, lr=0.1, eps=0.01)

The form is the same in every exercise:

    def step(params, grads, state, lr=0.1, momentum=0.9):
        '''Change each tensor of the list `params` in place; keep in the dict `state` what the next call needs.'''

`state` is an empty dict at the first call. An exercise that needs gradients elsewhere than at θ passes, instead of `grads`, a
function: `gradient(points)` returns the list of gradients at a list of points.

A wrong rule is recognized only where it differs from the right one, so choose hyperparameters for which all of them matter: an
ε of 0.01, not 1e-8.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from hpml_lab.core.judge.asked import given_last
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.rule_run import (
    EQUAL,
    GROWING,
    RATE_CHANGE,
    ROUNDED,
    SHAPES,
    SIZES,
    STEPS,
    Rule,
    RuleRun,
    Tensors,
    follows,
    random_gradients,
    random_tensors,
)
from hpml_lab.core.judge.same import same
from hpml_lab.core.judge.variations import VARIATIONS, refuses_a_view, strided


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in a state, however it is nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _tensors_in(item)
    elif hasattr(value, "__dict__"):
        yield from _tensors_in(vars(value))


# ---- The judge -----------------------------------------------------------------------------------------------------


def judge_rule(answer: Rule, rubric: Rubric, *, look_ahead: bool = False, **hyper: float) -> None:
    """Return if `answer` moves four parameters as `rubric.right` does, over 60 steps; else raise the Mistake that it makes.

    look_ahead  the rule gets `gradient(points)` instead of gradients
    hyper       passed to every rule by name; `lr` is required, and the judge quarters it half-way

    For every rule it also finds: parameters that do not move, new tensors in the list, gradients edited or kept by
    reference, state shared between optimizers or between parameters, steps counted once per parameter, parameters that are left
    out, the wrong sign, an argument that changes nothing, float32 state under float64 parameters.
    """
    right = rubric.right
    _judge_state(answer, look_ahead, hyper)
    start, grads = random_tensors(SHAPES, 1), random_gradients(SHAPES, 2, STEPS)

    def run(rule: Rule) -> RuleRun:
        return RuleRun(rule, start, grads, hyper, look_ahead)

    own_run = run(answer)
    track = torch.stack(list(own_run.steps()))
    if own_run.edited_a_gradient():
        raise Mistake(
            "gradient-edited-in-place",
            "A gradient that you were given has changed. An operation that ends in _ or an assignment like g += … writes into "
            "the tensor that .grad points to, and clipping, logging or a second optimizer would see that: make a new tensor.",
        )
    if torch.equal(track[-1], flat_start := torch.cat([p.reshape(-1) for p in start])) and torch.equal(track[0], flat_start):
        raise Mistake(
            "rebinds",
            "No parameter has moved. `p = p - …` only gives a new tensor the name p: change the tensor in place, p -= ….",
        )
    goal = torch.stack(list(run(right).steps()))
    if same(track, goal, EQUAL):
        if own_run.shares_points:
            raise Mistake(
                "points-are-the-parameters",
                "A point that gradient() gets lies in the memory of a parameter. || Make new tensors for the points: what else"
                " looks at the net meanwhile would see it elsewhere.",
            )
        _judge_sizes(answer, right, look_ahead, hyper)
        _judge_layout(answer, right, look_ahead, hyper)
        _judge_zeros(answer, right, look_ahead, hyper)
        return
    _judge_every_parameter(track, start)
    catalogue = [
        ("wrong-sign", _reversed(right), "Each step has the right length and the wrong direction: it climbs. Mind the sign."),
        *rubric.single(),
        (
            "argument-ignored",
            _at_first_rate(right),
            "You keep the `lr` of the first call; a schedule changes it: use the argument.",
        ),
    ]
    for name, rule, hint in catalogue:
        if follows(track, run(rule), EQUAL):
            raise Mistake(name, hint)
    small = any(tensor.is_floating_point() and tensor.itemsize < 8 for tensor in _tensors_in(own_run.state))
    if same(track, goal, ROUNDED) and (small or same(track, goal, 3e-7)):
        raise Mistake(
            "float32-state-under-float64",
            "Right to about seven digits only: somewhere float64 numbers pass through float32. torch.zeros(shape) makes "
            "float32; torch.zeros_like(p) takes the type of p.",
        )
    for name, rule, hint in catalogue if small else ():
        if follows(track, run(rule), ROUNDED):
            raise Mistake(name, hint)
    for name, value in hyper.items():
        changed = {**hyper, name: 0.7 * value}
        own, rights = (RuleRun(rule, start, grads, changed, look_ahead) for rule in (answer, right))
        if follows(track, own, EQUAL) and not follows(goal, rights, EQUAL):
            raise Mistake(
                "argument-ignored",
                f"Whatever the caller passes as `{name}`, your steps are the same: use the argument, not a number of its own.",
            )
    if not torch.isfinite(track).all():
        first = int((~torch.isfinite(track).all(1)).nonzero()[0]) + 1
        raise Mistake(
            "not-a-number",
            f"After step {first} a parameter is nan or inf, though all gradients are finite. One gradient starts at exactly 0: "
            "what does your rule divide by then?",
        )
    wrong, hint = _first_difference(track, goal)
    next(itertools.islice(run(answer).steps(), wrong, None))  # once more, up to the step that shows it
    raise Mistake("wrong-value", hint, given_last(()))


def _judge_sizes(answer: Rule, right: Rule, look_ahead: bool, hyper: dict) -> None:
    """Raise a Mistake if a rule that is right otherwise limits gradients that are large, or denominators that are small."""
    hyper, start = {**hyper, **({"eps": 1e-10} if "eps" in hyper else {})}, [torch.zeros(shape).double() for shape in SHAPES]
    runs = {f"around {size:g}": [[g * size for g in step] for step in random_gradients(SHAPES, 3, 8)] for size in (1e-7, 1e5)}
    runs["that grow after 50 steps"] = [[torch.full(shape, size).double() for shape in SHAPES] for size in GROWING]
    for words, grads in runs.items():
        own, goal = (
            torch.stack([*RuleRun(rule, start, grads, hyper, look_ahead).steps(len(grads))]) for rule in (answer, right)
        )
        if not same(own, goal, ROUNDED):
            raise Mistake(
                "limits-the-size",
                f"Right for gradients around 1, but not for gradients {words}{' and ε = 1e-10' * ('eps' in hyper)}: "
                "does your rule clip something, or keep a denominator from getting small by more than the formula says?",
            )


def _judge_layout(answer: Rule, right: Rule, look_ahead: bool, hyper: dict) -> None:
    """Raise a Mistake if a rule that is right otherwise does not move a parameter whose numbers lie apart in memory."""
    start, grads, tracks = random_tensors(SHAPES, 7), random_gradients(SHAPES, 8, 3), []
    for rule in (answer, right):
        run = RuleRun(rule, start, grads, hyper, look_ahead, [strided(p) for p in start])
        try:
            tracks.append(torch.stack([*run.steps(len(grads))]))
        except RuntimeError as error:
            if refuses_a_view(error):
                return
            raise
    if not same(*tracks, EQUAL):
        raise Mistake("one-layout", VARIATIONS["layout"].text, given_last(()))


def _judge_zeros(answer: Rule, right: Rule, look_ahead: bool, hyper: dict) -> None:
    """Raise a Mistake if a rule that is right otherwise takes an option of 0 for none, or does not get over a rate of 0."""
    start, grads = random_tensors(SHAPES, 9), random_gradients(SHAPES, 10, 6)
    for name in [name for name in hyper if name != "eps"]:
        tracks = []
        for rule in (answer, right):
            run, points = RuleRun(rule, start, grads, hyper, look_ahead), []
            for t in range(len(grads)):
                run.hyper = hyper | {name: 0.0} if name != "lr" or t == 2 else hyper
                run.advance()
                points.append(run.flat())
            tracks.append(torch.stack(points))
        # With β = 0 the gradient's square may be the small difference of large numbers: v + (1 - β) (g² - v).
        if tracks[1].isfinite().all() and not same(*tracks, ROUNDED if name.startswith(("beta", "alpha")) else EQUAL):
            when = "in one step, as at the start of a warm-up" if name == "lr" else "which switches it off"
            raise Mistake("zero-taken-for-none", f"Right for the options of the examples, and not for {name} = 0, {when}.")


def _judge_every_parameter(track: torch.Tensor, start: Tensors) -> None:
    """Raise a Mistake if some parameters move and others never do."""
    first = torch.cat([p.reshape(-1) for p in start])
    rests = [bool((part == of_start).all()) for part, of_start in zip(track.split(SIZES, 1), first.split(SIZES), strict=True)]
    if any(rests):
        raise Mistake(
            "some-parameters-rest",
            f"Of {len(rests)} parameters {sum(rests)} never move{'s' * (sum(rests) == 1)}, though all have gradients. Does the "
            "loop reach each of them?",
        )


def _at_first_rate(right: Rule) -> Rule:
    """The right rule with the learning rate of the first call in every call."""

    def step(params: Tensors, grads: Any, state: dict, **hyper: float) -> None:
        rate = state.setdefault("first rate", hyper["lr"])
        right(params, grads, state.setdefault("own", {}), **{**hyper, "lr": rate})

    return step


def _judge_state(answer: Rule, look_ahead: bool, hyper: dict) -> None:
    """Raise a Mistake if state is shared. Both parameters have one shape, so that sharing raises no error of its own."""
    shapes, count = ((3,), (3,)), 8
    start, grads, others = random_tensors(shapes, 4), random_gradients(shapes, 5, count), random_gradients(shapes, 6, count)
    for g in grads[0] + others[0]:
        g[0] = 0.5
    tensors = [p.clone() for p in start]

    def track(grads: list[Tensors], params: Tensors = tensors) -> torch.Tensor:
        """The first parameter over a run with a fresh `state`, on the same tensors."""
        run = RuleRun(answer, start[: len(params)], grads, hyper, look_ahead, params, coupling=0.0)
        return torch.stack([point[:3].clone() for point in run.steps(count)])

    second = RuleRun(answer, start, others, hyper, look_ahead, coupling=0.0)
    first = RuleRun(answer, start, grads, hyper, look_ahead, tensors, coupling=0.0)
    in_turn = []
    for point in first.steps(count):  # two optimizers in turn
        in_turn.append(point[:3].clone())
        second.advance()
    alone = track(grads)
    if not same(torch.stack(in_turn), alone, EQUAL):
        raise Mistake(
            "state-shared-between-optimizers",
            "The same run twice, each time with an empty `state`, gives two results: something outlives the optimizer. A "
            "global or a mutable default argument is shared by all of them; keep everything in `state`.",
        )
    if not same(track([[a, b] for (a, _), (_, b) in zip(grads, others, strict=True)]), alone, EQUAL):
        raise Mistake(
            "state-shared-between-parameters",
            "Other gradients for the second parameter move the first one elsewhere: both use one entry of `state`. Each "
            "parameter needs its own.",
        )
    if not same(track([[a] for a, _ in grads], tensors[:1]), alone, EQUAL):
        raise Mistake(
            "step-counted-per-parameter",
            "With two parameters the first one moves otherwise than alone: is the step t counted once for each parameter, "
            "instead of once for each call?",
        )
    reused = RuleRun(answer, start, grads, hyper, look_ahead, tensors)
    if not look_ahead and not first.edited_a_gradient():
        _judge_kept_gradients(reused, count, alone)


def _judge_kept_gradients(run: RuleRun, count: int, alone: torch.Tensor) -> None:
    """Raise a Mistake if the rule keeps the gradient's tensor itself, which the next backward pass overwrites."""
    buffers = [g.clone() for g in run.grads[0]]
    for t in range(count):
        for buffer, value in zip(buffers, run.grads[t], strict=True):
            buffer.copy_(value)
        run.rule(run.params, buffers, run.state, **run.hyper)
        if not same(run.flat()[:3], alone[t], EQUAL):
            raise Mistake(
                "gradient-kept-by-reference",
                "If the next gradient is written into the same tensor, your steps change: `state` holds the gradient's tensor "
                "itself, or finds its entry by it. Keep a copy (g.clone()) or start from zeros, and find it by the parameter.",
            )


def _reversed(right: Rule) -> Rule:
    """The right rule with every step in the opposite direction."""

    def step(params: Tensors, grads: Any, state: dict, **hyper: float) -> None:
        own_state = state.setdefault("own", {})
        before = [p.clone() for p in params]
        right(params, grads, own_state, **hyper)
        for p, old in zip(params, before, strict=True):
            p.copy_(2 * old - p)

    return step


def _first_difference(track: torch.Tensor, goal: torch.Tensor) -> tuple[int, str]:
    """The first step, from 0, after which a track is not the right one, and a sentence that says where it leaves it."""
    wrong = ~torch.isclose(track, goal, rtol=EQUAL, atol=EQUAL)
    t = int(wrong.any(1).nonzero()[0])
    index = int(wrong[t].nonzero()[0])
    values = f"is {track[t, index]:.6g} where it should be {goal[t, index]:.6g}"
    if t == 0:
        return t, f"Already after the first step a parameter {values}. Work it out by hand: the state is still at its start."
    if t == RATE_CHANGE:
        return t, f"Right for {t} steps, until the learning rate was quartered: then a parameter {values}. Where does lr enter?"
    steps = f"{t} step{'s' * (t > 1)}; after step {t + 1}"
    return t, f"Right for {steps} a parameter {values}. What does the rule remember by then?"
