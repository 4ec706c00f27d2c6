"""The figures of the experiment `muon`: singular values of a descent, the polynomials, and test losses by rate."""

import numpy as np
import torch

from hpml_lab.core.experiment import Result
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.large_batch.experiments.muon.hidden_layers import MAKERS, HiddenLayerTraining, chosen
from hpml_lab.large_batch.experiments.muon.matrix_problem import OPTIMIZERS, MatrixDescent
from hpml_lab.large_batch.lessons import orthogonalization as ns
from hpml_lab.optim.formulas.colors import optimizer_style

LEAST = 1e-5  # of a relative singular value or a loss that is drawn


def draw(result: Result):
    """‖AWB − C‖² over square matrices W. Top: all singular values of W over the steps; ticks at the right are those of the
    solution. Bottom: those of each update, divided by its largest. Right: the loss, medians and bands over all problems. Look
    at how many singular values of W have left 0 after a quarter of the steps, and at how the update explains it."""
    figure = style.new_figure(11.5, 5.4)
    names = list(OPTIMIZERS)
    axes = figure.subplot_mosaic([[f"W {name}" for name in names] + ["loss"], [*names, "loss"]], width_ratios=(1, 1, 1, 1.1))
    solution = result.arrays["solution"]
    rates = {row.optimizer: row.rate for row in result.rows(MatrixDescent)}
    for name in names:
        top, bottom, path, look = axes[f"W {name}"], axes[name], result.arrays[name], optimizer_style(name)
        thin = {"color": look["color"], "linewidth": 0.8, "alpha": 0.8}
        top.plot(path["steps"], path["W"], **thin)
        top.plot([path["steps"][-1] * 1.06] * len(solution), solution, linestyle="", marker="_", color=style.INK, markersize=9)
        updates = np.array(path["updates"])
        bottom.plot(path["steps"], np.maximum(updates / updates[:, :1], LEAST), **thin)
        top.set(title=f"{name}, rate {rates[name]:g}", ylim=(0, 1.3 * max(solution)))
        bottom.set(yscale="log", ylim=(LEAST, 2), xlabel="step")
        losses = np.maximum(path["losses"], LEAST / 100)
        axes["loss"].plot(np.median(losses, 1), label=name, **look)
        axes["loss"].fill_between(
            range(len(losses)), losses.min(1), losses.max(1), color=look["color"], alpha=0.15, linewidth=0
        )
    axes[f"W {names[0]}"].set_ylabel("singular values of W")
    axes[names[0]].set_ylabel("of the update, relative")
    axes["loss"].set(yscale="log", xlabel="step", title="Loss, 1 at the start")
    axes["loss"].legend(fontsize=9)
    return figure


@picture
def newton_schulz_polynomials(result: Result):
    """What Newton–Schulz makes of a singular value s, after 1, 2, 3 and 5 steps: Muon's coefficients left, the classical ones
    right; the gray band reaches from 0.68 to 1.21. Dots are what five steps in bfloat16, as Muon takes them, made of a matrix.
    Look at the smallest s that reaches the band, and at what happens near 1."""
    figure = style.new_figure(9.5, 3.8)
    panels = figure.subplots(1, 2, sharey=True)
    s = torch.logspace(-4, 0, 801, dtype=torch.float64)
    settings = (("Muon: 3.4445, −4.775, 2.0315", ns.MUON), ("classical: 1.5, −0.5", ns.CLASSICAL))
    for axes, (title, coefficients) in zip(panels, settings, strict=True):
        axes.axhspan(*result.arrays["band"], color=style.GREY, alpha=0.25, linewidth=0)
        for i, steps in enumerate((1, 2, 3, ns.STEPS)):
            look = {"color": style.CYCLE[i], "linestyle": style.LINES[i] if steps < ns.STEPS else "-"}
            axes.plot(s, ns.polynomial(s, coefficients, steps), label=f"{steps} step{'s' * (steps > 1)}", **look)
        axes.set(xscale="log", xlabel="singular value s", title=title)
    panels[0].plot(*result.arrays["bfloat16"], linestyle="", marker=".", color=style.INK, label="5 in bfloat16")
    panels[0].set_ylabel("after the steps")
    panels[1].legend(*panels[0].get_legend_handles_labels(), fontsize=9, loc="center left", bbox_to_anchor=(0, 0.33))
    return figure


@picture
def hidden_layer_losses(result: Result):
    """Test loss by peak rate, hidden layers by AdamW and by Muon, at each batch size, all trained on as many images: lines are
    medians over the seeds, bands reach from the lowest to the highest. The star is the rate that the validation loss chose.
    Look at the distance of the two stars in each panel."""
    rows = result.rows(HiddenLayerTraining)
    batches = sorted({row.batch for row in rows})
    figure = style.new_figure(9.5, 3.8)
    panels = figure.subplots(1, len(batches), sharey=True)
    for axes, batch in zip(panels, batches, strict=True):
        for name in MAKERS:
            trained = [row for row in rows if (row.batch, row.optimizer) == (batch, name)]
            rates, losses, look = (
                [row.rate for row in trained],
                [row.by_seed for row in trained],
                optimizer_style(name, marker=True),
            )
            axes.plot(rates, np.median(losses, 1), label=name, markersize=5, **look)
            axes.fill_between(rates, np.min(losses, 1), np.max(losses, 1), color=look["color"], alpha=0.2, linewidth=0)
            best = chosen(rows, batch, name)
            axes.plot(best.rate, np.median(best.by_seed), marker="*", color=look["color"], markersize=15)
        axes.set(xscale="log", yscale="log", xlabel="peak rate", title=f"Batch {batch:,}, {trained[0].steps} steps")
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.minorticks_off()
    panels[0].set_ylabel("test loss")
    style.label_log_axis(panels[0].yaxis)
    panels[0].legend(fontsize=9)
    return figure
