"""Reverse-mode automatic differentiation over NumPy arrays: the whole of autograd in one sitting.

A Tensor remembers which tensors it was computed from and, for each of them, a function that carries a
gradient back: the vector-Jacobian product (vjp) v ↦ vᵀ ∂out/∂parent, where v = ∂f/∂out. `backward` visits
the graph from the result to the leaves, every node once, and adds up what arrives. All numbers are float64.
At a kink the rule is torch's: relu'(0) = 0, |x|'(0) = 0, equal largest elements share the gradient of max.

Read it in this order: Tensor, backward_steps, _pointwise. The rest are more operations of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

Vjp = Callable[[np.ndarray], np.ndarray]


class Tensor:
    """An array that knows how it was computed.

    data           its value, a float64 array; change it only if no later `backward` needs it
    grad           ∂f/∂self, added up over all calls of `backward`; leaves only
    requires_grad  whether gradients flow to it or through it
    inputs         the tensors it was computed from, constants too; none for a leaf
    parents        ((input, vjp), …) for those inputs that gradients flow to
    op, name       the operation that made it, and a name for printing and drawing
    """

    __array_ufunc__ = None  # so that `array * tensor` is handled by Tensor.__rmul__

    def __init__(self, data, requires_grad: bool = False, name: str = "") -> None:
        if isinstance(data, Tensor):
            raise TypeError("this is a Tensor already; `detach` copies one without its history")
        self.data = np.array(data, dtype=np.float64)  # a copy, so that nothing else changes it
        self.grad: np.ndarray | None = None
        self.requires_grad = requires_grad
        self.inputs: tuple[Tensor, ...] = ()
        self.parents: tuple[tuple[Tensor, Vjp], ...] = ()
        self.op, self.name = "", name

    shape = property(lambda self: self.data.shape)
    ndim = property(lambda self: self.data.ndim)
    T = property(lambda self: transpose(self))
    def item(self) -> float: return self.data.item()

    def detach(self) -> Tensor:
        """The same value with no history: a constant to everything computed from it."""
        return Tensor(self.data)

    def backward(self, grad=None) -> None:
        """Add ∂self/∂leaf to the `grad` of every leaf; for a non-scalar, the product gradᵀ ∂self/∂leaf."""
        for node, gradient in backward_steps(self, grad):
            if not node.parents:
                node.grad = np.array(gradient if node.grad is None else node.grad + gradient)

    def __repr__(self) -> str:
        made = f", op={self.op}" if self.op else ""
        return f"Tensor({np.array2string(self.data, precision=4)}{made})"

    # Each operator is the function of that name below.
    def __add__(self, other): return add(self, other)
    def __radd__(self, other): return add(other, self)
    def __sub__(self, other): return sub(self, other)
    def __rsub__(self, other): return sub(other, self)
    def __mul__(self, other): return mul(self, other)
    def __rmul__(self, other): return mul(other, self)
    def __truediv__(self, other): return div(self, other)
    def __rtruediv__(self, other): return div(other, self)
    def __pow__(self, exponent): return power(self, exponent)
    def __matmul__(self, other): return matmul(self, other)
    def __rmatmul__(self, other): return matmul(other, self)
    def __neg__(self): return neg(self)
    def __getitem__(self, index): return getitem(self, index)
    def reshape(self, *shape): return reshape(self, shape[0] if len(shape) == 1 else shape)
    def transpose(self, *axes): return transpose(self, axes[0] if len(axes) == 1 else axes or None)

# ---- the backward pass -------------------------------------------------------------------------------------
def backward_steps(root: Tensor, grad=None) -> Iterator[tuple[Tensor, np.ndarray]]:
    """Follow the graph back and yield each node with its complete gradient ∂root/∂node; sets no `grad`."""
    if not root.requires_grad:
        raise RuntimeError("this tensor does not require a gradient: none of the leaves it comes from does")
    if grad is None:
        if root.data.size != 1:
            raise RuntimeError(f"only a scalar starts a backward pass; for shape {root.shape} pass `grad`")
        grad = np.ones_like(root.data)
    grad = tensor(grad).data
    if grad.shape != root.shape:
        raise RuntimeError(f"`grad` has shape {grad.shape}, but the tensor has shape {root.shape}")
    arrived = {root: grad}  # what has come in for each node so far
    for node in reversed(topological_order(root)):
        if node.requires_grad and node in arrived:  # a leaf marked after the graph was recorded gets nothing, as in torch
            gradient = arrived.pop(node)  # complete: everything computed from this node came before it
            yield node, gradient
            for parent, vjp in node.parents:
                share = vjp(gradient)  # one of several if the parent is used twice: the chain rule adds them
                arrived[parent] = arrived[parent] + share if parent in arrived else share


def topological_order(root: Tensor) -> list[Tensor]:
    """`root` and everything it was computed from, inputs first. A loop, because Python's recursion ends at 1000 levels."""
    order, seen, stack = [], set(), [(root, False)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(node.inputs))  # the left operand comes off first
    return order


