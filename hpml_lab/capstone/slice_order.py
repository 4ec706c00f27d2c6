"""The order of slices along the normal of their plane, and whether they make a volume: each once, none missing, none tilted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.capstone.read_errors import unreadable

SAME = 0.01  # mm: slices closer than this are at the same position, which a file gives with a few decimals
ROUNDED = 0.02  # of a gap: positions in files have a few decimals


@dataclass(frozen=True)
class Slice:
    """One slice of a series: its file, the center of its first pixel in the patient (x, y, z in mm), and what was read."""

    path: Path
    position: np.ndarray
    dataset: Any


def in_order(slices: list[Slice], normal: np.ndarray, expected: int = 0) -> tuple[list[Slice], float]:
    """The slices by their position along the normal, and the distance of neighbors in mm.

    expected  how many slices the series says that it has, 0 where it does not say
    Raises LabError for a duplicated or missing slice, for mixed spacings, and for a tilted gantry.
    """
    slices = sorted(slices, key=lambda slice_: float(slice_.position @ normal))
    if not all(np.isfinite(slice_.position).all() for slice_ in slices):
        raise unreadable(slices[0].path.parent, "a slice's position is not a number.", "Copy the series again from its source.")
    if len(slices) < 2:
        raise unreadable(slices[0].path, "one slice alone is not a volume.", "Copy the whole series.")
    steps = np.diff([slice_.position for slice_ in slices], axis=0)
    gaps = steps @ normal
    for slice_, following, gap in zip(slices, slices[1:], gaps, strict=False):
        if gap < SAME:
            where = f"{slice_.position @ normal:.2f} mm"
            problem = f"the slice at {where} is there twice ({slice_.path.name} has the same position)."
            raise unreadable(following.path, problem, "Delete one of the two, or split the series if it was taken twice.")
    gap = float(np.median(gaps))
    odd = np.flatnonzero(np.abs(gaps - gap) > ROUNDED * gap)
    if len(odd):
        before, after = slices[odd[0]], slices[odd[0] + 1]
        between = f"{gaps[odd[0]]:.2f} mm to {after.path.name}, {gap:.2f} mm between most others"
        multiples = gaps[odd] / gap
        missing = int(np.rint(multiples - 1).sum())
        whole = (np.abs(multiples - np.rint(multiples)) < 2 * ROUNDED) & (multiples > 0.5)
        if len(odd) <= len(gaps) / 4 and whole.all() and missing:
            problem = f"missing slices: {missing}, the first of them after this one ({between})."
            raise unreadable(before.path, problem, "Copy the whole series again.")
        fix = "Resample the parts to one spacing first, or use a series with one spacing."
        raise unreadable(before.path, f"the slices are not evenly spaced ({between}).", fix)
    if expected > len(slices):
        problem = f"missing slices: {expected - len(slices)} of the {expected} that the series says it has."
        raise unreadable(slices[0].path.parent, problem, "Copy the whole series again.")
    aside = np.linalg.norm(steps - np.outer(gaps, normal), axis=1)
    if aside.max() > ROUNDED * gap:
        problem = f"neighboring slices are shifted by {aside.max():.2f} mm in their plane: the gantry was tilted."
        raise unreadable(slices[0].path.parent, problem, "Resample it to a box first, for example with SimpleITK.")
    return slices, float(gaps.sum() / len(gaps))
