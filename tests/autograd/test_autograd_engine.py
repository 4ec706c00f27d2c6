"""The engine's gradients are torch's, to 1e-12 in float64: on random programs, and operation by operation."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpml_lab.autograd.lessons import engine
from hpml_lab.autograd.lessons.engine import Tensor, backward_steps, concatenate, topological_order

TOLERANCE = 1e-12  # relative to max(1, |gradient|)


def assert_equal(ours, theirs):
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    assert np.all(np.abs(ours - theirs) <= TOLERANCE * np.maximum(1, np.abs(theirs)))


# ---- the same program for both libraries -------------------------------------------------------------------


class Engine:
    """How the engine spells what torch spells otherwise."""

    constant = staticmethod(np.asarray)
    concat = staticmethod(concatenate)

    @staticmethod
    def leaf(value, requires_grad):
        return Tensor(value, requires_grad)

    @staticmethod
    def reduce(name, x, axis, keepdims):
        return getattr(x, name)(axis=axis, keepdims=keepdims)

    @staticmethod
    def permute(x, axes):
        return x.transpose(axes)

    @staticmethod
    def index(x, index):
        return x[index]


class Torch:
    """The same in torch."""

    constant = staticmethod(torch.tensor)
    concat = staticmethod(torch.cat)

    @staticmethod
    def leaf(value, requires_grad):
        return torch.tensor(value, dtype=torch.float64, requires_grad=requires_grad)

    @staticmethod
    def reduce(name, x, axis, keepdims):
        if axis == ():  # NumPy reduces over no axis; torch, over all
            return x * 1
        dims = tuple(range(x.ndim)) if axis is None else axis
        return getattr(torch, {"max": "amax"}.get(name, name))(x, dim=dims, keepdim=keepdims)

    @staticmethod
    def permute(x, axes):
        return x.permute(axes)

    @staticmethod
    def index(x, index):
        as_tensors = [torch.tensor(part) if isinstance(part, np.ndarray) else part for part in index]
        return x[tuple(as_tensors)]


# The guards keep arguments off poles and kinks and results small: this tests the rules, not the conditioning.
# `c` is a constant array of generic numbers: with it no value lies at a kink and no two are tied.
UNARY = {
    "exp": lambda x, c: x.tanh().exp(),
    "log": lambda x, c: (x.sigmoid() + 0.5).log(),
    "sqrt": lambda x, c: (x * x + 0.5).sqrt(),
    "sin": lambda x, c: x.sin(),
    "cos": lambda x, c: x.cos(),
    "tanh": lambda x, c: x.tanh(),
    "sigmoid": lambda x, c: x.sigmoid(),
    "relu": lambda x, c: (x + c).relu(),
    "abs": lambda x, c: (x - c).abs(),
    "neg": lambda x, c: -x,
    "constant left": lambda x, c: (2.5 - x) * 0.5 + 1.5 / (x.sin() + 2),
    "constant right": lambda x, c: (x * 0.7 + 1) / 3 - 0.25,
    "power": lambda x, c: (x.tanh() + 1.5) ** -1.7,
    "square": lambda x, c: (x.sin() ** 2) * (x.cos() ** 3),
    "first power": lambda x, c: x**1 + x**0,
    "used twice": lambda x, c: x.sin() * x + x,
}
BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: (x * y).tanh(),
    "div": lambda x, y: x / (y * y + 0.5),
}


@dataclass
class Program:
    """Leaves, and instructions (kind, numbers of the operands, parameter) which each make one more node."""

    seed: int
    shapes: list[tuple[int, ...]]
    tracked: list[bool]
    instructions: list[tuple] = field(default_factory=list)
    output: str = "scalar"

    def leaves(self, library):
        rng = np.random.default_rng(self.seed)
        values = [rng.uniform(-1.5, 1.5, shape) for shape in self.shapes]
        return [library.leaf(value, tracked) for value, tracked in zip(values, self.tracked, strict=True)]

    def step(self, library, nodes, number):
        kind, operands, parameter = self.instructions[number]
        operands = [nodes[operand] for operand in operands]
        generic = np.random.default_rng([self.seed, number]).uniform(0.1, 0.9, tuple(operands[0].shape))
        generic = library.constant(generic)
        if kind in UNARY:
            return UNARY[kind](operands[0], generic)
        if kind in BINARY:
            return BINARY[kind](*operands)
        if kind == "matmul":
            return (operands[0] @ operands[1]).sin()
        if kind == "max":
            return library.reduce("max", operands[0] + generic, *parameter)
        if kind in ("sum", "mean"):
            return library.reduce(kind, operands[0], *parameter).tanh()
        if kind == "reshape":
            return operands[0].reshape(parameter)
        if kind == "concat":
            return library.concat(operands, parameter)
        return {"permute": library.permute, "index": library.index}[kind](operands[0], parameter)

    def gradients(self, library):
        """Run forward and backward; the gradients of the leaves, None for constants."""
        leaves = self.leaves(library)
        nodes = list(leaves)
        for number in range(len(self.instructions)):
            nodes.append(self.step(library, nodes, number))
        used = {operand for _, operands, _ in self.instructions for operand in operands}
        if self.output == "scalar":  # everything that was not used on the way
            total = sum(nodes[i].sin().sum() for i in range(len(nodes)) if i not in used)
            (total + sum(leaf.sum() for leaf in leaves)).backward()
        else:  # a product with the Jacobian of the last node
            last = nodes[-1] + sum(leaf.sum() for leaf in leaves)
            vector = np.random.default_rng(self.seed + 1).uniform(-1, 1, tuple(last.shape))
            last.backward(library.constant(vector))
        return [leaf.grad for leaf in leaves]


SHAPES = [(), (1,), (2,), (3,), (2, 3), (3, 2), (3, 3), (1, 3), (2, 1), (2, 2, 3), (1, 3, 2), (2, 1, 1)]
MOVES = ["reshape", "permute", "index", "index", "concat"]  # what is listed twice is drawn twice as often
KINDS = [*UNARY, *BINARY, "matmul", "matmul", "sum", "mean", "max", *MOVES]
MOST_ELEMENTS = 72


def fits(function, *shapes):
    """True where an operation takes operands of these shapes and its output stays small."""
    try:
        shape = function(*(np.zeros(shape) for shape in shapes)).shape
    except ValueError:
        return False
    return np.prod(shape) <= MOST_ELEMENTS and len(shape) <= 4


@st.composite
def programs(draw):
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4))
    tracked = [True, *draw(st.lists(st.booleans(), min_size=len(shapes) - 1, max_size=len(shapes) - 1))]
    program = Program(draw(st.integers(0, 2**32 - 1)), shapes, tracked)
    nodes = program.leaves(Engine)
    for number in range(draw(st.integers(3, 12))):
        program.instructions.append(draw(instructions([node.shape for node in nodes])))
        nodes.append(program.step(Engine, nodes, number))
    program.output = draw(st.sampled_from(["scalar", "vector"]))
    return program


@st.composite
def instructions(draw, shapes):
    kind, numbers = draw(st.sampled_from(KINDS)), range(len(shapes))
    if kind in BINARY or kind == "matmul":
        function = np.matmul if kind == "matmul" else np.add
        pairs = [(i, j) for i in numbers for j in numbers if fits(function, shapes[i], shapes[j])]
        return (kind, draw(st.sampled_from(pairs)), None) if pairs else ("sin", (0,), None)
    if kind == "concat":
        choices = [
            ((i, j), axis)
            for i in numbers
            for j in numbers
            for axis in range(-len(shapes[i]), len(shapes[i]))
            if fits(lambda a, b, axis=axis: np.concatenate([a, b], axis), shapes[i], shapes[j])
        ]
        operands, axis = draw(st.sampled_from(choices)) if choices else ((0,), None)
        return ("concat", operands, axis) if choices else ("cos", operands, None)
    operand = draw(st.sampled_from(numbers))
    parameter = draw(parameters(kind, shapes[operand])) if kind not in UNARY else None
    return kind, (operand,), parameter


@st.composite
def parameters(draw, kind, shape):
    axes, size = range(len(shape)), int(np.prod(shape))
    signed = [draw(st.sampled_from([axis, axis - len(shape)])) for axis in axes]
    if kind in ("sum", "mean", "max"):
        some = tuple(axis for axis in signed if draw(st.booleans()))
        return draw(st.sampled_from([None, some, *signed])), draw(st.booleans())
    if kind == "reshape":
        splits = [(n, size // n) for n in range(1, size + 1) if size % n == 0]
        return draw(st.sampled_from([(-1,), (1, *shape), shape[::-1], *splits]))
    if kind == "permute":
        return tuple(draw(st.permutations(signed)))
    assert kind == "index"
    if not shape:
        return draw(st.sampled_from([(), (None,), (...,)]))
    if draw(st.booleans()):  # a mask, or picks with repeats, on one axis
        axis = draw(st.sampled_from(axes))
        count = shape[axis]
        mask = st.lists(st.booleans(), min_size=count, max_size=count).map(np.array)
        picks = st.lists(st.integers(-count, count - 1), min_size=1, max_size=4).map(np.array)
        return (*[slice(None)] * axis, draw(mask.filter(np.any) | picks))
    choices = []
    for count in shape:
        start = draw(st.integers(0, count - 1))
        slices = [slice(start, None), slice(None, None, 2), slice(-1, None)]
        choices.append(draw(st.sampled_from([start, start - count, *slices])))
    axis = draw(st.integers(0, len(choices)))
    if draw(st.booleans()):
        return (*choices[:axis], draw(st.sampled_from([..., None])), *choices[axis:])
    return (..., *choices[axis:]) if draw(st.booleans()) else tuple(choices[: axis + 1])


def check_program(program):
    ours, theirs = program.gradients(Engine), program.gradients(Torch)
    for mine, its, tracked in zip(ours, theirs, program.tracked, strict=True):
        if not tracked:
            assert mine is None and its is None
        else:
            assert_equal(mine, its)


RANDOM = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@given(programs())
@settings(max_examples=50, **RANDOM)
def test_gradients_of_fifty_random_programs_are_torchs(program):
    check_program(program)


@pytest.mark.nightly("a thousand random programs")
@given(programs())
@settings(max_examples=1000, **RANDOM)
def test_gradients_of_a_thousand_random_programs_are_torchs(program):
    check_program(program)


def test_the_random_programs_use_every_kind_of_operation():
    seen = set()

    @given(programs())
    @settings(max_examples=200, **RANDOM)
    def collect(program):
        seen.update(kind for kind, _, _ in program.instructions)

    collect()
    assert seen == set(KINDS)


# ---- one operation at a time -------------------------------------------------------------------------------


def assert_same(function, *values):
    """`function` gives the same value in both libraries, and the same products vᵀJ for a generic vector v."""
    ours = [Tensor(value, requires_grad=True) for value in values]
    theirs = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values]
    mine, its = function(*ours), function(*theirs)
    assert_equal(mine.data, its)
    vector = np.random.default_rng(0).uniform(-1, 1, mine.shape)
    mine.backward(vector)
    its.backward(torch.tensor(vector))
    for a, b in zip(ours, theirs, strict=True):
        assert isinstance(a.grad, np.ndarray) and a.grad.dtype == np.float64
        assert_equal(a.grad, b.grad)


A = np.array([[0.5, -1.2, 2.0], [1.1, 0.3, -0.7]])
POSITIVE = np.abs(A)


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "tanh", "sigmoid", "relu", "abs", "sum", "mean"])
def test_functions_of_any_number(name):
    assert_same(lambda x: getattr(x, name)(), A)
    assert_same(lambda x: getattr(x, name)(), 0.8)


@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_functions_of_positive_numbers(name):
    assert_same(lambda x: getattr(x, name)(), POSITIVE)
    assert_same(lambda x: getattr(x, name)(), 0.8)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2])
def test_whole_powers_of_any_number(exponent):
    assert_same(lambda x: x**exponent, A)
    assert_same(lambda x: x**exponent, -2.0)


@pytest.mark.parametrize("exponent", [0.5, -0.5, 1.7, np.float64(2.5), np.int64(2)])
def test_other_powers_of_positive_numbers(exponent):
    assert_same(lambda x: x**exponent, POSITIVE)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3])
def test_powers_at_zero(exponent):
    assert_same(lambda x: x**exponent, [0.0, 1.0])


@pytest.mark.parametrize("shapes", [((2, 3), (3,)), ((2, 3), ()), ((2, 1), (1, 3)), ((3,), (2, 1, 3)), ((1,), ()), ((), ())])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv"])
def test_operators_broadcast(name, shapes):
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(0.5, 2, shape) for shape in shapes)
    assert_same(lambda x, y: getattr(x, f"__{name}__")(y), a, b)


def test_numbers_and_arrays_stand_on_either_side():
    assert_same(lambda x: 2 + x * 3 - 1, A)
    assert_same(lambda x: 2 - x / 3, A)
    assert_same(lambda x: 2 / x, A)
    x = Tensor(A, requires_grad=True)
    (np.float64(2) * (np.ones((2, 3)) + np.eye(2) @ x)).sum().backward()
    np.testing.assert_array_equal(x.grad, np.full((2, 3), 2.0))


@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((5, 2, 3), (3, 2)), ((2, 3), (5, 3, 2)),
     ((5, 1, 2, 3), (4, 3, 2)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)), ((1, 2, 3), (5, 3, 2))],
)  # fmt: skip
def test_matrix_products_of_vectors_matrices_and_batches(shapes):
    rng = np.random.default_rng(2)
    assert_same(lambda a, b: a @ b, *(rng.uniform(-1, 1, shape) for shape in shapes))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (-1, 0), (0, 1, 2)])
@pytest.mark.parametrize("name", ["sum", "mean", "max"])
def test_reductions_over_axes(name, axis, keepdims):
    x = np.random.default_rng(3).uniform(-1, 1, (2, 3, 4))
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    mine, its = (library.reduce(name, x, axis, keepdims) for library, x in ((Engine, ours), (Torch, theirs)))
    assert_equal(mine.data, its)
    vector = np.random.default_rng(4).uniform(-1, 1, mine.shape)
    mine.backward(vector)
    its.backward(torch.tensor(vector))
    assert_equal(ours.grad, theirs.grad)


@pytest.mark.parametrize("name", ["sum", "mean", "max"])
def test_a_reduction_over_no_axis_is_the_tensor_itself(name):
    x = Tensor(A, requires_grad=True)
    y = getattr(x, name)(axis=())
    y.backward(2 * A)
    np.testing.assert_array_equal(y.data, A)
    np.testing.assert_array_equal(x.grad, 2 * A)


@pytest.mark.parametrize("axis", [None, 0, -1, ()])
@pytest.mark.parametrize("name", ["sum", "mean", "max"])
def test_a_single_number_can_be_reduced(name, axis):
    x = Tensor(3.0, requires_grad=True)
    y = getattr(x, name)(axis=axis)
    y.backward()
    assert y.shape == x.grad.shape == () and y.item() == 3 and x.grad == 1


def test_the_sum_of_nothing_is_zero_and_gives_an_empty_gradient():
    x = Tensor(np.zeros((0, 3)), requires_grad=True)
    x.sum().backward()
    assert x.grad.shape == (0, 3)


MASK = np.array([[True, False, True], [False, False, True]])


@pytest.mark.parametrize(
    "index",
    [0, -1, (1, 2), (slice(None), 1), (0, slice(None, None, 2)), (..., 0), None, (slice(None), None),
     [0, 0, 1], ([0, 1, 0], [2, 2, 2]), (slice(None), [1, 1]), slice(1, 1)],
)  # fmt: skip
def test_indexing(index):
    assert_same(lambda x: x[index], A)


def test_indexing_by_a_mask():
    assert_same(lambda x: x[MASK if isinstance(x, Tensor) else torch.tensor(MASK)], A)


def test_an_element_that_is_picked_twice_gets_both_gradients():
    x = Tensor([10.0, 20.0], requires_grad=True)
    x[[0, 0, 1]].backward([1, 2, 4])
    np.testing.assert_array_equal(x.grad, [3, 4])


def test_moving_elements():
    x = np.random.default_rng(5).uniform(-1, 1, (2, 3, 4))
    assert_same(lambda t: t.reshape(6, 4), x)
    assert_same(lambda t: t.reshape((4, -1)), x)
    assert_same(lambda t: t.reshape(-1), x)
    assert_same(lambda t: t.reshape(()), 2.0)
    assert_same(lambda t: t.T, A)
    for axes in [(1, 2, 0), (-1, 0, 1), (0, -1, -2)]:
        for give in (lambda t, a=axes: t.transpose(*a), lambda t, a=axes: t.transpose(a)):
            assert_same(lambda t, give=give, a=axes: give(t) if isinstance(t, Tensor) else t.permute(a), x)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenation_of_three_one_of_them_twice(axis):
    def joined(a, b):
        return (concatenate if isinstance(a, Tensor) else torch.cat)([a, b, a], axis)

    assert_same(joined, A, 2 * A)


# ---- kinks and ties ----------------------------------------------------------------------------------------


def test_at_a_kink_the_gradient_is_torchs():
    for name in ("relu", "abs"):
        assert_same(lambda x, name=name: getattr(x, name)(), [-1.0, -1e-9, 0.0, 1e-9, 2.0])


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_equal_largest_elements_share_the_gradient_of_max(axis):
    tied = [[1.0, 3.0, 3.0], [3.0, 0.0, 3.0]]
    dims = (0, 1) if axis is None else axis
    assert_same(lambda x: x.max(axis=axis) if isinstance(x, Tensor) else torch.amax(x, dim=dims), tied)


def test_functions_do_not_overflow():
    with np.errstate(all="raise", under="ignore"):
        x = Tensor([-1000.0, 0.0, 1000.0], requires_grad=True)
        x.sigmoid().sum().backward()
    np.testing.assert_array_equal(x.grad, [0, 0.25, 0])
    assert Tensor(-700.0).sigmoid().item() == pytest.approx(np.exp(-700.0), rel=1e-12, abs=0)


# ---- the graph ---------------------------------------------------------------------------------------------


def test_the_lectures_example():
    x, y, z = (Tensor(value, requires_grad=True) for value in (-2, 5, -4))
    q = x + y
    f = q * z
    f.backward()
    assert (q.item(), f.item()) == (3, -12)
    assert (x.grad, y.grad, z.grad) == (-4, -4, 3)


def test_gradients_add_up_over_two_backward_calls():
    x = Tensor(A, requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    np.testing.assert_array_equal(x.grad, 2 * A)
    loss.backward()
    np.testing.assert_array_equal(x.grad, 4 * A)


def test_a_gradient_is_the_leafs_own_array():
    x, y = Tensor(A, requires_grad=True), Tensor(A, requires_grad=True)
    (x + y).sum().backward()
    x.grad += 1
    np.testing.assert_array_equal(y.grad, np.ones_like(A))


def test_a_tensor_used_twice_gets_the_sum_of_its_gradients():
    x = Tensor(3.0, requires_grad=True)
    (x * x + x).backward()
    assert x.grad == 7
    assert_same(lambda a: (a.sin() * a + a.exp()) / (a * a + 1), A)


def test_only_leaves_keep_a_gradient():
    x = Tensor(2.0, requires_grad=True)
    q = x * x
    (q * 3).backward()
    assert q.grad is None and x.grad == 12


def test_no_gradient_flows_to_constants_or_through_detach():
    x, constant = Tensor(3.0, requires_grad=True), Tensor(2.0)
    (x * constant + (x * x).detach() * x).backward()
    assert x.grad == 2 + 9
    assert constant.grad is None
    assert not x.detach().requires_grad and x.detach().data is not x.data


def test_a_leaf_that_is_marked_after_the_graph_was_recorded_gets_nothing():
    for make, seven in ((Tensor, 7.0), (torch.tensor, torch.tensor(7.0))):
        x, late = make(3.0, requires_grad=True), make(7.0)
        y = x * late
        late.requires_grad = True
        y.backward()
        assert x.grad == seven and late.grad is None


def test_the_backward_pass_visits_every_node_once_and_outputs_before_inputs():
    x = Tensor(2.0, requires_grad=True)
    y = x
    for _ in range(40):  # 2⁴⁰ paths lead from x to y
        y = y + y
    visited = [node for node, _ in backward_steps(y)]
    assert len(visited) == len(set(visited)) == 41
    assert visited[0] is y and visited[-1] is x
    y.backward()
    assert x.grad == 2.0**40


def test_a_backward_pass_that_is_only_watched_sets_no_gradient():
    x = Tensor(2.0, requires_grad=True)
    assert dict(backward_steps(x * x))[x] == 4
    assert x.grad is None


def test_the_topological_order_puts_inputs_first_and_left_before_right():
    a, b, c = (Tensor(1.0, name=name) for name in "abc")
    left, right = a * b, b + c
    root = left / right
    assert topological_order(root) == [a, b, left, c, right, root]


def test_a_chain_of_ten_thousand_operations():
    x = Tensor(1.0, requires_grad=True)
    y = x
    for _ in range(10_000):
        y = y * 1.0001
    y.backward()
    assert x.grad == pytest.approx(1.0001**10_000, rel=1e-10)
    del y  # nor does the memory of a long chain go back recursively


def test_a_tensor_copies_its_array():
    array = np.ones(3)
    x = Tensor(array, requires_grad=True)
    array[:] = 5
    np.testing.assert_array_equal(x.data, np.ones(3))


def test_a_tensor_prints_its_value_and_operation():
    x = Tensor([1, 2])
    assert repr(x) == "Tensor([1. 2.])"
    assert repr(x * 2) == "Tensor([2. 4.], op=×)"


# ---- errors ------------------------------------------------------------------------------------------------


def test_only_a_scalar_starts_by_itself():
    with pytest.raises(RuntimeError, match=r"only a scalar .*; for shape \(2, 3\) pass `grad`"):
        Tensor(A, requires_grad=True).backward()


def test_the_starting_gradient_has_the_tensors_shape():
    with pytest.raises(RuntimeError, match=r"`grad` has shape \(3,\), but the tensor has shape \(2, 3\)"):
        Tensor(A, requires_grad=True).backward([1, 2, 3])


def test_backward_needs_a_leaf_that_requires_a_gradient():
    with pytest.raises(RuntimeError, match="does not require a gradient"):
        (Tensor(1.0) * 2).backward()


def test_shapes_that_do_not_fit_are_named():
    x = Tensor(A)
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 3\) do not fit a matrix product"):
        x @ x
    with pytest.raises(ValueError, match=r"shapes \(\) and \(2, 3\) do not fit"):
        2 @ x
    with pytest.raises(ValueError, match=r"\(2,3\) \(2,\)"):
        x + np.ones(2)


def test_an_exponent_is_a_number():
    x = Tensor(A)
    for exponent in (x, "2", np.ones(3)):
        with pytest.raises(TypeError, match="the exponent must be a number"):
            x**exponent
    with pytest.raises(TypeError, match="unsupported operand"):
        2**x


def test_the_wrong_number_of_operands_is_an_error_and_changes_nothing():
    x, y = Tensor(A), Tensor(A)
    with pytest.raises(TypeError, match="exp takes 1 operand"):
        engine.exp(x, y)
    np.testing.assert_array_equal(y.data, A)


def test_a_tensor_is_not_made_of_a_tensor():
    with pytest.raises(TypeError, match="detach"):
        Tensor(Tensor(1.0))
