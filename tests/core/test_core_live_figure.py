"""The parts under a live figure: a PNG that any reader takes, and a ground that is drawn once."""

import io

import numpy as np
import pytest
from PIL import Image

from hpml_lab.core.live_figure import GROUNDS, Frame, encode_png


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
