"""Optimizers in programs of other people: tied weights in two lists, entries of one's own in the state, tracked steps."""

import copy

import pytest
import torch

import hpml_lab.optim as ours

CLASSES = [
    name
    for name in ours.__all__
    if isinstance(getattr(ours, name), type) and issubclass(getattr(ours, name), torch.optim.Optimizer)
]
TWICE = [
    ("SGD", {"weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"weight_decay": 0.1}),
    ("AdamW", {}),
    ("RMSprop", {}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("NAdam", {}),
]


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
@pytest.mark.parametrize("name, options", TWICE)
def test_a_parameter_that_is_twice_in_a_group_walks_as_in_torch(name, options):
    """As a tied weight that is in the lists of an encoder and of a decoder. Each is updated before the next is decayed."""
    walks = []
    for module in (ours, torch.optim):
        p = torch.linspace(-1, 1, 6, requires_grad=True)
        optimizer = getattr(module, name)([p, p], lr=0.1, foreach=False, **options)
        if "momentum" in options:  # torch starts both velocities anew in the very first step
            optimizer.state[p]["momentum_buffer"] = torch.zeros(6)
        for t in range(4):
            p.grad = (p * (t + 1)).detach().cos()
            optimizer.step()
        walks.append(p.detach())
    assert torch.equal(*walks)


@pytest.mark.parametrize("name", ["SGD", "Muon"])
@pytest.mark.parametrize("through_a_file", [False, True])
def test_entries_of_ones_own_in_the_state_change_nothing_and_are_kept(name, through_a_file):
    """As the anchors of L2-SP, Lookahead's slow weights, AdaScale's numbers."""
    walks = []
    for module in (ours, torch.optim):
        p = torch.arange(6.0).reshape(2, 3).requires_grad_()
        optimizer = getattr(module, name)([p], lr=0.1, momentum=0.9)
        optimizer.state[p].update(anchor=p.detach().clone(), since=1_700_000_001.25)
        optimizer.state["scaling"] = {"scale": 0.1}
        if through_a_file:
            p.grad = torch.ones(2, 3)
            optimizer.step()
            saved = copy.deepcopy(optimizer.state_dict())
            optimizer = getattr(module, name)([p], lr=0.1, momentum=0.9)
            optimizer.load_state_dict(saved)
        for t in range(3):
            p.grad = torch.full((2, 3), 0.5 + t)
            optimizer.step()
        assert optimizer.state[p]["since"] == 1_700_000_001.25 and optimizer.state["scaling"] == {"scale": 0.1}
        assert type(optimizer.state[p]["since"]) is float
        walks.append(p.detach())
    assert torch.equal(*walks)


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
