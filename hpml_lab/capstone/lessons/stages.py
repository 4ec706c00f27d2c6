"""The stages of the pipeline from a CT scan to nodules, fast: whole arrays in float32, no loop over voxels or components.

    volume = resample(hounsfield(scan), scan.spacing)
    mask = lung_mask(volume)
    patches, corners = cut_patches(normalize(volume, mask))
    outputs = apply_network(network, patches)
    nodules = merge(decode(outputs, corners, mask, voxel_size(scan.stored.shape, scan.spacing)))

`slow_stages` is a researcher's first script, with functions of the same names and results. Volumes are arrays (slices, rows,
columns) = (z, y, x). Positions in the scan are in mm from the center of the first voxel. Bad input raises a LabError that names
the stage.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError

SPACING = 2.0  # mm between voxels after resampling
AIR_BELOW = -400.0  # HU: what is below is air, of the lungs or around the patient
SMALLEST_LUNG = 500  # voxels
CLOSING = 6  # voxels: nodules and vessels up to twice as wide become part of the mask
LOW, HIGH = -1000.0, 400.0  # HU that become 0 and 1
PATCH, STRIDE = 32, 16  # voxels
CELL = 4  # voxels along each edge of a cell, for which the network says whether a nodule has its center there
CERTAIN = 0.05  # a cell with a smaller probability is no candidate
APART = 12.0  # mm: candidates that are nearer to each other are one nodule


def hounsfield(scan) -> np.ndarray:
    """HU = slope · stored + intercept, float32. Air has −1000 HU and water 0."""
    volume = scan.stored.astype(np.float32)
    volume *= np.float32(scan.slope)
    volume += np.float32(scan.intercept)
    return checked(volume, "hounsfield")


def resampled_shape(shape: Sequence[int], spacing: Sequence[float], new_spacing: float = SPACING) -> tuple[int, ...]:
    """The number of voxels along each axis for (about) new_spacing mm between their centers."""
    return tuple(max(1, round(n * mm / new_spacing)) for n, mm in zip(shape, spacing, strict=True))


def voxel_size(shape: Sequence[int], spacing: Sequence[float], new_spacing: float = SPACING) -> tuple[float, ...]:
    """The exact mm between voxel centers after `resample`, for each axis.

    The first and the last voxel keep their places, so that (n − 1) · spacing mm are divided into (new n − 1) equal steps.
    """
    new_shape = resampled_shape(shape, spacing, new_spacing)
    return tuple((n - 1) * mm / max(new - 1, 1) for n, mm, new in zip(shape, spacing, new_shape, strict=True))


def resample(volume: np.ndarray, spacing: Sequence[float], new_spacing: float = SPACING, order: int = 1) -> np.ndarray:
    """The volume on a grid of new_spacing mm along all three axes, as `voxel_size` says.

    spacing  mm between voxel centers (z, y, x)
    order    1: linear interpolation; 3: cubic splines, as `ndimage.zoom` has them
    """
    volume = checked(volume, "resample")
    if order not in (1, 3):
        raise LabError(f"resample: splines of order {order} are not here.", "Use order 1 (linear) or 3 (cubic).")
    check_spacing(spacing, new_spacing)
    by = linear if order == 1 else cubic
    return by(torch.from_numpy(volume), resampled_shape(volume.shape, spacing, new_spacing)).numpy()


def linear(volume: Tensor, shape: Sequence[int]) -> Tensor:
    """The volume on a grid of this shape by linear interpolation, on its device."""
    return F.interpolate(volume[None, None], size=tuple(shape), mode="trilinear", align_corners=True)[0, 0]


def cubic(volume: Tensor, shape: Sequence[int]) -> Tensor:
    """The volume on a grid of this shape by cubic splines, on its device: one matrix product along each axis, in float64.

    Interpolation is linear in the voxels, and does the same along each line of an axis. Its matrix is therefore what
    `ndimage.zoom` makes of the unit vectors.
    """
    found = volume.double()
    for axis in (2, 1, 0):
        matrix = torch.from_numpy(spline_matrix(volume.shape[axis], shape[axis])).to(volume.device)
        found = torch.tensordot(found, matrix, ([axis], [1])).movedim(-1, axis)
    return found.to(volume.dtype).contiguous()


@lru_cache
def spline_matrix(before: int, after: int) -> np.ndarray:
    """(after, before): the cubic spline through `before` values, read at `after` places from the first to the last."""
    return ndimage.zoom(np.eye(before), (after / before, 1), order=3)


def lung_mask(volume: np.ndarray) -> np.ndarray:
    """True in the lungs and what they enclose: bool, of the volume's shape, for a volume in HU at 2 mm.

    Air (below −400 HU) is divided into connected components. Those at the sides of the volume are the air around the patient;
    of the rest the two largest are the lungs. Nodules are not air: only closing makes them a part of the mask.
    """
    return closing(lungs(checked(volume, "lung_mask") < AIR_BELOW), CLOSING)


def lungs(air: np.ndarray) -> np.ndarray:
    """The two largest components of the air that do not touch the sides of the volume, by one table of sizes."""
    labels, count = ndimage.label(air)
    sizes = np.bincount(labels.ravel(), minlength=count + 1)
    sizes[0] = 0
    for side in (labels[:, 0], labels[:, -1], labels[:, :, 0], labels[:, :, -1]):
        sizes[side] = 0
    largest = np.argsort(sizes, kind="stable")[-2:]
    keep = np.zeros(count + 1, bool)
    keep[largest[sizes[largest] > SMALLEST_LUNG]] = True
    if not keep.any():
        raise no_lung(int(sizes.max(initial=0)))
    return keep[labels]


def closing(mask: np.ndarray, radius: int = CLOSING) -> np.ndarray:
    """The mask closed with a ball: first all voxels within `radius` voxels are added, then those near the outside removed.

    Equal to `ndimage.binary_closing` with a ball, and to two Euclidean distance transforms. But whether the squared distance
    is at most r² needs no distance beyond r: it is the least over |d| <= r of d² along one axis after the other, in bytes.
    """
    box = bounds(mask)
    near = within(np.pad(mask[box], radius + 1), radius)
    closed = np.zeros_like(mask)
    inner = (slice(radius + 1, -radius - 1),) * mask.ndim
    closed[box] = ~within(~near, radius)[inner]
    return closed


def within(mask: np.ndarray, radius: int) -> np.ndarray:
    """True where a voxel of the mask is at most `radius` voxels (at most 11) away: a squared distance transform, cut off."""
    far = np.uint8(255 - radius**2)  # more than radius², and no sum leaves a byte
    squared = np.where(mask, np.uint8(0), far)
    for axis in range(mask.ndim):
        before = np.moveaxis(squared, axis, 0)
        squared = squared.copy()
        after = np.moveaxis(squared, axis, 0)
        for d in range(1, min(radius, len(after) - 1) + 1):
            np.minimum(after[d:], before[:-d] + np.uint8(d * d), out=after[d:])
            np.minimum(after[:-d], before[d:] + np.uint8(d * d), out=after[:-d])
    return squared <= radius**2


def closing_by_transforms(mask: np.ndarray, radius: int = CLOSING) -> np.ndarray:
    """`closing` by two complete Euclidean distance transforms, on the way from a ball to bytes."""
    near = ndimage.distance_transform_edt(~np.pad(mask, radius + 1)) <= radius
    return (ndimage.distance_transform_edt(near) > radius)[(slice(radius + 1, -radius - 1),) * mask.ndim]


def bounds(mask: np.ndarray) -> tuple[slice, ...]:
    """The smallest box that holds the mask."""
    axes = range(mask.ndim)
    found = [np.flatnonzero(mask.any(tuple(other for other in axes if other != axis))) for axis in axes]
    return tuple(slice(int(at[0]), int(at[-1]) + 1) if len(at) else slice(0, 0) for at in found)


def normalize(volume: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """(HU + 1000) / 1400, cut off at 0 and 1, and 0 outside the mask: float32 without unit."""
    out = checked(volume, "normalize").astype(np.float32)
    same_shape(out, mask, "normalize")
    out -= np.float32(LOW)
    out /= np.float32(HIGH - LOW)
    np.clip(out, 0, 1, out=out)
    out *= mask
    return out


def patch_corners(shape: Sequence[int], size: int = PATCH, stride: int = STRIDE) -> np.ndarray:
    """The first voxels (n, 3) of all patches, the last axis fastest. The last patch along an axis ends with the volume."""
    if min(shape) < size:
        small = f"a volume of {' x '.join(map(str, shape))} voxels is smaller than a patch, {size} along each axis."
        raise LabError(f"cut_patches: {small}", "Check the spacing of the scan, or take smaller patches.")
    starts = [sorted({*range(0, n - size + 1, stride), n - size}) for n in shape]
    return np.stack(np.meshgrid(*starts, indexing="ij"), -1).reshape(-1, 3)


def cut_patches(volume: np.ndarray, size: int = PATCH, stride: int = STRIDE) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping patches (n, size, size, size), and the first voxel (n, 3) of each; size and stride in voxels."""
    corners = patch_corners(volume.shape, size, stride)
    windows = np.lib.stride_tricks.sliding_window_view(checked(volume, "cut_patches"), (size,) * 3)
    return windows[tuple(corners.T)], corners


