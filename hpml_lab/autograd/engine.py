"""Reverse-mode automatic differentiation over NumPy arrays: the whole of autograd in one sitting.

A Tensor remembers its parents, and for each parent a function that carries a gradient back to it: the vector-Jacobian product
(vjp) v ↦ vᵀ ∂out/∂parent, where v = ∂f/∂out. `backward` visits the graph from the result to the leaves, every node once, and adds up
what arrives. Float64 throughout; the same rules as torch's where a function has a kink (relu'(0) = 0, |x|'(0) = 0, ties of max share).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

Vjp = Callable[[np.ndarray], np.ndarray]


class Tensor:
    """An array that knows how it was computed.

    data           its value, a float64 array
    grad           ∂f/∂self after `backward`, added up over calls; only leaves keep it
    requires_grad  whether gradients flow to or through it
    parents        ((parent, vjp), …): only those that gradients flow to
    """

    __array_ufunc__ = None  # `array * tensor` must come to Tensor.__rmul__

    def __init__(self, data, requires_grad: bool = False, name: str = "") -> None:
        self.data = np.array(data, dtype=np.float64)
        self.grad: np.ndarray | None = None
        self.requires_grad = requires_grad
        self.parents: tuple[tuple[Tensor, Vjp], ...] = ()
        self.inputs: tuple[Tensor, ...] = ()  # all operands, for drawing the graph
        self.op, self.name = "", name

    shape = property(lambda self: self.data.shape)
    ndim = property(lambda self: self.data.ndim)
    T = property(lambda self: transpose(self))

    def item(self) -> float:
        return self.data.item()

    def detach(self) -> Tensor:
        """The same value with no history: a constant to everything computed from it."""
        return Tensor(self.data)

    def backward(self, grad=None) -> None:
        """Add ∂self/∂leaf to the `grad` of every leaf; for a non-scalar, the product `gradᵀ ∂self/∂leaf`."""
        for _ in backward_steps(self, grad):
            pass

    def __repr__(self) -> str:
        made = f", op={self.op}" if self.op else ""
        return f"Tensor({np.array2string(self.data, precision=4)}{made})"

    # Each operator is the function of that name below.
    def __add__(self, other): return add(self, other)
    def __radd__(self, other): return add(other, self)
    def __sub__(self, other): return add(self, neg(other))
    def __rsub__(self, other): return add(other, neg(self))
    def __mul__(self, other): return mul(self, other)
    def __rmul__(self, other): return mul(other, self)
    def __truediv__(self, other): return div(self, other)
    def __rtruediv__(self, other): return div(other, self)
    def __pow__(self, exponent): return power(self, exponent)
    def __matmul__(self, other): return matmul(self, other)
    def __rmatmul__(self, other): return matmul(other, self)
    def __neg__(self): return neg(self)
    def __getitem__(self, index): return getitem(self, index)
    def reshape(self, *shape): return reshape(self, shape[0] if isinstance(shape[0], tuple) else shape)
    def transpose(self, *axes): return transpose(self, axes or None)

# ---- the backward pass --------------------------------------------------------------------------------------------------

def backward_steps(root: Tensor, grad=None) -> Iterator[tuple[Tensor, np.ndarray]]:
    """Run the backward pass one node at a time, yielding (node, ∂root/∂node) when that gradient is complete."""
    if not root.requires_grad:
        raise RuntimeError("this tensor does not require a gradient: none of the leaves it comes from does")
    if grad is None:
        if root.data.size != 1:
            raise RuntimeError(f"a gradient starts by itself from a scalar only; the shape is {root.shape}: pass `grad`")
        grad = np.ones_like(root.data)
    grad = np.array(grad.data if isinstance(grad, Tensor) else grad, dtype=np.float64)
    if grad.shape != root.shape:
        raise RuntimeError(f"the gradient's shape {grad.shape} is not the tensor's, {root.shape}")
    arrived = {id(root): grad}
    for node in reversed(topological_order(root)):
        gradient = arrived.pop(id(node))
        if not node.parents:
            node.grad = gradient if node.grad is None else node.grad + gradient
        yield node, gradient
        for parent, vjp in node.parents:
            # A tensor used twice gets two contributions: the multivariate chain rule adds them.
            arrived[id(parent)] = arrived.get(id(parent), 0.0) + vjp(gradient)


def topological_order(root: Tensor) -> list[Tensor]:
    """All tensors that `root`'s gradient flows to, each after its parents (without recursion: graphs get deep)."""
    order, done, stack = [], set(), [(root, False)]
    while stack:
        node, parents_done = stack.pop()
        if parents_done:
            order.append(node)
        elif id(node) not in done:
            done.add(id(node))
            stack.append((node, True))
            stack.extend((parent, False) for parent, _ in node.parents)
    return order


