"""One XOR net's answers over the square around its four points, while it learns."""

import numpy as np
import torch

from hpml_lab.core.experiment import Result
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.nets.lessons.batched_xor import INPUTS, TARGETS, Parameters, batched_forward

DRAWN = (1000, 4000, 5000, 10_000)  # the epochs of the figure


def snapshots_of(seed: int, snapshots: dict[int, Parameters]) -> dict:
    """One net's parameters at each snapshot, from which its surface is drawn."""
    steps = [
        {"epoch": epoch, "parameters": [tensor[seed : seed + 1].tolist() for tensor in parameters]}
        for epoch, parameters in snapshots.items()
    ]
    return {"seed": seed, "snapshots": steps}


@picture
def xor_surfaces(result: Result, which: str = "median"):
    """The net's answer p on the square around the four points, at four epochs of one seed. Circles should give 0, squares 1;
    the white line is p = 0.5."""
    panel = result.arrays["panels"][which]
    figure = style.new_figure(9, 2.9)
    drawn = [snapshot for snapshot in panel["snapshots"] if snapshot["epoch"] in DRAWN]
    axes = figure.subplots(1, len(drawn), sharey=True)
    for ax, snapshot in zip(axes, drawn, strict=True):
        surface = draw_surface(ax, snapshot["parameters"])
        ax.set(title=f"epoch {snapshot['epoch']}", xlabel="$x_1$")
    axes[0].set_ylabel(f"seed {panel['seed']} ({which})\n$x_2$")
    figure.colorbar(surface, ax=axes, label="p, the net's answer")
    return figure


def draw_surface(ax, parameters: list):
    """p over the square around the four points, for one net with its parameters as nested lists."""
    side = np.linspace(-0.5, 1.5, 61)
    points = torch.tensor(np.stack(np.meshgrid(side, side), -1).reshape(-1, 2), dtype=torch.float32)
    p = torch.sigmoid(batched_forward([torch.tensor(part) for part in parameters], points)[1])
    p = p.reshape(len(side), len(side)).numpy()
    surface = ax.pcolormesh(side, side, p, vmin=0, vmax=1, rasterized=True)
    if p.min() < 0.5 < p.max():
        ax.contour(side, side, p, levels=[0.5], colors="white", linewidths=1.5)
    for (x1, x2), y in zip(INPUTS.tolist(), TARGETS[:, 0].tolist(), strict=True):
        marker, fill = ("s", style.DARK) if y else ("o", "white")
        ax.plot(x1, x2, marker, color=fill, markeredgecolor=style.RED, markersize=7)
    ax.set(xticks=[0, 1], yticks=[0, 1])
    ax.grid(False)
    return surface