def apply_network(network: nn.Module, patches: np.ndarray, batch: int = 16) -> np.ndarray:
    """The network's outputs (n, 5, cells, cells, cells), float32, for patches (n, size, size, size), in batches.

    Of each cell: logit, the center's place in the cell (z, y, x, 0 to 1), and the log of the radius in units of 2 mm.
    """
    device, batches = next(network.parameters()).device, torch.from_numpy(patches)[:, None].split(batch)
    with torch.inference_mode():
        parts = [network(part.to(device)).float().cpu() for part in batches]
    return torch.cat(parts).numpy()


def decode(
    outputs: np.ndarray,
    corners: np.ndarray,
    mask: np.ndarray,
    voxel: Sequence[float] = (SPACING,) * 3,
    certain: float = CERTAIN,
) -> np.ndarray:
    """Candidates (n, 5) in float64: center z, y, x and radius in mm, score 0 to 1; of the cells that are certain enough.

    voxel    mm between voxel centers, as `voxel_size` gives them
    certain  a cell with a smaller score is left out, and so is one whose center is outside the mask
    """
    scores = 1 / (1 + np.exp(-checked(outputs, "decode")[:, 0].astype(np.float64)))
    n, *cell = np.nonzero(scores >= certain)
    found = outputs[(n, slice(None), *cell)].astype(np.float64)
    centers = corners[n] + CELL * (np.stack(cell, 1) + found[:, 1:4])
    at = np.clip(np.rint(centers).astype(int), 0, np.array(mask.shape) - 1)
    inside = mask[tuple(at.T)]
    radii = np.exp(found[:, 4]) * SPACING
    return np.column_stack([centers * np.array(voxel), radii, scores[(n, *cell)]])[inside]


