"""The picture of a pipeline's timetable, of the virtual clock's and of measured ones."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from hpml_lab.core.show import style
from hpml_lab.sharding.lessons.pipeline import BACKWARD, FORWARD, Slot

LOOKS = {FORWARD: ("forward", style.BLUE, "white"), BACKWARD: ("backward", style.ORANGE, style.DARK)}  # with its numbers' color
HIGH = 0.8  # of a bar, where stages are 1 apart


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
