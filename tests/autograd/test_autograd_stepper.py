"""The stepper shows the right numbers at the right step, in pictures, on a slider and in words."""

import base64
import dataclasses
import io
import itertools

import networkx as nx
import numpy as np
import pytest
import torch
from matplotlib.text import Text
from PIL import Image

from hpml_lab.autograd.lessons.engine import Tensor, concatenate
from hpml_lab.autograd.views.pass_steps import MOST_NODES, graph_of, pass_table
from hpml_lab.autograd.views.step_slider import step_figure, step_picture, stepper
from hpml_lab.core.show import style


def leaf(value, name=""):
    return Tensor(value, requires_grad=True, name=name)


def lecture_example():
    """f = (x + y) z at x = -2, y = 5, z = -4."""
    x, y, z = leaf(-2, "x"), leaf(5, "y"), leaf(-4, "z")
    q = x + y
    q.name = "q"
    return q * z


def neuron():
    """A perceptron's loss: nodes without names, constants, and one value that is used twice."""
    p = (leaf(0.5, "w") * Tensor(2, name="x") + leaf(-0.3, "b")).sigmoid()
    p.name = "p"
    y = Tensor(1, name="y")
    return -(y * p.log() + (1 - y) * (1 - p).log())


def layer():
    """A layer of arrays: matrix product, broadcast bias, reduction."""
    x, w, b = Tensor(np.ones((3, 2)), name="X"), leaf(np.ones((2, 4)), "W"), leaf(np.zeros(4), "b")
    return ((x @ w + b).tanh() ** 2).mean()


def used_again():
    """One value used three times."""
    a = leaf(3, "a")
    return a * a + a


GRAPHS = [lecture_example, neuron, layer, used_again, lambda: leaf(1)]


def formulas(root):
    return [row.formula for row in pass_table(root)]


def shown(figure):
    """The texts that can be seen in a figure."""
    return [text.get_text() for text in seen_texts(figure)]


# ---- in words ----------------------------------------------------------------------------------------------


def test_the_lectures_example_in_words():
    assert [dataclasses.astuple(row) for row in pass_table(lecture_example())] == [
        (0, "", "Start: the leaves are known", "x = -2; y = 5; z = -4"),
        (1, "q", "Forward through +", "q = x + y = -2 + 5 = 3"),
        (2, "f", "Forward through ×", "f = q × z = 3 × (-4) = -12"),
        (3, "f", "Backward starts at the result", "df/df = 1"),
        (4, "z", "Backward through ×", "df/dz = df/df · q = 1 · 3 = 3"),
        (5, "q", "Backward through ×", "df/dq = df/df · z = 1 · (-4) = -4"),
        (6, "y", "Backward through +", "df/dy = df/dq · 1 = -4 · 1 = -4"),
        (7, "x", "Backward through +", "df/dx = df/dq · 1 = -4 · 1 = -4"),
    ]


def test_a_value_used_twice_gets_both_contributions_in_one_step():
    last = pass_table(used_again())[-1]
    assert last.action == "Backward through + and ×"
    assert last.formula == "df/da = df/df · 1 + df/dv1 · a + df/dv1 · a = 1 · 1 + 1 · 3 + 1 · 3 = 7"


