"""A live curve costs at most 2 % of the time, is seen only in a notebook, and leaves nothing behind."""

import IPython.display
import pytest

from hpml_lab.core.show import live_curve
from hpml_lab.core.show.live_curve import LiveCurve


class Clock:
    """A clock that the test advances."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def notebook(monkeypatch):
    """(clock, events): a notebook in which a redraw takes 0.3 s."""
    clock, events = Clock(), []

    class Handle:
        def update(self, image):
            events.append("update")

    def display(image, display_id):
        events.append("display")
        return Handle()

    def png(figure):
        clock.now += 0.3
        return b"\x89PNG\r\n\x1a\n"

    monkeypatch.setattr(live_curve, "time", clock)
    monkeypatch.setattr(live_curve, "in_notebook", lambda: True)
    monkeypatch.setattr(live_curve.style, "png", png)
    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(IPython.display, "Image", lambda data: data)
    monkeypatch.setattr(IPython.display, "clear_output", lambda: events.append("clear"))
    return clock, events


def test_redraws_take_at_most_two_percent_at_any_time(notebook):
    clock, events = notebook
    with LiveCurve("step", "loss") as curve:
        for step in range(600):
            clock.now += 0.1
            curve.add("SGD", step, 1.0)
            assert 0.3 * len(events) <= 0.0201 * clock.now
    assert events[0] == "display" and events[-1] == "clear" and events.count("update") == 2


def test_quick_work_shows_and_clears_nothing(notebook):
    clock, events = notebook
    with LiveCurve("step", "loss") as curve:
        for step in range(100):
            clock.now += 0.1
            curve.add("SGD", step, 1.0)
    assert events == []


def test_outside_a_notebook_nothing_is_drawn(monkeypatch):
    monkeypatch.setattr(live_curve, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(LiveCurve, "_draw", lambda self: pytest.fail("drawn"))
    with LiveCurve("step", "loss") as curve:
        curve.add("SGD", 0, 1.0)