def _result(op: str, value: np.ndarray, *operands: tuple[Tensor, Vjp]) -> Tensor:
    """The output of an operation on `operands`, each with its vjp; keeps the links that gradients can use."""
    out = Tensor(value)
    out.op, out.inputs = op, tuple(tensor for tensor, _ in operands)
    out.parents = tuple((tensor, vjp) for tensor, vjp in operands if tensor.requires_grad)
    out.requires_grad = bool(out.parents)
    return out


def tensor(value) -> Tensor:
    """`value` itself if it is a Tensor, else a constant."""
    return value if isinstance(value, Tensor) else Tensor(value)


def unbroadcast(grad: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The vjp of broadcasting: sum over the axes along which a value was repeated."""
    grad = grad.sum(axis=tuple(range(grad.ndim - len(shape))))
    return grad.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1 and grad.shape[i] != 1), keepdims=True)

# ---- arithmetic: the operands broadcast against each other --------------------------------------------------------------

def add(a, b) -> Tensor:
    a, b = tensor(a), tensor(b)  # ∂(a+b)/∂a = 1
    return _result("+", a.data + b.data, (a, lambda g: unbroadcast(g, a.shape)), (b, lambda g: unbroadcast(g, b.shape)))


def mul(a, b) -> Tensor:
    a, b = tensor(a), tensor(b)  # ∂(ab)/∂a = b
    return _result("×", a.data * b.data,
                   (a, lambda g: unbroadcast(g * b.data, a.shape)), (b, lambda g: unbroadcast(g * a.data, b.shape)))


def div(a, b) -> Tensor:
    a, b = tensor(a), tensor(b)  # ∂(a/b)/∂a = 1/b, ∂(a/b)/∂b = -a/b²
    return _result("÷", a.data / b.data, (a, lambda g: unbroadcast(g / b.data, a.shape)),
                   (b, lambda g: unbroadcast(-g * a.data / b.data**2, b.shape)))


def matmul(a, b) -> Tensor:
    a, b = tensor(a), tensor(b)  # C = AB: ∂f/∂A = (∂f/∂C) Bᵀ, ∂f/∂B = Aᵀ (∂f/∂C); leading axes are batches and broadcast
    A = a.data[None, :] if a.ndim == 1 else a.data
    B = b.data[:, None] if b.ndim == 1 else b.data

    def wide(g):  # NumPy drops the axis of a vector operand from the result: put it back
        g = g[..., None] if b.ndim == 1 else g
        return g[..., None, :] if a.ndim == 1 else g

    return _result("@", a.data @ b.data,
                   (a, lambda g: unbroadcast(wide(g) @ np.swapaxes(B, -1, -2), A.shape).reshape(a.shape)),
                   (b, lambda g: unbroadcast(np.swapaxes(A, -1, -2) @ wide(g), B.shape).reshape(b.shape)))

# ---- one operand, element by element: (function, derivative in terms of the input x and the output y) -------------------

def _elementwise(op: str, function: Callable, derivative: Callable) -> Callable[[Tensor], Tensor]:
    def apply(x) -> Tensor:
        x = tensor(x)
        y = function(x.data)
        return _result(op, y, (x, lambda g: g * derivative(x.data, y)))

    apply.__name__ = op
    return apply


neg = _elementwise("neg", np.negative, lambda x, y: -1.0)
exp = _elementwise("exp", np.exp, lambda x, y: y)
log = _elementwise("log", np.log, lambda x, y: 1 / x)
sin = _elementwise("sin", np.sin, lambda x, y: np.cos(x))
cos = _elementwise("cos", np.cos, lambda x, y: -np.sin(x))
tanh = _elementwise("tanh", np.tanh, lambda x, y: 1 - y**2)
# σ(x) by tanh does not overflow for large |x|, as 1/(1+e⁻ˣ) would
sigmoid = _elementwise("σ", lambda x: 0.5 * (1 + np.tanh(x / 2)), lambda x, y: y * (1 - y))
relu = _elementwise("relu", lambda x: np.maximum(x, 0), lambda x, y: x > 0)
absolute = _elementwise("abs", np.abs, lambda x, y: np.sign(x))


def power(x, exponent: float) -> Tensor:
    x = tensor(x)  # d(xⁿ)/dx = n xⁿ⁻¹ for a constant n
    if isinstance(exponent, Tensor):
        raise TypeError("the exponent must be a number; write (b * a.log()).exp() for a tensor to the power of a tensor")
    slope = exponent * x.data ** (exponent - 1) if exponent else np.zeros_like(x.data)
    return _result(f"^{exponent:g}", x.data**exponent, (x, lambda g: g * slope))

# ---- reductions and shapes ----------------------------------------------------------------------------------------------

def _widened(reduced: np.ndarray, shape: tuple[int, ...], axis) -> np.ndarray:
    """A reduction's output or gradient with the reduced axes put back as 1, ready to broadcast to `shape`."""
    axes = range(len(shape)) if axis is None else [a % len(shape) for a in np.atleast_1d(axis)]
    return reduced.reshape([1 if i in axes else n for i, n in enumerate(shape)])


def sum_(x, axis=None, keepdims: bool = False) -> Tensor:
    x = tensor(x)  # every element counts once: its gradient is the sum's
    return _result("sum", x.data.sum(axis=axis, keepdims=keepdims),
                   (x, lambda g: np.broadcast_to(_widened(g, x.shape, axis), x.shape)))


def mean(x, axis=None, keepdims: bool = False) -> Tensor:
    x = tensor(x)
    total = sum_(x, axis, keepdims)
    return total * (total.data.size / x.data.size)


def max_(x, axis=None, keepdims: bool = False) -> Tensor:
    x = tensor(x)  # only the largest element matters; equal ones share (as torch.amax does)
    top = x.data.max(axis=axis, keepdims=keepdims)
    hit = x.data == _widened(top, x.shape, axis)
    share = hit / _widened(hit.sum(axis=axis), x.shape, axis)
    return _result("max", top, (x, lambda g: share * _widened(g, x.shape, axis)))


def reshape(x, shape: tuple[int, ...]) -> Tensor:
    x = tensor(x)
    return _result("reshape", x.data.reshape(shape), (x, lambda g: g.reshape(x.shape)))


def transpose(x, axes: tuple[int, ...] | None = None) -> Tensor:
    x = tensor(x)
    back = None if axes is None else np.argsort([axis % x.ndim for axis in axes])
    return _result("transpose", x.data.transpose(axes), (x, lambda g: g.transpose(back)))


def getitem(x, index) -> Tensor:
    x = tensor(x)

    def scatter(g):
        grad = np.zeros_like(x.data)
        np.add.at(grad, index, g)  # an element picked twice gets both gradients; `grad[index] += g` would drop one
        return grad

    return _result("[ ]", x.data[index], (x, scatter))


def concatenate(parts: list[Tensor], axis: int = 0) -> Tensor:
    parts = [tensor(part) for part in parts]
    ends = np.cumsum([part.shape[axis] for part in parts])[:-1]
    piece = [(part, lambda g, i=i: np.split(g, ends, axis=axis)[i]) for i, part in enumerate(parts)]
    return _result("concat", np.concatenate([part.data for part in parts], axis=axis), *piece)


# The methods are the functions themselves: x.exp() is exp(x).
Tensor.exp, Tensor.log, Tensor.sin, Tensor.cos, Tensor.tanh = exp, log, sin, cos, tanh
Tensor.sigmoid, Tensor.relu, Tensor.abs, Tensor.sqrt = sigmoid, relu, absolute, lambda self: power(self, 0.5)
Tensor.sum, Tensor.mean, Tensor.max = sum_, mean, max_
