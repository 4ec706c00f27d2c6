"""`optimizer.explain()`: each line of the formula next to the line of code that computes it and the tensors it changes."""

import ast
import html
from dataclasses import dataclass

import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.optim.formulas.lines import formula_lines


@dataclass(frozen=True)
class ExplainedLine:
    """A formula, its statement, and the present values of the tensors that the statement changes."""

    formula: str
    code: str
    tensors: tuple[str, ...]


class Explanation:
    """What `optimizer.explain()` returns: a table in a notebook, plain text in a terminal, `lines` for a program."""

    def __init__(self, optimizer, parameter: int = 0) -> None:
        numbered = [(p, group) for group in optimizer.param_groups for p in group["params"]]
        if not isinstance(parameter, int) or not 0 <= parameter < len(numbered):
            raise LabError(
                f"there is no parameter {parameter!r} in this {type(optimizer).__name__}.",
                f"It has {len(numbered)}: give a number from 0 to {len(numbered) - 1}.",
            )
        p, group = numbered[parameter]
        state = optimizer.state.get(numbered[0][0] if optimizer.one_state else p, {})
        names = {symbol: name for symbol, name in optimizer.symbols.items() if state.get(name) is not None}
        values = {"theta": ("θ", p), **{symbol: (name, state[name]) for symbol, name in names.items()}}
        rules = list(optimizer.explained)
        if p.grad is not None and p.grad.is_sparse and optimizer.update_sparse:
            rules = ["update_sparse"]
        pairs = [pair for rule in rules for pair in formula_lines(getattr(type(optimizer), rule))]
        if group.get("weight_decay") and optimizer.decay:
            other = _NOT_DECOUPLED if group.get("decoupled_weight_decay", False) else _DECOUPLED
            pairs = [pair for pair in formula_lines(type(optimizer).decay) if not pair[0].endswith(other)] + pairs
        if group.get("maximize"):
            pairs.insert(0, ("g = −g", "g = -g"))
        self.title = f"{type(optimizer).__name__}, parameter {parameter} of {len(numbered)}"
        self.lines = []
        for formula, code in pairs:
            changed = [symbol for symbol in _changed(code) if symbol in values]
            self.lines.append(ExplainedLine(formula, code, tuple(_summary(symbol, *values[symbol]) for symbol in changed)))
        step = state.get("step")
        options = {name: group[name] for name in optimizer.defaults if name not in _NOT_OF_THE_RULE}
        self.options = ", ".join(f"{name}={_plain(value)}" for name, value in options.items())
        if state and (step is None or int(step)):
            self.steps = f"after step {int(step)}" if step is not None else "after one step or more"
        else:
            self.steps = "no step yet" if optimizer.start(p, p, group) else "it keeps no state"

    def __repr__(self) -> str:
        rows = [f"{self.title}, {self.steps} ({self.options})"]
        width, code = max(len(line.formula) for line in self.lines), max(len(line.code) for line in self.lines)
        for line in self.lines:
            rows.append(f"  {line.formula:{width}}  │ {line.code:{code}}  │ {'; '.join(line.tensors)}".rstrip(" │"))
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        def cell(text: str, tag: str = "td") -> str:
            return f'<{tag} style="text-align:left;white-space:pre-wrap">{text}</{tag}>'

        head = "".join(cell(text, "th") for text in ("formula", "code", "state now"))
        rows = "".join(
            f"<tr>{cell(html.escape(line.formula))}{cell(f'<code>{html.escape(line.code)}</code>')}"
            f"{cell('<br>'.join(map(html.escape, line.tensors)))}</tr>"
            for line in self.lines
        )
        caption = html.escape(f"{self.title}, {self.steps} ({self.options})")
        return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


_DECOUPLED, _NOT_DECOUPLED = ", if decoupled", ", if not"  # the ends of the two lines of weight decay: one of them holds
_NOT_OF_THE_RULE = {"foreach", "capturable", "differentiable", "fused", "initial_accumulator_value"}  # the numbers are the same


def _plain(value) -> str:
    return f"{value.item():g}" if isinstance(value, torch.Tensor) else f"{value:g}" if isinstance(value, float) else str(value)


def _changed(code: str) -> list[str]:
    """The names that a statement changes: those whose own operation ends in _, and the first operand of such a function."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")).endswith("_"):
            owner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
            found += [owner.id] if isinstance(owner, ast.Name) else []
    return list(dict.fromkeys(found))


def _summary(symbol: str, name: str, value: torch.Tensor | list[torch.Tensor]) -> str:
    """`m = exp_avg (300, 784) float32: 0.01, -0.2, …; norm 3.1`: short for any size."""
    label = name if symbol == "theta" else f"{symbol} = {name}"
    if isinstance(value, list):
        return f"{label}: {len(value)} of them"
    value, dtype = value.detach(), str(value.dtype).removeprefix("torch.")
    if value.is_meta:
        return f"{label} {tuple(value.shape)} {dtype}, on the device meta"
    value, shape = value.coalesce().values() if value.is_sparse else value, tuple(value.shape)
    first = ", ".join(f"{number:.3g}" for number in value.flatten()[:3].tolist()) + (", …" if value.numel() > 3 else "")
    norm = torch.linalg.vector_norm(value.to(torch.promote_types(value.dtype, torch.float32))).item() if value.numel() else 0.0
    return f"{label} {shape} {dtype}: {first}; norm {norm:.3g}"
