"""Slices through a scan, with what is known and what was found: mask, nodules and detections."""

from typing import Any

import numpy as np
from matplotlib.patches import Circle, Rectangle

from hpml_lab.capstone.lessons.augmentation import STRETCH, elastic, rotation, symmetry, warped
from hpml_lab.capstone.tools.ct import Scan
from hpml_lab.capstone.tools.prepared import prepare
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import Picture, picture
from hpml_lab.core.system.errors import LabError

LUNG_WINDOW, TISSUE_WINDOW = (-1350.0, 150.0), (-160.0, 240.0)  # HU of black and white, as radiologists set them
PLANES = ("axial", "coronal", "sagittal")  # across z, across y, across x
AXES = ("z", "y", "x")
TRUTH, FOUND, MASK = style.ORANGE, style.SKY, style.GREEN
LOOK = {
    "nodule": dict(edgecolor=TRUTH, linewidth=1.8),
    "detection": dict(edgecolor=FOUND, linewidth=1.8, linestyle=(0, (2, 1))),
}


def slices(
    scan: Scan,
    at: tuple[float, float, float] | None = None,
    *,
    mask: np.ndarray | None = None,
    detections: np.ndarray | None = None,
    window: tuple[float, float] = LUNG_WINDOW,
) -> Picture:
    """The scan cut by three planes through one point, with nodules, detections and the lungs' mask.

    at          z, y, x in mm from the center of the first voxel; the first nodule, or the middle of a healthy patient
    mask        bool over the scan's volume, of any resolution: its first and last voxels are the scan's
    detections  (n, 4) or more columns: z, y, x, radius in mm (, score)
    window      HU that are shown black and white
    """
    middle = (scan.extent - scan.spacing) / 2
    at = np.array((scan.nodules[0, :3] if len(scan.nodules) else middle) if at is None else at, dtype=float)
    if at.shape != (3,) or not ((at >= 0) & (at <= 2 * middle)).all():
        fix = f"z, y, x from 0 to {np.round(2 * middle, 1).tolist()} mm."
        raise LabError(f"the point {at.tolist()} is not in the volume.", fix)
    return _slices(scan, at, check_mask(mask), as_balls(detections), window)


@picture
def augmented_patches(scan: Scan, seed: int = 0, edge: int = 40) -> Any:
    """A patch around a nodule, five times: as it is, with a symmetry, a rotation, an elastic deformation, and all of them at
    another corner. The orange circle is where the label says that the nodule is. Is one of the circles off its nodule?"""
    if not len(scan.nodules):
        raise LabError(f"{scan.name} has no nodule whose patch could be shown.", "Hand over a scan of a sick patient.")
    ready, draw, still = prepare(scan), np.random.default_rng(seed), np.zeros((3, edge, edge, edge))
    corner, radius = np.rint(ready.centers[0]) - edge / 2, ready.nodules[0, 3] / np.mean(ready.voxel)
    kinds = {
        "as it is": (corner, np.eye(3), still),
        "symmetry": (corner, symmetry(draw), still),
        "rotation": (corner, rotation(draw, 45), still),
        "elastic": (corner, np.eye(3), elastic(draw, edge, 3 * STRETCH)),
        "all, another crop": (corner + draw.uniform(-8, 8, 3), symmetry(draw) @ rotation(draw), elastic(draw, edge)),
    }
    figure = style.new_figure(10.0, 2.4)
    for axes, (name, how) in zip(figure.subplots(1, len(kinds)), kinds.items(), strict=True):
        patch, centers = warped(ready.volume, ready.centers, *how)
        z, y, x = centers[0]
        axes.imshow(patch[round(z)], "gray", vmin=0, vmax=1)
        axes.add_patch(Circle((x, y), radius + 2, fill=False, **LOOK["nodule"]))
        axes.set_title(name, fontsize=9)
        axes.set_axis_off()
    return figure


