"""What happens at each step of a forward and a backward pass, in words and formulas.

    x, y, z = Tensor(-2, True, "x"), Tensor(5, True, "y"), Tensor(-4, True, "z")
    q = x + y
    q.name = "q"
    f = q * z
    for row in pass_table(f):
        print(row.number, row.action, row.formula)

Nothing here changes the tensors: their `grad` stays as it is.
"""

from dataclasses import dataclass

import networkx as nx
import numpy as np

from hpml_lab.autograd.lessons.engine import Tensor, backward_steps, topological_order

MOST_NODES = 40  # more cannot be read in one picture

# How an operation is written, and its slope ∂y/∂operand for each operand; a and b are the operands, y is the output.
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
# How the output's gradient g comes back to each operand if that is not a product, element by element.
BACK = {
    "@": ("{g} @ {b}ᵀ", "{a}ᵀ @ {g}"),
    "sum": ("{g} for every element",),
    "max": ("{g} for the largest, 0 for the others",),
    "reshape": ("{g} reshaped back",),
    "transpose": ("{g} transposed back",),
    "[ ]": ("{g} where it was picked, else 0",),
}


@dataclass(frozen=True)
class GraphStep:
    """One step of a pass: the value or the gradient of `node` becomes known.

    direction  "start", "forward" (its value) or "backward" (its gradient)
    formula    what was computed, with the numbers filled in
    through    the operations that the numbers came through
    users      going back, the nodes that the gradient came from
    """

    direction: str
    node: Tensor | None
    formula: str
    through: str = ""
    users: tuple[Tensor, ...] = ()

    @property
    def title(self) -> str:
        """What happens in this step, in words."""
        if self.direction == "start":
            return "Start: the leaves are known"
        if not self.through:
            return "Backward starts at the result"
        return f"{self.direction.capitalize()} through {self.through}"


class GraphPass:
    """The forward and backward pass through the graph of `root`: names, gradients, and the steps.

    Raises RuntimeError if `root` is not a scalar, ValueError if the graph has more than MOST_NODES nodes.
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
        self.steps = [GraphStep("start", None, self._leaves())]
        for node in self.nodes:
            if node.inputs:
                self.steps.append(GraphStep("forward", node, self._forward(node), through=node.op))
        for node in self.gradients:
            users = tuple(user for user in self.gradients if node in dict(user.parents))
            through = " and ".join(dict.fromkeys(user.op for user in users))
            self.steps.append(GraphStep("backward", node, self._backward(node, users), through, users))

    def known(self, step: int) -> tuple[set[Tensor], set[Tensor]]:
        """The nodes whose values, and those whose gradients, are known after `step`."""
        values, done = {node for node in self.nodes if not node.inputs}, self.steps[: step + 1]
        values |= {step.node for step in done if step.direction == "forward"}
        return values, {step.node for step in done if step.direction == "backward"}

    def derivative(self, node: Tensor) -> str:
        """The name of a node's gradient, such as df/dq."""
        return f"d{self.names[self.root]}/d{self.names[node]}"

    def written(self, node: Tensor, operands: dict[Tensor, str] | None = None) -> str:
        """The operation of `node` with the names of its operands, x + y, or with their values, -2 + 5."""
        texts = [(operands or self.names)[operand] for operand in node.inputs]
        alone = node.op == "neg" or node.op.startswith("^")  # -(-2) and (-2)^3
        texts = [_bracketed(text) if index or alone else text for index, text in enumerate(texts)]
        if node.op.startswith("^"):
            return texts[0] + node.op
        if node.op not in NOTATION:
            return f"{node.op}({', '.join(texts)})"
        return NOTATION[node.op][0].format(**dict(zip("ab", texts, strict=False)))

    def lines(self, node: Tensor) -> tuple[str, str, str]:
        """The three lines of a node's box: what it is, its value, its gradient."""
        gradient = "no gradient"
        if node in self.gradients:
            gradient = f"{self.derivative(node)} {_show(self.gradients[node])}"
        return self._label(node), f"value {_show(node.data)}", gradient

    def _label(self, node: Tensor) -> str:
        label = f"{self.names[node]} = {self.written(node)}" if node.inputs else self.names[node]
        return label if len(label) <= 24 else label[:23] + "…"

    def _leaves(self) -> str:
        shown = [node for node in self.nodes if not node.inputs and self.names[node] != _show(node.data)]
        return "; ".join(_equal([self.names[node]], node.data) for node in shown) or "they are all constants"

    def _forward(self, node: Tensor) -> str:
        parts = [self.names[node], self.written(node)]
        if all(operand.data.size == 1 for operand in node.inputs):
            parts.append(self.written(node, {operand: _show(operand.data) for operand in node.inputs}))
        return _equal(parts, node.data)

    def _backward(self, node: Tensor, users: tuple[Tensor, ...]) -> str:
        symbols, numbers = [], []
        for user in users:
            indices = [index for index, operand in enumerate(user.inputs) if operand is node]
            vjps = [vjp for parent, vjp in user.parents if parent is node]
            for index, vjp in zip(indices, vjps, strict=True):
                symbols.append(self._contribution(user, node, index))
                if user.data.size == node.data.size == 1:
                    gradient, slope = _show(self.gradients[user]), _show(vjp(np.ones(user.shape)))
                    numbers.append(f"{_bracketed(gradient) if numbers else gradient} · {_bracketed(slope)}")
        parts = [self.derivative(node), " + ".join(symbols)]
        if len(numbers) == len(symbols):
            parts.append(" + ".join(numbers))
        return _equal([part for part in parts if part], self.gradients[node])

    def _contribution(self, user: Tensor, node: Tensor, index: int) -> str:
        """What comes back to `node`, operand number `index` of `user`: df/dq · z."""
        g = self.derivative(user)
        names = dict(zip("ab", (_bracketed(self.names[operand]) for operand in user.inputs), strict=False))
        scalars = user.data.size == node.data.size == 1
        if user.op == "concat":
            return f"its part of {g}"
        if user.op in BACK and not scalars:
            return BACK[user.op][index].format(g=g, **names)
        if user.op.startswith("^"):
            exponent = float(user.op[1:])
            rest = {2: names["a"], 1: "1"}.get(exponent, f"{names['a']}^{exponent - 1:g}")
            slope = f"{_bracketed(f'{exponent:g}')}·{rest}"
        elif len(NOTATION.get(user.op, ())) > 1:
            slope = NOTATION[user.op][1 + index].format(y=self.names[user], **names)
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
    return pass_graph(GraphPass(root))


def pass_graph(graph_pass: GraphPass) -> nx.DiGraph:
    """The graph of a pass, as `graph_of` returns it."""
    graph = nx.DiGraph()
    for node in graph_pass.nodes:
        kind = "leaf" if not node.inputs else "output" if node is graph_pass.root else "operation"
        graph.add_node(node, label=graph_pass.lines(node)[0], name=graph_pass.names[node], op=node.op, kind=kind)
    for node in graph_pass.nodes:
        graph.add_edges_from((operand, node) for operand in node.inputs)
    return graph


@dataclass(frozen=True)
class PassRow:
    """One step in words: the node's name, what happens, and the formula with its numbers."""

    number: int
    node: str
    action: str
    formula: str


def pass_table(root: Tensor) -> list[PassRow]:
    """The steps of the forward and backward pass in words."""
    graph_pass = GraphPass(root)
    return [
        PassRow(number, graph_pass.names[step.node] if step.node else "", step.title, step.formula)
        for number, step in enumerate(graph_pass.steps)
    ]
