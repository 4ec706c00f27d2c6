"""A researcher's first script from a CT scan to nodules: NumPy, SciPy and torch as their documentation shows them.

It works on whole arrays in float32, without a graph for a gradient. Nobody has measured it yet. `stages` has faster functions
with the same names, arguments and results.
"""

import numpy as np
import torch
from scipy import ndimage

from hpml_lab.capstone.lessons.stages import (
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
    patch_corners,
    resampled_shape,
    voxel_size,
)


def find_nodules(scan, network) -> np.ndarray:
    """Detections (n, 5) of a scan: center z, y, x and radius in mm, and score."""
    volume = resample(hounsfield(scan), scan.spacing)
    mask = closing(lungs(volume < AIR_BELOW))
    patches, corners = cut_patches(normalize(volume, mask))
    outputs = apply_network(network, patches)
    return merge(decode(outputs, corners, mask, voxel_size(scan.stored.shape, scan.spacing)))


def hounsfield(scan) -> np.ndarray:
    """HU = slope · stored + intercept."""
    return scan.stored.astype(np.float32) * np.float32(scan.slope) + np.float32(scan.intercept)


def resample(volume: np.ndarray, spacing) -> np.ndarray:
    """The volume on a grid of 2 mm, by cubic splines, SciPy's default."""
    new = resampled_shape(volume.shape, spacing)
    return ndimage.zoom(volume, [after / before for after, before in zip(new, volume.shape, strict=True)])


def lungs(air: np.ndarray) -> np.ndarray:
    """The two largest components of the air that do not touch the sides of the volume."""
    labels, count = ndimage.label(air)
    sizes = {}
    for k in range(1, count + 1):
        component = labels == k
        if not (component[:, [0, -1]].any() or component[:, :, [0, -1]].any()):
            sizes[k] = component.sum()
    largest = sorted(sizes, key=sizes.get)[-2:]
    return np.isin(labels, [k for k in largest if sizes[k] > SMALLEST_LUNG])


def closing(mask: np.ndarray, radius: int = CLOSING) -> np.ndarray:
    """The mask closed with a ball of `radius` voxels."""
    z, y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1, -radius : radius + 1]
    ball = z**2 + y**2 + x**2 <= radius**2
    return ndimage.binary_closing(np.pad(mask, radius), ball)[radius:-radius, radius:-radius, radius:-radius]


def normalize(volume: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """(HU + 1000) / 1400, cut off at 0 and 1, and 0 outside the mask."""
    return np.clip((volume - LOW) / (HIGH - LOW), 0, 1) * mask


def cut_patches(volume: np.ndarray, size: int = PATCH, stride: int = STRIDE) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping patches (n, size, size, size) of the volume, and the first voxel (n, 3) of each."""
    corners = patch_corners(volume.shape, size, stride)
    return np.stack([volume[z : z + size, y : y + size, x : x + size] for z, y, x in corners]), corners


def apply_network(network, patches: np.ndarray) -> np.ndarray:
    """The network's outputs (n, 5, cells, cells, cells), one patch after the other."""
    with torch.no_grad():
        return np.stack([network(torch.from_numpy(patch)[None, None])[0].numpy() for patch in patches])


def decode(outputs: np.ndarray, corners: np.ndarray, mask: np.ndarray, voxel=(SPACING,) * 3, certain=CERTAIN) -> np.ndarray:
    """Candidates (n, 5): center and radius in mm, and score, of the cells that are certain enough, patch by patch."""
    candidates = []
    for out, corner in zip(outputs.astype(np.float64), corners, strict=True):
        scores = 1 / (1 + np.exp(-out[0]))
        cells = np.argwhere(scores >= certain)
        _, *place, log_radius = out[:, *cells.T]
        center = corner + CELL * (cells + np.stack(place, axis=1))
        nearest = np.clip(np.rint(center).astype(int), 0, np.array(mask.shape) - 1)
        found = np.column_stack([center * voxel, np.exp(log_radius) * SPACING, scores[*cells.T]])
        candidates.append(found[mask[*nearest.T]])
    return np.concatenate(candidates)


def merge(candidates: np.ndarray, apart: float = APART) -> np.ndarray:
    """Non-maximum suppression: the largest score first, each candidate is compared with all that were kept."""
    kept = []
    for candidate in candidates[np.argsort(-candidates[:, 4], kind="stable")]:
        if not any(np.linalg.norm(candidate[:3] - better[:3]) <= max(apart, 1.5 * better[3]) for better in kept):
            kept.append(candidate)
    return np.array(kept).reshape(-1, 5)
