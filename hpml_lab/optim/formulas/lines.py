"""A formula and the line of code that computes it, side by side, read from the function itself.

The function's docstring holds its formulas as an indented block, one per line; its body has one statement for each, in the
same order. `formula_lines` pairs them, so that a figure, a table or a test always shows the code that runs.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache


@cache
def formula_lines(function: Callable) -> tuple[tuple[str, str], ...]:
    """The pairs (formula, statement) of a function, in order.

    The formulas are the docstring's lines that are indented by four or more; the statements are the body's, without the
    docstring and a closing `return`. Raises ValueError if their numbers differ.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    statements = [_on_one_line(node) for node in tree.body[1:] if not isinstance(node, ast.Return)]
    formulas = [line.strip() for line in (inspect.getdoc(function) or "").splitlines() if line.startswith("    ")]
    if len(formulas) != len(statements):
        raise ValueError(f"{function.__qualname__} has {len(formulas)} formulas for {len(statements)} statements: {statements}")
    return tuple(zip(formulas, statements, strict=True))


def _on_one_line(statement: ast.stmt) -> str:
    """The text of a statement, with `if …: …; …` on one line."""
    first, *more = (line.strip() for line in ast.unparse(statement).splitlines())
    return " ".join([first, "; ".join(more)]).rstrip()