def _result(op: str, value: np.ndarray, *operands: tuple[Tensor, Vjp]) -> Tensor:
    """The output of an operation, with links to the operands that require a gradient."""
    out = Tensor(value)
    out.op, out.inputs = op, tuple(x for x, _ in operands)
    out.parents = tuple((x, vjp) for x, vjp in operands if x.requires_grad)
    out.requires_grad = bool(out.parents)
    return out


def tensor(value) -> Tensor:
    """`value` itself if it is a Tensor, else a constant."""
    return value if isinstance(value, Tensor) else Tensor(value)


def unbroadcast(grad: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The vjp of broadcasting: sum over the axes along which a value of `shape` was repeated."""
    grad = grad.sum(axis=tuple(range(grad.ndim - len(shape))))  # axes that it did not have
    return grad.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)  # axes of length 1

# ---- element by element: (name, function, ∂y/∂operand for each operand) from the operands and the output y -
def _pointwise(op: str, function: Callable, *slopes: Callable) -> Callable[..., Tensor]:
    def apply(*operands) -> Tensor:
        if len(operands) != len(slopes):
            raise TypeError(f"{op} takes {len(slopes)} operand(s), not {len(operands)}")
        operands = [tensor(x) for x in operands]
        values = [x.data for x in operands]
        y = function(*values)
        def carry(x, slope):  # the Jacobian is diagonal: the vjp is a product, summed where x was broadcast
            return x, lambda g: unbroadcast(g * slope(*values, y), x.shape)
        return _result(op, y, *map(carry, operands, slopes))
    apply.__name__ = op
    return apply


add = _pointwise("+", np.add, lambda a, b, y: 1, lambda a, b, y: 1)
sub = _pointwise("-", np.subtract, lambda a, b, y: 1, lambda a, b, y: -1)
mul = _pointwise("×", np.multiply, lambda a, b, y: b, lambda a, b, y: a)
div = _pointwise("÷", np.divide, lambda a, b, y: 1 / b, lambda a, b, y: -y / b)
neg = _pointwise("neg", np.negative, lambda x, y: -1)
exp = _pointwise("exp", np.exp, lambda x, y: y)
log = _pointwise("log", np.log, lambda x, y: 1 / x)
sqrt = _pointwise("sqrt", np.sqrt, lambda x, y: 0.5 / y)
sin = _pointwise("sin", np.sin, lambda x, y: np.cos(x))
cos = _pointwise("cos", np.cos, lambda x, y: -np.sin(x))
tanh = _pointwise("tanh", np.tanh, lambda x, y: 1 - y**2)
# σ(x) = exp(-log(1 + e⁻ˣ)): logaddexp does not overflow for a large negative x, as 1/(1 + e⁻ˣ) does
sigmoid = _pointwise("σ", lambda x: np.exp(-np.logaddexp(0, -x)), lambda x, y: y * (1 - y))
relu = _pointwise("relu", lambda x: np.maximum(x, 0), lambda x, y: x > 0)
absolute = _pointwise("abs", np.abs, lambda x, y: np.sign(x))


def power(x, exponent: float) -> Tensor:
    if not isinstance(exponent, int | float | np.number):
        raise TypeError("the exponent must be a number; for a tensor write (exponent * x.log()).exp()")
    if exponent == 0:  # x⁰ is 1 at x = 0 too, but 0 · x⁻¹ is not 0 there
        return _pointwise("^0", np.ones_like, lambda x, y: 0)(x)
    return _pointwise(f"^{exponent:g}", lambda x: x**exponent, lambda x, y: exponent * x ** (exponent - 1))(x)

# ---- matrix product ----------------------------------------------------------------------------------------
def matmul(a, b) -> Tensor:
    """C = AB: ∂f/∂A = (∂f/∂C) Bᵀ, ∂f/∂B = Aᵀ (∂f/∂C); axes before the last two are batches and broadcast."""
    a, b = tensor(a), tensor(b)
    try:
        value = a.data @ b.data
    except ValueError:
        raise ValueError(f"shapes {a.shape} and {b.shape} do not fit a matrix product") from None
    A = a.data[None, :] if a.ndim == 1 else a.data  # a vector on the left is a row,
    B = b.data[:, None] if b.ndim == 1 else b.data  # on the right a column
    def matrix(g):  # NumPy drops that row or column from the result: put it back
        g = g[..., None] if b.ndim == 1 else g
        return g[..., None, :] if a.ndim == 1 else g
    return _result("@", value,
                   (a, lambda g: unbroadcast(matrix(g) @ np.swapaxes(B, -1, -2), A.shape).reshape(a.shape)),
                   (b, lambda g: unbroadcast(np.swapaxes(A, -1, -2) @ matrix(g), B.shape).reshape(b.shape)))

# ---- reductions --------------------------------------------------------------------------------------------
def _kept_shape(shape: tuple[int, ...], axis) -> tuple[int, ...]:
    """The shape after a reduction over `axis` (number, tuple, or None for all) that keeps those axes as 1."""
    axes = range(len(shape)) if axis is None else [a % max(len(shape), 1) for a in np.atleast_1d(axis)]
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def sum_(x, axis=None, keepdims: bool = False) -> Tensor:
    x = tensor(x)  # ∂sum/∂element = 1: every element gets the sum's gradient
    value, kept = x.data.sum(axis=axis, keepdims=keepdims), _kept_shape(x.shape, axis)
    return _result("sum", value, (x, lambda g: np.broadcast_to(g.reshape(kept), x.shape)))


def mean(x, axis=None, keepdims: bool = False) -> Tensor:
    x = tensor(x)
    return sum_(x, axis, keepdims) / (x.data.size / np.prod(_kept_shape(x.shape, axis)))


def max_(x, axis=None, keepdims: bool = False) -> Tensor:
    x = tensor(x)  # ∂max/∂element = 1 for the largest, 0 for the others; k equal ones get 1/k each
    value, kept = x.data.max(axis=axis, keepdims=keepdims), _kept_shape(x.shape, axis)
    largest = x.data == value.reshape(kept)
    share = largest / largest.sum(axis=axis).reshape(kept)
    return _result("max", value, (x, lambda g: share * g.reshape(kept)))

# ---- moving elements: the gradient moves the other way -----------------------------------------------------
def reshape(x, shape: int | tuple[int, ...]) -> Tensor:
    x = tensor(x)
    return _result("reshape", x.data.reshape(shape), (x, lambda g: g.reshape(x.shape)))


def transpose(x, axes: tuple[int, ...] | None = None) -> Tensor:
    x = tensor(x)
    back = None if axes is None else np.argsort([axis % x.ndim for axis in np.atleast_1d(axes)])
    return _result("transpose", x.data.transpose(axes), (x, lambda g: g.transpose(back)))


def getitem(x, index) -> Tensor:
    x = tensor(x)
    def scatter(g):
        grad = np.zeros_like(x.data)
        np.add.at(grad, index, g)  # an element picked twice gets both gradients; `grad[index] += g` drops one
        return grad
    return _result("[ ]", x.data[index], (x, scatter))


def concatenate(parts: list[Tensor], axis: int = 0) -> Tensor:
    parts = [tensor(part) for part in parts]
    value = np.concatenate([part.data for part in parts], axis=axis)
    cuts = np.cumsum([part.shape[axis] for part in parts])[:-1]
    pieces = [(part, lambda g, i=i: np.split(g, cuts, axis=axis)[i]) for i, part in enumerate(parts)]
    return _result("concat", value, *pieces)


# The methods are the functions themselves: x.exp() is exp(x).
Tensor.exp, Tensor.log, Tensor.sqrt, Tensor.sin, Tensor.cos, Tensor.tanh = exp, log, sqrt, sin, cos, tanh
Tensor.sigmoid, Tensor.relu, Tensor.abs = sigmoid, relu, absolute
Tensor.sum, Tensor.mean, Tensor.max = sum_, mean, max_
