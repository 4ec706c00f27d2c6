"""One step of an optimizer in full: formula, line of code, the numbers inserted, and the result, line by line.

The lines are those of the rule in hpml_lab.optim.formulas, executed one after the other; the last gives the path's next point.
The class of hpml_lab.optim runs on the same gradients, and the distance between the two is counted in spacings: how many
float64 numbers lie between them.
"""

import ast
import html
import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch

from hpml_lab import optim
from hpml_lab.adaptive.views.lab.rule_paths import LabPath, Pair
from hpml_lab.optim.formulas import FORMULAS


@dataclass(frozen=True)
class StepLine:
    """One line of the rule, for x and for y: `numbers` are texts, `results` the values that the line computes."""

    formula: str
    code: str
    numbers: tuple[str, str]
    results: Pair

    @property
    def symbol(self) -> str:
        """The formula's name for what the line computes."""
        return self.formula.split("=")[0].strip()


def step_lines(path: LabPath, t: int) -> list[StepLine]:
    """The lines of step `t` of the path, from 1. Raises IndexError for a step that the path does not have."""
    if not 1 <= t <= path.steps:
        raise IndexError(f"the path has the steps 1 to {path.steps}, no step {t}")
    formula = FORMULAS[path.optimizer]
    known = path.hyper | {"lr": path.rates[t - 1], "t": t}
    at = t - 1
    scopes = [
        known | {"theta": theta, "g": g, "s": s}
        for theta, g, s in zip((path.x[at], path.y[at]), (path.gx[at], path.gy[at]), path.state_before(t), strict=True)
    ]
    lines = []
    for text, code in formula.lines:
        target, value, compiled = _compiled(code)
        numbers, results = [], []
        for scope in scopes:
            numbers.append(_written(value, scope))
            exec(compiled, formula.step.__globals__, scope)  # the rule's own line, with the rule's own functions
            results.append(_value(target, scope))
        lines.append(StepLine(text, code, tuple(numbers), tuple(results)))
    return lines


@cache
def _compiled(code: str) -> tuple[ast.expr, ast.expr, Any]:
    """The target and the value of a statement, and the statement compiled."""
    statement = ast.parse(code).body[0]
    return statement.targets[0], statement.value, compile(code, "<formula>", "exec")


def _value(node: ast.expr, scope: dict[str, Any]) -> Any:
    if isinstance(node, ast.Attribute):
        return getattr(scope[node.value.id], node.attr)
    return scope[node.id]


def show(value: float) -> str:
    """A number with four digits and a true minus sign."""
    return f"{value + 0.0:.4g}".replace("-", "−")  # + 0.0 turns −0 into 0


# The precedence of each operator, and how it is written.
_OPERATORS = {ast.Add: (1, " + "), ast.Sub: (1, " − "), ast.Mult: (2, "·"), ast.Div: (2, " / "), ast.Pow: (4, "^")}


def _written(node: ast.expr, scope: dict[str, Any], precedence: int = 0, first: bool = True) -> str:
    """An expression with numbers in place of names, in brackets if the surrounding operator has a higher precedence.

    A negative number is put in brackets unless it comes `first`.
    """
    if isinstance(node, ast.Constant):
        return show(node.value)
    if isinstance(node, ast.Name | ast.Attribute):
        text = show(_value(node, scope))
        return f"({text})" if text.startswith("−") and not first else text
    if isinstance(node, ast.Call):
        inner = ", ".join(_written(argument, scope) for argument in node.args)
        name = node.func.id
        if name == "sqrt":
            return f"√{inner}" if isinstance(node.args[0], ast.Name | ast.Attribute) else f"√({inner})"
        return f"|{inner}|" if name == "abs" else f"max({inner})"
    own, sign = _OPERATORS[type(node.op)]
    # The right side of − and / needs brackets at equal precedence too: a − (b − c).
    right = own + isinstance(node.op, ast.Sub | ast.Div | ast.Pow)
    bracketed, power = own < precedence, isinstance(node.op, ast.Pow)
    left = _written(node.left, scope, own + power, (first or bracketed) and not power)
    text = left + sign + _written(node.right, scope, right, False)
    return f"({text})" if bracketed else text


def class_of(optimizer: str) -> type[torch.optim.Optimizer] | None:
    """The class of hpml_lab.optim with the rule of this formula, or None for forms without a class."""
    name = FORMULAS[optimizer].torch_equivalent
    return getattr(optim, name) if name else None


def class_options(optimizer: str, hyper: dict[str, float]) -> dict[str, Any]:
    """The formula's hyperparameters as the class's arguments."""
    options = {key: value for key, value in hyper.items() if key not in ("beta1", "beta2")}
    if "beta1" in hyper:
        options["betas"] = (hyper["beta1"], hyper["beta2"])
    return options | ({"nesterov": True} if optimizer == "nesterov" and hyper["momentum"] > 0 else {})


