"""Wrong answers made from a right one: fragments of its source are replaced, so that each shows only what is wrong with it.

The module of answers to an exercise writes `wrong_answers(solution, [("mistake", ("right fragment", "wrong fragment")), …])`.
"""

import inspect
import textwrap
from collections.abc import Callable, Sequence

Edit = tuple[str, str]  # a fragment of the source, and what stands there instead


def edited(function: Callable, *edits: Edit) -> Callable:
    """The function with fragments of its source replaced, in order. It sees its module's names and an empty dict MEMORY."""
    source = textwrap.dedent(inspect.getsource(function))
    for fragment, replacement in edits:
        assert fragment in source, f"{fragment!r} is not in\n{source}"
        source = source.replace(fragment, replacement)
    names = {**function.__globals__, "MEMORY": {}}
    exec(source, names)
    return names[function.__name__]


def wrong_answers(solution: Callable, edits: Sequence[tuple]) -> list[tuple[str, Callable]]:
    """(mistake, answer) for each (mistake, edit, edit …)."""
    return [(mistake, edited(solution, *changes)) for mistake, *changes in edits]