def merge(candidates: np.ndarray, apart: float = APART) -> np.ndarray:
    """Detections (n, 5): candidates by score, the largest first, without those near a better one (non-maximum suppression).

    Near is a distance of at most max(apart, 1.5 · the better one's radius) mm. Of equal scores the first candidate wins.
    """
    left = candidates[np.argsort(-candidates[:, 4], kind="stable")]
    kept = []
    while len(left):
        best = left[0]
        kept.append(best)
        squared = ((left[:, :3] - best[:3]) ** 2).sum(1)
        left = left[squared > max(apart, 1.5 * best[3]) ** 2]
    return np.array(kept).reshape(-1, 5)


# ---- what is checked ------------------------------------------------------------------------------------------------


def checked(volume: np.ndarray, stage: str) -> np.ndarray:
    """The array; LabError that names the stage if it holds NaN or infinity, or nothing."""
    if not volume.size:
        raise LabError(f"{stage}: the volume has no voxels (shape {volume.shape}).", "Check the file that it was read from.")
    if volume.dtype.kind == "f" and not np.isfinite([volume.min(), volume.max()]).all():
        bad = volume.size - int(np.isfinite(volume).sum())
        problem = f"{stage}: {bad} of {volume.size} values are NaN or infinite."
        raise LabError(problem, "Check the scan's slope, intercept and stored values.")
    return volume


def check_spacing(spacing: Sequence[float], new_spacing: float) -> None:
    """LabError unless all spacings are positive and finite."""
    if len(spacing) != 3 or not all(0 < mm < np.inf for mm in (*spacing, new_spacing)):
        problem = f"resample: the spacing {tuple(spacing)} to {new_spacing} mm is not positive."
        raise LabError(problem, "Give mm for z, y and x, all above 0.")


def same_shape(volume: np.ndarray, mask: np.ndarray, stage: str) -> None:
    """LabError unless the mask belongs to the volume."""
    if volume.shape != mask.shape:
        raise LabError(
            f"{stage}: a mask of shape {mask.shape} does not fit a volume of shape {volume.shape}.", "Make both from one scan."
        )


def no_lung(largest: int) -> LabError:
    """The error of a volume without lungs."""
    return LabError(
        f"lung_mask: no lung found: of the air inside the body the largest component has {largest} voxels, and a lung more "
        f"than {SMALLEST_LUNG}.",
        "Is it a scan of the chest, in HU (see slope and intercept), with air around the patient at its sides?",
    )