class ClassRun:
    """The class of hpml_lab.optim in float64 on the gradients and rates of `path`, run as far as needed."""

    def __init__(self, path: LabPath) -> None:
        self.path, self.points = path, [(path.x[0], path.y[0])]
        self._theta = torch.tensor(self.points[0], dtype=torch.float64, requires_grad=True)
        self._optimizer = class_of(path.optimizer)([self._theta], **class_options(path.optimizer, path.hyper))

    def point(self, t: int) -> Pair:
        """The class's point after step `t`."""
        for at in range(len(self.points) - 1, t):
            self._theta.grad = torch.tensor((self.path.gx[at], self.path.gy[at]), dtype=torch.float64)
            self._optimizer.param_groups[0]["lr"] = self.path.rates[at]
            self._optimizer.step()
            self.points.append(tuple(self._theta.tolist()))
        return self.points[t]


@lru_cache(maxsize=16)
def class_run(path: LabPath) -> ClassRun | None:
    """The run of the class on the gradients of `path`, or None if the formula has no class."""
    return ClassRun(path) if class_of(path.optimizer) else None


def spacings(a: float, b: float) -> float:
    """The distance between two numbers in spacings of float64 at the larger of them."""
    return abs(a - b) / math.ulp(max(abs(a), abs(b)))


def distance(path: LabPath, t: int) -> Pair | None:
    """How far the formula's point is from the class's after step `t`, in spacings; None if there is no such class."""
    other = class_run(path)
    return None if other is None else tuple(map(spacings, (path.x[t], path.y[t]), other.point(t)))


_CSS = (
    ".hpml-steps{font-size:13px;line-height:1.45;border-collapse:collapse;width:100%}"
    ".hpml-steps th,.hpml-steps td{text-align:left!important;padding:3px 10px 3px 0;vertical-align:top;"
    "border-top:1px solid var(--jp-border-color2,#ccc)}"
    ".hpml-steps td:first-child{min-width:165px}"
    ".hpml-steps code{white-space:pre-wrap;color:inherit;background:none;padding:0}"
    ".hpml-steps caption{text-align:left;font-weight:bold;padding:4px 0}"
)


def step_table(path: LabPath, t: int, compare: bool = True) -> str:
    """Step `t` of the path as an HTML table; `compare` also runs the class, which takes about 0.05 ms per step."""
    title, surface = FORMULAS[path.optimizer].title, path.surface
    if t == 0:
        x, y = show(path.x[0]), show(path.y[0])
        body = f"<tr><td>Start at x = {x}, y = {y}, f = {show(path.losses[0])}. Move one step forward.</td></tr>"
        return _table(f"{title}, before the first step", body)
    if t > path.steps:
        ended = path.end.replace(" at ", " at step ")
        body = f"<tr><td>{html.escape(title)} {ended}: there is no step {t}. Move back.</td></tr>"
        return _table(f"{title}, step {t}", body)
    where = "θ − γ v" if path.optimizer == "lecture_nesterov" else "θ"
    at = t - 1
    gx, gy = show(path.gx[at]), show(path.gy[at])
    noisy = where == "θ" and (path.gx[at], path.gy[at]) != surface.gradient(path.x[at], path.y[at])
    rows = [(f"g = ∇f({where})" + (" + noise" if noisy else ""), "g = gradient(x, y)", f"g = {gx}", f"g = {gy}")]
    for line in step_lines(path, t):
        parts = (
            f"{line.symbol} = {numbers} = {show(result)}" for numbers, result in zip(line.numbers, line.results, strict=True)
        )
        rows.append((line.formula, line.code, *parts))
    head = "".join(f'<th scope="col">{text}</th>' for text in ("formula", "code", "for x", "for y"))
    body = "".join(
        f"<tr><td>{html.escape(formula)}</td>"
        + "".join(f"<td><code>{html.escape(value)}</code></td>" for value in rest)
        + "</tr>"
        for formula, *rest in rows
    )
    rate = f", α = {show(path.rates[t - 1])}"
    caption = f"{title}, step {t}{rate}: f from {show(path.losses[t - 1])} to {show(path.losses[t])}"
    return _table(caption, f"<tr>{head}</tr>{body}{_compared(path, t, compare)}")


def _compared(path: LabPath, t: int, compare: bool) -> str:
    if class_of(path.optimizer) is None:
        return '<tr><td colspan="4">No class has this form: torch and hpml_lab.optim use the other form.</td></tr>'
    if not compare:
        return '<tr><td>distance to the class</td><td colspan="3">Move a step forward or back to see it.</td></tr>'
    steps_away, optimizer_class = distance(path, t), class_of(path.optimizer)
    package = ".".join(optimizer_class.__module__.split(".")[:2])
    # torch keeps this number in float32 for any parameter dtype, and so does this package, to agree with it.
    keeps = " (Πμ is kept in float32)" if path.optimizer == "nadam" else ""
    x, y = (f"{round(count):,} spacing{'' if round(count) == 1 else 's'}" for count in steps_away)
    return (
        f"<tr><td>distance to the class</td><td><code>{package}.{optimizer_class.__name__}</code>, float64, same gradients</td>"
        f"<td>{x}</td><td>{y}{keeps}</td></tr>"
    )


def _table(caption: str, body: str) -> str:
    return f'<style>{_CSS}</style><table class="hpml-steps"><caption>{html.escape(caption)}</caption>{body}</table>'
