"""A curve that grows while long work runs, at a cost of at most 2 % of its time; nothing of it stays in the saved notebook."""

import time
from types import TracebackType

from hpml_lab.core.show import style
from hpml_lab.core.show.progress import in_notebook

SHARE = 0.02  # of the time that the work takes
DELAY_SECONDS = 15.0  # a first redraw of 0.3 s is 2 % of it; the curve of quicker work would be gone before it was seen


class LiveCurve:
    """Shows curves in a notebook while they are measured, and takes them away at the end; outside a notebook it does nothing.

        with LiveCurve("epoch", "training loss") as curve:
            for epoch in progress(range(100), "training"):
                curve.add("Adam", epoch, loss)

    A redraw that takes d seconds is followed by at least d / 0.02 seconds without one. At the end the cell's output is
    cleared, so that the result that follows stands alone.
    """

    def __init__(self, xlabel: str, ylabel: str, colors: dict[str, str] | None = None, yscale: str = "linear") -> None:
        self._xlabel, self._ylabel, self._yscale = xlabel, ylabel, yscale
        self._colors = colors or {}
        self._points: dict[str, tuple[list[float], list[float]]] = {}
        self._next = time.perf_counter() + DELAY_SECONDS
        self._handle = None
        self._in_notebook = in_notebook()

    def add(self, label: str, x: float, y: float) -> None:
        """Append a point to the curve `label`, and draw all curves if it is time."""
        if not self._in_notebook:
            return
        xs, ys = self._points.setdefault(label, ([], []))
        xs.append(x)
        ys.append(y)
        start = time.perf_counter()
        if start >= self._next:
            self._draw()
            now = time.perf_counter()
            self._next = now + (now - start) / SHARE

    def _draw(self) -> None:
        from IPython.display import Image, display

        figure = style.new_figure(6, 3)
        axes = figure.subplots()
        for label, (xs, ys) in self._points.items():
            axes.plot(xs, ys, label=label, color=self._colors.get(label))
        axes.set(xlabel=self._xlabel, ylabel=self._ylabel, yscale=self._yscale)
        axes.legend(fontsize=8)
        image = Image(style.png(figure))
        if self._handle is None:
            self._handle = display(image, display_id=True)
        else:
            self._handle.update(image)

    def __enter__(self) -> "LiveCurve":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._handle is not None:
            from IPython.display import clear_output

            clear_output()
