"""A progress line for long work, in a terminal and in a notebook."""

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], what: str, total: int | None = None) -> Iterable[Item]:
    """Iterate over `items` with a line on stderr that clears itself when done.

    Text, not a widget: a widget leaves a broken output in the saved notebook. It appears only after half a second.
    """
    from tqdm import tqdm

    return tqdm(items, desc=what, total=total, leave=False, delay=0.5, dynamic_ncols=True)
