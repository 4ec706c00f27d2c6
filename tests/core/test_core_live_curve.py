"""A live curve is drawn in a notebook only, rarely enough to cost little, and is gone at the end."""

import pytest

from hpml_lab.core import live_curve
from hpml_lab.core.live_curve import SHARE, LiveCurve


class Clock:
    """A clock whose redraws take one second each."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def shown(monkeypatch):
    """What a notebook shows: the number of points at each redraw, and at the end the word "cleared"."""
    clock, log = Clock(), []
    monkeypatch.setattr(live_curve, "time", clock)
    monkeypatch.setattr(live_curve, "_in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.clear_output", lambda: log.append("cleared"))

    def draw(self):
        clock.now += 1.0
        self._handle = "display"
        log.append(sum(len(xs) for xs, _ in self._points.values()))

    monkeypatch.setattr(LiveCurve, "_draw", draw)
    return clock, log


def test_redraws_cost_at_most_their_share_of_the_time(shown):
    clock, log = shown
    with LiveCurve("step", "loss") as curve:
        for step in range(2000):
            clock.now += 0.1
            curve.add("SGD", step, 1.0)
    redraws = [entry for entry in log if entry != "cleared"]
    assert redraws and len(redraws) * 1.0 <= SHARE * clock.now + 1.0
    assert log[-1] == "cleared", "the result that follows stands alone"


def test_quick_work_shows_nothing_and_clears_nothing(shown):
    clock, log = shown
    with LiveCurve("step", "loss") as curve:
        for step in range(10):
            clock.now += 0.1
            curve.add("SGD", step, 1.0)
    assert log == []


def test_outside_a_notebook_nothing_is_drawn():
    with LiveCurve("step", "loss") as curve:
        curve.add("SGD", 0, 1.0)
        assert curve._points == {}


def test_it_draws_one_line_per_label(monkeypatch):
    pictures = []
    monkeypatch.setattr(live_curve, "_in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda image, **options: pictures.append(image))
    curve = LiveCurve("step", "loss", colors={"Adam": "#000000"}, yscale="log")
    for label in ("SGD", "Adam"):
        curve.add(label, 0, 1.0)
        curve.add(label, 1, 0.5)
    curve._draw()
    [image] = pictures
    assert image.data.startswith(b"\x89PNG")
