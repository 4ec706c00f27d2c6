"""Watch autograd work: values go forward and gradients come back through the drawn graph, one node at a time.

    x, y, z = Tensor(-2, True, "x"), Tensor(5, True, "y"), Tensor(-4, True, "z")
    q = x + y
    q.name = "q"
    f = q * z
    stepper(f)         # a slider over the steps
    step_figure(f, 4)  # the picture of one step
    table(f)           # the same in words

Nothing here changes the tensors: their `grad` stays as it is.
"""

import math
import textwrap
from dataclasses import dataclass

import ipywidgets
import networkx as nx
import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import offset_copy

from hpml_lab.autograd.engine import Tensor, backward_steps, topological_order
from hpml_lab.core import style
from hpml_lab.core.graph import draw_graph, layered_positions
from hpml_lab.core.live_figure import LiveFigure

MOST_NODES = 40  # more cannot be read in one picture
FONT, LINE = 9, 11.5  # points: the letters in a box, and from one of its lines to the next
BOX, HEADER = 0.62, 0.85  # inches: the height of a box, and of the text above the graph
NARROWEST, WIDEST = 7.0, 11.0  # inches: of a figure; a graph that would be wider is drawn downward

# How an operation is written, and its slope ∂y/∂operand for each operand: operands a, b, output y.
NOTATION = {
    "+": ("{a} + {b}", "1", "1"),
    "-": ("{a} - {b}", "1", "(-1)"),
    "×": ("{a} × {b}", "{b}", "{a}"),
    "÷": ("{a} / {b}", "1/{b}", "(-{y}/{b})"),
    "neg": ("-{a}", "(-1)"),
    "exp": ("exp({a})", "{y}"),
    "log": ("log({a})", "1/{a}"),
    "sqrt": ("sqrt({a})", "1/(2·{y})"),
    "sin": ("sin({a})", "cos({a})"),
    "cos": ("cos({a})", "(-sin({a}))"),
    "tanh": ("tanh({a})", "(1 - {y}²)"),
    "σ": ("σ({a})", "{y}·(1 - {y})"),
    "relu": ("relu({a})", "(1 if {a} > 0, else 0)"),
    "abs": ("|{a}|", "sign({a})"),
    "@": ("{a} @ {b}",),
    "transpose": ("{a}ᵀ",),
    "[ ]": ("{a}[…]",),
}
# How the output's gradient g comes back to each operand where that is no product, element by element.
BACK = {
    "@": ("{g} @ {b}ᵀ", "{a}ᵀ @ {g}"),
    "sum": ("{g} for every element",),
    "max": ("{g} for the largest, 0 for the others",),
    "reshape": ("{g} reshaped back",),
    "transpose": ("{g} transposed back",),
    "[ ]": ("{g} where it was picked, else 0",),
}


@dataclass(frozen=True)
class Step:
    """One step: `node` becomes known.

    direction  "start", "forward" (its value) or "backward" (its gradient)
    formula    what was computed, with the numbers put in
    through    the operations that the numbers came through
    users      on the way back, the nodes that the gradient came from
    """

    direction: str
    node: Tensor | None
    formula: str
    through: str = ""
    users: tuple[Tensor, ...] = ()

    @property
    def title(self) -> str:
        """What is done in this step, in words."""
        if self.direction == "start":
            return "Start: the leaves are known"
        if not self.through:
            return "Backward starts at the result"
        return f"{self.direction.capitalize()} through {self.through}"


