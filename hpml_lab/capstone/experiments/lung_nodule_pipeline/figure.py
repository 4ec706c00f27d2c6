"""The figures of lung-nodule-pipeline: the ladder, the stages as a Gantt chart, and the machine's use, before and after."""

from hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_ladder import MachineUse
from hpml_lab.capstone.experiments.lung_nodule_pipeline.rows import LungRung, LungSlowStart, in_ms
from hpml_lab.capstone.tools.lung_pipeline import PARTS
from hpml_lab.core.experiment import Result
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import grouped_bars
from hpml_lab.core.show.ladder_figure import draw_rungs
from hpml_lab.core.show.picture import picture
from hpml_lab.core.timing.timeline import gantt

_LOOKS = (style.GREY, style.SKY, style.YELLOW, style.ORANGE, style.PURPLE, style.BLUE, style.GREEN, style.RED)
COLORS = dict(zip(PARTS, _LOOKS, strict=True))


def draw_ladder(result: Result):
    """Down the ladder, one change per rung. Left: milliseconds a patient, worked out from the gains kept; the axis is
    logarithmic. Right: how much of the work each part is. Each change attacks the largest part of the rung above it for which a
    change is left. One in brackets was taken back: it gained nothing beyond noise, or its output was not good enough.
    Changes of method come last. Look at which part is the largest at the top, and which one at the bottom."""
    return draw_rungs([*result.rows(LungSlowStart), *result.rows(LungRung)], COLORS, "a patient")


@picture
def stages_before_and_after(result: Result):
    """Who did what when, for a few patients. Top: the first script, one stage after the other. Bottom: the fast pipeline of the
    same method, on a shorter axis. A gap in a lane is a thread that waits. Look for the network, in blue. Each ran once, under
    the monitor; the ladder divides the first script's time by each gain kept, so the two differ."""
    uses = result.rows(MachineUse)
    heights = [1 + 0.45 * len({row["lane"] for row in use.spans}) for use in uses]
    figure = style.new_figure(9, 1.0 + sum(heights))
    for axes, use in zip(figure.subplots(len(uses), 1, height_ratios=heights), uses, strict=True):
        gantt(axes, use.spans, COLORS, sorted({row["lane"] for row in use.spans}))
        axes.set_title(f"{use.version}: {in_ms(use.ms)} a patient")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", fontsize=8, ncols=8)
    return figure


@picture
def use_before_and_after(result: Result):
    """What the machine does, before and after, next to the lecture's figures. Left: cores that the run keeps busy;
    dashed: all cores. Right: the processor, in % of all cores, and for how much of the time the network is at work, which is
    the lecture's use of the GPU. Its 75 % of one thread, before, are 2 % of its 40."""
    uses = result.rows(MachineUse)
    figure = style.new_figure(9, 3.8)
    over_time, shares = figure.subplots(1, 2, width_ratios=(1.2, 1))
    cores = max(use.core_percent / use.all_percent for use in uses)
    for use, color, line in zip(uses, (style.ORANGE, style.BLUE), ("-", "-."), strict=False):
        points = [(0.0, use.points[0][1]), *use.points]
        over_time.step(*zip(*points, strict=True), where="pre", color=color, linestyle=line, linewidth=1.5, label=use.version)
    over_time.axhline(cores, color=style.GREY, linestyle="--", label="all cores")
    over_time.set(xlabel="time in s", ylabel="busy cores", ylim=(0, 1.35 * cores), title="Processor")
    over_time.legend(fontsize=8, loc="upper center", ncols=3)
    slow, fast = uses[0], uses[-1]
    series = {
        "before": [slow.all_percent, slow.network_percent],
        "before, lecture": [75 / 40, 25],
        "after": [fast.all_percent, fast.network_percent],
        "after, lecture": [75, 90],
    }
    grouped_bars(shares, ["processor,\n% of all cores", "network (GPU)\nat work, %"], series, labels="{:.0f}")
    shares.set(ylim=(0, 135), ylabel="%", title="Shares")
    shares.legend(fontsize=8, ncols=2, loc="upper center")
    return figure
