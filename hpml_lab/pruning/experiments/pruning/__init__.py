"""Pruning: the lecture's examples counted and drawn, what a file holds, and accuracy against sparsity."""

from dataclasses import replace

import numpy as np
from matplotlib.patches import Rectangle

from hpml_lab.pruning.experiments.pruning.kept_masks import KeptMask, compare_masks, kept_masks
from hpml_lab.pruning.experiments.pruning.lecture_examples import (
    AMOUNT,
    PrunedExample,
    PrunedLayer,
    conv1_examples,
    count_zeros,
    layers,
)
from hpml_lab.pruning.experiments.pruning.pruned_files import PrunedFile, files, twice
from hpml_lab.pruning.experiments.pruning.accuracies import (
    SparseAccuracy,
    Tuning,
    compare_accuracies,
    dense_nets,
    sparse_accuracies,
)
from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.show import style

QUICK = dict(images=8_000, steps=150, test=1_000, sparsities=(0.5, 0.8, 0.9, 0.95), tune_steps=16, batch=128, seeds=1)
FULL = dict(
    images=60_000, steps=938, test=10_000, sparsities=(0.2, 0.5, 0.8, 0.9, 0.95, 0.98), tune_steps=156, batch=128, seeds=3
)
LOST_AT, LOST_STEPS = 0.8, 5  # sparsity and steps of the trainings that may lose their mask


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: the six 3 × 3 kernels of conv1 and their biases, fresh and after each of the lecture's examples; blue and orange
    are positive and negative weights, a cross stands for a pruned one; the last row is another
    fresh layer. Right: the share of each layer's weights that is pruned
    if 20 % of all weights are, in a fresh and in a trained net. Look for whole kernels that are gone, and for the layer that
    pays for the others."""
    figure = style.new_figure(10.5, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.45, 1))
    drawn = result.arrays["conv1"]
    _draw_kernels(left, drawn, {row.example: row for row in result.rows(PrunedExample)})
    rows = result.rows(PrunedLayer)
    y, height = np.arange(len(rows)), 0.36
    for shift, name, color in ((-height / 2, "fresh", style.SKY), (height / 2, "trained", style.BLUE)):
        shares = [getattr(row, f"{name}_share") for row in rows]
        right.barh(y + shift, shares, height, color=color, label=f"{name} net")
        for row, share, at in zip(rows, shares, y + shift, strict=True):
            end = max(share, row.expected) if name == "fresh" else share
            right.text(end + 0.5, at, f"{getattr(row, name):,}", va="center", fontsize=8)
    right.plot(
        [row.expected for row in rows], y - height / 2, "D", color=style.INK, markersize=4, label="expected of a fresh net"
    )
    right.axvline(100 * AMOUNT, color=style.GREY, linestyle="--", linewidth=1.2)
    right.set_yticks(y, [f"{row.layer}\n{row.weights:,}" for row in rows])
    right.invert_yaxis()
    most = max(max(row.fresh_share, row.trained_share) for row in rows)
    right.set(xlabel="pruned (%); the number of zeros next to it", xlim=(0, 1.25 * most), title="20 % of all weights, by layer")
    right.set_axisbelow(True)
    right.grid(axis="y", visible=False)
    right.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.06), ncols=3, columnspacing=1, handletextpad=0.4)
    return figure


def _draw_kernels(axes, drawn: dict, rows: dict[str, PrunedExample]) -> None:
    largest = np.abs(np.array(drawn["fresh"]["weight"])).max()
    labels = []
    for row, (example, tensors) in enumerate(drawn.items()):
        kernels, biases = np.array(tensors["weight"]), np.array(tensors["bias"])
        for channel, kernel in enumerate(kernels[:, 0]):
            for (i, j), value in np.ndenumerate(kernel):
                _draw_weight(axes, 3.6 * channel + j, 4.2 * row + i, value, largest)
            _draw_weight(axes, 23 + channel % 2, 4.2 * row + channel // 2, biases[channel], largest)
        found = rows.get(example)
        labels.append("fresh" if found is None else f"{example}\n{found.zeros} of {found.elements}")
    axes.set(xlim=(-0.3, 25.3), ylim=(4.2 * len(drawn) - 0.8, -0.3), title="conv1: six kernels, and the biases")
    axes.set_yticks([4.2 * row + 1.5 for row in range(len(drawn))], labels, fontsize=9)
    axes.set_xticks([*(3.6 * channel + 1.5 for channel in range(6)), 24], [*(f"{c}" for c in range(6)), "bias"])
    axes.set_xlabel("output channel")
    axes.set_aspect("equal")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_weight(axes, x: float, y: float, value: float, largest: float) -> None:
    pruned = value == 0
    color = "none" if pruned else style.BLUE if value > 0 else style.ORANGE
    strength = 1.0 if pruned else 0.2 + 0.8 * min(abs(value) / largest, 1)
    axes.add_patch(Rectangle((x, y), 0.94, 0.94, facecolor=color, alpha=strength, edgecolor=style.GREY, linewidth=0.4))
    if pruned:
        axes.plot([x + 0.25, x + 0.69], [y + 0.25, y + 0.69], color=style.GREY, linewidth=1)
        axes.plot([x + 0.25, x + 0.69], [y + 0.69, y + 0.25], color=style.GREY, linewidth=1)


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("pruning", lecture="L2", notebook="17_pruning", draw=draw, quick=QUICK, full=FULL, uses=("mnist",))
def pruning(params: Params) -> Result:
    """Pruning sets weights to 0: exact counts, what a file then holds, and the accuracy that is left."""
    nets, data = dense_nets(params.images, params.steps, params.seeds, params.device.torch)
    tested = replace(data, test_x=data.test_x[: params.test], test_y=data.test_y[: params.test])
    accuracies: list[SparseAccuracy] = sparse_accuracies(
        Tuning(tested, params.sparsities, params.tune_steps, params.batch), nets
    )
    kept: list[KeptMask] = kept_masks(nets[0], data, LOST_AT, LOST_STEPS, min(params.batch, len(data.x) // (LOST_STEPS + 1)))
    examples, drawn, fresh = conv1_examples()
    saved: list[PrunedFile]
    saved = files(fresh)
    once, both, removed = twice(fresh)
    by_layer = layers([fresh, nets[0].cpu()])
    result = Result(
        [
            Table("The lecture's examples, on conv1", examples),
            Table("20 % of all weights, by layer", by_layer),
            Table("What a net holds, and what its file weighs", saved),
            Table(f"{data.name}: accuracy over {len(tested.test_x):,} test images, seeds: {params.seeds}", accuracies),
            Table(f"{LOST_AT:.0%} pruned, then {LOST_STEPS} steps", kept),
        ],
        notes=list(data.notes),
        arrays={"conv1": {name: {key: x.numpy() for key, x in tensors.items()} for name, tensors in drawn.items()}},
    )
    count_zeros(result)
    result.claim(
        "20 % twice: with the masks there, 20 % of what is left (36 % in all); after prune.remove, the same 20 % again",
        (once, both, removed) == (11_968, 11_968 + round(0.2 * (59_838 - 11_968)), 11_968),
        f"{once:,}, then {both:,} or {removed:,} zeros",
    )
    for row in saved:
        result.key_figure(f"file, {row.state}", round(row.file_kb, 1), "kB")
    compare_masks(result)
    compare_accuracies(result)
    return result