@pytest.mark.parametrize(
    ("make", "forward", "backward"),
    [
        (lambda a, b: a - b, "f = a - b = 2 - (-4) = 6", "df/db = df/df · (-1) = 1 · (-1) = -1"),
        (lambda a, b: a / b, "f = a / b = 2 / (-4) = -0.5", "df/db = df/df · (-f/b) = 1 · (-0.125) = -0.125"),
        (lambda a, b: -b + 0 * a, "v1 = -b = -(-4) = 4", "df/db = df/dv1 · (-1) = 1 · (-1) = -1"),
        (lambda a, b: a.exp() + b, "v1 = exp(a) = exp(2) = 7.389", "df/da = df/dv1 · v1 = 1 · 7.389 = 7.389"),
        (lambda a, b: a.log() * b, "v1 = log(a) = log(2) = 0.6931", "df/da = df/dv1 · 1/a = -4 · 0.5 = -2"),
        (lambda a, b: b**2 * a, "v1 = b^2 = (-4)^2 = 16", "df/db = df/dv1 · 2·b = 2 · (-8) = -16"),
        (lambda a, b: b**3 * a, "v1 = b^3 = (-4)^3 = -64", "df/db = df/dv1 · 3·b^2 = 2 · 48 = 96"),
        (lambda a, b: a**-1 * b, "v1 = a^-1 = 2^-1 = 0.5", "df/da = df/dv1 · (-1)·a^-2 = -4 · (-0.25) = 1"),
        (lambda a, b: a.relu() * b, "v1 = relu(a) = relu(2) = 2",
         "df/da = df/dv1 · (1 if a > 0, else 0) = -4 · 1 = -4"),
        (lambda a, b: b.abs() * a, "v1 = |b| = |-4| = 4", "df/db = df/dv1 · sign(b) = 2 · (-1) = -2"),
        (lambda a, b: a * -3 + b, "v1 = a × (-3) = 2 × (-3) = -6", "df/da = df/dv1 · (-3) = 1 · (-3) = -3"),
        (lambda a, b: a.sum() * b, "v1 = sum(a) = sum(2) = 2", "df/da = df/dv1 · dv1/da = -4 · 1 = -4"),
    ],
)  # fmt: skip
def test_formulas_of_single_numbers(make, forward, backward):
    lines = formulas(make(leaf(2, "a"), leaf(-4, "b")))
    assert forward in lines
    assert backward in lines


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (lambda w, b: (w @ w.T).sum(), ["v1 = wᵀ, shape (3, 2)", "v2 = w @ v1, shape (2, 2)",
                                        "df/dv1 = wᵀ @ df/dv2, shape (3, 2)",
                                        "df/dw = df/dv2 @ v1ᵀ + df/dv1 transposed back, shape (2, 3)"]),
        (lambda w, b: (w * b).sum(), ["v1 = w × b, shape (2, 3)", "df/dw = df/dv1 · b, shape (2, 3)",
                                      "df/dv1 = df/df for every element, shape (2, 3)",
                                      "df/db = df/dv1 · w summed where it was repeated, shape (3,)"]),
        (lambda w, b: w[0].max(), ["v1 = w[…], shape (3,)",
                                   "df/dw = df/dv1 where it was picked, else 0, shape (2, 3)",
                                   "df/dv1 = df/df for the largest, 0 for the others, shape (3,)"]),
        (lambda w, b: concatenate([w.reshape(6), b]).sum(), ["v2 = concat(v1, b), shape (9,)",
                                                             "df/db = its part of df/dv2, shape (3,)",
                                                             "df/dw = df/dv1 reshaped back, shape (2, 3)"]),
    ],
)  # fmt: skip
def test_arrays_show_their_shapes(make, lines):
    assert set(lines) <= set(formulas(make(leaf(np.arange(6.0).reshape(2, 3), "w"), leaf(np.ones(3), "b"))))


def test_the_numbers_shown_are_torchs():
    w, b = (torch.tensor(value, requires_grad=True) for value in (0.5, -0.3))
    torch.nn.functional.binary_cross_entropy_with_logits(2 * w + b, torch.tensor(1.0)).backward()
    shown_last = {row.node: row.formula for row in pass_table(neuron())}  # the last of each node: its gradient
    assert float(shown_last["w"].split(" = ")[-1]) == pytest.approx(w.grad.item(), abs=1e-4)
    assert float(shown_last["b"].split(" = ")[-1]) == pytest.approx(b.grad.item(), abs=1e-4)


