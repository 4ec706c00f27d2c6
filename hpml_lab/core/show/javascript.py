"""Functions of this package as JavaScript, translated from their own Python, so that a page computes what Python computes.

Nothing is written down twice: a translation reads the function that Python runs, statement by statement, whenever it is asked.
Functions may use arithmetic, comparisons, a few functions of `math`, dataclasses of numbers, and functions of this package that
do the same.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import FunctionType
from typing import Any

from hpml_lab.core.system.errors import LabError

OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.Mod: "%", ast.FloorDiv: "//"}
OPERATORS |= {ast.BitXor: "^", ast.RShift: ">>", ast.BitAnd: "&"}
_RESERVED = {
    "case",
    "catch",
    "const",
    "default",
    "delete",
    "do",
    "enum",
    "export",
    "extends",
    "function",
    "new",
    "super",
    "switch",
}
_RESERVED |= {"this", "throw", "typeof", "var", "void"}  # words of JavaScript that are names in Python
_COMPARISONS = {ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "==="}
_FUNCTIONS = {"sqrt": "Math.sqrt", "largest": "Math.max", "abs": "Math.abs", "min": "Math.min", "max": "Math.max"}
_FUNCTIONS |= {
    "cos": "Math.cos",
    "sin": "Math.sin",
    "math.cos": "Math.cos",
    "math.sin": "Math.sin",
    "times32": "times32",
    "ratio": "ratio",
    "above": "above",
}


def plain(value: Any) -> Any:
    """`value` as JSON has it: of a dataclass its numbers, by their names."""
    if not is_dataclass(value):
        return value
    found = {each.name: getattr(value, each.name) for each in fields(value)}
    return {name: number for name, number in found.items() if isinstance(number, int | float)}


class Translation(ast.NodeVisitor):
    """JavaScript of Python functions, and of those that they call: `functions` has them by name, in the order of need."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.powers = 0  # each power in a rule has a table of its own, so that a map need not compute it anew
        self.scope: dict[str, Any] = {}  # of the function that is translated: what its names mean
        self.rule, self.local, self.pairs = False, set[str](), set[str]()
        self.side: int | None = None  # of the two parameters of a layer, whose line is written: 0, 1, or None

    def function(self, function: FunctionType, options: bool = False, layer: bool = False) -> str:
        """One function as an arrow function. With `options` its parameters from the fifth on are read from one object.

        With `layer` its first three parameters, its own names and its result are pairs, and each statement is written for both.
        """
        before = self.scope, self.rule, self.local, self.pairs
        closed = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.scope = function.__globals__ | {name: cell.cell_contents for name, cell in closed}
        self.rule = options
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        names = [argument.arg for argument in tree.args.args]
        stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self.local = stored | set(names)
        if words := sorted(self.local & _RESERVED):
            raise LabError(f"{', '.join(words)}: a name in Python, and a word of JavaScript's own.", "Call it something else.")
        self.pairs = stored | set(names[:3]) if layer else set()
        first = [f"[{name}0, {name}1]" if layer else name for name in names[:3]]
        head = ", ".join(first + names[3:4]) + f", {{{', '.join(names[4:])}}}" if options else ", ".join(names)
        fresh = sorted(f"{name}{side}" for name in stored - set(names) for side in ("01" if layer else [""]))
        body = [f"let {', '.join(fresh)};"] if fresh else []
        statements = [statement for statement in tree.body if not isinstance(statement, ast.Expr)]  # no docstring
        body += self._of_a_layer(statements) if layer else map(self.visit, statements)
        self.scope, self.rule, self.local, self.pairs = before
        return f"({head}) => {{ {' '.join(body)} }}"

    def _of_a_layer(self, statements: list[ast.stmt]) -> Iterator[str]:
        for statement in statements[:-1]:
            yield from (self._of_side(side, statement) for side in (0, 1))
        yield f"return [{', '.join(self._of_side(side, statements[-1].value) for side in (0, 1))}];"

    def _of_side(self, side: int, node: ast.AST) -> str:
        before, self.side = self.side, side
        text = self.visit(node)
        self.side = before
        return text

    def generic_visit(self, node: ast.AST) -> str:
        raise LabError(f"{ast.unparse(node)!r} has no translation to JavaScript.", "Use arithmetic and functions of math only.")

    def visit_If(self, node: ast.If) -> str:
        if node.orelse or not all(isinstance(statement, ast.Raise) for statement in node.body):
            return self.generic_visit(node)
        return ""  # a check: the page gives none of what it refuses

    def visit_Assign(self, node: ast.Assign) -> str:
        return f"{self.visit(node.targets[0])} = {self.visit(node.value)};"

    def visit_Return(self, node: ast.Return) -> str:
        return f"return {self.visit(node.value)};"

    def visit_For(self, node: ast.For) -> str:
        if getattr(node.iter, "func", None) is None or ast.unparse(node.iter.func) != "range" or len(node.iter.args) > 1:
            return self.generic_visit(node.iter)
        name, end = self.visit(node.target), self.visit(node.iter.args[0])
        return f"for ({name} = 0; {name} < {end}; {name}++) {{ {' '.join(map(self.visit, node.body))} }}"

    def visit_Tuple(self, node: ast.Tuple) -> str:
        return f"[{', '.join(map(self.visit, node.elts))}]"

    def visit_IfExp(self, node: ast.IfExp) -> str:
        return f"({self.visit(node.test)} ? {self.visit(node.body)} : {self.visit(node.orelse)})"

    def visit_Compare(self, node: ast.Compare) -> str:
        sign = _COMPARISONS.get(type(node.ops[0]))
        if sign is None or len(node.ops) > 1:  # 0 < x < 1 would be another number in JavaScript
            return self.generic_visit(node)
        return f"({self.visit(node.left)} {sign} {self.visit(node.comparators[0])})"

    def visit_UnaryOp(self, node: ast.UnaryOp) -> str:
        return f"(-{self.visit(node.operand)})" if isinstance(node.op, ast.USub) else self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> str:
        left, right, sign = self.visit(node.left), self.visit(node.right), OPERATORS[type(node.op)]
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
            return node.id if self.side is None or node.id not in self.pairs else f"{node.id}{self.side}"
        value = plain(self.scope.get(node.id))
        return json.dumps(value) if isinstance(value, int | float | dict) else self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> str:
        return "Math.PI" if ast.unparse(node) == "math.pi" else f"{self.visit(node.value)}.{node.attr}"

    def visit_Call(self, node: ast.Call) -> str:
        name = ast.unparse(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "bit_length":
            return f"(32 - Math.clz32({self.visit(node.func.value)}))"
        if name == "norm" and self.side is not None:
            return f"norm({', '.join(self._of_side(side, node.args[0]) for side in (0, 1))})"
        called = self.scope.get(name)
        if is_dataclass(called) and not node.args:
            return "({" + ", ".join(f"{given.arg}: {self.visit(given.value)}" for given in node.keywords) + "})"
        if node.keywords:
            return self.generic_visit(node)
        if name not in _FUNCTIONS and isinstance(called, FunctionType) and name not in self.functions:
            self.functions[name] = self.function(called)
        elif name not in _FUNCTIONS and name not in self.functions:
            return self.generic_visit(node)
        return f"{_FUNCTIONS.get(name, name)}({', '.join(map(self.visit, node.args))})"
