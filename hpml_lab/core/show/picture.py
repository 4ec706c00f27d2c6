"""Further figures of a result: each is drawn by a function of its own and shown in a cell of its own.

An experiment's main figure answers one question. What else its result can show is drawn by functions like this one:

    @picture
    def noise_by_batch(result):
        \"""The noise of a gradient by batch size.\"""
        ...
        return figure

In the notebook `descent.noise_by_batch(result)` as a cell's last line shows the figure and its caption.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpml_lab.core.show import style


@dataclass(frozen=True)
class Picture:
    """A figure with its caption, which is its alternative text too."""

    figure: Any
    caption: str

    def __repr__(self) -> str:
        return f"Figure: {self.caption}"

    def _ipython_display_(self) -> None:
        show_figure(self.figure, self.caption)


def picture(draw: Callable[..., Any]) -> Callable[..., Picture]:
    """Make a drawing function return a Picture; its docstring is the caption."""

    @functools.wraps(draw)
    def drawn(*arguments: Any, **options: Any) -> Picture:
        with style.in_style():
            return Picture(draw(*arguments, **options), " ".join(draw.__doc__.split()))

    return drawn
