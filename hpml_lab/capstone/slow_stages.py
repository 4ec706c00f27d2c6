"""The stages as a first version usually has them: float64, cubic splines, loops over components, voxels, patches and cells.

Same names and arguments as in `stages`. Every line works, and nobody has measured it yet. The results are those of the fast
version: bitwise where nothing is rounded otherwise (components, closing, patches), else up to the rounding of float32. Only
`resample` is another method: by default a cubic spline, scipy's default, in place of linear interpolation.
"""

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy import ndimage
from torch import nn

from hpml_lab.capstone.stages import (
    AIR_BELOW,
    APART,
    CELL,
    CERTAIN,
    CLOSING,
    HIGH,
    LOW,
    PATCH,
    SMALLEST_LUNG,
    SPACING,
    STRIDE,
    check_spacing,
    checked,
    no_lung,
    patch_corners,
    resampled_shape,
    same_shape,
)


def hounsfield(scan) -> np.ndarray:
    """HU = slope · stored + intercept, float64."""
    return checked(scan.stored * scan.slope + scan.intercept, "hounsfield")


def resample(volume: np.ndarray, spacing: Sequence[float], new_spacing: float = SPACING, order: int = 3) -> np.ndarray:
    """The volume on a grid of new_spacing mm along all three axes, by a spline of this order (3: cubic, scipy's default)."""
    volume = checked(volume, "resample")
    check_spacing(spacing, new_spacing)
    shape = resampled_shape(volume.shape, spacing, new_spacing)
    return ndimage.zoom(volume, [new / n for new, n in zip(shape, volume.shape, strict=True)], order=order)


def lung_mask(volume: np.ndarray) -> np.ndarray:
    """True in the lungs and what they enclose: bool, of the volume's shape, for a volume in HU at 2 mm."""
    return closing(lungs(checked(volume, "lung_mask") < AIR_BELOW), CLOSING)


def lungs(air: np.ndarray) -> np.ndarray:
    """The two largest components of the air that do not touch the sides, looking for the voxels of each component in turn."""
    labels, count = ndimage.label(air)
    _, rows, columns = air.shape
    inside = []
    for k in range(1, count + 1):
        z, y, x = np.nonzero(labels == k)
        if y.min() > 0 and y.max() < rows - 1 and x.min() > 0 and x.max() < columns - 1:
            inside.append((len(z), k))
    mask = np.zeros_like(air)
    for size, k in sorted(inside)[-2:]:
        if size > SMALLEST_LUNG:
            mask |= labels == k
    if not mask.any():
        raise no_lung(max(inside, default=(0, 0))[0])
    return mask


def closing(mask: np.ndarray, radius: int = CLOSING) -> np.ndarray:
    """The mask closed with a ball of `radius` voxels, in one pass: for each voxel all voxels of the ball are looked at."""
    z, y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1, -radius : radius + 1]
    ball = z**2 + y**2 + x**2 <= radius**2
    return ndimage.binary_closing(np.pad(mask, radius), structure=ball)[(slice(radius, -radius),) * mask.ndim]


def normalize(volume: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """(HU + 1000) / 1400, cut off at 0 and 1, and 0 outside the mask: one voxel after the other."""
    volume = checked(volume, "normalize")
    same_shape(volume, mask, "normalize")
    out = np.empty_like(volume)
    for z in range(volume.shape[0]):
        for y in range(volume.shape[1]):
            for x in range(volume.shape[2]):
                out[z, y, x] = min(max((volume[z, y, x] - LOW) / (HIGH - LOW), 0.0), 1.0) * mask[z, y, x]
    return out


def cut_patches(volume: np.ndarray, size: int = PATCH, stride: int = STRIDE) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping patches (n, size, size, size) of the volume, and the first voxel (n, 3) of each, copied one by one."""
    corners, patches = patch_corners(checked(volume, "cut_patches").shape, size, stride), []
    for z, y, x in corners:
        patches.append(volume[z : z + size, y : y + size, x : x + size].copy())
    return np.stack(patches), corners


def apply_network(network: nn.Module, patches: np.ndarray, batch: int = 1) -> np.ndarray:
    """The network's outputs (n, 5, cells, cells, cells), float64, patch by patch, with the graph for a gradient."""
    network = copy.deepcopy(network).cpu().double()
    outputs = []
    for patch in patches:
        out = network(torch.tensor(patch, dtype=torch.float64)[None, None])
        outputs.append(out[0].detach().numpy())
    return np.stack(outputs)


def decode(
    outputs: np.ndarray,
    corners: np.ndarray,
    mask: np.ndarray,
    voxel: Sequence[float] = (SPACING,) * 3,
    certain: float = CERTAIN,
) -> np.ndarray:
    """Candidates (n, 5): center z, y, x and radius in mm, score; one cell after the other of those that are certain enough."""
    candidates = []
    for out, corner in zip(checked(outputs, "decode"), corners, strict=True):
        scores = 1 / (1 + np.exp(-out[0].astype(np.float64)))
        for cell in np.argwhere(scores >= certain):
            _, *place, log_radius = out[(slice(None), *cell)]
            center = [corner[axis] + CELL * (cell[axis] + place[axis]) for axis in range(3)]
            at = tuple(min(max(round(voxel_at), 0), n - 1) for voxel_at, n in zip(center, mask.shape, strict=True))
            if mask[at]:
                radius = math.exp(log_radius) * SPACING
                candidates.append([*(i * mm for i, mm in zip(center, voxel, strict=True)), radius, scores[tuple(cell)]])
    return np.array(candidates).reshape(-1, 5)


def merge(candidates: np.ndarray, apart: float = APART) -> np.ndarray:
    """Detections (n, 5): each candidate, the largest score first, is compared with every one that was kept."""
    kept = []
    for candidate in sorted(candidates.tolist(), key=lambda found: -found[4]):
        near = False
        for better in kept:
            distance = math.sqrt(sum((candidate[axis] - better[axis]) ** 2 for axis in range(3)))
            if distance <= max(apart, 1.5 * better[3]):
                near = True
        if not near:
            kept.append(candidate)
    return np.array(kept).reshape(-1, 5)
