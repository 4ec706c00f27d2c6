"""A group's own options, numbers of NumPy, and lists of tensors in odd memory layouts."""

import copy
import math

import numpy as np
import pytest
import torch
from test_optim_bits import NAMES, assert_same_bits, decay, parameters, walk

import hpml_lab.optim
from hpml_lab.optim import LARS, SGD, Adam, RMSprop

by_name = pytest.mark.parametrize("name", NAMES)
FAULTY = [
    (SGD, {"lr": math.nan}, ValueError, "learning rate: nan"),
    (SGD, {"momentum": 2.0}, ValueError, "grows by that factor"),
    (SGD, {"nesterov": True}, ValueError, "requires a momentum"),
    (Adam, {"lr": math.inf}, ValueError, "only inf and nan"),
    (Adam, {"lr": "0.1"}, TypeError, "lr must be a number"),
    (Adam, {"betas": (0.9,)}, ValueError, "give two numbers"),
    (RMSprop, {"alpha": 1.5}, ValueError, "never forgets"),
]


@pytest.mark.parametrize("make, options, error, why", FAULTY, ids=str)
def test_a_groups_own_options_are_checked_at_the_start_and_when_it_joins(make, options, error, why):
    p, q = parameters(((3, 5),), torch.float32)
    with pytest.raises(error, match=why):
        make([{"params": [p], **options}], lr=0.1)
    optimizer = make([p], lr=0.1)
    with pytest.raises(error, match=why):
        optimizer.add_param_group({"params": [q], **options})
    assert len(optimizer.param_groups) == 1, "the refused group has not joined"
    optimizer.add_param_group({"params": [q], "lr": 0.2})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.2]


def test_what_is_no_group_is_refused_with_torchs_error():
    optimizer = Adam(parameters(((3, 5),), torch.float32))
    with pytest.raises(TypeError, match="param_group must be a dict"):
        optimizer.add_param_group([])


@by_name
@pytest.mark.parametrize("number", [np.float32(0.03), np.float64(0.03)], ids=["float32", "float64"])
def test_numbers_of_numpy_are_numbers(name, number):
    runs = []
    for module in (hpml_lab.optim, torch.optim):
        params = parameters(((3, 5), ()), torch.float32)
        runs.append(getattr(module, name)(params, lr=number, **decay(name, number), foreach=False))
        walk(runs[-1], params, 5)
    assert_same_bits(*runs)


def strange(generator):
    """Above and below the size at which lists are cut: channels last, transposed, a slice, expanded; none contiguous."""
    return [
        torch.randn(64, 64, 9, 9, generator=generator).to(memory_format=torch.channels_last),
        torch.randn(600, 700, generator=generator).t(),
        torch.randn(40, 50, generator=generator)[::2, 1:],
        torch.randn(30, 1, generator=generator).expand(30, 1),
        torch.randn(400, 700, generator=generator),  # contiguous, but its gradient below is not
    ]


@by_name
def test_lists_take_parameters_and_gradients_of_any_layout(name):
    options = {"momentum": 0.9, "nesterov": True} if name == "SGD" else {}
    runs = []
    for module, lists in ((hpml_lab.optim, True), (torch.optim, False)):
        generator = torch.Generator().manual_seed(0)
        params = [tensor.requires_grad_() for tensor in strange(generator)]
        optimizer = getattr(module, name)(params, lr=0.01, foreach=lists, **options)
        for _ in range(3):
            for p in params[:-1]:
                p.grad = torch.randn(p.shape, generator=generator)
            params[-1].grad = torch.randn(700, 400, generator=generator).t()
            optimizer.step()
        runs.append(optimizer)
    assert_same_bits(*runs)


def test_lists_see_a_parameter_whose_memory_was_exchanged_and_a_state_that_was_set():
    p = torch.nn.Parameter(torch.ones(600, 600))
    optimizer = Adam([p], lr=0.1, foreach=True)
    p.grad = torch.ones(600, 600)
    optimizer.step()
    p.data = torch.zeros(600, 600)
    optimizer.state[p]["exp_avg"] = torch.zeros(600, 600)
    optimizer.step()
    assert torch.allclose(p, torch.tensor(-0.1 * 0.1 / (1 - 0.9**2)))
    assert torch.equal(optimizer.state[p]["exp_avg"], torch.full((600, 600), 0.1))


def test_a_saved_sgd_that_says_it_has_no_velocity_starts_one():
    runs = []
    for module in (hpml_lab.optim, torch.optim):
        params = parameters(((3, 5),), torch.float32)
        optimizer = module.SGD(params, lr=0.1, momentum=0.9)
        saved = copy.deepcopy(optimizer.state_dict())
        saved["state"] = {i: {"momentum_buffer": None} for i in range(len(params))}
        optimizer.load_state_dict(saved)
        walk(optimizer, params, 8)
        runs.append(optimizer)
    assert_same_bits(*runs)


@pytest.mark.parametrize("make, options", [(SGD, {}), (SGD, {"foreach": True}), (LARS, {})], ids=str)
def test_nesterov_that_is_turned_on_without_a_momentum_changes_nothing(make, options):
    """By a group or a file; a constructor refuses it. torch's SGD goes on, too."""
    plain, on, loaded = (make(parameters([(3, 5)], torch.float32), lr=0.1, **options) for _ in range(3))
    on.param_groups[0]["nesterov"] = True
    loaded.load_state_dict(on.state_dict())
    for optimizer in (plain, on, loaded):
        walk(optimizer, optimizer.param_groups[0]["params"], 3)
    assert_same_bits(on, plain)
    assert_same_bits(loaded, plain)
