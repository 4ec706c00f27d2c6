"""Exercise reverse-sweep: the backward pass of an autograd engine."""

from collections.abc import Callable, Iterator

import numpy as np

from hpml_lab.autograd.lessons.engine import Tensor, Vjp, reshape, sum_, tanh, topological_order
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import UNKNOWN, Rubric

Gradients = dict[Tensor, np.ndarray]


def shared_uses() -> dict[str, Tensor]:
    """A graph in which x and a are used more than once: a = xy, b = tanh(a) + x, f = sum(ab)."""
    x, y = Tensor([0.5, -1.0], True, "x"), Tensor(0.8, True, "y")
    a = x * y
    b = tanh(a) + x
    f = sum_(a * b)
    a.name, b.name, f.name = "a", "b", "f"
    return {node.name: node for node in (x, y, a, b, f)}


def powers() -> dict[str, Tensor]:
    """A longer chain: one operation uses a node twice, and another, before or behind it, once more."""
    x = Tensor([1.5, -0.5, 0.25], True, "x")
    s = x * x
    c = s * s + tanh(tanh(s))
    f = sum_(tanh(tanh(c)) + c * c)
    s.name, c.name, f.name = "s", "c", "f"
    return {node.name: node for node in (x, s, c, f)}


def square() -> dict[str, Tensor]:
    """f = x·x."""
    x = Tensor(3.0, True, "x")
    return {"x": x, "f": x * x}


def reshaped() -> dict[str, Tensor]:
    """A graph in which a vjp returns its argument's own memory: r and q are x reshaped, f = sum(r·r) + sum(q·q·q)."""
    x = Tensor([1.5, -0.5], True, "x")
    r, q = reshape(x, (2, 1)), reshape(x, (1, 2))
    f = sum_(r * r) + sum_(q * q * q)
    r.name, q.name, f.name = "r", "q", "f"
    return {node.name: node for node in (x, r, q, f)}


def switched_off() -> dict[str, Tensor]:
    """f = sum(g·x·x) with g = 0: the gradient of x is zeros, and it is one."""
    x, g = Tensor([1.5, -0.5], True, "x"), Tensor(0.0, True, "g")
    s = x * x
    f = sum_(g * s)
    s.name, f.name = "s", "f"
    return {node.name: node for node in (x, g, s, f)}


SWITCHED_OFF = "f = sum(g·x·x) with g = 0"


def with_constants() -> dict[str, Tensor]:
    """f = sum(3·x·x + k), in which 3 and k are constants: they are in the topological order, and no gradient reaches them."""
    x, k = Tensor([1.5, -0.5], True, "x"), Tensor([4.0, 0.25], name="k")
    f = sum_(3 * x * x + k)
    f.name = "f"
    return {node.name: node for node in (x, f)}


def gradients_of(root: Tensor) -> Gradients:
    order = topological_order(root)
    gradients = {node: np.zeros(node.shape) for node in order} | {root: np.ones(root.shape)}
    for node in reversed(order):
        for parent, vjp in node.parents:
            gradients[parent] = gradients[parent] + vjp(gradients[node])
    return {node: gradient for node, gradient in gradients.items() if node.requires_grad}


def as_first_met(root: Tensor, *, newest_first: bool) -> Iterator[Tensor]:
    """Each node once, in the order in which it is first met: breadth first, or depth first."""
    waiting, met = [root], {root}
    while waiting:
        node = waiting.pop(-1 if newest_first else 0)
        yield node
        for parent, _ in node.parents:
            if parent not in met:
                met.add(parent)
                waiting.append(parent)


def in_place_sweep(root: Tensor) -> Gradients:
    """The reverse sweep in which a sum is written into the first contribution, which another node may own."""
    gradients = {root: np.ones(root.shape)}
    for node in reversed(topological_order(root)):
        for parent, vjp in node.parents:
            share = vjp(gradients[node])
            if parent in gradients and gradients[parent].flags.writeable:
                gradients[parent] += share
            else:
                gradients[parent] = gradients[parent] + share if parent in gradients else share
    return gradients


class Contributions:
    """How often each vjp of a graph is called from now on."""

    def __init__(self, root: Tensor) -> None:
        self.counts: dict[tuple[Tensor, int], int] = {}
        for node in topological_order(root):
            node.parents = tuple((parent, self._counted(vjp, (node, i))) for i, (parent, vjp) in enumerate(node.parents))

    def _counted(self, vjp: Vjp, key: tuple[Tensor, int]) -> Vjp:
        self.counts[key] = 0

        def counted(gradient: np.ndarray) -> np.ndarray:
            self.counts[key] += 1
            return vjp(gradient)

        return counted

    def explain(self, case: str) -> None:
        """Raise the Mistake of an answer that asked a vjp more than once, or never."""
        if any(count > 1 for count in self.counts.values()):
            hint = f"For {case} a node passed its gradient on more than once, and what had been passed on before counts again."
            raise Mistake("passes-on-twice", f"{hint} || Visit each node once, when its sum is complete.")
        if not all(self.counts.values()):
            hint = f"For {case} a vjp was never called: a node that uses another twice has two pairs for it in `parents`."
            raise Mistake("contribution-left-out", hint)


