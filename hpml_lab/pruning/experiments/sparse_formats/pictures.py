"""The bytes of each format as a picture, and how formats look in every figure."""

from hpml_lab.core.experiment import Result
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.pruning.experiments.sparse_formats.format_times import FormatTime
from hpml_lab.pruning.lessons import sparse_layouts
from hpml_lab.pruning.lessons.sparse_layouts import BSR, CSR, ROWS, SEARCHED, SEMI, ZEROS

LOOK = {
    name: {"color": color, "marker": marker, "linestyle": line}
    for name, color, marker, line in zip(
        (ZEROS, CSR, BSR, ROWS, SEMI), style.CYCLE, style.MARKERS, (*style.LINES[:4], ""), strict=False
    )
}
LOOK[SEMI]["markersize"] = 9  # a single point
LOOK[SEARCHED] = LOOK[SEMI] | {"markersize": 13, "markerfacecolor": "none"}
INT32, COO = "CSR, int32 indices", "COO"
LOOK |= {INT32: LOOK[CSR] | {"linestyle": ":", "marker": ""}, COO: {"color": style.SKY, "linestyle": style.LINES[4]}}


@picture
def format_bytes(result: Result):
    """Memory of a matrix of float32 in each format, by the share of zeros and relative to the dense matrix: lines and 2:4 by
    formula, other markers as counted, and dots where a format begins to be smaller than the dense matrix. Look at what an index
    costs: where do the lines of CSR and of COO, which has two indices a value, cross that of the dense matrix?"""
    figure = style.new_figure(7.5, 4.2)
    axes = figure.subplots()
    base = result.rows(FormatTime)[0]
    n = round(base.kept**0.5)
    zeros = [40, 50, 60, 70, 80, 85, 90, 95, 97, 99]
    lines = {
        COO: sparse_layouts.coo_bytes,
        CSR: sparse_layouts.csr_bytes,
        INT32: sparse_layouts.csr_int32_bytes,
        BSR: sparse_layouts.bsr_bytes,
    }
    axes.axhline(100, color=style.INK, linewidth=1.5, label="dense, with or without zeros")
    lead = dict(arrowstyle="-", color=style.GREY, shrinkB=4)
    for name, formula in {**lines, ROWS: sparse_layouts.kept_bytes}.items():
        look = LOOK[name] | {"marker": None}
        shares = [100 * formula(n, n, round(n * n * (1 - z / 100))) / base.formula for z in zeros]
        axes.plot([100 - z for z in zeros], shares, label=name, **look)
        even = 100 * sparse_layouts.most_kept(formula, n, n) / n**2
        if even < 60:
            axes.plot(even, 100, "o", color=look["color"], markersize=7, zorder=5)
            axes.annotate(
                f"{100 - even:.0f} %", (even, 100), xytext=(0, 46), textcoords="offset points", ha="center", arrowprops=lead
            )
    for row in result.rows(FormatTime):
        if row.matrix == base.matrix and row.format in (CSR, BSR, ROWS):
            axes.plot(100 - row.zeros, row.share, **LOOK[row.format] | {"linestyle": ""}, markersize=5)
    half = 100 * sparse_layouts.two_of_four_bytes(n, n, n * n // 2, sparse_layouts.VALUE) / base.formula
    axes.plot(50, half, label=SEMI, **LOOK[SEMI])
    axes.set(yscale="log", ylabel="bytes, % of the dense matrix", ylim=(0.8, 700), title=f"Weights {base.matrix}")
    style.label_log_axis(axes.yaxis, "{x:g}")
    zeros_axis(axes, [50, 70, 80, 90, 95, 99])
    axes.legend(fontsize=8.5, loc="lower left")
    return figure


def zeros_axis(axes, zeros: list[float]) -> None:
    """From few zeros to many, by what is left on a logarithmic scale: what is proportional to it becomes a straight line."""
    marks = sorted(set(zeros))
    axes.set(xscale="log", xlabel="zeros in the weights")
    axes.set_xticks([100 - mark for mark in marks], [f"{mark:g} %" for mark in marks])
    axes.minorticks_off()
    axes.invert_xaxis()
