"""Spans: what is counted as busy and as overlap, and that the picture shows them."""

import random
import threading

import pytest

from hpml_lab.core.show import style
from hpml_lab.core.timing.timeline import NoClock, Span, SpanClock, busy, gantt, overlap, rows, span


def spans(*pairs, lane="a", what="load"):
    return [Span(lane, what, start, end) for start, end in pairs]


def test_busy_counts_no_second_twice():
    assert busy([]) == 0
    assert busy(spans((0, 2), (1, 3), (5, 6), (5.2, 5.4))) == 4


def test_overlap_is_the_time_in_which_both_were_under_way():
    assert overlap(spans((0, 2), (4, 6)), spans((1, 5))) == pytest.approx(2)
    assert overlap(spans((0, 1)), spans((1, 2))) == 0
    assert overlap([], spans((1, 2))) == 0


def test_busy_and_overlap_agree_with_counting_in_small_steps():
    draw = random.Random(0)
    for _ in range(50):
        a, b = ([Span("x", "y", s := draw.randrange(80), s + draw.randrange(1, 20)) for _ in range(5)] for _ in "ab")
        ticks = [{t for span in group for t in range(span.start, span.end)} for group in (a, b)]
        assert busy(a) == len(ticks[0])
        assert overlap(a, b) == len(ticks[0] & ticks[1])


def test_a_block_that_raises_is_timed_too():
    timed = []
    with pytest.raises(KeyError), span(timed, "main", "load"):
        raise KeyError
    assert [(span.lane, span.what) for span in timed] == [("main", "load")] and timed[0].seconds >= 0


def test_rows_start_at_zero_in_order_of_their_start():
    ordered = rows([Span("b", "x", 12.0, 13.0), Span("a", "x", 10.0, 10.5)])
    assert [(row["lane"], row["start"], row["end"]) for row in ordered] == [("a", 0.0, 0.5), ("b", 2.0, 3.0)]


def test_the_picture_has_one_lane_a_worker_and_one_bar_a_span():
    figure = style.new_figure()
    axes = figure.subplots()
    ordered = rows([*spans((0, 2), (3, 4)), *spans((1, 5), lane="b", what="train")])
    gantt(axes, ordered, {"load": style.BLUE, "train": style.ORANGE})
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    bars = sorted((bar.get_y() + bar.get_height() / 2, bar.get_x(), bar.get_width()) for bar in axes.patches)
    assert bars == [(pytest.approx(0), 0, 2), (pytest.approx(0), 3, 1), (pytest.approx(1), 1, 4)]
    assert axes.get_xlabel() == "time in s"
    figure.canvas.draw()


def test_a_span_clock_knows_who_did_what_and_adds_up_the_seconds():
    clock = SpanClock()

    def work():
        with clock.timed("load"):
            pass

    thread = threading.Thread(target=work, name="thread_0")
    thread.start()
    thread.join()
    with pytest.raises(ValueError), clock.timed("train"), clock.timed("load"):
        raise ValueError
    assert [(span.lane, span.what) for span in clock.spans] == [("thread 0", "load"), ("main", "load"), ("main", "train")]
    assert clock.seconds.keys() == {"load", "train"} and clock.seconds["load"] == sum(s.seconds for s in clock.spans[:2])
    with NoClock().timed("load"):
        pass