@pytest.mark.parametrize("make", GRAPHS)
def test_every_operation_has_one_step_forward_and_every_tracked_node_one_back(make):
    root = make()
    graph = graph_of(root)
    happens = [row.action.split()[0] for row in pass_table(root)]
    operations = sum(bool(node.inputs) for node in graph)
    tracked = sum(node.requires_grad for node in graph)
    assert happens == ["Start:", *["Forward"] * operations, *["Backward"] * tracked]


def test_a_result_without_gradients_has_only_forward_steps():
    root = Tensor(2, name="a") * Tensor(3, name="b")
    assert [row.action.split()[0] for row in pass_table(root)] == ["Start:", "Forward"]
    assert "no gradient" in shown(step_figure(root))


# ---- the graph ---------------------------------------------------------------------------------------------


def test_the_graph_holds_all_inputs_with_labels_and_kinds():
    graph = graph_of(lecture_example())
    assert nx.is_directed_acyclic_graph(graph)
    assert {(graph.nodes[a]["name"], graph.nodes[b]["name"]) for a, b in graph.edges} == {
        ("x", "q"), ("y", "q"), ("q", "f"), ("z", "f"),
    }  # fmt: skip
    seen = {data["label"]: (data["kind"], data["op"]) for _, data in graph.nodes(data=True)}
    assert seen == {
        "x": ("leaf", ""), "y": ("leaf", ""), "z": ("leaf", ""),
        "q = x + y": ("operation", "+"), "f = q × z": ("output", "×"),
    }  # fmt: skip


def test_constants_and_nodes_without_names_get_names():
    root = (leaf(3) * 2 + 0.25) / leaf(1, "v2")
    assert [data["label"] for _, data in graph_of(root).nodes(data=True)] == [
        "v1", "2", "v3 = v1 × 2", "0.25", "v4 = v3 + 0.25", "v2", "f = v4 / v2",
    ]  # fmt: skip


def test_watching_changes_no_tensor():
    root = lecture_example()
    leaves = [node for node in graph_of(root) if not node.inputs]
    root.backward()
    before = [float(node.grad) for node in leaves]
    stepper(root), step_figure(root), pass_table(root)
    assert [float(node.grad) for node in leaves] == before
    assert root.name == ""


# ---- the pictures ------------------------------------------------------------------------------------------


def test_the_pictures_of_the_lectures_example_fill_in_step_by_step():
    root = lecture_example()
    labels = {"x", "y", "z", "q = x + y", "f = q × z"}
    order = [
        {"value -2", "value 5", "value -4"}, {"value 3"}, {"value -12"},
        {"df/df 1"}, {"df/dz 3"}, {"df/dq -4"}, {"df/dy -4"}, {"df/dx -4"},
    ]  # fmt: skip
    for step, row in enumerate(pass_table(root)):
        known = set().union(*order[: step + 1])
        title = f"Step {step} of 7. {row.action}"
        assert set(shown(step_figure(root, step))) == labels | known | {title, row.formula}


def test_without_a_step_everything_is_known():
    root = lecture_example()
    assert shown(step_figure(root)) == shown(step_figure(root, 7)) == shown(step_picture(root).figure)


def seen_texts(figure):
    return [t for t in figure.findobj(Text) if t.get_visible() and t.get_text() and t.get_color() != "none"]


def filled_boxes(figure):
    """The extents of the nodes' boxes, without the ring around the current node's."""
    boxes = [text.get_bbox_patch() for text in figure.axes[0].texts if text.get_bbox_patch()]
    return [box.get_window_extent() for box in boxes if box.get_facecolor()[3] > 0]


def overlap(a, b):
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1


