"""The optimizer lab's page as one JavaScript module, with the rules, surfaces and schedules translated from their own Python.

Nothing is written down twice: `lab_module` reads the functions that Python runs, statement by statement, whenever it is
called, and puts them into `engine.js`, which computes paths and maps; `lab.mjs`, the page, follows. Functions may use
arithmetic, comparisons, a few functions of `math`, and functions of this package that do the same.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.landscape import stability, surfaces
from hpml_lab.landscape.optimizer_lab import paths
from hpml_lab.landscape.optimizer_lab.figure import form_of, look
from hpml_lab.optim.formulas import FORMULAS, lecture_nesterov

HERE = Path(__file__).parent
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.Mod: "%", ast.FloorDiv: "//"}
_OPERATORS |= {ast.BitXor: "^", ast.RShift: ">>", ast.BitAnd: "&"}
_COMPARISONS = {ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "==="}
_FUNCTIONS = {"sqrt": "Math.sqrt", "largest": "Math.max", "abs": "Math.abs", "min": "Math.min", "max": "Math.max"}
_FUNCTIONS |= {"cos": "Math.cos", "sin": "Math.sin", "math.cos": "Math.cos", "times32": "times32"}


class Translation(ast.NodeVisitor):
    """JavaScript of Python functions, and of those that they call: `functions` has them by name, in the order of need."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.powers = 0  # each power in a rule has a table of its own, so that a map need not compute it anew

    def function(self, function: FunctionType, options: bool = False) -> str:
        """One function as an arrow function. With `options` its parameters from the fifth on are read from one object."""
        before = getattr(self, "scope", None), getattr(self, "rule", None), getattr(self, "local", None)
        closed = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.scope = function.__globals__ | {name: cell.cell_contents for name, cell in closed}
        self.rule = options
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        names = [argument.arg for argument in tree.args.args]
        stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self.local = stored | set(names)
        head = ", ".join(names[:4]) + f", {{{', '.join(names[4:])}}}" if options else ", ".join(names)
        fresh = sorted(stored - set(names))
        body = [f"let {', '.join(fresh)};"] if fresh else []
        body += [self.visit(statement) for statement in tree.body if not isinstance(statement, ast.Expr)]  # docstring, checks
        self.scope, self.rule, self.local = before
        return f"({head}) => {{ {' '.join(body)} }}"

    def generic_visit(self, node: ast.AST) -> str:
        raise LabError(f"{ast.unparse(node)!r} has no translation to JavaScript.", "Use arithmetic and functions of math only.")

    def visit_Assign(self, node: ast.Assign) -> str:
        return f"{self.visit(node.targets[0])} = {self.visit(node.value)};"

    def visit_Return(self, node: ast.Return) -> str:
        return f"return {self.visit(node.value)};"

    def visit_For(self, node: ast.For) -> str:
        name, end = self.visit(node.target), self.visit(node.iter.args[0])
        return f"for ({name} = 0; {name} < {end}; {name}++) {{ {' '.join(map(self.visit, node.body))} }}"

    def visit_Tuple(self, node: ast.Tuple) -> str:
        return f"[{', '.join(map(self.visit, node.elts))}]"

    def visit_IfExp(self, node: ast.IfExp) -> str:
        return f"({self.visit(node.test)} ? {self.visit(node.body)} : {self.visit(node.orelse)})"

    def visit_Compare(self, node: ast.Compare) -> str:
        return f"({self.visit(node.left)} {_COMPARISONS[type(node.ops[0])]} {self.visit(node.comparators[0])})"

    def visit_UnaryOp(self, node: ast.UnaryOp) -> str:
        return f"(-{self.visit(node.operand)})" if isinstance(node.op, ast.USub) else self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> str:
        left, right, sign = self.visit(node.left), self.visit(node.right), _OPERATORS[type(node.op)]
        if sign == "**" and self.rule:
            self.powers += 1
            return f"power({self.powers - 1}, t, {left}, {right})"
        if sign == "//":
            return f"Math.floor({left} / {right})"
        if sign == "/" and self.rule:
            return f"divide({left}, {right})"
        if sign in "^&":
            return f"(({left} {sign} {right}) >>> 0)"
        return f"({left} {'>>>' if sign == '>>' else sign} {right})"

    def visit_Constant(self, node: ast.Constant) -> str:
        return json.dumps(node.value)

    def visit_Name(self, node: ast.Name) -> str:
        if node.id in self.local:
            return node.id
        value = self.scope.get(node.id)
        return json.dumps(value) if isinstance(value, int | float) else self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> str:
        return "Math.PI" if ast.unparse(node) == "math.pi" else f"{self.visit(node.value)}.{node.attr}"

    def visit_Call(self, node: ast.Call) -> str:
        name = ast.unparse(node.func)
        if name not in _FUNCTIONS and isinstance(called := self.scope.get(name), FunctionType) and name not in self.functions:
            self.functions[name] = self.function(called)
        elif name not in _FUNCTIONS and name not in self.functions:
            return self.generic_visit(node)
        return f"{_FUNCTIONS.get(name, name)}({', '.join(map(self.visit, node.args))})"


