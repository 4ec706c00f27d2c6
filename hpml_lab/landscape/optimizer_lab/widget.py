"""The optimizer lab in a notebook: an anywidget that draws in the browser, and asks the kernel for nothing while it is dragged.

    lab("rosenbrock", ["momentum", "adam"])                   # every panel
    lab("quadratic-37", panels=["surface", "loss", "map"])    # a small one

In a saved notebook a plain figure takes its place.
"""

import inspect
from typing import Any

import anywidget
import traitlets
from matplotlib.figure import Figure

from hpml_lab.core.show import style
from hpml_lab.core.show.png import with_picture
from hpml_lab.landscape.optimizer_lab.lab_paths import LabSettings, settings
from hpml_lab.landscape.optimizer_lab.module import lab_module
from hpml_lab.landscape.optimizer_lab.still import draw

SHOWS = {
    "surface": "paths on the contours of a surface",
    "schedule": "the learning rate by step",
    "loss": "losses by step",
    "sizes": "step sizes",
    "state": "the state by step",
    "map": "a map of settings by the steps that they need",
    "step": "one step in numbers",
}


class OptimizerLab(anywidget.AnyWidget):
    """The lab with its controls. `chosen` follows the page, once it is at rest; it is read, not set."""

    _esm = traitlets.Unicode().tag(sync=True)
    options = traitlets.Dict().tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)

    def __init__(self, chosen: LabSettings) -> None:
        shown = [words for panel, words in SHOWS.items() if panel in chosen.panels]
        alt = f"Optimizers in numbers and pictures: {', '.join(shown)}."
        super().__init__(_esm=lab_module([chosen.surface]), options=chosen.options, alt=alt)

    @property
    def chosen(self) -> LabSettings:
        """The settings that the page shows."""
        return LabSettings(**self.options)

    def figure(self) -> Figure:
        """What the page shows as a figure to keep."""
        return draw(self.chosen)

    def __repr__(self) -> str:
        return f"OptimizerLab: {self.alt}"

    def _repr_mimebundle_(self, **options: Any):
        """The widget, the figure in its place where there is no kernel, and what another page needs to show the lab."""
        about = {"alt": self.alt, "optimizer_lab": self.options}
        return with_picture(super()._repr_mimebundle_(**options), repr(self), style.png(self.figure()), about)


def lab(*chosen: Any, **more: Any) -> OptimizerLab:
    return OptimizerLab(settings(*chosen, **more))


# Help and completion show what can be chosen.
lab.__doc__ = settings.__doc__.replace("Check the chosen settings and fill in the others.", "The optimizer lab.")
lab.__signature__ = inspect.signature(settings).replace(return_annotation=OptimizerLab)
