"""The timetable of a pipeline, with sliders over stages and micro-batches."""

from collections.abc import Sequence

import ipywidgets
from matplotlib.axes import Axes

from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.sharding.lessons.pipeline import BACKWARD, FORWARD, SCHEDULES, Slot, bubble, most_kept, timetable, too_few

LOOKS = {FORWARD: ("forward", style.BLUE, "white"), BACKWARD: ("backward", style.ORANGE, style.DARK)}  # with its numbers' color
STAGES, MICRO_BATCHES = 8, 16  # at most
HIGH = 0.8  # of a bar, where stages are 1 apart


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


def draw_timetable(axes: Axes, slots: Sequence[Slot], scale: float = 1.0) -> None:
    """A row for each stage, a box for each task with its micro-batch's number; times from the first start on, times `scale`."""
    first, last = min(slot.start for slot in slots), max(slot.end for slot in slots)
    stages = 1 + max(slot.stage for slot in slots)
    for kind, (name, color, ink) in LOOKS.items():
        own = [slot for slot in slots if slot.kind == kind]
        for stage in range(stages):
            boxes = [((s.start - first) * scale, (s.end - s.start) * scale) for s in own if s.stage == stage]
            label = name if stage == 0 else None
            axes.broken_barh(boxes, (stage - HIGH / 2, HIGH), facecolor=color, edgecolor="white", linewidth=0.7, label=label)
        for slot in own:
            middle = ((slot.start + slot.end) / 2 - first) * scale
            axes.text(middle, slot.stage, str(slot.micro_batch), color=ink, fontsize=7, ha="center", va="center", clip_on=True)
    axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    axes.set(xlim=(0, (last - first) * scale), ylim=(stages - 0.5, -0.5))
    axes.grid(visible=False)
