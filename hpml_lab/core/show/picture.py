"""Further figures of a result: each is drawn by a function of its own and shown in a cell of its own.

An experiment's main figure answers one question. What else its result can show is drawn by functions like this one:

    @picture
    def noise_by_batch(result):
        \"""The noise of a gradient by batch size.\"""
        ...
        return figure

In the notebook `descent.noise_by_batch(result)` as a cell's last line shows the figure and its caption.
"""

import base64
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpml_lab.core.show import style
from hpml_lab.core.show.prose import prose_html


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
            return Picture(draw(*arguments, **options), " ".join((draw.__doc__ or "").split()))

    return drawn


def png_bundle(png: bytes, caption: str) -> dict[str, str]:
    """The output bundle of a figure: a PNG that every viewer shows, and its caption as the text that nbval compares."""
    return {"image/png": base64.b64encode(png).decode(), "text/plain": f"Figure: {caption}"}


def show_picture(figure: Any, caption: str) -> None:
    """Display a figure in a notebook; the caption is its alternative text."""
    from IPython.display import display

    display(png_bundle(style.png(figure), caption), metadata={"image/png": {"alt": caption}}, raw=True)


def show_figure(figure: Any, caption: str) -> None:
    """Display a figure that is not an experiment's, with its caption under it."""
    show_picture(figure, caption)
    show_line(caption)


def show_line(text: str) -> None:
    """Display a line of text above or below a picture: JupyterLab ignores the alternative text of PNG outputs."""
    from IPython.display import display

    display({"text/html": f"<p><em>{prose_html(text)}</em></p>", "text/plain": text}, raw=True)
