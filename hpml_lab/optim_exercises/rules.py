"""Update rules in the form that a student writes, made from the formulas of hpml_lab.optim.

The form is the same in every exercise:

    def step(params, grads, state, lr=0.1, momentum=0.9):
        '''Change each tensor of the list `params` in place; keep in the dict `state` what the next call needs.'''

`state` is an empty dict at the first call. An exercise that needs gradients elsewhere than at θ passes, instead of `grads`, a
function: `gradient(points)` returns the list of gradients at a list of points.

A wrong rule is the right formula with a line replaced:

    altered("adam", "s.m_hat = s.m")                             # the first moment is not corrected
    altered("adam", first=["beta1, beta2 = beta2, beta1"])       # a line is added
    altered("adagrad", order=("theta", "s.G"))                   # the step comes before the sum
"""

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import torch

from hpml_lab.optim.formulas import FORMULAS, State

Tensors = list[torch.Tensor]
Rule = Callable[..., None]
WrongRules = dict[str, tuple[Rule, str]]  # name of the mistake -> the rule that makes it, and a hint that leads on


def as_rule(name: str, *, look_ahead: bool = False) -> Rule:
    """The rule of a formula, a name in FORMULAS, in the student's form.

    look_ahead  the rule gets `gradient(points)` instead of gradients, and calls it at `formula.gradient_point`
    """
    formula = FORMULAS[name]
    return _in_students_form(formula.start, formula.step, formula.gradient_point if look_ahead else None)


def altered(name: str, *lines: str, first: Sequence[str] = (), order: Sequence[str] = (), at: str = "") -> Rule:
    """The rule of a formula, a name in FORMULAS, with some lines changed, in the student's form.

    lines  statements; each replaces the formula's last statement with the same left side
    first  statements that run before all others
    order  the left sides of all statements in another order
    at     where the gradient is taken: the rule then gets `gradient(points)` instead of gradients

    Raises ValueError if the formula has no statement with that left side.
    """
    formula = FORMULAS[name]
    statements = [code for _, code in formula.lines]
    sides = [code.split(" = ")[0] for code in statements]
    for line in lines:
        side = line.split(" = ")[0]
        if side not in sides:
            raise ValueError(f"{name} has no line for {side}; it has {', '.join(sides)}")
        statements[len(sides) - 1 - sides[::-1].index(side)] = line
    if order:
        if sorted(order) != sorted(sides):
            raise ValueError(f"the lines of {name} are {', '.join(sides)}, not {', '.join(order)}")
        statements = [statements[sides.index(side)] for side in order]
    program = compile("\n".join([*first, *statements]), f"<{name}, altered>", "exec")
    point = compile(at, f"<{name}, gradient point>", "eval") if at else None
    names = formula.step.__globals__  # sqrt and largest

    def step(theta: torch.Tensor, g: torch.Tensor, s: State, t: int, **hyper: float) -> torch.Tensor:
        scope = {"theta": theta, "g": g, "s": s, "t": t, **hyper}
        exec(program, names, scope)
        return scope["theta"]

    def gradient_point(theta: torch.Tensor, s: State, **hyper: float) -> torch.Tensor:
        return _value(point, names, {"theta": theta, "s": s, **hyper})

    return _in_students_form(formula.start, step, gradient_point if at else None)


def _value(expression: CodeType, names: dict[str, Any], scope: dict[str, Any]) -> Any:
    return eval(expression, names, scope)


def _in_students_form(start: Callable, step: Callable, gradient_point: Callable | None) -> Rule:
    def rule(params: Tensors, grads: Any, state: dict, **hyper: float) -> None:
        t = state["t"] = state.get("t", 0) + 1
        if t == 1:
            state.update({index: start(p) for index, p in enumerate(params)})
        states = [state[index] for index in range(len(params))]
        if gradient_point:
            grads = grads([gradient_point(p, s, **hyper) for p, s in zip(params, states, strict=True)])
        for p, g, s in zip(params, grads, states, strict=True):
            p.copy_(step(p, g, s, t, **hyper))

    return rule