def expression(node: ast.expr) -> Any:
    """An expression as nested lists for the step table, which shows it with its numbers: ["+", "s.v", ["*", "lr", "g"]]."""
    if isinstance(node, ast.BinOp):
        return [_OPERATORS[type(node.op)], expression(node.left), expression(node.right)]
    if isinstance(node, ast.Call):
        return [node.func.id, *map(expression, node.args)]
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)


def _step_lines(lines: Iterable[tuple[str, str]]) -> list[dict]:
    found = []
    for formula, code in lines:
        statement = ast.parse(code).body[0]
        found.append({"formula": formula, "code": code, "to": ast.unparse(statement.targets[0])})
        found[-1]["value"] = expression(statement.value)
    return found


def _object(**entries: str) -> str:
    return "{" + ", ".join(f"{key}: {text}" for key, text in entries.items()) + "}"


def _rules(translation: Translation) -> dict[str, str]:
    found = {}
    for name, formula in FORMULAS.items():
        style, plain = look(name), name in paths.PLAIN_RULES
        line = style["linestyle"]
        dash = {"-": (), "--": (4, 2), "-.": (5, 2, 1, 2)}[line] if isinstance(line, str) else line[1]
        about = dict(title=formula.title, form=form_of(name), color=style["color"], dash=dash, marker=style["marker"])
        about |= dict(state=formula.state, hyper=formula.defaults, ahead=formula.step is lecture_nesterov)
        about |= dict(kind=name.removeprefix("lecture_") if plain else None, lines=_step_lines(formula.lines))
        texts = {key: json.dumps(value, ensure_ascii=False) for key, value in about.items()}
        found[name] = _object(**texts, step=translation.function(formula.step, options=True))
    return found


def _surfaces(translation: Translation, names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        surface = paths.surface_named(name)
        about = {
            key: getattr(surface, key) for key in ("title", "formula", "window", "minima", "start", "eigenvalues", "noise")
        }
        about["rates"] = {rule: paths.first_rate(surface, rule) for rule in FORMULAS}
        texts = {key: json.dumps(value, ensure_ascii=False) for key, value in about.items()}
        functions = {key: translation.function(getattr(surface, key)) for key in ("value", "gradient")}
        found[name] = _object(**texts, **functions)
    return found


def _table(name: str, entries: dict[str, str]) -> str:
    return f"const {name} = {{\n" + "".join(f"  {json.dumps(key)}: {text},\n" for key, text in entries.items()) + "};\n"


def engine(names: Iterable[str] = ()) -> str:
    """`engine.js` with everything translated: a function `engine()` that returns rules, surfaces, paths and maps."""
    translation = Translation()
    rules, grounds = _rules(translation), _surfaces(translation, dict.fromkeys([*surfaces.SURFACES, *names]))
    helpers: dict[str, Callable] = {"unit_noise": inspect.unwrap(surfaces.unit_noise)}
    helpers["largest_stable_rate"] = stability.largest_stable_rate
    rates = {name: translation.function(factor) for name, factor in paths.SCHEDULES.items()}
    texts = {name: translation.function(function) for name, function in helpers.items()}
    text = "".join(f"const {name} = {code};\n" for name, code in {**translation.functions, **texts}.items())
    text += f"const DIVERGED = {paths.DIVERGED}, POWERS = {translation.powers}, LONGEST = {paths.MOST_STEPS + 1};\n"
    text += _table("RULES", rules) + _table("SURFACES", grounds) + _table("SCHEDULES", rates)
    return (HERE / "engine.js").read_text(encoding="utf-8").replace("/* translated from Python */", text)


def lab_module(names: Iterable[str] = ()) -> str:
    """The whole page as one module without imports: `mount(el, options)`, and anywidget's `render`.

    names  of surfaces besides those of SURFACES, such as "quadratic-37"
    """
    return engine(names) + (HERE / "lab.mjs").read_text(encoding="utf-8")
