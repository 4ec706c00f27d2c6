"""The stages: the fast version gives what the slow one gives, positions are in mm, and bad input is named with its stage."""

import copy
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from hpml_lab.capstone.lessons import slow_stages, stages
from hpml_lab.capstone.lessons.detector import initialized
from hpml_lab.capstone.tools import ct
from hpml_lab.core.system.errors import LabError

BOTH = pytest.mark.parametrize("version", [stages, slow_stages], ids=["fast", "slow"])


@pytest.fixture(scope="module")
def scan():
    return ct.synthetic(3, shape=(32, 80, 80), spacing=(5.0, 2.4, 2.4), sick=True)


@pytest.fixture(scope="module")
def volume(scan):
    return stages.resample(stages.hounsfield(scan), scan.spacing)


@pytest.fixture(scope="module")
def mask(volume):
    return stages.lung_mask(volume)


# ---- Both versions agree ---------------------------------------------------------------------------------------------


def test_hounsfield_units_are_slope_times_stored_plus_intercept_in_float32(scan):
    scaled = replace(scan, slope=0.5, intercept=-100.25)
    fast, slow = stages.hounsfield(scaled), slow_stages.hounsfield(scaled)
    assert fast.dtype == slow.dtype == np.float32
    assert slow[3, 40, 40] == scan.stored[3, 40, 40] * 0.5 - 100.25
    assert np.array_equal(fast, slow)


def test_matrices_are_zoom_up_to_rounding_and_linear_interpolation_is_another_method(scan, volume):
    hu = stages.hounsfield(scan)
    zoom = slow_stages.resample(hu, scan.spacing)
    cubic = stages.resample(hu, scan.spacing, order=3)
    assert cubic.shape == zoom.shape == volume.shape and cubic.dtype == zoom.dtype == np.float32
    assert np.abs(cubic - zoom).max() <= 1e-3
    assert np.quantile(np.abs(cubic - volume), 0.99) > 10
    by_scipy = ndimage.zoom(hu, [new / n for new, n in zip(volume.shape, hu.shape, strict=True)], order=1)
    assert np.abs(by_scipy - volume).max() <= 0.02


@pytest.mark.parametrize("seed", range(3))
def test_components_are_bitwise_equal_in_air_full_of_noise(seed):
    draw = np.random.default_rng(seed)
    air = draw.random((14, 30, 30)) < 0.15
    air[1:13, 3:14, 3:14] = air[1:13, 16:27, 4:15] = False
    air[2:12, 4:13, 4:13] = air[2:12, 17:26, 5:14] = True
    air[:, 0] = True
    assert ndimage.label(air)[1] > 100
    found = stages.lungs(air)
    assert np.array_equal(found, slow_stages.lungs(air))
    assert found[5, 8, 8] and found[5, 20, 8] and not found[:, 0].any()


def test_of_equally_large_components_both_versions_keep_the_same():
    air = np.zeros((10, 40, 40), bool)
    for start in (2, 14, 26):
        air[1:9, start : start + 10, 2:12] = True
    assert np.array_equal(stages.lungs(air), slow_stages.lungs(air))
    assert stages.lungs(air).sum() == 2 * 800


def test_a_component_too_small_for_a_lung_is_left_out():
    air = np.zeros((10, 40, 40), bool)
    air[1:9, 2:12, 2:12] = air[1:9, 20:25, 20:25] = True
    for version in (stages, slow_stages):
        assert version.lungs(air).sum() == 800


@pytest.mark.parametrize("radius", [1, 2, 3, 6])
def test_closing_in_bytes_by_transforms_and_with_a_ball_are_bitwise_equal(radius):
    draw = np.random.default_rng(radius)
    mask = ndimage.binary_dilation(draw.random((16, 20, 24)) < 0.004, iterations=2)
    mask[:3, :4, :5] = True  # touches three sides
    with_ball = slow_stages.closing(mask, radius)
    assert with_ball.sum() > mask.sum() or radius == 1
    assert np.array_equal(stages.closing(mask, radius), with_ball)
    assert np.array_equal(stages.closing_by_transforms(mask, radius), with_ball)


def test_an_empty_and_a_full_mask_stay_what_they_are():
    for mask in (np.zeros((9, 10, 11), bool), np.ones((9, 10, 11), bool)):
        assert np.array_equal(stages.closing(mask), mask)
        assert np.array_equal(slow_stages.closing(mask), mask)


def test_distances_up_to_the_largest_radius_fit_into_a_byte():
    mask = np.zeros((25, 25, 25), bool)
    mask[12, 12, 12] = True
    exact = ndimage.distance_transform_edt(~mask)
    for radius in (1, 5, 11):
        assert np.array_equal(stages.within(mask, radius), exact <= radius)


