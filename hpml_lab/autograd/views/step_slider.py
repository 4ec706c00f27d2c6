"""Watch autograd work: values go forward and gradients come back through the drawn graph, one node at a time.

    stepper(f)          a slider over the steps of the graph of f
    step_picture(f, 4)  the picture of one step

Nothing here changes the tensors: their `grad` stays as it is.
"""

import math
import textwrap
from typing import Any

import ipywidgets
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import offset_copy

from hpml_lab.autograd.lessons.engine import Tensor
from hpml_lab.autograd.views.pass_steps import GraphPass, pass_graph
from hpml_lab.core.show import style
from hpml_lab.core.show.graph import Edge, GraphLayout, draw_graph, layered_positions
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.core.show.picture import picture

FONT, LINE = 9, 11.5  # points: the letters in a box, and from one of its lines to the next
BOX, HEADER = 0.62, 0.85  # inches: the height of a box, and of the text above the graph
NARROWEST, WIDEST = 7.0, 11.0  # inches: of a figure; a graph that would be wider is drawn downward


class StepDrawing:
    """The drawn graph of a pass: what stays, and the artists that change from step to step.

    All positions are in inches, so that boxes, bends and the size of the figure fit each other for every graph.
    """

    def __init__(self, graph_pass: GraphPass) -> None:
        self.graph_pass, self.graph = graph_pass, pass_graph(graph_pass)
        self.lines = {node: graph_pass.lines(node) for node in graph_pass.nodes}
        self.letters = {  # in the widest line of each box; the first is bold, which is wider
            node: max(math.ceil(1.12 * len(label)), len(value), len(gradient))
            for node, (label, value, gradient) in self.lines.items()
        }
        half = {node: np.array([0.039 * letters + 0.06, BOX / 2]) for node, letters in self.letters.items()}
        layered = layered_positions(self.graph)
        column = 2 * max(size[0] for size in half.values()) + 0.55  # leaves room for an arrow
        self.downward = column * (1 + max(layer for layer, _ in layered.values())) > WIDEST
        scale = np.array([column, 1.1 if self.downward else 0.95])  # inches between neighbors
        centers = {
            node: scale * ((position, -layer) if self.downward else (layer, -position))
            for node, (layer, position) in layered.items()
        }
        corners = {node: (center - half[node], center + half[node]) for node, center in centers.items()}
        bends = {edge: _bend(*edge, centers, corners) for edge in self.graph.edges}
        self.layout = GraphLayout(centers, bends)
        curves = [_curve(centers[start], centers[end], bend) for (start, end), bend in bends.items()]
        filled = np.concatenate([*corners.values(), *curves])
        low, high = filled.min(axis=0) - 0.2, filled.max(axis=0) + 0.2
        spare = max(0.0, NARROWEST - (high - low)[0]) / 2  # a small graph stands in the middle
        self.low, self.high = low - (spare, 0), high + (spare, 0)
        self.width, self.height = self.high - self.low + (0, HEADER)

    def build(self, figure: Figure) -> list[Artist]:
        """Draw what stays; return what changes."""
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1 - HEADER / self.height))
        fixed = self.graph.copy()
        for node, letters in self.letters.items():  # invisible letters make room for the three lines
            fixed.nodes[node]["label"] = "\n".join(["0" * letters] * 3)
        boxes = draw_graph(axes, fixed, self.layout, font_size=FONT)
        arrows = [text for text in axes.texts if isinstance(text, Annotation)]
        axes.set(xlim=(self.low[0], self.high[0]), ylim=(self.low[1], self.high[1]))
        self._draw_lines(axes, boxes)
        self._draw_flows(axes, dict(zip(fixed.edges, arrows, strict=True)))
        text = {"x": 0.15 / self.width, "s": "", "va": "top"}
        self.title = figure.text(y=1 - 0.12 / self.height, fontsize=11, fontweight="bold", **text)
        self.formula = figure.text(y=1 - 0.38 / self.height, fontsize=10, **text)
        figure.draw_without_rendering()  # arrows end at boxes, whose sizes are known once they were drawn
        changing = self.forward, self.backward, self.rings, self.values, self.gradients
        return [*(artist for artists in changing for artist in artists.values()), self.title, self.formula]

    def _draw_lines(self, axes: Axes, boxes: dict[Tensor, Text]) -> None:
        """Write the three lines of each box, and draw the ring that marks the current node."""
        self.values, self.gradients, self.rings = {}, {}, {}
        above, below = (offset_copy(axes.transData, axes.figure, y=y, units="points") for y in (LINE, -LINE))
        for node, box in boxes.items():
            box.set_color("none")
            (x, y), (label, value, gradient) = box.get_position(), self.lines[node]
            middle = {"ha": "center", "va": "center", "fontsize": FONT, "zorder": 4}
            axes.text(x, y, label, transform=above, fontweight="bold", **middle)
            self.values[node] = axes.text(x, y, value, color=style.BLUE, **middle)
            color = style.RED if node in self.graph_pass.gradients else style.GREY
            self.gradients[node] = axes.text(x, y, gradient, transform=below, color=color, **middle)
            ring = {"boxstyle": "round,pad=0.6", "facecolor": "none", "edgecolor": style.INK, "linewidth": 3}
            self.rings[node] = axes.text(x, y, box.get_text(), color="none", bbox=ring, **middle)

    def _draw_flows(self, axes: Axes, arrows: dict[Edge, Annotation]) -> None:
        """Draw each edge's blue arrow for the value, and next to it the red one for the gradient."""
        self.forward, self.backward = {}, {}
        shift = {"x" if self.downward else "y": -8}
        shifted = offset_copy(axes.transData, axes.figure, units="points", **shift)
        for edge, arrow in arrows.items():
            (start, end), bend = edge, self.layout.bends[edge]
            tail, tip = self.layout.centers[start], self.layout.centers[end]
            look = {**arrow.arrowprops, "linewidth": 3, "color": style.BLUE}
            back = {**look, "color": style.RED, "patchA": look["patchB"], "patchB": look["patchA"]}
            back["connectionstyle"] = f"arc3,rad={-bend}"
            self.forward[edge] = axes.annotate("", xy=tip, xytext=tail, zorder=1.5, arrowprops=look)
            self.backward[edge] = axes.annotate(
                "", xy=tail, xytext=tip, xycoords=shifted, textcoords=shifted, zorder=1.5, arrowprops=back
            )

    def show(self, step: int) -> None:
        """Show what is known after `step`; hide the rest."""
        now = self.graph_pass.steps[step]
        values, gradients = self.graph_pass.known(step)
        for node in self.graph_pass.nodes:
            self.values[node].set_visible(node in values)
            self.gradients[node].set_visible(node in gradients or node not in self.graph_pass.gradients)
            self.rings[node].set_visible(node is now.node)
        for (_, end), arrow in self.forward.items():
            arrow.set_visible(now.direction == "forward" and end is now.node)
        for (start, end), arrow in self.backward.items():
            arrow.set_visible(now.direction == "backward" and start is now.node and end in now.users)
        self.title.set_text(f"Step {step} of {len(self.graph_pass.steps) - 1}. {now.title}")
        lines = textwrap.wrap(now.formula, int(11.5 * self.width), max_lines=3, placeholder=" …")
        self.formula.set_text("\n".join(lines))


