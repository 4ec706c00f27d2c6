"""Graphs are laid out so that edges run one way, and a live figure follows its controls."""

import base64
import io

import ipywidgets
import networkx as nx
import numpy as np
import pytest
from PIL import Image

from hpml_lab.core.show import style
from hpml_lab.core.show.graph import draw_graph, layered_positions
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.core.show.progress import progress


def dag():
    graph = nx.DiGraph([("x", "q"), ("y", "q"), ("q", "f"), ("z", "f"), ("x", "f")])
    for node in graph:
        graph.nodes[node].update(label=node, kind="leaf" if graph.in_degree(node) == 0 else "operation")
    return graph


def test_every_edge_leads_to_a_later_layer_and_no_two_nodes_share_a_position():
    graph = dag()
    positions = layered_positions(graph)
    assert all(positions[a][0] < positions[b][0] for a, b in graph.edges)
    assert len(set(positions.values())) == len(graph)
    assert positions["z"][0] == positions["q"][0], "a leaf is just before its first use"


def test_a_cycle_is_refused():
    with pytest.raises(nx.NetworkXUnfeasible):
        layered_positions(nx.DiGraph([("a", "b"), ("b", "a")]))


@pytest.mark.parametrize("downward", [False, True])
def test_a_graph_is_drawn_with_a_box_for_each_node(downward):
    figure = style.new_figure()
    boxes = draw_graph(figure.subplots(), dag(), downward=downward)
    assert {node: box.get_text() for node, box in boxes.items()} == {n: n for n in "xyzqf"}
    figure.canvas.draw()
    extents = [box.get_bbox_patch().get_window_extent() for box in boxes.values()]
    assert not any(a.overlaps(b) for i, a in enumerate(extents) for b in extents[i + 1 :])


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.fixture
def live():
    def build(figure):
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 10))
        return axes.plot([], [])

    def update(artists, height):
        if height == 9:
            raise OverflowError("nothing to draw")
        artists[0].set_data([0, 1], [height, height])

    slider = ipywidgets.IntSlider(1, 0, 9)
    return slider, LiveFigure(build, update, {"height": slider}, "A level line at the chosen height.", moves="height")


def test_a_live_figure_follows_its_slider_and_comes_back(live):
    slider, figure = live
    first = figure.image.value
    slider.value = 5
    moved = figure.image.value
    assert (pixels(first) != pixels(moved)).any()
    slider.value = 1
    assert (pixels(figure.image.value) == pixels(first)).all(), "nothing of the old line is left"


def test_a_live_figure_keeps_the_last_good_picture(live):
    slider, figure = live
    slider.value = 5
    good = figure.image.value
    slider.value = 9
    assert (pixels(figure.image.value) == pixels(good)).all()


def test_a_live_figure_leaves_a_picture_and_a_stable_text(live):
    _, figure = live
    data, metadata = figure._repr_mimebundle_()
    assert data["text/plain"] == "LiveFigure: A level line at the chosen height."
    assert base64.b64decode(data["image/png"]) == figure.image.value
    assert "application/vnd.jupyter.widget-view+json" in data
    assert metadata["image/png"]["alt"] == figure.alt


def test_a_live_figure_leaves_the_picture_at_each_value_of_the_slider_that_moves(live):
    slider, figure = live
    slider.max = 8  # 9 cannot be drawn
    frames = figure._repr_mimebundle_()[1]["image/png"]["frames"]
    pictures = [base64.b64decode(picture) for picture in frames["pictures"]]
    assert (frames["control"], frames["words"][2]) == ("height", "2 of 8")
    assert len(pictures) == len(frames["words"]) == 9 and pictures[1] == figure.image.value
    slider.value = 5
    assert (pixels(pictures[5]) == pixels(figure.image.value)).all()
    slider.max = 100
    assert "frames" not in figure._repr_mimebundle_()[1]["image/png"], "too many to store"


def test_the_other_controls_of_a_live_figure_stay_in_its_stored_pictures():
    def build(figure):
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        return axes.plot([], [])

    def update(artists, height, width):
        artists[0].set_data([0, width], [height, height])

    controls = {
        "height": ipywidgets.SelectionSlider(options=[("low", 0.2), ("high", 0.8)], value=0.2),
        "width": ipywidgets.SelectionSlider(options=[0.1, 0.9], value=0.9),
    }
    figure = LiveFigure(build, update, controls, "A line.", 3, 2, moves="height")
    first, frames = figure.image.value, figure.frames()
    assert frames["words"] == ["low", "high"] and figure.image.value == frames["pictures"][0] == first
    controls["height"].value = 0.8
    assert figure.image.value == frames["pictures"][1] != first


def test_a_progress_line_hands_on_every_item(capsys):
    assert list(progress(range(3), "three things")) == [0, 1, 2]
    assert capsys.readouterr().out == "", "it writes to stderr only"