class Walk:
    """What there is to tell about the graph of `root`: names, gradients, and the steps that make all known.

    Raises RuntimeError for a result that is no scalar, ValueError for a graph of more than MOST_NODES nodes.
    """

    def __init__(self, root: Tensor) -> None:
        self.root, self.nodes = root, topological_order(root)
        if len(self.nodes) > MOST_NODES:
            raise ValueError(
                f"this graph has {len(self.nodes)} nodes; a picture shows at most {MOST_NODES}. "
                "Step through a smaller part of it, such as one layer."
            )
        self.gradients = dict(backward_steps(root)) if root.requires_grad else {}
        self.names = _names(self.nodes)
        self.steps = [Step("start", None, self._leaves())]
        for node in self.nodes:
            if node.inputs:
                self.steps.append(Step("forward", node, self._forward(node), through=node.op))
        for node in self.gradients:
            users = tuple(user for user in self.gradients if node in dict(user.parents))
            through = " and ".join(dict.fromkeys(user.op for user in users))
            self.steps.append(Step("backward", node, self._backward(node, users), through, users))

    def known(self, step: int) -> tuple[set[Tensor], set[Tensor]]:
        """The nodes whose values, and those whose gradients, are known after `step`."""
        values, done = {node for node in self.nodes if not node.inputs}, self.steps[: step + 1]
        values |= {one.node for one in done if one.direction == "forward"}
        return values, {one.node for one in done if one.direction == "backward"}

    def d(self, node: Tensor) -> str:
        """The name of a node's gradient: df/dq."""
        return f"d{self.names[self.root]}/d{self.names[node]}"

    def written(self, node: Tensor, operands: dict[Tensor, str] | None = None) -> str:
        """The operation of `node` with the names of its operands, x + y, or with their values, -2 + 5."""
        texts = [(operands or self.names)[one] for one in node.inputs]
        alone = node.op == "neg" or node.op.startswith("^")  # -(-2) and (-2)^3
        texts = [_bracketed(text) if place or alone else text for place, text in enumerate(texts)]
        if node.op.startswith("^"):
            return texts[0] + node.op
        if node.op not in NOTATION:
            return f"{node.op}({', '.join(texts)})"
        return NOTATION[node.op][0].format(**dict(zip("ab", texts, strict=False)))

    def lines(self, node: Tensor) -> tuple[str, str, str]:
        """The three lines of a node's box: what it is, its value, its gradient."""
        gradient = "no gradient"
        if node in self.gradients:
            gradient = f"{self.d(node)} {_show(self.gradients[node])}"
        return self._label(node), f"value {_show(node.data)}", gradient

    def _label(self, node: Tensor) -> str:
        label = f"{self.names[node]} = {self.written(node)}" if node.inputs else self.names[node]
        return label if len(label) <= 24 else label[:23] + "…"

    def _leaves(self) -> str:
        shown = [node for node in self.nodes if not node.inputs and self.names[node] != _show(node.data)]
        return "; ".join(_equal([self.names[node]], node.data) for node in shown) or "they are all constants"

    def _forward(self, node: Tensor) -> str:
        parts = [self.names[node], self.written(node)]
        if all(one.data.size == 1 for one in node.inputs):
            parts.append(self.written(node, {one: _show(one.data) for one in node.inputs}))
        return _equal(parts, node.data)

    def _backward(self, node: Tensor, users: tuple[Tensor, ...]) -> str:
        symbols, numbers = [], []
        for user in users:
            places = [place for place, one in enumerate(user.inputs) if one is node]
            vjps = [vjp for parent, vjp in user.parents if parent is node]
            for place, vjp in zip(places, vjps, strict=True):
                symbols.append(self._contribution(user, node, place))
                if user.data.size == node.data.size == 1:
                    gradient, slope = _show(self.gradients[user]), _show(vjp(np.ones(user.shape)))
                    numbers.append(f"{_bracketed(gradient) if numbers else gradient} · {_bracketed(slope)}")
        parts = [self.d(node), " + ".join(symbols)]
        if len(numbers) == len(symbols):
            parts.append(" + ".join(numbers))
        return _equal([part for part in parts if part], self.gradients[node])

    def _contribution(self, user: Tensor, node: Tensor, place: int) -> str:
        """What comes back to `node`, operand number `place` of `user`: df/dq · z."""
        g = self.d(user)
        names = dict(zip("ab", (_bracketed(self.names[one]) for one in user.inputs), strict=False))
        scalars = user.data.size == node.data.size == 1
        if user.op == "concat":
            return f"its part of {g}"
        if user.op in BACK and not scalars:
            return BACK[user.op][place].format(g=g, **names)
        if user.op.startswith("^"):
            exponent = float(user.op[1:])
            rest = {2: names["a"], 1: "1"}.get(exponent, f"{names['a']}^{exponent - 1:g}")
            slope = f"{_bracketed(f'{exponent:g}')}·{rest}"
        elif len(NOTATION.get(user.op, ())) > 1:
            slope = NOTATION[user.op][1 + place].format(y=self.names[user], **names)
        else:
            slope = f"d{self.names[user]}/d{self.names[node]}"
        summed = "" if node.shape == user.shape or scalars else " summed where it was repeated"
        return f"{g} · {slope}{summed}"