RUBRIC = Rubric(
    gradients_of,
    """
gradients[parent] + vjp(gradients[node])
    overwrites :: vjp(gradients[node]) :: A node that is used twice receives two contributions, and the second must not replace
        the first: the multivariate chain rule adds them.
reversed(order)
    passes-on-too-early :: as_first_met(root, newest_first=False) :: $TOO_EARLY
    passes-on-too-early :: as_first_met(root, newest_first=True) :: $TOO_EARLY
whole answer
    changed-in-place :: in_place_sweep :: A vjp may hand on the gradient that it was given, or a view of it. `+=` on such an
        array changes another node's gradient as well: make a new array for a sum.
""",
    TOO_EARLY="A node passed its gradient on before all its contributions had arrived: visit the nodes in the reverse of "
    "topological_order, where everything computed from a node comes before it.",
)


@exercise("reverse-sweep", notebook="02_autograd", takes="root", returns=dict)
def judge_reverse_sweep(answer: Callable) -> None:
    """{node: ∂root/∂node} for every node that a gradient reaches."""
    nodes = shared_uses()
    root = nodes["f"]
    passed = Contributions(root)
    try:
        got = answer(root)
    except KeyError as error:
        if error.args and error.args[0] in root.inputs:  # from the root one step back: the direction was right
            raise Mistake(
                "adds-to-nothing",
                "`+=` reads the old value first, and at a node's first contribution there is none yet: "
                "what is a sum before anything is added?",
            ) from error
        raise Mistake(
            "forward-order",
            "A node was asked for its gradient before any had arrived. Which node has its gradient from "
            "the start, and in which direction do you go from there?",
        ) from error
    if got and all(isinstance(key, str) for key in got):
        raise Mistake("names-as-keys", "The keys are the nodes themselves, not their names.")
    missing = [name for name, node in nodes.items() if node not in got]
    if set(missing) == {"a", "b", "f"}:
        raise Mistake(
            "leaves-only", "The leaves are there; a, b and f are not. Their gradients were needed on the way: return them too."
        )
    if missing:
        raise Mistake(
            "nodes-missing", f"No gradient for {', '.join(missing)}: every node that one reaches belongs in the result."
        )
    if any(node.grad is not None for node in nodes.values()):
        raise Mistake("sets-grad", "`.grad` of some node was changed, by you or by backward(): only return the gradients.")
    case = "a = x·y, b = tanh(a) + x, f = sum(a·b)"
    _compare(got, nodes, case, passed)
    graphs = {
        "s = x·x, c = s·s + tanh(tanh(s)), f = sum(tanh(tanh(c)) + c·c)": powers(),
        "f = x·x": square(),
        SWITCHED_OFF: switched_off(),
        "f = x, a leaf itself": {"f": Tensor(2.0, True, "f")},
        "r and q, two reshapes of x, and f = sum(r·r) + sum(q·q·q)": reshaped(),
        f"a second time {case}": nodes,
    }
    for case, graph in graphs.items():
        passed = Contributions(graph["f"])
        own = answer(graph["f"])
        if strange := set(own) - set(topological_order(graph["f"])):
            hint = f"{len(strange)} nodes of your result do not belong to this graph: start with a new dictionary in each call."
            raise Mistake("nodes-of-another-graph", hint)
        missing = [name for name, node in graph.items() if node not in own]
        if missing and case == SWITCHED_OFF:
            hint = (
                f"No gradient for {', '.join(missing)} of {case}: one of zeros is a gradient, too, and belongs in the result."
            )
            raise Mistake("nodes-missing", hint)
        _compare(own, graph, case, passed)
    _judge_constants(answer)


CONSTANT = (
    "In f = sum(3·x·x + k), 3 and k are constants. topological_order lists them, too, but they are in no node's `parents`: no "
    "gradient reaches them, and they do not belong in the result."
)


def _judge_constants(answer: Callable) -> None:
    graph = with_constants()
    passed = Contributions(graph["f"])
    try:
        own = answer(graph["f"])
    except KeyError as error:
        if not isinstance(error.args[0], Tensor) or error.args[0].requires_grad:
            raise
        raise Mistake("asks-a-constant", f"{CONSTANT} Yours asks for the gradient of one.") from error
    _compare(own, graph, "f = sum(3·x·x + k)", passed)
    if any(not node.requires_grad for node in own):
        raise Mistake("constant-has-a-gradient", CONSTANT)


def _compare(got: Gradients, graph: dict[str, Tensor], case: str, passed: Contributions) -> None:
    """Raise a Mistake unless these are the gradients of the graph's nodes, in their shapes."""
    counts = dict(passed.counts)  # of the answer: what follows calls the vjps, too

    def listed(gradients: Gradients) -> dict[str, np.ndarray]:
        return {name: np.asarray(gradients.get(node)) for name, node in graph.items()}

    root = graph["f"]
    mistakes = {f"{name}, {i}": (listed(wrong(root)), hint) for i, (name, wrong, hint) in enumerate(RUBRIC.single())}
    try:
        expect(listed(got), listed(gradients_of(root)), case=f"{case}, by node,", mistakes=mistakes)
    except Mistake as mistake:
        passed.counts, mistake.given = counts, (root,)
        if mistake.name in UNKNOWN:
            passed.explain(case)
        raise
