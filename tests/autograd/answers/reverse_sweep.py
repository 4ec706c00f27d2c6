"""Answers to `reverse-sweep`."""

import numpy as np

from hpml_lab import autograd


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