@pytest.mark.parametrize("make", GRAPHS)
def test_nothing_overlaps_and_nothing_is_cut_off(make):
    figure = step_figure(make())
    figure.draw_without_rendering()
    texts, boxes = seen_texts(figure), filled_boxes(figure)
    extents = [text.get_window_extent() for text in texts]
    assert len(boxes) == len(graph_of(make()))
    for a, b in itertools.combinations(boxes, 2):
        assert not overlap(a, b)
    for a, b in itertools.combinations(extents, 2):
        assert not overlap(a.shrunk(0.8, 0.8), b.shrunk(0.8, 0.8))  # an extent has room for descenders
    for extent in [*extents, *boxes]:
        assert extent.x0 >= 0 and extent.y0 >= 0 and extent.x1 <= figure.bbox.x1 and extent.y1 <= figure.bbox.y1
    for text, e in zip(texts, extents, strict=True):
        if text.axes is not None:  # each line of a node stands inside a box
            assert any(b.x0 < e.x0 and e.x1 < b.x1 and b.y0 < e.y0 and e.y1 < b.y1 for b in boxes)


def test_arrows_go_around_the_boxes_between():
    a = leaf(3, "a")
    figure = step_figure(((a * 2) * 2) * a, 0)  # in one row, a's second arrow would pass through two boxes
    figure.draw_without_rendering()
    arrows = [t.arrow_patch for t in figure.axes[0].texts if hasattr(t, "arrow_patch") and t.get_visible()]
    assert len(arrows) == 6
    for arrow in arrows:
        line = arrow.get_transform().transform_path(arrow.get_path()).interpolated(50).vertices
        for box in filled_boxes(figure):
            assert not any(box.shrunk(0.9, 0.9).contains(x, y) for x, y in line)


# ---- the slider --------------------------------------------------------------------------------------------


def slider(live):
    return live.children[0]


@pytest.mark.parametrize("make", GRAPHS)
def test_the_slider_goes_over_all_steps_and_each_has_its_own_picture(make):
    root = make()
    live, last = stepper(root), len(pass_table(root)) - 1
    assert (slider(live).min, slider(live).max, slider(live).value) == (0, last, 0)
    pictures = [live.image.value]
    for step in range(1, last + 1):
        slider(live).value = step
        pictures.append(live.image.value)
    assert len(set(pictures)) == last + 1
    slider(live).value = 0
    assert hash(live.image.value) == hash(pictures[0]), "the same picture as at the start"


@pytest.mark.parametrize("make", [lecture_example, layer])
def test_the_slider_shows_the_static_pictures(make):
    root = make()
    live = stepper(root, None)
    last = slider(live).max
    for step in (last, 0, last // 2):
        slider(live).value = step
        theirs = Image.open(io.BytesIO(style.png(step_figure(root, step)))).convert("RGB")
        ours = Image.open(io.BytesIO(live.image.value)).convert("RGB")
        assert ours.size == theirs.size
        difference = np.abs(np.asarray(ours, dtype=int) - np.asarray(theirs, dtype=int))
        assert (difference.max(axis=2) > 60).mean() < 0.002  # no more than the edges of letters differ


def test_the_output_has_a_picture_and_a_short_text_that_is_always_the_same():
    bundles = [stepper(lecture_example())._repr_mimebundle_()[0] for _ in range(2)]
    for bundle in bundles:
        assert bundle["text/plain"] == ("LiveFigure: The graph of f: step by step values go forward, then gradients come back.")
        assert Image.open(io.BytesIO(base64.b64decode(bundle["image/png"]))).format == "PNG"
    assert bundles[0]["image/png"] == bundles[1]["image/png"]


# ---- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [-1, 8, 1.5])
def test_a_step_that_is_not_there(step):
    for show in (step_figure, stepper):
        with pytest.raises(ValueError, match=f"steps 0 to 7; there is no step {step}"):
            show(lecture_example(), step)


def test_a_result_that_is_not_a_scalar():
    with pytest.raises(RuntimeError, match="only a scalar"):
        stepper(leaf([1, 2], "x") * 2)


def test_a_graph_that_is_too_large_to_read():
    x = leaf(1, "x")
    for _ in range(MOST_NODES):
        x = x.sin()
    with pytest.raises(ValueError, match=f"{MOST_NODES + 1} nodes; a picture shows at most {MOST_NODES}"):
        stepper(x)
