"""A progress line for long work, in a terminal and in a notebook."""

import html
import os
import sys
from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")
NOTEBOOK_DELAY_SECONDS = 5.0


def progress(items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]:
    """Iterate over `items` with a line that clears itself when done: on stderr, or in the output of a notebook's cell.

    Text, not a widget: a widget leaves a broken output in the saved notebook. Without tqdm there is no line.
    """
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return items

    file = _NotebookLine() if in_notebook() else sys.stderr
    delay = 0.5 if sys.stderr.isatty() else NOTEBOOK_DELAY_SECONDS
    return tqdm(items, desc=description, total=total, leave=False, delay=delay, dynamic_ncols=True, file=file)


class _NotebookLine:
    """A file whose current line is an output of the cell, and empty in the end: stderr would leave a red strip."""

    def __init__(self) -> None:
        self._handle = None

    def write(self, text: str) -> None:
        if not text.startswith("\r"):  # it moves the cursor to the line of another bar
            return
        line = html.escape(text.strip())
        shown = {"text/html": f"<pre>{line}</pre>" if line else ""}
        if self._handle is not None:
            self._handle.update(shown, raw=True)
        elif line:
            from IPython.display import display

            self._handle = display(shown, raw=True, display_id=True)

    def flush(self) -> None:
        """Nothing waits."""


def in_notebook() -> bool:
    """True in a kernel, unless `HPML_LIVE` is 0: a notebook whose outputs are stored or compared shows results only."""
    if os.environ.get("HPML_LIVE") == "0":
        return False
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None
