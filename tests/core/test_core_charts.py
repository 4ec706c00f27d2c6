"""The shared charts draw each value where it belongs."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from hpml_lab.core.show import style
from hpml_lab.core.show.charts import band, grouped_bars, horizontal_bars, stacked_bars, timed_bars


@pytest.fixture
def axes():
    return style.new_figure().subplots()


def boxes(axes):
    """(left, bottom, width, height) of each bar."""
    return [(bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()) for bar in axes.patches]


@pytest.mark.parametrize(
    "labels, texts",
    [(None, []), ("{:.1f}", ["3.0", "8.0"]), (lambda value: f"<{value}>", ["<3.0>", "<8.0>"]), (["a", "b"], ["a", "b"])],
)
def test_horizontal_bars_stand_from_top_to_bottom_with_their_labels(axes, labels, texts):
    horizontal_bars(axes, ["first", "second"], [3.0, 8.0], labels=labels)
    assert [box[2] for box in boxes(axes)] == [3, 8] and axes.yaxis_inverted()
    assert [text.get_text() for text in axes.texts] == texts
    assert [text.get_text() for text in axes.get_yticklabels()] == ["first", "second"]


def test_a_time_has_a_color_only_if_it_differs_by_more_than_noise(axes):
    timed_bars(axes, ["base", "same", "better", "worse"], [2, 2, 1, 300], [None, "within noise", "faster", "slower"], limit=0.5)
    colors = [style.GREY, style.GREY, style.BLUE, style.ORANGE]
    assert [bar.get_facecolor()[:3] for bar in axes.patches] == [pytest.approx(to_rgb(color)) for color in colors]
    assert [text.get_text() for text in axes.texts] == ["2", "2", "1", "300"]
    assert [line.get_xdata()[0] for line in axes.lines] == [0.5]


def test_stacked_bars_follow_one_another(axes):
    stacked_bars(axes, ["a", "b"], {"compute": [4, 5], "waiting": [9, 1], "rest": [1, 1]})
    assert [(box[0], box[2]) for box in boxes(axes)] == [(0, 4), (0, 5), (4, 9), (5, 1), (13, 1), (6, 1)]


def test_grouped_bars_stand_side_by_side(axes):
    grouped_bars(axes, ["calls", "kernels"], {"loop": [9000, 40], "fused": [1, 2]}, labels="{:,g}")
    assert [(box[0], box[3]) for box in boxes(axes)] == [
        (pytest.approx(at), height) for at, height in ((-0.4, 9000), (0.6, 40), (0, 1), (1, 2))
    ]
    assert [text.get_text() for text in axes.texts] == ["9,000", "40", "1", "2"]


@pytest.mark.parametrize("runs", [[[5, 1, 2], [9, 7, 8], [1, np.inf, 0]], [[1, 2, 5], [7, 8, 9], [np.nan, 2, 3]]])
def test_a_band_reaches_from_the_smallest_to_the_largest_run_where_all_are_finite(axes, runs):
    band(axes, [1, 2, 3], runs, color=style.RED, label="Adam")
    assert np.array_equal(axes.lines[0].get_ydata(), [2, 8, np.nan], equal_nan=True)
    (corners,) = axes.collections[0].get_paths()
    assert {tuple(point) for point in corners.vertices} == {(1, 1), (1, 5), (2, 7), (2, 9)}
    assert axes.collections[0].get_facecolor()[0][:3] == pytest.approx(to_rgb(style.RED))
