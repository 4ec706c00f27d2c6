"""The parts under a live figure: a PNG that any reader takes, and a ground that is drawn once."""

import io

import ipywidgets
import numpy as np
import pytest
from PIL import Image

from hpml_lab.core.show.live_figure import GROUNDS, Frame, LiveFigure, encode_png


def decoded(png):
    image = Image.open(io.BytesIO(png))
    image.verify()  # the checksums
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 7, 3), (33, 20, 4), (550, 960, 4)])
def test_a_png_gives_back_the_pixels(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert (decoded(encode_png(pixels)) == pixels).all()


@pytest.fixture
def frame():
    def build(figure):
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 10))
        return axes.plot([], [])

    return Frame(build, 3, 2)


def test_a_ground_is_drawn_once_and_kept_by_name(frame):
    axes, line = frame.figure.axes[0], frame.artists[0]
    draws = []
    frame.figure.canvas.mpl_connect("draw_event", draws.append)
    plain = frame.png()
    assert not draws, "the first ground was drawn as the frame was made"
    axes.set_title("another ground")
    other = frame.png("other")
    assert other != plain and len(draws) == 1
    line.set_data([0, 1], [5, 5])
    assert len({plain, other, frame.png(), frame.png("other")}) == 4 and len(draws) == 1
    line.set_data([], [])
    assert (frame.png(), frame.png("other")) == (plain, other), "the line has left nothing behind"


def test_grounds_do_not_pile_up(frame):
    for number in range(3 * GROUNDS):
        frame.png(number)
    assert len(frame._grounds) <= GROUNDS
    assert frame.size == (300, 200) and decoded(frame.png()).shape == (200, 300, 4)


def test_an_axis_that_follows_a_slider_is_drawn_anew_with_its_numbers():
    """The queue's axis kept the numbers of its first range, -0.05 to 0.05, under a line drawn from 0 to 5."""

    def build(figure):
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        return axes.plot([], [])

    def update(artists, top):
        artists[0].axes.set_ylim(0, top)
        return top

    live = LiveFigure(build, update, {"top": ipywidgets.IntSlider(5, 1, 100)}, "an axis", 3, 2)
    small = decoded(live.image.value)
    live.children[0].value = 80
    large = decoded(live.image.value)
    live.children[0].value = 5
    assert (small != large).any() and (decoded(live.image.value) == small).all()
