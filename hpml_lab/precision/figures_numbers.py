"""The figures of notebook 11 on numbers."""

from hpml_lab.core import style
from hpml_lab.core.result import Result


def draw_gemm_tensor_cores(result: Result):
    """Left: TFLOP/s of square products by size, one line a format; dashed, where the data sheet is known, its peak. Middle:
    the time of products just beside a multiple of 8, over that of the fastest of them. Right: the largest relative error of
    a sum of K positive fp16 products, with the sum kept in fp16, in bf16 and in fp32."""
    figure = style.new_figure(11, 4)
    rates, sides, errors = figure.subplots(1, 3, width_ratios=(1.1, 1, 1))
    names = list(dict.fromkeys(row["format"] for row in result.rows))
    for name, colour, marker in zip(names, style.CYCLE, style.MARKERS, strict=False):
        square = [row for row in result.rows if row["format"] == name and row["M"] == row["N"] == row["K"]]
        rates.plot([row["N"] for row in square], [row["TFLOP/s"] for row in square], marker, ls="-", color=colour, label=name)
        if peak := result.arrays["peaks"].get(name):
            rates.axhline(peak, ls="--", color=colour, lw=1)
    rates.set_xscale("log", base=2)
    rates.set_yscale("log")
    rates.set(xlabel="M = N = K", ylabel="TFLOP/s", title="rate by format and size")
    rates.legend(fontsize=9)
    group = result.arrays["sides"][-1]
    fastest = min(one["ms"] for one in group["products"])
    colours = [style.GREEN if one["n"] % 8 == 0 else style.ORANGE for one in group["products"]]
    places = range(len(colours))
    bars = sides.bar(places, [one["ms"] / fastest for one in group["products"]], color=colours, edgecolor="white")
    for bar, one in zip(bars, group["products"], strict=True):
        bar.set_hatch(None if one["n"] % 8 == 0 else "///")
    sides.set_xticks(places, [one["n"] for one in group["products"]], rotation=60)
    sides.grid(axis="x", visible=False)
    sides.set_axisbelow(True)
    sides.set(xlabel="M = N = K (plain: multiple of 8)", ylabel="time / fastest", title=f"multiples of 8, {group['format']}")
    for (name, curve), marker, colour in zip(
        result.arrays["errors"].items(), style.MARKERS, (style.RED, style.PURPLE, style.BLUE), strict=False
    ):
        errors.plot([one["K"] for one in curve], [one["error"] for one in curve], marker, ls="-", color=colour, label=name)
    errors.set_xscale("log", base=2)
    errors.set_yscale("log")
    errors.set(xlabel="K, products added", ylabel="largest relative error", title="where the sum is kept")
    errors.legend(fontsize=9)
    return figure


LOOKS = dict(
    zip(
        ("fp32", "tf32", "bf16", "fp16", "fp8 e5m2", "fp8 e4m3"),
        zip((style.INK, style.GREY, style.BLUE, style.RED, style.GREEN, style.PURPLE), style.MARKERS, strict=False),
        strict=True,
    )
)


def draw_fp16_vs_bf16(result: Result):
    """Above left: at each power of two, the distance to the next number of a format relative to it, from the format's
    smallest number to its largest; flat where numbers are normal, rising where they are subnormal. Above right: the number
    line from 1 to 1.25, one mark for each number. Below: the loss of a small descent with the weights kept in each format;
    dashed with an fp32 master copy, dotted with rounding at random.

    A curve that turns flat stands still: its updates are smaller than half the distance between two weights.
    """
    figure = style.new_figure(9, 7.5)
    grid = figure.subplot_mosaic([["spacing", "line"], ["loss", "loss"]])
    axes = grid["spacing"]
    for name, curve in result.arrays["spacing"].items():
        colour, marker = LOOKS[name]
        relative = [gap / size for gap, size in zip(curve["spacing"], curve["magnitude"], strict=True)]
        width = 5 if name == "tf32" else 2
        axes.plot(curve["magnitude"], relative, marker, ls="-", lw=width, color=colour, label=name, markevery=(0.1, 0.2))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks([2.0**power for power in range(-120, 121, 40)])
    axes.set(xlabel="magnitude", ylabel="distance to the next number / magnitude", title="range and spacing")
    axes.legend(fontsize=8, loc="center right", bbox_to_anchor=(1, 0.33))
    axes = grid["line"]
    line = result.arrays["line"]
    for height, (name, values) in enumerate(line.items()):
        axes.plot(values, [-height] * len(values), "|", color=LOOKS[name][0], markersize=22, markeredgewidth=0.8)
    axes.set_yticks([-height for height in range(len(line))], list(line))
    axes.set(xlabel="value", ylabel="format", title="every number from 1 to 1.25", ylim=(0.4 - len(line), 0.6))
    axes.grid(False)
    axes = grid["loss"]
    for name, curve in result.arrays["losses"].items():
        dashes = "--" if "master" in name else ":" if "random" in name else "-"
        axes.plot(curve["step"], curve["loss"], dashes, color=LOOKS[name[:4]][0], label=name)
    axes.set_yscale("log")
    axes.set(xlabel="step", ylabel="mean of ½(w - t)²", title="the same descent, weights kept in …")
    axes.legend(fontsize=8, ncols=2)
    return figure
