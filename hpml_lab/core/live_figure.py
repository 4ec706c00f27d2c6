"""A figure that follows a slider while it is dragged, and is still a picture where nothing runs.

Live it is an `ipywidgets.Image` fed by a figure whose fixed parts are drawn once (4 times faster than drawing all again). In a
saved notebook its output holds the PNG too, so GitHub and nbconvert show the picture.
"""

import base64
import io
import threading
from collections.abc import Callable, Iterable
from typing import Any

import ipywidgets
import numpy as np
from matplotlib.artist import Artist
from PIL import Image

from hpml_lab.core import style


class LiveFigure(ipywidgets.VBox):
    """Controls above a figure that is redrawn whenever one of them moves.

    build     (figure) -> the artists that move; everything else it draws stays as it is
    update    (artists, **values of the controls) sets the artists' data; where it raises, the last good picture stays
    controls  {name: ipywidgets control}
    alt       the caption, and the text for those who do not see the figure
    """

    def __init__(
        self,
        build: Callable[[Any], Iterable[Artist]],
        update: Callable[..., None],
        controls: dict[str, ipywidgets.Widget],
        alt: str,
        width: float = 7.0,
        height: float = 4.5,
    ) -> None:
        self.alt, self._update, self._controls = alt, update, controls
        self._lock = threading.Lock()  # JupyterLab runs callbacks on another thread while a cell runs
        self._figure = style.new_figure(width, height)
        with style.in_style():
            self._artists = list(build(self._figure))
        for artist in self._artists:
            artist.set_animated(True)  # left out of the ground that is drawn once
        self._canvas = self._figure.canvas
        self._canvas.draw()
        self._figure.set_layout_engine("none")  # the layout is settled: a moving artist must not shift it
        self._ground = self._canvas.copy_from_bbox(self._figure.bbox)
        pixels = self._canvas.get_width_height()
        layout = ipywidgets.Layout(width=f"{pixels[0]}px", height=f"{pixels[1]}px", max_width="100%")
        self.image = ipywidgets.Image(format="png", value=self._render(), layout=layout)
        for control in controls.values():
            control.observe(self._redraw, "value")
        super().__init__([*controls.values(), self.image])

    def _redraw(self, _change: Any) -> None:
        try:
            self.image.value = self._render()
        except (FloatingPointError, OverflowError, ValueError):
            pass  # values ran out of what can be drawn: the last good picture says more than none

    def _render(self) -> bytes:
        with self._lock:
            self._update(self._artists, **{name: control.value for name, control in self._controls.items()})
            self._canvas.restore_region(self._ground)
            for artist in sorted(self._artists, key=lambda one: one.get_zorder()):
                if artist.axes is not None:
                    artist.axes.draw_artist(artist)
                else:
                    artist.draw(self._canvas.get_renderer())
            pixels = np.ascontiguousarray(np.asarray(self._canvas.buffer_rgba())[..., :3])
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "png", compress_level=1)
        return buffer.getvalue()

    def __repr__(self) -> str:
        return f"LiveFigure: {self.alt}"

    def _repr_mimebundle_(self, **options: Any):
        bundle = super()._repr_mimebundle_(**options)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        picture = base64.b64encode(self.image.value).decode()
        return {**data, "text/plain": repr(self), "image/png": picture}, {**metadata, "image/png": {"alt": self.alt}}
