"""Optimizers in programs of other people: tied weights in two lists, entries of one's own in the state, tracked steps."""

import copy

import numpy as np
import pytest
import torch

import hpml_lab.optim as ours
from hpml_lab.core.system.errors import LabError

CLASSES = [
    name
    for name in ours.__all__
    if isinstance(getattr(ours, name), type) and issubclass(getattr(ours, name), torch.optim.Optimizer)
]
TWICE = [
    *((name, {}) for name in CLASSES if hasattr(torch.optim, name)),
    *(("SGD", {"momentum": 0.9, **more}) for more in ({}, {"nesterov": True}, {"dampening": 0.3, "maximize": True})),
    *((name, {"weight_decay": 0.1}) for name in ("SGD", "Adam", "NAdam", "RAdam", "RMSprop", "Adafactor")),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    ("Adam", {"amsgrad": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("ASGD", {"t0": 2, "lambd": 0.1}),
]


def of_torch(name, params, **options):
    """torch.optim's plain loop."""
    plain = {} if name in ("Muon", "SparseAdam", "LBFGS") else {"foreach": False}
    return getattr(torch.optim, name)(params, **options, **plain)


def of_ours(name, params, **options):
    return getattr(ours, name)(params, **options)


def walk_down(optimizer, params, steps=4):
    """Some steps, each along a gradient that depends on the parameters; what is in the state after each of them."""
    seen = []
    for t in range(steps):

        def closure(t=t):
            for p in params:
                slope = (p * (t + 1)).detach().cos()
                p.grad = slope.relu().to_sparse() if type(optimizer).__name__ == "SparseAdam" else slope
            return sum(p.square().sum().double() for p in params)

        optimizer.step(closure)
        seen.append([p.detach().clone() for p in params])
        for state in optimizer.state.values():
            seen.append([value.clone() for value in state.values() if isinstance(value, torch.Tensor)])
    return seen


def assert_same_walks(walks):
    for mine, theirs in zip(*walks, strict=True):
        assert len(mine) == len(theirs) and all(map(torch.equal, mine, theirs))


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
@pytest.mark.parametrize("name, options", TWICE)
def test_a_parameter_that_is_twice_in_a_group_walks_as_in_torch(name, options):
    """As a tied weight that is in the lists of an encoder and of a decoder. Each is updated before the next is decayed."""
    walks = []
    for make in (of_ours, of_torch):
        p, q = (torch.linspace(-1, end, 6).reshape(2, 3).requires_grad_() for end in (1, 2))
        walks.append(walk_down(make(name, [p, q, p], lr=0.1, **options), [p, q]))
    assert_same_walks(walks)


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
def test_a_velocity_that_starts_in_mid_run_starts_at_each_place_of_its_parameter():
    walks = []
    for make in (of_ours, of_torch):
        p = torch.linspace(-1, 1, 6, requires_grad=True)
        optimizer = make("SGD", [p, p], lr=0.1, weight_decay=0.1)
        before = walk_down(optimizer, [p], 2)
        optimizer.param_groups[0]["momentum"] = 0.9
        walks.append(before[:2] + walk_down(optimizer, [p], 2))
    assert torch.equal(walks[0][-1][0], walks[1][-1][0]) and torch.equal(walks[0][-2][0], walks[1][-2][0])


@pytest.mark.parametrize("name", ["SGD", "Muon"])
@pytest.mark.parametrize("file", [None, "before the first step", "after it"])
def test_entries_of_ones_own_in_the_state_change_nothing_and_are_kept(name, file):
    """As the anchors of L2-SP, Lookahead's slow weights, AdaScale's numbers; in a group, as the name of a layer."""
    walks = []
    for module in (ours, torch.optim):
        p = torch.arange(6.0).reshape(2, 3).requires_grad_()
        optimizer = getattr(module, name)([{"params": [p], "layer": "hidden"}], lr=0.1, momentum=0.9)
        optimizer.state[p].update(anchor=p.detach().clone(), since=1_700_000_001.25)
        optimizer.state["scaling"] = {"scale": 0.1}
        if file == "after it":
            p.grad = torch.ones(2, 3)
            optimizer.step()
        if file:
            saved = copy.deepcopy(optimizer.state_dict())
            optimizer = getattr(module, name)([p], lr=0.1, momentum=0.9)
            optimizer.load_state_dict(saved)
        for t in range(3):
            p.grad = torch.full((2, 3), 0.5 + t)
            optimizer.step()
        assert optimizer.state[p]["since"] == 1_700_000_001.25 and optimizer.state["scaling"] == {"scale": 0.1}
        assert type(optimizer.state[p]["since"]) is float and optimizer.param_groups[0]["layer"] == "hidden"
        walks.append(p.detach())
    assert torch.equal(*walks)


def test_muon_refuses_the_file_of_the_optimizer_beside_it():
    """Muon has the matrices and AdamW the rest, so a program has two files; torch.optim fails at the next step."""
    p = torch.ones(2, 3, requires_grad=True)
    rest = ours.AdamW([p])
    p.grad = torch.ones(2, 3)
    rest.step()
    with pytest.raises(LabError, match="no 'momentum_buffer' as Muon keeps it"):
        ours.Muon([p]).load_state_dict(rest.state_dict())


@pytest.mark.parametrize("options", [{}, {"eps": (1e-5, 1e-3)}, {"weight_decay": 0.1, "maximize": True}])
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.bfloat16), (torch.float64, torch.float32)])
def test_the_epsilon_of_adafactor_is_that_of_its_groups_first_gradient(dtypes, options):
    """As torch.optim has it: one for all parameters of a group in a step, where a group has two dtypes."""
    walks = []
    for make in (of_ours, of_torch):
        made = torch.Generator().manual_seed(0)
        params = [
            torch.randn(shape, generator=made, dtype=torch.float64).to(dtype).requires_grad_()
            for shape, dtype in zip(((3, 4), (5,), (2, 3), (4,)), dtypes * 2, strict=True)
        ]
        optimizer = make("Adafactor", [{"params": params[:3]}, {"params": params[3:]}], lr=0.1, **options)
        for t in range(4):
            for p in params:
                p.grad = (torch.randn(p.shape, generator=made, dtype=torch.float64) * 1e-6).to(p.dtype)
            if t == 2:
                params[0].grad = None  # the second one is the first with a gradient
            optimizer.step()
        walks.append([p.detach() for p in params])
    assert all(map(torch.equal, *walks))