def test_normalized_volumes_are_bitwise_equal_and_0_to_1(volume, mask):
    fast = stages.normalize(volume, mask)
    assert fast.dtype == np.float32 and np.array_equal(fast, slow_stages.normalize(volume, mask))
    assert fast.min() == 0 and fast.max() <= 1 and not fast[~mask].any()
    hu = np.array([[[-2000.0, -1000.0, -300.0, 400.0, 3000.0]]])
    assert stages.normalize(hu, np.ones(hu.shape, bool)).ravel().tolist() == [0, 0, 0.5, 1, 1]
    assert hu[0, 0, 0] == -2000, "the volume stays as it is"


@pytest.mark.parametrize("shape, size, stride", [((80, 78, 81), 32, 16), ((9, 8, 10), 8, 3), ((6, 6, 6), 6, 2)])
def test_patches_are_bitwise_equal_and_cover_every_voxel(shape, size, stride):
    volume = np.random.default_rng(0).random(shape, np.float32)
    (fast, corners), (slow, same) = (version.cut_patches(volume, size, stride) for version in (stages, slow_stages))
    assert np.array_equal(fast, slow) and np.array_equal(corners, same)
    covered = np.zeros(shape, bool)
    for patch, corner in zip(fast, corners, strict=True):
        box = tuple(slice(start, start + size) for start in corner)
        assert np.array_equal(volume[box], patch)
        covered[box] = True
    assert covered.all() and len({tuple(corner) for corner in corners}) == len(corners)


def candidates_of(seed, count=300):
    draw = np.random.default_rng(seed)
    found = np.column_stack([draw.uniform(0, 80, (count, 3)), draw.uniform(2, 12, count), draw.random(count)])
    found[::7, 4] = 0.5  # equal scores
    return found


@pytest.mark.parametrize("seed", range(3))
def test_merging_is_bitwise_equal_with_equal_scores_and_changes_nothing(seed):
    given = candidates_of(seed)
    kept = given.copy()
    merged = stages.merge(given)
    assert np.array_equal(merged, slow_stages.merge(given)) and np.array_equal(given, kept)
    assert 1 < len(merged) < 300 and (np.diff(merged[:, 4]) <= 0).all()


@BOTH
def test_merging_keeps_the_best_within_12_mm_or_1_5_radii(version):
    given = np.array([[0, 0, 0, 4, 0.5], [0, 0, 12, 4, 0.9], [0, 0, 24.1, 4, 0.7], [50, 0, 0, 20, 0.8], [79, 0, 0, 3, 0.6]])
    assert version.merge(given)[:, 4].tolist() == [0.9, 0.8, 0.7]
    assert version.merge(given[:0]).shape == (0, 5)


def random_outputs(seed, patches=6):
    draw = np.random.default_rng(seed)
    outputs = draw.normal(0, 1, (patches, 5, 8, 8, 8)).astype(np.float32)
    outputs[:, 0] -= 1.5
    outputs[:, 1:4] = draw.random((patches, 3, 8, 8, 8))
    return outputs


def test_decoded_candidates_agree_to_rounding():
    corners, mask = np.array([[0, 0, 0], [0, 16, 32], [8, 16, 0]] * 2), np.ones((40, 48, 64), bool)
    mask[:, :, 30:] = False
    fast, slow = (version.decode(random_outputs(0), corners, mask, (2.0, 1.9, 2.1), 0.4) for version in (stages, slow_stages))
    assert fast.shape == slow.shape and 50 < len(fast) < 6 * 512
    np.testing.assert_allclose(fast, slow, rtol=1e-6)
    assert (fast[:, 2] / 2.1 < 30.1).all(), "centers outside the mask are left out"


@BOTH
def test_a_cell_is_decoded_to_millimeters(version):
    outputs = np.full((1, 5, 8, 8, 8), -20.0, np.float32)
    outputs[0, :, 1, 2, 3] = [0.0, 0.25, 0.5, 0.75, np.log(3.0)]
    found = version.decode(outputs, np.array([[16, 0, 4]]), np.ones((64, 64, 64), bool), (2.0, 2.5, 1.0))
    np.testing.assert_allclose(found, [[2 * (16 + 5), 2.5 * 10, 4 + 15, 6.0, 0.5]], rtol=1e-6)
    assert version.decode(outputs, np.array([[16, 0, 4]]), np.zeros((64, 64, 64), bool)).shape == (0, 5)


@pytest.fixture(scope="module")
def network():
    """A network as after training: statistics and weights of batch normalization are not those of the start."""
    made, network = torch.Generator().manual_seed(0), initialized(0)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm3d):
                layer.running_mean.normal_(0, 0.05, generator=made)
                layer.running_var.uniform_(0.02, 0.1, generator=made)
                layer.weight.uniform_(0.5, 1.5, generator=made)
        network.head.bias[0] = 0
    return network.eval()