@picture
def _slices(scan: Scan, at: np.ndarray, mask: np.ndarray | None, found: np.ndarray, window: tuple) -> Any:
    """Axial, coronal and sagittal slice of a CT scan, air black and tissue white. Nodules are solid orange circles; lines are
    where the other two slices are. Detections, where they are given, are dashed blue circles, and a mask has a green border."""
    figure = style.new_figure(10.0, 3.9)
    panels = figure.subplots(1, 3)
    for across, axes in enumerate(panels):
        rows, columns = (axis for axis in range(3) if axis != across)
        show_slice(axes, scan, across, at[across], window)
        if mask is not None:
            axes.contour(*mask_slice(scan, mask, across, at[across]), levels=[0.5], colors=[MASK], linewidths=1.2)
        for kind, balls in (("nodule", scan.nodules), ("detection", found)):
            for ball in balls:
                if (radius := cut(ball, across, at[across])) > 0:
                    axes.add_patch(Circle((ball[columns], ball[rows]), radius, fill=False, **LOOK[kind]))
        axes.axhline(at[rows], color=style.GREY, linewidth=0.7, linestyle=":")
        axes.axvline(at[columns], color=style.GREY, linewidth=0.7, linestyle=":")
        axes.set_title(f"{PLANES[across]}, {AXES[across]} = {at[across]:.0f} mm")
    handles = [Circle((0, 0), fill=False, label=kind, **LOOK[kind]) for kind in LOOK if kind == "nodule" or len(found)]
    handles += [Rectangle((0, 0), 1, 1, fill=False, edgecolor=MASK, label="mask of the lungs")] if mask is not None else []
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def show_slice(axes, scan: Scan, across: int, at: float, window: tuple[float, float]) -> Any:
    """The slice across an axis that is nearest to `at` mm, on axes in mm. Returns the image, to which others can be set."""
    rows, columns = (axis for axis in range(3) if axis != across)
    (dy, dx), (height, width) = (np.array(scan.spacing)[[rows, columns]], np.array(scan.stored.shape)[[rows, columns]])
    extent = (-dx / 2, (width - 0.5) * dx, -dy / 2, (height - 0.5) * dy)
    image = axes.imshow(hu_slice(scan, across, at), "gray", vmin=window[0], vmax=window[1], origin="lower", extent=extent)
    if across == 0:
        axes.invert_yaxis()  # the patient's front is up
    axes.autoscale(False)  # what is drawn on top does not widen the axes
    axes.grid(False)
    axes.set(xlabel=f"{AXES[columns]} (mm)", ylabel=f"{AXES[rows]} (mm)")
    return image


def hu_slice(scan: Scan, across: int, at: float) -> np.ndarray:
    """Hounsfield units of the slice nearest to `at` mm along an axis."""
    index = int(np.clip(round(at / scan.spacing[across]), 0, scan.stored.shape[across] - 1))
    return scan.stored.take(index, across) * np.float32(scan.slope) + np.float32(scan.intercept)


def cut(ball: np.ndarray, across: int, at: float) -> float:
    """Radius of the circle in which a plane cuts a ball, 0 where it does not."""
    return float(np.sqrt(max(ball[3] ** 2 - (ball[across] - at) ** 2, 0.0)))


def mask_slice(scan: Scan, mask: np.ndarray, across: int, at: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates in mm and values of a mask's slice, for `contour`."""
    ends = scan.extent - scan.spacing  # of the last voxel's center
    grids = [np.linspace(0, end, size) for end, size in zip(ends, mask.shape, strict=True)]
    rows, columns = (axis for axis in range(3) if axis != across)
    index = int(np.abs(grids[across] - at).argmin())
    return grids[columns], grids[rows], mask.take(index, across).astype(float)


def check_mask(mask: Any) -> np.ndarray | None:
    """The mask as an array, or None."""
    if mask is None:
        return None
    mask = np.asarray(mask)
    if mask.ndim != 3 or min(mask.shape) < 2 or mask.dtype != bool:
        raise LabError(f"a mask is bool (slices, rows, columns); this is {mask.dtype}, {mask.shape}.", "Hand over lung_mask's.")
    return mask


def as_balls(detections: Any) -> np.ndarray:
    """Detections as (n, 4 or more): z, y, x, radius in mm."""
    found = np.empty((0, 5)) if detections is None else np.asarray(detections, dtype=float)
    found = np.empty((0, 5)) if not found.size else found
    if found.ndim != 2 or found.shape[1] < 4 or not np.isfinite(found).all():
        fix = "Their columns are z, y, x and radius in mm, and the score."
        raise LabError(f"detections are finite rows of four or five; these have the shape {found.shape}.", fix)
    return found
