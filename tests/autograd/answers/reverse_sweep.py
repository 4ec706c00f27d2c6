"""Answers to `reverse-sweep`."""

import numpy as np

from hpml_lab import autograd
from hpml_lab.autograd.lessons.engine import backward_steps


def solution(root):
    arrived = {root: np.ones(root.shape)}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
    return arrived


def overwrites(root):
    arrived = {root: np.ones(root.shape)}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            arrived[parent] = vjp(arrived[node])
    return arrived


def from_the_leaves(root):
    arrived = {root: np.ones(root.shape)}
    for node in autograd.topological_order(root):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
    return arrived


def from_the_leaves_with_zeros(root):
    arrived = {node: np.zeros(node.shape) for node in autograd.topological_order(root)}
    arrived[root] = np.ones(root.shape)
    for node in autograd.topological_order(root):
        for parent, vjp in node.parents:
            arrived[parent] = arrived[parent] + vjp(arrived[node])
    return arrived


def never_seeded(root):
    arrived = {node: np.zeros(node.shape) for node in autograd.topological_order(root)}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            arrived[parent] = arrived[parent] + vjp(arrived[node])
    return arrived


def slopes_only(root):
    arrived = {root: np.ones(root.shape)}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(np.ones(node.shape))
    return arrived


def recursive(root):
    arrived = {root: np.ones(root.shape)}

    def visit(node):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
            visit(parent)

    visit(root)
    return arrived


def leaves_only(root):
    arrived, leaves = {root: np.ones(root.shape)}, {}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
            if not parent.parents:
                leaves[parent] = arrived[parent]
    return leaves


def by_name(root):
    arrived = {root: np.ones(root.shape)}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
    return {node.name: gradient for node, gradient in arrived.items()}


def with_the_method(root):
    root.backward()
    return {node: node.grad for node in autograd.topological_order(root) if node.grad is not None}


def no_return(root):
    arrived = {root: np.ones(root.shape)}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])


def adds_to_nothing(root):
    arrived = {root: np.ones(root.shape)}
    for node in reversed(autograd.topological_order(root)):
        for parent, vjp in node.parents:
            arrived[parent] += vjp(arrived[node])
    return arrived


WRONG = [
    ("adds-to-nothing", adds_to_nothing),
    ("overwrites", overwrites),
    ("forward-order", from_the_leaves),
    ("forward-order", from_the_leaves_with_zeros),
    ("starts-at-zero", never_seeded),
    ("no-chain-factor", slopes_only),
    ("passes-on-twice", recursive),
    ("leaves-only", leaves_only),
    ("names-as-keys", by_name),
    ("leaves-only", with_the_method),
    ("returns-nothing", no_return),
]


def sweep(root, nodes, parents=lambda node: node.parents, seed=1.0):
    arrived = {root: np.full(root.shape, seed)}
    for node in nodes:
        for parent, vjp in parents(node):
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
    return arrived


def met(root, newest_first):
    """Each node once, in the order in which it is first met."""
    waiting, seen = [root], {root}
    while waiting:
        node = waiting.pop(-1 if newest_first else 0)
        yield node
        new = [parent for parent, _ in node.parents if parent not in seen]
        seen |= set(new)
        waiting += dict.fromkeys(new)


def reverse(root):
    return reversed(autograd.topological_order(root))


def kept(root, arrived={}):  # noqa: B006
    arrived[root] = np.ones(root.shape)
    for node in reverse(root):
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
    return arrived


def into_grad(root):
    for node in autograd.topological_order(root):
        node.grad = np.zeros(node.shape)
    root.grad = np.ones(root.shape)
    for node in reverse(root):
        for parent, vjp in node.parents:
            parent.grad = parent.grad + vjp(node.grad)
    return {node: node.grad for node in autograd.topological_order(root)}


def only_three_levels(root):
    return sweep(root, list(reverse(root))[:4])


def pops_when_done(root):
    arrived, done = {root: np.ones(root.shape)}, {}
    for node in reverse(root):
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


def only_where_a_gradient_is(root):
    arrived = {root: np.ones(root.shape)}
    for node in autograd.topological_order(root):
        if node in arrived:
            for parent, vjp in node.parents:
                arrived[parent] = arrived.get(parent, 0) + vjp(arrived[node])
    return arrived


def reads_grad(root):
    root.backward()
    return {node: node.grad for node in autograd.topological_order(root)}


WRONG += [
    ("passes-on-too-early", lambda root: sweep(root, met(root, newest_first=False))),
    ("passes-on-too-early", lambda root: sweep(root, met(root, newest_first=True))),
    ("starts-at-its-value", lambda root: sweep(root, reverse(root), seed=root.item())),
    ("first-input-only", lambda root: first_only(root)),
    ("kept-between-calls", kept),
    ("sets-grad", into_grad),
    ("no-dictionary", lambda root: list(solution(root).items())),
    ("nodes-missing", lambda root: {node: g for node, g in solution(root).items() if node is not root}),
    ("forward-order", lambda root: sweep(root, [root])),
    ("wrong-value", lambda root: {node: 2 * g for node, g in solution(root).items()}),
    ("wrong-value", lambda root: {node: np.sign(g) for node, g in solution(root).items()}),
    ("returns-nothing", lambda root: root.backward()),
    ("raises", lambda root: sweep(root, root.reversed())),
    ("no-dictionary", lambda root: solution(root)[root]),
    ("changed-in-place", sums_in_place),
    ("forward-order", only_where_a_gradient_is),
    ("sets-grad", reads_grad),
]


def first_only(root):
    arrived = {node: np.zeros(node.shape) for node in autograd.topological_order(root)} | {root: np.ones(root.shape)}
    for node in reverse(root):
        for parent, vjp in node.parents:
            arrived[parent] = arrived[parent] + vjp(arrived[node])
            break
    return arrived


ALSO_RIGHT = [
    pops_when_done,
    pulls,
    lambda root: {node: g.tolist() for node, g in solution(root).items()},
    lambda root: dict(reversed(solution(root).items())),
    lambda root: dict(backward_steps(root)),
]


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


def inputs_in_a_dictionary(root):
    return sweep(root, reverse(root), parents=lambda node: dict(node.parents).items())


WRONG += [("wrong-value", counts_operations), ("wrong-value", inputs_in_a_dictionary)]


def zeros_for_all(root):
    arrived = {node: np.zeros(node.shape) for node in autograd.topological_order(root)}
    arrived[root] = np.ones(root.shape)
    for node in reverse(root):
        for parent, vjp in node.parents:
            arrived[parent] = arrived[parent] + vjp(arrived[node])
    return arrived


def pops_every_node(root):
    arrived, done = {root: np.ones(root.shape)}, {}
    for node in reverse(root):
        done[node] = arrived.pop(node)
        for parent, vjp in node.parents:
            arrived[parent] = arrived.get(parent, 0) + vjp(done[node])
    return done


WRONG += [("constant-has-a-gradient", zeros_for_all), ("asks-a-constant", pops_every_node)]
ALSO_RIGHT += [lambda root: {node: gradient for node, gradient in zeros_for_all(root).items() if node.requires_grad}]
