"""Answers to `reverse-sweep`."""

import numpy as np
from edited_source import edited, wrong_answers

from hpml_lab import autograd
from hpml_lab.autograd.lessons.engine import backward_steps


def solution(root):
    arrived = {root: np.ones(root.shape)}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
    return arrived


ONES = "{root: np.ones(root.shape)}"
ZEROS = "{node: np.zeros(node.shape) for node in autograd.topological_order(root)}"
START_AT_ZEROS = (ONES, f"{ZEROS} | {ONES}")
ORDER = "reversed(autograd.topological_order(root))"
FORWARD = (ORDER, "autograd.topological_order(root)")
SUM = "arrived.get(parent, 0) + vjp(arrived[node])"
RESULT = "return arrived"
WRONG = wrong_answers(
    solution,
    [
        ("adds-to-nothing", (f"= {SUM}", "+= vjp(arrived[node])")),
        ("forward-order", FORWARD),
        ("names-as-keys", (RESULT, "return {node.name: gradient for node, gradient in arrived.items()}")),
        ("remembers-calls", ("(root):", "(root, arrived={}):"), (f"arrived = {ONES}", "arrived[root] = np.array(1.0)")),
        ("wrong-type", (RESULT, "return list(arrived.items())")),
        ("nodes-missing", (RESULT, "return {node: g for node, g in arrived.items() if node is not root}")),
        ("nodes-of-another-graph", (f"arrived = {ONES}", "arrived = vars(solution); arrived[root] = np.array(1.0)")),
        ("wrong-value", (RESULT, "return {node: np.sign(g) for node, g in arrived.items()}")),
        ("contribution-left-out", ("node.parents", "dict(node.parents).items()")),
        ("raises", (ORDER, "root.reversed()")),
        ("constant-has-a-gradient", START_AT_ZEROS),
    ],
)  # fmt: skip


def leaves_only(root):
    arrived, leaves = {root: np.ones(root.shape)}, {}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
            if not parent.parents:
                leaves[parent] = arrived[parent]
    return leaves


def with_the_method(root):
    root.backward()
    return {node: node.grad for node in autograd.topological_order(root) if node.grad is not None}


def into_grad(root):
    for node in autograd.topological_order(root):
        node.grad = np.zeros(node.shape)
    root.grad = np.ones(root.shape)
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            parent.grad = parent.grad + vjp(node.grad)
    return {node: node.grad for node in autograd.topological_order(root)}


def sums_in_place(root):
    arrived = {root: np.ones(root.shape)}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            share = vjp(arrived[node])
            if parent in arrived:
                arrived[parent] += share
            else:
                arrived[parent] = share
    return arrived


def counts_operations(root):
    """A node is complete after as many contributions as there are operations that use it, also if one uses it twice."""
    uses = {}
    for node in autograd.topological_order(root):
        for parent in {parent for parent, _ in node.parents}:
            uses[parent] = uses.get(parent, 0) + 1
    arrived, complete = {root: np.ones(root.shape)}, [root]
    while complete:
        node = complete.pop()
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
            uses[parent] -= 1
            if uses[parent] == 0:
                complete.append(parent)
    return arrived


def pops_every_node(root):
    arrived, done = {root: np.ones(root.shape)}, {}
    for node in reversed(autograd.topological_order(root)):
        done[node] = arrived.pop(node)
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(done[node])
    return done


WRONG += [
    ("leaves-only", leaves_only),
    ("leaves-only", with_the_method),
    ("sets-grad", into_grad),
    ("changed-in-place", sums_in_place),
    ("wrong-value", counts_operations),
    ("asks-a-constant", pops_every_node),
]


def passes_on_at_each_visit(root):
    arrived, waiting = {root: np.ones(root.shape)}, [root]
    while waiting:
        node = waiting.pop()
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
            waiting.append(parent)
    return arrived


def recursive_sweep(root):
    arrived = {root: np.ones(root.shape)}

    def visit(node):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
            visit(parent)

    visit(root)
    return arrived


WRONG += [("passes-on-twice", passes_on_at_each_visit), ("passes-on-twice", recursive_sweep)]


def pops_when_done(root):
    arrived, done = {root: np.ones(root.shape)}, {}
    for node in reversed(autograd.topological_order(root)):
        if node.requires_grad:
            done[node] = arrived.pop(node)
        for parent, vjp in node.parents:
            arrived[parent] = arrived[parent] + vjp(done[node]) if parent in arrived else vjp(done[node])
    return done


def pulls(root):
    """Each node asks for the contributions of what was computed from it."""
    order = autograd.topological_order(root)

    def of(node):
        uses = [vjp(of(user)) for user in order for parent, vjp in user.parents if parent is node]
        return np.ones(root.shape) if node is root else sum(uses)

    return {node: of(node) for node in order if node.requires_grad}


ALSO_RIGHT = [
    pops_when_done,
    pulls,
    lambda root: {node: g.tolist() for node, g in solution(root).items()},
    lambda root: dict(reversed(solution(root).items())),
    lambda root: dict(backward_steps(root)),
    edited(solution, START_AT_ZEROS, (RESULT, "return {node: g for node, g in arrived.items() if node.requires_grad}")),
]


def asks_for_parents_of_the_root(root):
    if not root.parents:
        return {}
    return solution(root)


WRONG += [("wrong-value", asks_for_parents_of_the_root)]


def leaves_zeros_out(root):
    gradients = {root: np.ones(root.shape)}
    for node in reversed(autograd.topological_order(root)):
        if not np.any(gradients.get(node, 0.0)):
            gradients.pop(node, None)
            continue
        for parent, vjp in node.parents:
            gradients[parent] = gradients.get(parent, 0.0) + vjp(gradients[node])
    return gradients


WRONG += [("nodes-missing", leaves_zeros_out)]
