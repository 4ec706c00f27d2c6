"""Augmentation: the maps are what they are called, and a label is where its nodule is after each of them."""

import numpy as np
import pytest
import torch

from hpml_lab.capstone import augmented_patches
from hpml_lab.capstone.lessons import augmentation, detector
from hpml_lab.capstone.lessons.augmentation import augmented, elastic, rotation, symmetry, warped
from hpml_lab.capstone.tools import ct, prepared

EDGE, MIDDLE = 24, np.array([31.0, 27.5, 33.2])
STILL = np.zeros((3, EDGE, EDGE, EDGE))
CORNER = np.array([23, 13, 18])


@pytest.fixture(scope="module")
def volume():
    """A smooth bright ball around MIDDLE."""
    squared = sum((axis - c) ** 2 for axis, c in zip(np.indices((60, 56, 64)), MIDDLE, strict=True))
    return np.exp(-squared / 1.5).astype(np.float32)


def light(patch):
    """The center of light of a patch, in voxels."""
    return (np.indices(patch.shape) * patch).sum((1, 2, 3)) / patch.sum()


def draws(count):
    return map(np.random.default_rng, range(count))


def test_a_symmetry_exchanges_and_mirrors_axes_and_all_48_are_drawn():
    found = {tuple(symmetry(draw).ravel()) for draw in draws(600)}
    assert len(found) == 48
    for matrix in (np.reshape(values, (3, 3)) for values in found):
        assert (np.abs(matrix).sum(0) == 1).all() and (np.abs(matrix).sum(1) == 1).all()


def test_a_rotation_turns_by_no_more_than_its_degrees():
    for draw in draws(20):
        matrix = rotation(draw, 20)
        assert matrix @ matrix.T == pytest.approx(np.eye(3)) and np.linalg.det(matrix) == pytest.approx(1)
        assert np.degrees(np.arccos((np.trace(matrix) - 1) / 2)) <= 20 + 1e-6


def test_an_elastic_field_is_smooth_and_as_strong_as_asked():
    field = np.stack([elastic(draw, EDGE, 2.0) for draw in draws(8)])
    assert field.shape == (8, 3, EDGE, EDGE, EDGE) and 1.2 < field.std() < 2.4
    assert max(np.abs(np.diff(field, axis=axis)).max() for axis in (2, 3, 4)) < 2, "less than it varies: no fold in it"


def test_without_a_field_a_symmetry_is_a_slice_turned_and_mirrored(volume):
    cut = volume[23:47, 13:37, 18:42]
    patch, centers = warped(volume, MIDDLE[None], CORNER, np.eye(3), STILL)
    assert np.array_equal(patch, cut) and centers[0] == pytest.approx(MIDDLE - CORNER)
    mirror = np.diag([1.0, -1.0, 1.0])[[2, 1, 0]]
    patch, _ = warped(volume, MIDDLE[None], CORNER, mirror, STILL)
    assert patch == pytest.approx(cut.transpose(2, 1, 0)[:, ::-1], abs=1e-5)


@pytest.mark.parametrize("kind", ["symmetry", "rotation", "cropping", "elastic", "all"])
def test_the_label_moves_with_the_picture(volume, kind):
    moved = []
    for draw in draws(8):
        if kind == "all":
            patch, centers = augmented(volume, MIDDLE[None], CORNER, EDGE, draw)
        else:
            matrix = {"symmetry": symmetry, "rotation": rotation}.get(kind, lambda draw: np.eye(3))(draw)
            corner = CORNER + draw.integers(-4, 5, 3) if kind == "cropping" else CORNER
            patch, centers = warped(volume, MIDDLE[None], corner, matrix, elastic(draw, EDGE) if kind == "elastic" else STILL)
        assert np.linalg.norm(light(patch) - centers[0]) < 0.5, "a stretched ball is no longer round"
        moved.append(np.linalg.norm(centers[0] - (MIDDLE - CORNER)))
    assert max(moved) > 1, "a label that stays behind would be seen"


def test_a_center_is_at_the_voxel_whose_source_it_is():
    draw = np.random.default_rng(3)
    matrix, field = symmetry(draw) @ rotation(draw), elastic(draw, EDGE)
    _, [p] = warped(np.zeros((60, 56, 64), np.float32), MIDDLE[None], CORNER, matrix, field)
    u = [augmentation.ndimage.map_coordinates(part, p[:, None], order=1)[0] for part in field]
    m = (EDGE - 1) / 2
    assert CORNER + m + matrix @ (p - m) + u == pytest.approx(MIDDLE, abs=1e-3)


def test_a_generator_decides_and_the_volume_and_its_centers_stay(volume):
    before, centers = volume.copy(), MIDDLE[None].copy()
    (first, here), (second, there) = (augmented(volume, centers, CORNER, EDGE, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first, second) and np.array_equal(here, there)
    assert np.array_equal(volume, before) and np.array_equal(centers, MIDDLE[None])
    assert (warped(volume + 1, MIDDLE[None], CORNER - 100, np.eye(3), STILL)[0] == 0).all(), "outside of the volume"


def test_a_batch_that_is_augmented_has_its_nodules_where_the_targets_say():
    scans = prepared.patients(range(2), shape=(32, 80, 80), spacing=(5.0, 2.4, 2.4), sick=True)
    patches, targets = detector.training_batch(scans, np.random.default_rng(0), 12, 32, augmented)
    assert patches.shape == (12, 1, 32, 32, 32) and targets.shape == (12, 5, 8, 8, 8)
    found = []
    for n, *cell in (targets[:, 0] > 0).nonzero().tolist():
        center = 4 * (torch.tensor(cell) + targets[(n, slice(1, 4), *cell)])
        found.append(patches[(n, 0, *center.round().long().clamp(max=31).tolist())].item())
    assert len(found) > 4 and np.median(found) > 0.6, "solid, not lung"


def test_the_picture_has_a_circle_on_each_patch():
    drawn = augmented_patches(ct.synthetic(11, shape=(32, 96, 96), spacing=(5.0, 2.0, 2.0), sick=True)).figure
    assert len(drawn.axes) == 5 and all(len(axes.patches) == 1 for axes in drawn.axes)
    assert all(axes.images[0].get_array().max() > 0.5 for axes in drawn.axes), "the cut goes through the nodule"
