"""Pictures of the detector: FROC curves, and slices through a test patient with truth and detections."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpml_lab.capstone.lessons import froc
from hpml_lab.capstone.tools import ct
from hpml_lab.capstone.tools.prepared import PreparedScan
from hpml_lab.capstone.views.scan_slices import slices
from hpml_lab.core.experiment import Result
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import Picture


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


def shown_patient(scans: Sequence[PreparedScan], found: Sequence[np.ndarray], score: float, first_seed: int) -> dict[str, Any]:
    """What `found_nodules` draws: a patient with several nodules and, if there is one, a false positive."""
    certain = [ours[ours[:, 4] >= score] for ours in found]
    missed = [ours[froc.hits(ours, scan.nodules) == froc.MISS] for ours, scan in zip(certain, scans, strict=True)]
    best = max(range(len(scans)), key=lambda i: (len(scans[i].nodules) > 1) * (1 + bool(len(missed[i]))))
    middle = (missed[best] if len(missed[best]) else scans[best].nodules)[0, :3]
    return {"seed": first_seed + best, "at": middle.tolist(), "found": certain[best].tolist()}


def found_nodules(result: Result) -> Picture:
    """A test patient cut through a false positive of seed 0, if there is one: a dashed circle without a solid one."""
    shown = result.arrays["shown"]
    return slices(ct.synthetic(shown["seed"]), shown["at"], detections=np.array(shown["found"]).reshape(-1, 5))
