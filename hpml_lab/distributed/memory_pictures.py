"""The figure of zero-memory."""

from matplotlib.figure import Figure

from hpml_lab.core.experiment.result import Result
from hpml_lab.core.show import style
from hpml_lab.distributed.one_of_many import WIDTH


def memory_by_way(result: Result) -> Figure:
    """Left: bytes per parameter that each rank keeps when the gradients are ready, by ZeRO's stages, first in float32 and then
    in bf16; the diamond is the formula, the cross the peak of a step. Right: what rank 0 of N keeps: cut by numbers it follows
    the formula, cut by rows it stops shrinking."""
    figure = style.new_figure(10.5, 4.8)
    bars, many = figure.subplots(1, 2, width_ratios=(1.7, 1))
    rows = sorted(result.tables[0].rows, key=lambda row: ("bf16" in row.way, row.stage))
    positions = range(len(rows))
    left = [0.0] * len(rows)
    kinds = (("parameters", style.BLUE, None), ("gradients", style.ORANGE, "///"), ("state", style.GREEN, "..."))
    for kind, color, hatch in (*kinds, ("rest", style.GREY, "xx")):
        values = [getattr(row, kind) for row in rows]
        label = {"state": "optimizer state", "rest": "other tensors"}.get(kind, kind)
        bars.barh(positions, values, left=left, color=color, hatch=hatch, edgecolor="white", label=label)
        left = [a + b for a, b in zip(left, values, strict=True)]
    bars.plot([row.formula for row in rows], positions, "D", color=style.INK, markersize=6, label="formula")
    bars.plot([row.peak for row in rows], positions, "x", color=style.RED, markersize=7, label="peak of a step")
    bars.set_yticks(
        positions, [f"stage {row.stage}: {row.way}".replace(" (this package", "\n(this package") for row in rows], fontsize=8
    )
    bars.invert_yaxis()
    bars.grid(axis="y", visible=False)
    bars.set_axisbelow(True)
    bars.set_xlabel(f"bytes per parameter on each of {result.arrays['ranks']} ranks")
    figure.legend(loc="outside lower left", ncols=6, fontsize=8)
    points = result.tables[-1].rows
    ranks = [row.ranks for row in points]
    many.plot(ranks, [row.formula for row in points], "--", color=style.GREY, label="16/N")
    many.plot(ranks, [row.by_rows for row in points], style.MARKERS[1] + "-", color=style.ORANGE, label="fully_shard: by rows")
    many.plot(
        ranks, [row.by_numbers for row in points], style.MARKERS[0] + ":", color=style.BLUE, label="this package: by numbers"
    )
    many.axvline(WIDTH, color=style.GREY, linestyle=":", linewidth=1)
    many.text(WIDTH, many.get_ylim()[1], f" {WIDTH} rows", color=style.INK, fontsize=8, va="top", rotation=90, ha="right")
    many.set(xscale="log", yscale="log", xlabel="ranks N", ylabel="bytes per parameter on rank 0")
    many.xaxis.set_major_formatter("{x:,g}")
    many.yaxis.set_major_formatter("{x:g}")
    many.legend(fontsize=8)
    return figure