COUNTING = [name for name in CLASSES if hasattr(torch.optim, name) and name not in ("SGD", "Muon", "SparseAdam", "LBFGS")]
LATE = 2**24 - 2  # the largest odd number that float32 holds comes next


def gone_on(make, name, step, dtype=torch.float32, **options):
    """The walk of an optimizer that has loaded a file with `step` in it as the number of its steps."""
    p = torch.linspace(-1, 1, 6, dtype=dtype).reshape(2, 3).requires_grad_()
    first = make(name, [p], **options)
    walk_down(first, [p], 2)
    saved = copy.deepcopy(first.state_dict())
    saved["state"][0]["step"] = step
    optimizer = make(name, [p])
    optimizer.load_state_dict(saved)
    return walk_down(optimizer, [p])


@pytest.mark.parametrize("step", [np.float32(2), np.float64(2), np.int64(2)], ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("name", COUNTING)
def test_a_file_may_count_its_steps_in_a_number_of_numpy(name, step):
    """As a file that was converted from another framework's."""
    assert_same_walks([gone_on(make, name, step) for make in (of_ours, of_torch)])


@pytest.mark.parametrize(
    "name, options",
    [
        ("Adagrad", {"lr_decay": 1e-3, "dtype": torch.float64}),
        ("ASGD", {"lambd": 0.5, "t0": LATE}),
        ("Adafactor", {"dtype": torch.float64}),
        ("Adam", {"betas": (0.9, 1 - 1e-9), "dtype": torch.float64}),
    ],
)
def test_what_float32_cannot_count_is_not_counted(name, options):
    """From 2²⁴ on torch's count stands still, and what depends on it does too."""
    assert_same_walks([gone_on(make, name, torch.tensor(float(LATE)), **options) for make in (of_ours, of_torch)])


@pytest.mark.parametrize(
    "name, options",
    [
        ("SGD", {"momentum": 0.9, "dampening": torch.tensor(0.3)}),
        ("SGD", {"momentum": 0.9, "dampening": torch.tensor(0.3, dtype=torch.float64)}),
        ("Rprop", {"etas": (torch.tensor([0.4]), torch.tensor([1.3]))}),
        *((name, {"betas": (torch.tensor(0.8), 0.95)}) for name in ("Adamax", "NAdam", "RAdam", "SparseAdam")),
    ],
)
def test_options_that_are_tensors_in_torch_are_tensors_here(name, options):
    walks = []
    for make in (of_ours, of_torch):
        p = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        walks.append(walk_down(make(name, [p], lr=0.1, **options), [p]))
    assert_same_walks(walks)


def test_a_tensor_is_refused_where_its_number_is():
    p = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="Invalid dampening value: -1.0: "):
        ours.SGD([p], dampening=torch.tensor(-1.0))
    for options in ({"dampening": torch.ones(2)}, {"momentum": np.ones(2)}):
        with pytest.raises(TypeError, match="must be a number, not "):
            ours.SGD([p], **options)


