"""Rows of measurements as a table in a notebook."""

from collections.abc import Sequence
from typing import Any

from hpml_lab.core.experiment import Table
from hpml_lab.core.experiment.render import table_html


def show_rows(rows: Sequence[Any], description: str) -> None:
    """Display rows of one dataclass as a table; `description` is the text that is stored, the same on every machine."""
    from IPython.display import display

    table = Table(description, rows)
    display({"text/html": table_html(list(table.columns.values()), table.cells()), "text/plain": description}, raw=True)
