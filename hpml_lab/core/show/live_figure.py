"""A figure that follows a slider while it is dragged, and is still a picture where nothing runs.

Live it is an image widget fed by a figure whose fixed parts are drawn once (4 times faster than drawing all again). In a
saved notebook its output holds the PNG too, so GitHub and nbconvert show the picture.
"""

import base64
import contextlib
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import ipywidgets
import numpy as np
from matplotlib.artist import Artist

from hpml_lab.core.show import style
from hpml_lab.core.show.png import encode_png, with_picture

GROUNDS = 16  # grounds that a frame keeps, 2 MB each
UNDRAWABLE = (FloatingPointError, OverflowError, ValueError)  # what drawing raises for values that ran out of bounds
MOST_FRAMES = 16  # pictures that a saved notebook keeps of a figure


class Frame:
    """A figure in which some artists move; the rest, its ground, is drawn once and then copied.

    build  (figure) -> the artists that move
    """

    def __init__(self, build: Callable[[Any], Iterable[Artist]], width: float = 7.0, height: float = 4.5) -> None:
        self.figure = style.new_figure(width, height)
        with style.in_style():
            self.artists = list(build(self.figure))
        for artist in self.artists:
            artist.set_animated(True)  # left out of the ground
        self._canvas = self.figure.canvas
        self._canvas.draw()
        self.figure.set_layout_engine("none")  # the layout is settled: a moving artist must not shift it
        self._grounds: dict[Hashable, Any] = {None: self._canvas.copy_from_bbox(self.figure.bbox)}

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._canvas.get_width_height()

    def png(self, ground: Hashable = None) -> bytes:
        """The picture of the artists as they are, over the ground of this name.

        A name that is not known yet takes the ground as its artists stand now: set them first, on every change of name.
        """
        if ground not in self._grounds:
            with style.in_style():
                self._canvas.draw()
            while len(self._grounds) >= GROUNDS:
                self._grounds.pop(next(iter(self._grounds)))
            self._grounds[ground] = self._canvas.copy_from_bbox(self.figure.bbox)
        self._canvas.restore_region(self._grounds[ground])
        renderer = self._canvas.get_renderer()
        for artist in sorted(self.artists, key=lambda artist: artist.get_zorder()):
            artist.draw(renderer)
        return encode_png(np.asarray(self._canvas.buffer_rgba()))


class LiveFigure(ipywidgets.VBox):
    """Controls above a figure that is redrawn whenever one of them moves, and that stays in a saved notebook as a picture.

    build     (figure) -> the artists that move; everything else it draws stays as it is
    update    (artists, **values of the controls) sets the artists' data; where it raises, the last good picture stays; if
              it changes what does not move, such as the end of an axis, it returns a name for this ground, else None
    controls  {name: ipywidgets control}
    alt       the caption, and the text for those who do not see the figure
    moves     the slider that moves on a page without a kernel, too: a saved notebook keeps the picture at each of its values
    """

    def __init__(
        self,
        build: Callable[[Any], Iterable[Artist]],
        update: Callable[..., Hashable],
        controls: dict[str, ipywidgets.Widget],
        alt: str,
        width: float = 7.0,
        height: float = 4.5,
        moves: str = "",
    ) -> None:
        self.alt, self._controls, self._update, self._frame = alt, controls, update, Frame(build, width, height)
        self._moves = moves
        self._lock = threading.RLock()  # JupyterLab runs callbacks on another thread while a cell runs
        wide, high = self._frame.size
        layout = ipywidgets.Layout(width=f"{wide}px", height=f"{high}px", max_width="100%")
        self.image = ipywidgets.Image(format="png", value=self._picture(self._values()), layout=layout)
        super().__init__([*controls.values(), self.image])
        for control in controls.values():
            control.observe(self.redraw, "value")

    def _values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self._controls.items()}

    def _picture(self, values: dict[str, Any]) -> bytes:
        return self._frame.png(self._update(self._frame.artists, **values))

    def redraw(self, _change: Any = None) -> None:
        """Draw the picture anew."""
        # Where the values cannot be drawn, the last good picture says more than none.
        with self._lock, contextlib.suppress(*UNDRAWABLE):
            self.image.value = self._picture(self._values())

    def frames(self) -> dict[str, Any]:
        """The pictures at each value of the slider that moves on a page, the other controls as they are; else nothing.

        {"control": the slider's name, "words": what it says at each value, "pictures": the PNGs}
        """
        if not self._moves or len(choices := _choices(self._controls[self._moves])) > MOST_FRAMES:
            return {}
        values, pictures, good = self._values(), [], self.image.value
        with self._lock:
            for choice in [*choices.values(), values[self._moves]]:  # the last leaves all as it was
                with contextlib.suppress(*UNDRAWABLE):
                    good = self._picture(values | {self._moves: choice})
                pictures.append(good)
        return {"control": self._moves, "words": list(choices), "pictures": pictures[:-1]}

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.alt}"

    def _repr_mimebundle_(self, **options: Any):
        about: dict[str, Any] = {"alt": self.alt}
        if frames := self.frames():
            about["frames"] = frames | {"pictures": [base64.b64encode(png).decode() for png in frames["pictures"]]}
        return with_picture(super()._repr_mimebundle_(**options), repr(self), self.image.value, about)


def _choices(slider: ipywidgets.IntSlider | ipywidgets.SelectionSlider) -> dict[str, Any]:
    """The values of a slider, by what it says there."""
    if isinstance(slider, ipywidgets.IntSlider):
        return {f"{value} of {slider.max}": value for value in range(slider.min, slider.max + 1, slider.step)}
    pairs = (option if isinstance(option, tuple) else (option, option) for option in slider.options)
    return {str(words): value for words, value in pairs}
