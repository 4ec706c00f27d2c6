"""Slices and the slider: what they show is what the scan, the mask and the detections say."""

import numpy as np
import pytest
from matplotlib.patches import Circle

from hpml_lab.capstone import augmented_patches, explore_scan, slices, synthetic
from hpml_lab.capstone.views.scan_slices import hu_slice
from hpml_lab.core.system.errors import LabError


@pytest.fixture(scope="module")
def scan():
    return synthetic(3, (24, 48, 48), (6.0, 4.0, 4.0), sick=True)


def picture(explorer):
    return bytes(explorer.image.value)


def drawn(axes, kind):
    return [patch for patch in axes.patches if isinstance(patch, kind) and patch.get_visible()]


def test_three_slices_through_the_first_nodule(scan):
    z, y, x, r = scan.nodules[0]
    shown = slices(scan)
    panels = shown.figure.axes
    for panel, across, center in zip(panels, range(3), ((x, y), (x, z), (y, z)), strict=True):
        assert np.array_equal(panel.images[0].get_array(), hu_slice(scan, across, scan.nodules[0, across]))
        assert any(c.center == pytest.approx(center) and c.radius == pytest.approx(r) for c in drawn(panel, Circle))
    assert len(repr(shown)) > 60


def test_a_ball_is_cut_where_the_plane_is(scan):
    z, y, x, r = scan.nodules[0]
    [circle] = drawn(slices(scan, at=(z + 0.6 * r, y, x)).figure.axes[0], Circle)
    assert circle.radius == pytest.approx(0.8 * r)
    assert drawn(slices(scan, at=(z + 1.01 * r, y, x)).figure.axes[0], Circle) == []


def test_mask_and_detections(scan):
    mask = np.zeros((36, 60, 60), bool)  # of another resolution than the scan
    mask[:, 20:40, 10:50] = True
    found = np.array([[70.0, 90, 90, 5, 0.9], [20.0, 30, 30, 5, 0.1]])
    panel = slices(scan, at=(70, 90, 90), mask=mask, detections=found).figure.axes[0]
    assert [c.center for c in drawn(panel, Circle)] == [(90, 90)]
    [outline] = [c for c in panel.collections if len(c.get_paths()[0].vertices)]
    (low, top), (high, bottom) = outline.get_paths()[0].get_extents().get_points()
    step = 47 * 4 / 59  # mm between voxels of the mask: its first and last are the scan's
    assert (low, high, top, bottom) == pytest.approx((9.5 * step, 49.5 * step, 19.5 * step, 39.5 * step))


def test_a_healthy_patient_is_cut_in_the_middle():
    healthy = synthetic(3, (24, 48, 48), (6.0, 4.0, 4.0), sick=False)
    assert "z = 69 mm" in slices(healthy).figure.axes[0].get_title()
    with pytest.raises(LabError, match="no nodule"):
        augmented_patches(healthy)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (dict(at=(500, 0, 0)), "not in the volume"),
        (dict(at=(1, 2)), "not in the volume"),
        (dict(at=(np.nan, 0, 0)), "not in the volume"),
        (dict(mask=np.zeros((3, 3), bool)), "a mask is bool"),
        (dict(mask=np.zeros((3, 3, 3))), "a mask is bool"),
        (dict(detections=np.zeros((2, 3))), "rows of four or five"),
        (dict(detections=[[1, 2, 3, np.nan]]), "rows of four or five"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_drawn(scan, arguments, text):
    with pytest.raises(LabError, match=text):
        slices(scan, **arguments)


def test_the_slider_shows_the_slice_at_its_z(scan):
    explorer = explore_scan(scan)
    slider, window = explorer.children[0], explorer.children[1]
    assert slider.max == 23 and slider.value == round(scan.nodules[0, 0] / 6)
    pictures = {picture(explorer)}
    for z in (0, 5, 20):
        slider.value = z
        pictures.add(picture(explorer))
    window.value = "soft tissue"
    pictures.add(picture(explorer))
    assert len(pictures) == 5 and all(value.startswith(b"\x89PNG") for value in pictures)
    slider.value, window.value = 5, "lung"
    assert picture(explorer) in pictures, "the same slice is the same picture"


def test_a_saved_notebook_has_the_picture_and_its_text(scan):
    data, metadata = explore_scan(scan)._repr_mimebundle_()
    assert len(data["image/png"]) > 1000 and "coronal" in metadata["image/png"]["alt"]
