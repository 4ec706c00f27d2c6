"""Augmentation of patches, as in the lecture: cropping, symmetry, rotation, elastic deformation. Labels move with the picture.

All four are one map: the voxel p of the patch shows what lies in the volume at

    q(p) = corner + m + R (p - m) + u(p),        m: the middle of the patch

with a corner drawn at random (cropping), an orthogonal matrix R (a symmetry of the cube, and a rotation), and a smooth field u
(elastic). The picture is read at q(p). A center that lies at q in the volume is at the p with q(p) = q in the patch.
"""

from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from hpml_lab.capstone.lessons.stages import spline_matrix

DEGREES = 20.0  # of a rotation, at most
STRETCH, KNOTS = 1.0, 4  # voxels: the field's standard deviation at its KNOTS³ knots


def symmetry(draw: np.random.Generator) -> np.ndarray:
    """One of the 48 symmetries of a cube: axes exchanged and mirrored; a matrix with one 1 or -1 in each row and column."""
    return np.eye(3)[draw.permutation(3)] * draw.choice([-1.0, 1.0], 3)


def rotation(draw: np.random.Generator, degrees: float = DEGREES) -> np.ndarray:
    """By up to so many degrees about a random axis a: I + sin(t) K + (1 - cos(t)) K², K the matrix of the cross product a x."""
    z, y, x = (axis := draw.standard_normal(3)) / np.linalg.norm(axis)
    cross = np.array([[0, -x, y], [x, 0, -z], [-y, z, 0]])
    angle = np.radians(draw.uniform(-degrees, degrees))
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def elastic(draw: np.random.Generator, edge: int, stretch: float = STRETCH) -> np.ndarray:
    """A smooth field u (3, edge, edge, edge) in voxels: random at a few knots, with cubic splines in between."""
    knots, spline = draw.normal(0, stretch, (3, KNOTS, KNOTS, KNOTS)), spline_matrix(KNOTS, edge)
    return np.einsum("cijk,zi,yj,xk->czyx", knots, spline, spline, spline, optimize=True)


def warped(
    volume: np.ndarray, centers: np.ndarray, corner: Sequence[float], matrix: np.ndarray, field: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The patch, of the field's size, and the centers (n, 3) in voxels from its first; 0 where the volume has ended."""
    edge = field.shape[-1]
    middle = np.full(3, (edge - 1) / 2)
    p = np.indices(field.shape[1:], np.float32) - middle[:, None, None, None]
    q = np.tensordot(matrix, p, 1) + (corner + middle)[:, None, None, None] + field
    patch = ndimage.map_coordinates(volume, q.astype(np.float32), order=1)
    # p = m + R⁻¹ (q - corner - m - u(p)): u changes little from voxel to voxel, so a few rounds find p.
    found = centers
    for _ in range(10):
        u = np.stack([ndimage.map_coordinates(part, found.T, order=1, mode="nearest") for part in field], axis=1)
        found = middle + (centers - corner - middle - u) @ matrix  # R is orthogonal: R⁻¹ = Rᵀ
    return patch, found


def augmented(
    volume: np.ndarray, centers: np.ndarray, corner: Sequence[float], edge: int, draw: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A patch of `edge` voxels at the corner, turned, mirrored, rotated and stretched at random, and where the centers are."""
    return warped(volume, centers, corner, symmetry(draw) @ rotation(draw), elastic(draw, edge))
