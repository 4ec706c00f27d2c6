"""The rows and the figures of the experiment `load-balance`."""

from dataclasses import dataclass

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.timing.timeline import gantt
from hpml_lab.distributed.lessons.sentence_batches import OWN, RANDOM, TOGETHER

COMPUTES, WAITS = "computes", "waits in the all-reduce"
LANES = {RANDOM: "random", TOGETHER: "in buckets"}
COLORS = {RANDOM: style.BLUE, OWN: style.PURPLE, TOGETHER: style.GREEN}


@dataclass
class LateRank(Row):
    """Steps in which one rank is late."""

    late_ms: float = column("one rank is late by", "ms")
    wait_ms: float = column("the others wait", "ms")
    formula_ms: float = column("last arrival − own arrival", "ms")
    own_wait_ms: float = column("the late rank waits", "ms")


@dataclass
class OrderCost(Row):
    """An epoch in one order: where the ranks' time goes, counted in words, and how random the order is."""

    order: str = column("order")
    useful: float = column("useful", "% of the time")
    padding: float = column("padding", "% of the time")
    waiting: float = column("waiting", "% of the time")
    predicted: float = column("speed-up in words, predicted")
    gain: float | None = column("speed-up in words, measured", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)
    design_effect: float = column("design effect", "", 0.0)
    positions: float = column("correlation of positions", "", 0.0)


def draw(result: Result):
    """Left: the first steps of the ranks with random batches, and with length buckets over all ranks; orange is waiting for
    the slowest. Right, above: how long the others wait for a late rank; the line is the formula. Right, below: where the ranks'
    time goes in an epoch, by the order of the sentences."""
    figure = style.new_figure(11, 5.6)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.35, 1))
    steps = figure.add_subplot(grid[:, 0])  # one axis of time for both orders, so that the gain can be seen
    spans = [
        row | {"lane": f"{LANES[order]}, {row['lane']}"} for order, found in result.arrays["timelines"].items() for row in found
    ]
    lanes = sorted({row["lane"] for row in spans}, key=lambda lane: (not lane.startswith(LANES[RANDOM]), lane))
    gantt(steps, spans, {COMPUTES: style.BLUE, WAITS: style.ORANGE}, lanes)
    for order, name in LANES.items():  # a step ends for all ranks together
        own = [index for index, lane in enumerate(lanes) if lane.startswith(name)]
        ends = [row["end"] for row in result.arrays["timelines"][order] if row["lane"] == "rank 0" and row["what"] == WAITS]
        scale, _ = style.time_unit(max(row["end"] for row in spans))
        steps.vlines([scale * end for end in ends], own[0] - 0.45, own[-1] + 0.45, color=style.INK, linewidth=1.2)
    steps.set_title("the first steps; a thin line ends a step for all ranks")
    steps.legend(loc="lower center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=8)
    late, bars = figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1])
    found = result.rows(LateRank)
    longest = max(row.late_ms for row in found)
    late.plot([0, longest], [0, longest], "--", color=style.GREY, label="the formula: as long as the last is late")
    late.plot([row.late_ms for row in found], [row.wait_ms for row in found], "o", color=style.ORANGE, label="the others wait")
    late.plot(
        [row.late_ms for row in found], [row.own_wait_ms for row in found], "s", color=style.BLUE, label="the late rank waits"
    )
    late.set(xlabel="one rank is late by, in ms", ylabel="waiting, in ms")
    late.legend(fontsize=8)
    costs = result.rows(OrderCost)
    left = [0.0] * len(costs)
    for name, color, hatch in (("useful", style.BLUE, None), ("padding", style.SKY, "///"), ("waiting", style.ORANGE, "...")):
        widths = [getattr(row, name) for row in costs]
        bars.barh([row.order for row in costs], widths, left=left, color=color, hatch=hatch, edgecolor="white", label=name)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    bars.invert_yaxis()
    bars.grid(axis="y", visible=False)
    bars.set(xlabel="% of the ranks' time", xlim=(0, 100))
    bars.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


@picture
def balance_and_randomness(result: Result):
    """Left: the share of the time in which a rank does not wait, by the number of ranks; the line is the formula for random
    batches, points are simulated epochs. Right: what larger pools, of 1 to 32 steps, gain in speed and cost in randomness."""
    figure = style.new_figure(10, 3.8)
    busy, pools = figure.subplots(1, 2)
    many = result.arrays["many"]
    busy.plot(many["ranks"], [100 * share for share in many["formula"]], color=COLORS[RANDOM], label="random, formula")
    for order, marker in zip(COLORS, style.MARKERS, strict=False):
        line = "none" if order == RANDOM else ":"
        busy.plot(
            many["ranks"], [100 * share for share in many[order]], marker, color=COLORS[order], label=order, linestyle=line
        )
    busy.set(xscale="log", xlabel="ranks", ylabel="% of the time not waiting", ylim=(0, 102))
    style.label_log_axis(busy.xaxis)
    busy.legend(fontsize=8)
    found = result.arrays["pools"]
    pools.axhline(1, color=COLORS[RANDOM], linestyle="--", label=RANDOM)
    pools.plot(found["design_effect"], found["gain"], "o-", color=COLORS[TOGETHER])
    for pool, x, y in zip(found["pool"], found["design_effect"], found["gain"], strict=True):
        pools.annotate(
            f"{pool} step{'s' * (pool > 1)}", (x, y), xytext=(-6, 6), textcoords="offset points", fontsize=8, ha="right"
        )
    pools.set(xlabel="design effect (1: as random as a shuffle)", ylabel="speed-up in words per second, predicted")
    pools.legend(fontsize=8, loc="lower right")
    pools.margins(x=0.15, y=0.12)
    return figure
