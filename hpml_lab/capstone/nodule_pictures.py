"""Pictures of the detector: FROC curves, and slices with mask, patches, boxes and truth."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.patches import Circle, Rectangle
from matplotlib.patheffects import withStroke

from hpml_lab.capstone import ct, froc, stages
from hpml_lab.capstone.prepared import PreparedScan
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture

SLICES = 2  # with boxes
FOUND, TRUTH, MASK = style.ORANGE, style.SKY, style.GREEN  # on black


def draw_froc(result: Result):
    """Left: recall by false positives per scan, one step line for each seed; the band is the 95 % interval of their mean over
    patients, and the cross marks the goal, 0.8 at one. Right: recall of seed 0 by the radius of the nodules, with 95 %
    intervals, found and all nodules below. Look for the size at which the detector begins to fail: how many voxels of 2 mm
    is that?"""
    figure = style.new_figure(10, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1])
    low, high = np.array(result.arrays["band"]).T
    left.fill_between(froc.RATES, low, high, color=style.GREY, alpha=0.25, linewidth=0, label="95 % interval of the mean")
    for i, row in enumerate(result.tables[0].rows):
        false, recall = [*row.false, 8.0], [*row.recall, row.recall[-1]]  # level after the last nodule that is found
        look = {"linestyle": style.LINES[i % 6], "color": style.CYCLE[i % 7], "linewidth": 1.6}
        left.step(false, recall, where="post", label=f"seed {row.seed}", **look)
    left.plot(1, 0.8, "x", color=style.INK, markersize=9, label="goal")
    left.set_xscale("log", base=2)
    left.set_xticks(froc.RATES, ["1/8", "1/4", "1/2", "1", "2", "4"])
    left.minorticks_off()
    left.set(xlim=(0.1, 5), ylim=(0, 1.02), xlabel="false positives per scan", ylabel="recall (share of nodules found)")
    left.legend(loc="lower right", fontsize=9)

    rows = result.tables[1].rows
    at = np.arange(len(rows))
    recall = np.array([row.recall for row in rows])
    errors = [recall - [row.low for row in rows], [row.high for row in rows] - recall]
    right.errorbar(at, recall, errors, fmt="o", color=style.BLUE, capsize=4)
    for x, row in zip(at, rows, strict=True):
        right.annotate(f"{row.found}/{row.nodules}", (x, 0.04), ha="center", fontsize=9)
    right.set_xticks(at, [row.radius for row in rows])
    right.set(
        ylim=(0, 1.05), xlim=(-0.5, len(rows) - 0.5), xlabel="radius (mm)", ylabel="recall at one false positive per scan"
    )
    right.grid(False, axis="x")
    return figure


# ---- slices ----------------------------------------------------------------------------------------------------------


def shown_patient(scans: Sequence[PreparedScan], found: Sequence[np.ndarray], score: float, first_seed: int) -> dict[str, Any]:
    """What `found_nodules` draws of a patient with several nodules and, if there is one, a false positive: slices in 8 bits."""
    certain = [ours[ours[:, 4] >= score] for ours in found]
    kinds = [froc.hits(ours, scan.nodules) for ours, scan in zip(certain, scans, strict=True)]
    best = max(range(len(scans)), key=lambda i: (len(scans[i].nodules) > 1) * (1 + int((kinds[i] == froc.MISS).any())))
    scan, ours, kind = scans[best], certain[best], kinds[best]
    original = ct.synthetic(first_seed + best)
    volume = stages.resample(stages.hounsfield(original), original.spacing)
    bytes_ = np.clip((volume - stages.LOW) / (stages.HIGH - stages.LOW) * 255, 0, 255).astype(np.uint8)

    wrong = [center[0] for center, hit in zip(ours, kind, strict=True) if hit == froc.MISS]
    levels = [*wrong[:1], *scan.nodules[np.argsort(-scan.nodules[:, 3]), 0]][:SLICES]
    slices = [int(round(level / scan.voxel[0])) for level in levels]
    corners = stages.patch_corners(volume.shape)
    middle = int(round(scan.nodules[0, 0] / scan.voxel[0]))
    here = corners[(corners[:, 0] <= middle) & (middle < corners[:, 0] + stages.PATCH)]
    return {
        "voxel": list(scan.voxel),
        "slices": slices,
        "images": bytes_[slices].tolist(),
        "middle": middle,
        "image": bytes_[middle].tolist(),
        "mask": scan.mask[middle].astype(np.uint8).tolist(),
        "corners": sorted({(int(y), int(x)) for _, y, x in here}),
        "nodules": scan.nodules.tolist(),
        "found": ours.tolist(),
        "hits": kind.tolist(),
    }


@picture
def found_nodules(result: Result):
    """Slices of one test patient, 2 mm a voxel, rows from front to back. Left: the border of the lung mask, and the overlapping
    patches, one of them bold. Others: boxes are detections of seed 0 with their scores (dashed: false positives), circles the
    known nodules where they cross the slice. What is in a box without a circle?"""
    shown = result.arrays["shown"]
    figure = style.new_figure(10.5, 4.0)
    panels = figure.subplots(1, 1 + len(shown["slices"]))
    panels = np.atleast_1d(panels)
    depth, *step = shown["voxel"]
    show_slice(panels[0], np.array(shown["image"]), step, f"mask and patches, z = {shown['middle'] * depth:.0f} mm")
    mask = np.array(shown["mask"])
    y, x = (np.arange(n) * mm for n, mm in zip(mask.shape, step, strict=True))
    panels[0].contour(x, y, mask, [0.5], colors=[MASK], linewidths=1.2)
    edge = stages.PATCH
    for i, (top, side) in enumerate(shown["corners"]):
        at = ((side - 0.5) * step[1], (top - 0.5) * step[0])
        look = {"linewidth": 0.4, "alpha": 0.6} if i != len(shown["corners"]) // 2 else {"linewidth": 2}
        panels[0].add_patch(Rectangle(at, edge * step[1], edge * step[0], fill=False, edgecolor=style.YELLOW, **look))
    for axes, image, z in zip(panels[1:], shown["images"], shown["slices"], strict=True):
        show_slice(axes, np.array(image), step, f"boxes and truth, z = {z * depth:.0f} mm")
        mark(axes, shown, z * depth)
    return figure


def show_slice(axes, image: np.ndarray, step: Sequence[float], title: str) -> None:
    """A slice in gray, its axes in mm."""
    height, width = (n * mm for n, mm in zip(image.shape, step, strict=True))
    half = [mm / 2 for mm in step]
    extent = (-half[1], width - half[1], height - half[0], -half[0])
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, extent=extent)
    axes.autoscale(False)  # what is drawn on top does not move the borders
    axes.grid(False)
    axes.set_title(title, fontsize=9)
    axes.set(xlabel="x (mm)", ylabel="y (mm)")


def mark(axes, shown: dict[str, Any], z: float) -> None:
    """Circles of the nodules that cross the slice at z mm, and boxes of the detections near it."""
    for depth, y, x, radius in shown["nodules"]:
        if abs(depth - z) < radius:
            across = np.sqrt(radius**2 - (depth - z) ** 2)
            axes.add_patch(Circle((x, y), across, fill=False, edgecolor=TRUTH, linewidth=1.5))
    for (depth, y, x, radius, score), hit in zip(shown["found"], shown["hits"], strict=True):
        if abs(depth - z) < max(radius, 4):
            half = 1.6 * radius  # a box around the ball, so that both can be seen
            line = "--" if hit == froc.MISS else "-"
            box = Rectangle(
                (x - half, y - half), 2 * half, 2 * half, fill=False, edgecolor=FOUND, linewidth=1.5, linestyle=line
            )
            axes.add_patch(box)
            axes.annotate(
                f"{score:.2f}", (x + half + 2, y - half), color="white", fontsize=10, weight="bold", va="center",
                path_effects=[withStroke(linewidth=2.5, foreground="black")],
            )  # fmt: skip