def test_batches_and_folding_change_positions_and_scores_by_less_than_a_thousandth(network):
    patches = np.random.default_rng(0).random((6, 32, 32, 32), np.float32)
    corners, mask = np.zeros((6, 3), int), np.ones((64, 64, 64), bool)
    folded = copy.deepcopy(network)
    for block in folded.body:
        block[0], block[1] = fuse_conv_bn_eval(block[0], block[1]), nn.Identity()
    found = [
        stages.decode(outputs, corners, mask, certain=0.0)
        for outputs in (
            slow_stages.apply_network(network, patches),
            stages.apply_network(network, patches, batch=1),
            stages.apply_network(network, patches, batch=4),
            stages.apply_network(folded, patches),
        )
    ]
    assert len(found[0]) == 6 * 512 and np.ptp(found[0][:, 4]) > 0.02
    for other in found[1:]:
        assert np.abs(other - found[0])[:, [0, 1, 2, 4]].max() < 1e-3
        np.testing.assert_allclose(other[:, 3], found[0][:, 3], rtol=1e-4)


# ---- Units -----------------------------------------------------------------------------------------------------------


def test_the_first_and_the_last_voxel_keep_their_places():
    shape, spacing = (20, 30, 41), (2.5, 1.3, 0.7)
    ramp = np.broadcast_to(np.arange(41) * 0.7, shape).astype(np.float32)  # mm along x
    resampled, voxel = stages.resample(ramp, spacing), stages.voxel_size(shape, spacing)
    assert resampled.shape == stages.resampled_shape(shape, spacing) == (25, 20, 14)
    np.testing.assert_allclose(resampled[3, 4], np.arange(14) * voxel[2], atol=1e-4)
    assert all(abs(mm - 2) < 0.2 for mm in voxel)


def test_nodules_are_solid_where_voxel_sizes_say_and_only_closing_puts_them_into_the_mask(scan, volume, mask):
    voxel = np.array(stages.voxel_size(scan.stored.shape, scan.spacing))
    lungs = stages.lungs(volume < stages.AIR_BELOW)
    assert len(scan.nodules)
    for *center, _ in scan.nodules:
        at = tuple(np.rint(center / voxel).astype(int))
        assert volume[at] > -300
        assert mask[at] and not lungs[at]


# ---- Bad input -------------------------------------------------------------------------------------------------------


def fails(stage, call, text=""):
    with pytest.raises(LabError, match=rf"^{stage}: .*{re.escape(text)}"):
        call()


def test_nan_is_named_with_the_stage_that_met_it(scan, volume, mask):
    fails("hounsfield", lambda: stages.hounsfield(type("Bad", (), {"stored": scan.stored, "slope": np.nan, "intercept": 0.0})))
    for bad in (np.nan, np.inf):
        spoiled = volume.copy()
        spoiled[5, 6, 7] = bad
        count = f"1 of {volume.size} values are NaN or infinite"
        fails("resample", lambda given=spoiled: stages.resample(given, scan.spacing), count)
        fails("lung_mask", lambda given=spoiled: stages.lung_mask(given), count)
        fails("normalize", lambda given=spoiled: stages.normalize(given, mask), count)
        fails("cut_patches", lambda given=spoiled: stages.cut_patches(given), count)
    outputs = random_outputs(0)
    outputs[0, 0, 0, 0, 0] = np.nan
    fails("decode", lambda: stages.decode(outputs, np.zeros((6, 3), int), mask))


def test_a_volume_without_lungs_is_named():
    for hu in (-1000.0, 40.0):
        fails("lung_mask", lambda value=hu: stages.lung_mask(np.full((12, 20, 20), value)), "no lung found")
    small = np.full((12, 20, 20), 40.0)
    small[3:8, 5:9, 5:9] = -800
    fails("lung_mask", lambda: stages.lung_mask(small), "the largest component has 80 voxels")


def test_a_volume_smaller_than_a_patch_an_empty_one_and_a_wrong_mask_are_named(volume, mask):
    fails("cut_patches", lambda: stages.cut_patches(volume[:31]), "is smaller than a patch, 32")
    fails("lung_mask", lambda: stages.lung_mask(volume[:0]), "no voxels")
    fails("normalize", lambda: stages.normalize(volume, mask[1:]), "does not fit")


def test_a_spacing_that_is_none_is_named(volume):
    for spacing in ((2.0, 1.0, 0.0), (2.0, -1.0, 1.0), (2.0, np.nan, 1.0), (2.0, 1.0)):
        fails("resample", lambda given=spacing: stages.resample(volume, given))
    fails("resample", lambda: stages.resample(volume, (1.0, 1.0, 1.0), 0.0))


def test_splines_of_another_order_are_refused(volume):
    fails("resample", lambda: stages.resample(volume, (2.0, 2.0, 2.0), order=2), "order 2")
