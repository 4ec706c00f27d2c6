"""Exercise reverse-sweep: the backward pass of an autograd engine."""

from collections.abc import Callable

import numpy as np

from hpml_lab.autograd.engine import Tensor, backward_steps, sum_, tanh, topological_order
from hpml_lab.core.exercises import Mistake, exercise, expect

Gradients = dict[Tensor, np.ndarray]


def shared_uses() -> dict[str, Tensor]:
    """A graph in which x and a are used more than once: a = xy, b = tanh(a) + x, f = sum(ab)."""
    x, y = Tensor([0.5, -1.0], True, "x"), Tensor(0.8, True, "y")
    a = x * y
    b = tanh(a) + x
    f = sum_(a * b)
    a.name, b.name, f.name = "a", "b", "f"
    return {node.name: node for node in (x, y, a, b, f)}


def partial_sweep(root: Tensor, *, backward: bool = True, add: bool = True, chain: bool = True, seed: float = 1.0) -> Gradients:
    """The reverse sweep, of which one part can be left out."""
    order = topological_order(root)
    gradients = {node: np.zeros(node.shape) for node in order} | {root: np.full(root.shape, seed)}
    for node in reversed(order) if backward else order:
        for parent, vjp in node.parents:
            contribution = vjp(gradients[node] if chain else np.ones(node.shape))
            gradients[parent] = gradients[parent] + contribution if add else contribution
    return gradients


def recursive_sweep(root: Tensor) -> Gradients:
    """A recursion that passes on the whole sum each time that a contribution arrives."""
    gradients = {node: np.zeros(node.shape) for node in topological_order(root)} | {root: np.ones(root.shape)}

    def visit(node: Tensor) -> None:
        for parent, vjp in node.parents:
            gradients[parent] = gradients[parent] + vjp(gradients[node])
            visit(parent)

    visit(root)
    return gradients


def known_mistakes(root: Tensor) -> dict[str, tuple[Gradients, str]]:
    """{name: (the gradients that this mistake gives, hint)}."""
    return {
        "overwrites": (
            partial_sweep(root, add=False),
            "x and a are used twice, and the second contribution replaced the first. The multivariate chain rule adds them.",
        ),
        "starts-at-zero": (
            partial_sweep(root, seed=0.0),
            "Every gradient is 0. With which number does the pass begin: what is ∂f/∂f?",
        ),
        "no-chain-factor": (
            partial_sweep(root, chain=False),
            "Each vjp was given ones. It must be given the gradient that has arrived at its own node: that is the chain.",
        ),
        "forward-order": (
            partial_sweep(root, backward=False),
            "Gradients reached only the last operation's inputs: you went from the leaves to the result, not back.",
        ),
        "passes-on-twice": (
            recursive_sweep(root),
            "a is visited twice, and the second visit passes on everything that has arrived, including what was already "
            "passed on. Visit each node once, when its sum is complete.",
        ),
    }


@exercise("reverse-sweep", notebook="02_autograd")
def judge_reverse_sweep(answer: Callable) -> None:
    """{node: ∂root/∂node} for every node that a gradient reaches."""
    nodes = shared_uses()
    root = nodes["f"]
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
    if got is None:
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if not isinstance(got, dict):
        raise Mistake("no-dictionary", "Return a dictionary from each node to its gradient.")
    if got and all(isinstance(key, str) for key in got):
        raise Mistake("names-as-keys", "The keys are the nodes themselves, not their names.")
    missing = [name for name, node in nodes.items() if node not in got]
    if set(missing) == {"a", "b", "f"}:
        raise Mistake(
            "leaves-only", "The leaves are there; a, b and f are not. Their gradients were needed on the way: return them too."
        )
    if missing:
        raise Mistake("nodes-missing", f"No gradient for {', '.join(missing)}.")

    def listed(gradients: Gradients) -> list[np.ndarray]:
        return [np.asarray(gradients[node]) for node in nodes.values()]

    expect(
        listed(got),
        listed(dict(backward_steps(root))),
        case="a = x·y, b = tanh(a) + x, f = sum(a·b), in the order x, y, a, b, f",
        mistakes={name: (listed(gradients), hint) for name, (gradients, hint) in known_mistakes(root).items()},
    )
    if any(node.grad is not None for node in nodes.values()):
        raise Mistake("sets-grad", "The gradients are right, but `.grad` of some node was changed: only return them.")
    line = Tensor(3.0, True)
    expect(np.asarray(answer(line * line)[line]), 6.0, case="f = x · x at x = 3")