def _names(nodes: list[Tensor]) -> dict[Tensor, str]:
    """A name for each node: its own; else its value for a constant number, f for the result, v1, v2, …"""
    taken, names = {node.name for node in nodes}, {}
    free = (name for name in (f"v{number}" for number in range(1, 2 * len(nodes) + 1)) if name not in taken)
    for node in nodes:
        if node.name:
            names[node] = node.name
        elif not node.inputs and not node.requires_grad and node.data.size == 1:
            names[node] = _show(node.data)
        elif node is nodes[-1] and "f" not in taken:
            names[node] = "f"
        else:
            names[node] = next(free)
    return names


def _show(value: np.ndarray) -> str:
    """The value of a single number, the shape of an array."""
    return f"{value.item() + 0.0:.4g}" if value.size == 1 else str(value.shape)  # + 0.0 turns -0 into 0


def _equal(parts: list[str], value: np.ndarray) -> str:
    """q = x + y = 3, or for an array: h = tanh(v), shape (3, 4)."""
    text = " = ".join(parts)
    return f"{text} = {_show(value)}" if value.size == 1 else f"{text}, shape {value.shape}"


def _bracketed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def graph_of(root: Tensor) -> nx.DiGraph:
    """The graph of `root`: its nodes are the tensors, its edges lead from input to output.

    Each node carries `label` (x, or q = x + y), `name`, `op` and `kind` (leaf, operation, output), ready for
    core.graph.draw_graph.
    """
    return _graph(Walk(root))


def _graph(walk: Walk) -> nx.DiGraph:
    graph = nx.DiGraph()
    for node in walk.nodes:
        kind = "leaf" if not node.inputs else "output" if node is walk.root else "operation"
        graph.add_node(node, label=walk.lines(node)[0], name=walk.names[node], op=node.op, kind=kind)
    for node in walk.nodes:
        graph.add_edges_from((one, node) for one in node.inputs)
    return graph


def table(root: Tensor) -> list[dict[str, object]]:
    """The steps in words, one row a step: number, node, what happens, formula."""
    walk = Walk(root)
    return [
        {
            "step": number,
            "node": walk.names[step.node] if step.node else "",
            "what happens": step.title,
            "formula": step.formula,
        }
        for number, step in enumerate(walk.steps)
    ]