def _curve(start: np.ndarray, end: np.ndarray, bend: float) -> np.ndarray:
    """25 points (25, 2) of the arrow that matplotlib draws as "arc3,rad=bend"."""
    (dx, dy), t = end - start, np.linspace(0, 1, 25)[:, None]
    middle = (start + end) / 2 + bend * np.array([dy, -dx])
    return (1 - t) ** 2 * start + 2 * t * (1 - t) * middle + t**2 * end


def _bend(start: Tensor, end: Tensor, centers: dict[Any, Any], corners: dict[Any, Any]) -> float:
    """The least curvature with which the arrow from `start` to `end` passes no other box, if there is one."""
    others = [corner for node, corner in corners.items() if node is not start and node is not end]
    low, high = np.array(others).reshape(-1, 2, 2).transpose(1, 0, 2)

    def boxes_passed(bend: float) -> int:
        points = _curve(centers[start], centers[end], bend)[:, None, :]
        return ((points > low - 0.08) & (points < high + 0.08)).all(axis=2).any(axis=0).sum()

    return min((sign * size / 20 for size in range(20) for sign in (1, -1)), key=boxes_passed)


# ---- one step, and all of them -----------------------------------------------------------------------------


def step_figure(root: Tensor, step: int | None = None) -> Figure:
    """The graph of `root` after `step`, from 0 (only the leaves are known) to the last; None is the last."""
    graph_pass = GraphPass(root)
    step = _checked(step, graph_pass)
    drawing = StepDrawing(graph_pass)
    figure = style.new_figure(drawing.width, drawing.height)
    with style.in_style():
        drawing.build(figure)
    drawing.show(step)
    return figure


@picture
def step_picture(root: Tensor, step: int | None = None):
    """The graph after one step, by default the last: each box shows an operation, its value and the gradient of the result with
    respect to it."""
    return step_figure(root, step)


def stepper(root: Tensor, step: int | None = 0) -> LiveFigure:
    """The graph of `root` with a slider over its steps, which starts at `step` (None: the last)."""
    graph_pass = GraphPass(root)
    slider = ipywidgets.IntSlider(
        value=_checked(step, graph_pass),
        min=0,
        max=len(graph_pass.steps) - 1,
        description="step",
        layout=ipywidgets.Layout(width="100%", max_width="700px"),
    )
    drawing = StepDrawing(graph_pass)
    return LiveFigure(
        drawing.build,
        lambda artists, step: drawing.show(step),
        {"step": slider},
        alt=f"The graph of {graph_pass.names[root]}: step by step values go forward, then gradients come back.",
        width=drawing.width,
        height=drawing.height,
        moves="step",
    )


def _checked(step: int | None, graph_pass: GraphPass) -> int:
    """The step's number, if the pass has it."""
    last = len(graph_pass.steps) - 1
    if step is not None and step not in range(last + 1):
        raise ValueError(f"this graph has the steps 0 to {last}; there is no step {step}")
    return last if step is None else step
