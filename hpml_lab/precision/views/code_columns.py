"""Two functions next to each other, line by line."""

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable
from itertools import zip_longest


def body_lines(function: Callable) -> list[str]:
    """The lines of a function's body without its docstring, if it has one."""
    source = textwrap.dedent(inspect.getsource(function))
    node = ast.parse(source).body[0]
    first = node.body[ast.get_docstring(node) is not None]
    return textwrap.dedent("\n".join(source.splitlines()[first.lineno - 1 :])).splitlines()


def aligned(left: Callable, right: Callable) -> list[tuple[str, str]]:
    """The bodies of two functions as pairs of lines, with "" where a line has no counterpart. Indentation is ignored."""
    a, b = body_lines(left), body_lines(right)
    pairs = []
    matcher = difflib.SequenceMatcher(None, [line.strip() for line in a], [line.strip() for line in b], autojunk=False)
    for _, i1, i2, j1, j2 in matcher.get_opcodes():
        pairs += zip_longest(a[i1:i2], b[j1:j2], fillvalue="")
    return pairs


def side_by_side(left: Callable, right: Callable) -> str:
    """The bodies of two functions in two columns. `>` marks lines that differ in more than their indentation."""
    pairs = aligned(left, right)
    width = max(len(line) for line, _ in pairs)
    return "\n".join(f"{a:<{width}}  {'>' if a.strip() != b.strip() else ' '} {b}".rstrip() for a, b in pairs)