class _Picture:
    """The drawn graph of a walk: what stays, and the artists that come and go from step to step.

    It reckons in inches, so that boxes, bends and the size of the figure fit each other whatever the graph.
    """

    def __init__(self, walk: Walk) -> None:
        self.walk, self.graph = walk, _graph(walk)
        self.lines = {node: walk.lines(node) for node in walk.nodes}
        self.letters = {  # in the widest line of each box; the first is bold, which is wider
            node: max(math.ceil(1.12 * len(label)), len(value), len(gradient))
            for node, (label, value, gradient) in self.lines.items()
        }
        half = {node: np.array([0.039 * letters + 0.06, BOX / 2]) for node, letters in self.letters.items()}
        layered = layered_positions(self.graph)
        column = 2 * max(size[0] for size in half.values()) + 0.55  # leaves room for an arrow
        self.downward = column * (1 + max(layer for layer, _ in layered.values())) > WIDEST
        self.scale = np.array([column, 1.1 if self.downward else 0.95])  # inches between neighbours
        places = {
            node: self.scale * ((place, -layer) if self.downward else (layer, -place))
            for node, (layer, place) in layered.items()
        }
        corners = {node: (place - half[node], place + half[node]) for node, place in places.items()}
        self.bends = {edge: _bend(*edge, places, corners) for edge in self.graph.edges}
        curves = [_curve(places[start], places[end], bend) for (start, end), bend in self.bends.items()]
        filled = np.concatenate([*corners.values(), *curves])
        self.low, self.high = filled.min(axis=0) - 0.2, filled.max(axis=0) + 0.2
        spare = max(0.0, NARROWEST - (self.high - self.low)[0]) / 2  # a small graph stands in the middle
        self.low, self.high = self.low - (spare, 0), self.high + (spare, 0)
        self.width, self.height = self.high - self.low + (0, HEADER)

    def build(self, figure: Figure) -> list[Artist]:
        """Draw what stays; return what comes and goes."""
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1 - HEADER / self.height))
        ground = self.graph.copy()
        for node, letters in self.letters.items():  # letters that are not seen make room for the three lines
            ground.nodes[node]["label"] = "\n".join(["0" * letters] * 3)
        boxes = draw_graph(axes, ground, downward=self.downward, font_size=FONT)
        arrows = [text for text in axes.texts if isinstance(text, Annotation)]
        (left, bottom), (right, top) = self.low / self.scale, self.high / self.scale
        axes.set(xlim=(left, right), ylim=(bottom, top))
        self.values, self.gradients, self.rings, self.forward, self.backward = {}, {}, {}, {}, {}
        above, below = (offset_copy(axes.transData, figure, y=y, units="points") for y in (LINE, -LINE))
        for node, box in boxes.items():
            box.set_color("none")
            (x, y), (label, value, gradient) = box.get_position(), self.lines[node]
            middle = {"ha": "center", "va": "center", "fontsize": FONT, "zorder": 4}
            axes.text(x, y, label, transform=above, fontweight="bold", **middle)
            self.values[node] = axes.text(x, y, value, color=style.BLUE, **middle)
            colour = style.RED if node in self.walk.gradients else style.GREY
            self.gradients[node] = axes.text(x, y, gradient, transform=below, color=colour, **middle)
            ring = {"boxstyle": "round,pad=0.6", "facecolor": "none", "edgecolor": style.INK, "linewidth": 3}
            self.rings[node] = axes.text(x, y, box.get_text(), color="none", bbox=ring, **middle)
        # A gradient comes back beside the arrow that the value went by.
        beside = offset_copy(axes.transData, figure, units="points", **{"x" if self.downward else "y": -8})
        for edge, arrow in zip(ground.edges, arrows, strict=True):
            tail, tip, bend = arrow.get_position(), arrow.xy, self.bends[edge]
            arrow.arrow_patch.set_connectionstyle("arc3", rad=bend)
            look = {**arrow.arrowprops, "linewidth": 3, "color": style.BLUE}
            look["connectionstyle"] = f"arc3,rad={bend}"
            back = {**look, "color": style.RED, "patchA": look["patchB"], "patchB": look["patchA"]}
            back["connectionstyle"] = f"arc3,rad={-bend}"
            self.forward[edge] = axes.annotate("", xy=tip, xytext=tail, zorder=1.5, arrowprops=look)
            self.backward[edge] = axes.annotate(
                "", xy=tail, xytext=tip, xycoords=beside, textcoords=beside, zorder=1.5, arrowprops=back
            )
        text = {"x": 0.15 / self.width, "s": "", "va": "top"}
        self.title = figure.text(y=1 - 0.12 / self.height, fontsize=11, fontweight="bold", **text)
        self.formula = figure.text(y=1 - 0.38 / self.height, fontsize=10, **text)
        figure.draw_without_rendering()  # arrows end at boxes, whose sizes are known once they were drawn
        kinds = self.forward, self.backward, self.rings, self.values, self.gradients
        return [*(artist for kind in kinds for artist in kind.values()), self.title, self.formula]

    def show(self, step: int) -> None:
        """Show what is known after `step`; hide the rest."""
        now = self.walk.steps[step]
        values, gradients = self.walk.known(step)
        for node in self.walk.nodes:
            self.values[node].set_visible(node in values)
            self.gradients[node].set_visible(node in gradients or node not in self.walk.gradients)
            self.rings[node].set_visible(node is now.node)
        for (_, end), arrow in self.forward.items():
            arrow.set_visible(now.direction == "forward" and end is now.node)
        for (start, end), arrow in self.backward.items():
            arrow.set_visible(now.direction == "backward" and start is now.node and end in now.users)
        self.title.set_text(f"Step {step} of {len(self.walk.steps) - 1}. {now.title}")
        lines = textwrap.wrap(now.formula, int(11.5 * self.width), max_lines=3, placeholder=" …")
        self.formula.set_text("\n".join(lines))