def test_a_copy_keeps_numbers_of_ones_own():
    p = torch.ones(2, requires_grad=True)
    optimizer = ours.Adam([p])
    p.grad = torch.ones(2)
    optimizer.step()
    optimizer.state[p]["since"] = 1_700_000_001.25
    [state] = copy.deepcopy(optimizer).state.values()
    assert state["since"] == 1_700_000_001.25 and type(state["since"]) is float


@pytest.mark.filterwarnings(
    "ignore:Using backward.. with create_graph", "ignore:The .grad attribute of a Tensor that is not a leaf"
)
@pytest.mark.parametrize("name", ["LAMB", "LARS", "NovoGrad", "ASGD", "Adam"])
def test_the_state_of_a_tracked_step_can_be_loaded(name):
    """As in meta-learning: the state is taken, some steps are walked, and it is put back."""
    lr = torch.tensor(0.1, requires_grad=True)
    p = torch.ones(2, 2, requires_grad=True).clone()
    optimizer = getattr(ours, name)([p], lr=lr, differentiable=True)

    def step():
        seen = p.clone()
        (p.grad,) = torch.autograd.grad((seen**2).sum(), seen, create_graph=True)
        optimizer.step()

    step()
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    for key, value in saved["state"][0].items():
        assert torch.equal(torch.as_tensor(optimizer.state[p][key]), torch.as_tensor(value))
    step()
    assert torch.autograd.grad(p.sum(), lr)[0].isfinite()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_tracked_velocity_is_not_the_gradient_itself():
    """Which `zero_grad(set_to_none=False)` sets to 0 in place."""
    p = torch.ones(2, requires_grad=True).clone()
    optimizer = ours.SGD([p], momentum=0.9, differentiable=True)
    gradient = torch.ones(2)
    p.grad = gradient
    optimizer.step()
    gradient.zero_()
    assert torch.equal(optimizer.state[p]["momentum_buffer"], torch.ones(2))


def test_nothing_is_updated_where_a_later_gradient_is_refused():
    a, b = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    optimizer = ours.RMSprop([a, b])
    a.grad, b.grad = torch.ones(2, 2), torch.ones(2, 2).to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()
    assert torch.equal(a, torch.ones(2, 2)) and not optimizer.state


def test_every_optimizer_has_a_look_of_its_own():
    looks = [ours.optimizer_style(name, marker=True) for name in ours.__all__ if name in CLASSES]
    assert len(looks) >= 18 and len({(look["color"], str(look["linestyle"])) for look in looks}) == len(looks)
