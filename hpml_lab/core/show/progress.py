"""A progress line for long work, in a terminal and in a notebook."""

import sys
from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def progress(items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]:
    """Iterate over `items` with a line on stderr that clears itself when done.

    Text, not a widget: a widget leaves a broken output in the saved notebook. Text leaves an empty line in a notebook's output,
    so there the line appears only once the work has taken five seconds. Without tqdm there is no line.
    """
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return items

    delay = 0.5 if sys.stderr.isatty() else 5.0
    return tqdm(items, desc=description, total=total, leave=False, delay=delay, dynamic_ncols=True)