def _curve(start: np.ndarray, end: np.ndarray, bend: float) -> np.ndarray:
    """25 points (25, 2) of the arrow that matplotlib draws as "arc3,rad=bend"."""
    (dx, dy), t = end - start, np.linspace(0, 1, 25)[:, None]
    middle = (start + end) / 2 + bend * np.array([dy, -dx])
    return (1 - t) ** 2 * start + 2 * t * (1 - t) * middle + t**2 * end


def _bend(start: Tensor, end: Tensor, places: dict, corners: dict) -> float:
    """The least bend with which the arrow from `start` to `end` passes no other box, if there is one."""
    others = [corner for node, corner in corners.items() if node is not start and node is not end]
    low, high = np.array(others).reshape(-1, 2, 2).transpose(1, 0, 2)

    def boxes_passed(bend: float) -> int:
        points = _curve(places[start], places[end], bend)[:, None, :]
        return ((points > low - 0.08) & (points < high + 0.08)).all(axis=2).any(axis=0).sum()

    return min((sign * size / 20 for size in range(20) for sign in (1, -1)), key=boxes_passed)


def step_figure(root: Tensor, step: int | None = None) -> Figure:
    """The graph of `root` after `step`, from 0 (only the leaves are known) to the last; None is the last."""
    walk = Walk(root)
    step = _checked(step, walk)
    picture = _Picture(walk)
    figure = style.new_figure(picture.width, picture.height)
    with style.in_style():
        picture.build(figure)
    picture.show(step)
    return figure


def stepper(root: Tensor, step: int | None = 0) -> LiveFigure:
    """The graph of `root` with a slider over its steps, which begins at `step` (None: the last)."""
    walk = Walk(root)
    slider = ipywidgets.IntSlider(
        value=_checked(step, walk),
        min=0,
        max=len(walk.steps) - 1,
        description="step",
        layout=ipywidgets.Layout(width="100%", max_width="700px"),
    )
    picture = _Picture(walk)
    return LiveFigure(
        picture.build,
        lambda artists, step: picture.show(step),
        {"step": slider},
        alt=f"The graph of {walk.names[root]}: step by step values go forward, then gradients come back.",
        width=picture.width,
        height=picture.height,
    )


def _checked(step: int | None, walk: Walk) -> int:
    last = len(walk.steps) - 1
    if step is not None and step not in range(last + 1):
        raise ValueError(f"this graph has the steps 0 to {last}; there is no step {step}")
    return last if step is None else step
