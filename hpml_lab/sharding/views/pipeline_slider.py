"""The timetable of a pipeline, with sliders over stages and micro-batches."""

import ipywidgets
from matplotlib.axes import Axes

from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.sharding.lessons.pipeline import SCHEDULES, bubble, most_kept, timetable, too_few
from hpml_lab.sharding.views.timetable import draw_timetable

STAGES, MICRO_BATCHES = 8, 16  # at most


def pipeline_slider(stages: int = 4, micro_batches: int = 8, schedule: str = "GPipe") -> LiveFigure:
    """When each stage works on which micro-batch, on a virtual clock; a backward pass takes twice as long as a forward pass."""
    wide = ipywidgets.Layout(width="420px")
    numbers = {"stages": (stages, STAGES), "micro_batches": (micro_batches, MICRO_BATCHES)}
    controls: dict[str, ipywidgets.Widget] = {
        name: ipywidgets.IntSlider(value=value, min=1, max=most, description=name.replace("_", "-"), layout=wide)
        for name, (value, most) in numbers.items()
    }
    controls["schedule"] = ipywidgets.Dropdown(options=list(SCHEDULES), value=schedule, description="schedule", layout=wide)
    panel: list[Axes] = []

    def build(figure) -> list:
        panel.append(figure.subplots())
        panel[0].set_title("\n")  # room for two lines
        _show(panel[0], stages, micro_batches, schedule)
        return []

    def update(_artists: list, **values) -> tuple:
        with style.in_style():
            panel[0].clear()
            _show(panel[0], **values)
        return tuple(values.values())  # all of it is ground, which is drawn anew

    alt = "The timetable of a pipeline: which micro-batch each stage works on, forward and backward, and when it waits."
    return LiveFigure(build, update, controls, alt, width=9.5, height=4.0)


def _show(axes: Axes, stages: int, micro_batches: int, schedule: str) -> None:
    slots = timetable(SCHEDULES[schedule], stages, micro_batches)
    draw_timetable(axes, slots)
    share = bubble(slots)
    kept = most_kept(SCHEDULES[schedule](0, stages, micro_batches))
    cost = too_few(stages, micro_batches) or f"Stage 0 keeps the activations of up to {kept} micro-batch{'es' * (kept > 1)}."
    axes.set_title(f"{schedule}: the stages wait for {share} of the time, {100 * float(share):.0f} %.\n{cost}", loc="left")
    axes.set_xlabel("time, in forward passes of a micro-batch through a stage")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
