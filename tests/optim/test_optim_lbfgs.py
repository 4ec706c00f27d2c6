"""L-BFGS: torch.optim's bits on functions of a closure, the inverse Hessian that its two loops stand for, and its refusals."""

import copy
import math
import pickle
import random

import pytest
import torch
from torch.optim.lbfgs import _strong_wolfe as torchs_search

import hpml_lab.optim
from hpml_lab.optim import LBFGS
from hpml_lab.optim.machinery.strong_wolfe import Trial, strong_wolfe


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def wavy(x):
    return (torch.sin(3 * x) * x.abs().sqrt() + 0.01 * x**4).sum() + torch.exp(-x[0])


def bowl(x):
    return (torch.arange(1, len(x) + 1, device=x.device) * (x - 0.3) ** 2).sum()


def slope(x):
    return (x + x**2 / 1000).sum()


def parameters(dtype=torch.float32):
    made = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=made, dtype=dtype).requires_grad_() for shape in ((3, 4), (5,), (), (0,), (1, 1))]


def stepped(optimizer, function, steps=4):
    """Take some steps. Returns the losses, how often the function was called, and the parameters after each step."""
    params = optimizer.param_groups[0]["params"]
    losses, calls, track = [], [], []

    def closure():
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        parts = [torch.view_as_real(p) if p.is_complex() else p for p in params]
        loss = function(torch.cat([part.reshape(-1) for part in parts]))
        loss.backward()
        return loss

    for _ in range(steps):
        losses.append(optimizer.step(closure).item())
        track += [p.detach().clone() for p in params]
    assert all(calls)
    return losses, len(calls), track


def same(a, b):
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        close = isinstance(b, torch.Tensor) and a.dtype == b.dtype
        return close and torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())
    return type(a) is type(b) and (a == b or (a != a and b != b))


def state_of(optimizer):
    return list(optimizer.state[optimizer.param_groups[0]["params"][0]].items())


OPTIONS = [
    {},
    {"lr": 0.1, "max_iter": 3},
    {"max_iter": 1},
    {"lr": torch.tensor([0.3]), "history_size": 2},
    {"max_iter": 30, "max_eval": 7, "tolerance_change": 1e-3},
    {"tolerance_grad": 0.5},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "lr": torch.tensor(5.0), "history_size": 1},
    {"line_search_fn": "strong_wolfe", "max_eval": 3, "lr": 0.01, "tolerance_change": 1e-2},
    {"line_search_fn": "strong_wolfe", "max_iter": 50, "max_eval": 60},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("function", [rosenbrock, wavy, bowl, slope])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_losses_calls_parameters_and_state_are_torchs(options, function, dtype):
    runs = []
    for module in (torch.optim, hpml_lab.optim):
        optimizer = module.LBFGS(parameters(dtype), **copy.deepcopy(options))
        runs.append((*stepped(optimizer, function), state_of(optimizer)))
    assert same(*runs)


def test_the_largest_value_is_found_with_maximize():
    params = parameters()
    losses, *_ = stepped(LBFGS(params, maximize=True, line_search_fn="strong_wolfe"), lambda x: -rosenbrock(x), steps=20)
    plain, *_ = stepped(LBFGS(parameters(), line_search_fn="strong_wolfe"), rosenbrock, steps=20)
    assert losses == [-loss for loss in plain] and 0 <= plain[-1] < 1e-6 < plain[0]


@pytest.mark.parametrize("saved_by", [hpml_lab.optim, torch.optim], ids=["ours to torch's", "torch's to ours"])
def test_the_other_package_takes_over_in_mid_run(saved_by):
    loaded_by = torch.optim if saved_by is hpml_lab.optim else hpml_lab.optim
    first = saved_by.LBFGS(parameters(), max_iter=5, line_search_fn="strong_wolfe")
    stepped(first, rosenbrock)
    second = loaded_by.LBFGS([p.detach().clone().requires_grad_() for p in first.param_groups[0]["params"]], lr=7.0)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert same(stepped(first, rosenbrock), stepped(second, rosenbrock)) and same(state_of(first), state_of(second))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))], ids=["deepcopy", "pickle"])
def test_a_copy_goes_on_alike_where_torchs_has_lost_its_parameters(copied):
    optimizer = LBFGS(parameters(), max_iter=5)
    stepped(optimizer, rosenbrock)
    twin = copied(optimizer)
    assert same(stepped(optimizer, rosenbrock), stepped(twin, rosenbrock))
    with pytest.raises(AttributeError, match="_params"):
        stepped(copied(torch.optim.LBFGS(parameters())), rosenbrock)


@pytest.mark.parametrize("count", [1, 4, 9])
def test_two_loops_are_a_product_with_the_inverse_hessian_of_bfgs(count):
    """H ← (1 − ρ s yᵀ) H (1 − ρ y sᵀ) + ρ s sᵀ for each pair, from γ times the unit matrix (Nocedal and Wright 2006, 6.17)."""
    made = torch.Generator().manual_seed(0)
    curvature = torch.randn(12, 12, generator=made, dtype=torch.float64)
    curvature = curvature @ curvature.T + torch.eye(12)
    S = list(torch.randn(count, 12, generator=made, dtype=torch.float64))
    Y = [curvature @ s for s in S]
    rho, gamma = [1 / y.dot(s) for y, s in zip(Y, S, strict=True)], Y[-1].dot(S[-1]) / Y[-1].dot(Y[-1])
    H, one = gamma * torch.eye(12, dtype=torch.float64), torch.eye(12, dtype=torch.float64)
    for s, y, r in zip(S, Y, rho, strict=True):
        H = (one - r * torch.outer(s, y)) @ H @ (one - r * torch.outer(y, s)) + r * torch.outer(s, s)
    g = torch.randn(12, generator=made, dtype=torch.float64)
    d = LBFGS.direction(g, torch.empty_like(g), Y, S, rho, gamma, [None] * count)
    torch.testing.assert_close(d, -H @ g, rtol=1e-10, atol=1e-10)


def test_a_search_ends_where_both_of_wolfes_conditions_hold():
    seen = []

    class Watched(LBFGS):
        def _try(self, *arguments):
            seen.append(super()._try(*arguments))
            return seen[-1]

    params = [torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)]
    optimizer = Watched(params, lr=10.0, max_iter=1, max_eval=30, line_search_fn="strong_wolfe")
    value = rosenbrock(params[0]).item()
    [g] = torch.autograd.grad(rosenbrock(params[0]), params)
    stepped(optimizer, rosenbrock, steps=1)
    [taken] = {trial.f: trial for trial in seen if trial.t == optimizer.state[params[0]]["t"]}.values()
    before = g.dot(optimizer.state[params[0]]["d"])
    assert taken.f <= value + 1e-4 * taken.t * before and abs(taken.slope) <= 0.9 * abs(before) and len(seen) > 1
    assert rosenbrock(params[0]).item() == pytest.approx(taken.f, rel=1e-12)


def test_the_lengths_that_a_search_tries_are_torchs():
    """On losses and slopes that do not belong together, so that each branch is taken."""
    for seed in range(400):
        draw = random.Random(seed)
        fall, rough, c, most = 10 ** draw.uniform(-5, 0), 10 ** draw.uniform(-5, 0), draw.uniform(0, 6), draw.randrange(12)
        tried = []

        def at(t, fall=fall, rough=rough, c=c, tried=tried):
            tried.append(float(t))
            f = -fall * tried[-1] + rough * math.sin(5 * tried[-1] + c)
            return f, torch.tensor([-1 + 1.2 * math.sin(2 * tried[-1])], dtype=torch.float64)

        d, first = torch.ones(1, dtype=torch.float64), torch.tensor(10 ** draw.uniform(-2, 1), dtype=torch.float64)
        (f, g), ends = at(0.0), []
        *end, calls = torchs_search(lambda x, t, d, at=at: at(t), None, first, d, f, g, g.dot(d), max_ls=most)
        ends.append((*map(float, end), calls, tried[1:]))
        tried.clear()

        def evaluate(t, at=at, d=d):
            f, g = at(t)
            return Trial(t, f, g, g.dot(d))

        trial, calls = strong_wolfe(Trial(0, f, g, g.dot(d)), first, evaluate, most, d.abs().max())
        ends.append((float(trial.f), float(trial.g), float(trial.t), calls, tried[:]))
        assert ends[0] == ends[1], seed


def test_a_missing_and_a_sparse_gradient_are_taken_as_torch_takes_them():
    runs = []
    for module in (torch.optim, hpml_lab.optim):
        table, rest, unused = torch.nn.Embedding(4, 3, sparse=True), torch.ones(2, requires_grad=True), torch.ones(2)
        with torch.no_grad():
            table.weight.copy_(torch.arange(12.0).reshape(4, 3) / 10)
        optimizer = module.LBFGS([table.weight, rest, unused.requires_grad_()], max_iter=4)

        def closure(optimizer=optimizer, table=table, rest=rest):
            optimizer.zero_grad()
            loss = (table(torch.tensor([1, 3])) - 1).pow(2).sum() + rest.pow(4).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        runs.append([p.detach() for p in (table.weight, rest, unused)])
    assert same(*runs) and torch.equal(runs[0][2], torch.ones(2)) and not torch.equal(runs[0][1], torch.ones(2))


def test_gradients_of_any_layout_are_taken():
    """torch's takes contiguous ones only."""
    plain, turned = torch.arange(6.0).reshape(2, 3).requires_grad_(), torch.arange(6.0).reshape(2, 3).requires_grad_()
    ends = []
    for p, layout in ((plain, lambda g: g), (turned, lambda g: g.T.contiguous().T)):
        optimizer = LBFGS([p], max_iter=4)

        def closure(p=p, layout=layout):
            p.grad = layout(4 * (p.detach() - 1) ** 3)
            return (p.detach() - 1).pow(4).sum()

        optimizer.step(closure)
        ends.append(p.detach())
    assert torch.equal(*ends)


def test_what_it_cannot_do_is_refused_with_torchs_words():
    p, q = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="doesn't support per-parameter options"):
        LBFGS([{"params": [p]}, {"params": [q]}])
    optimizer = LBFGS([p])
    with pytest.raises(ValueError, match="doesn't support per-parameter options"):
        optimizer.add_param_group({"params": [q]})
    assert len(optimizer.param_groups) == 1
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'closure'"):
        optimizer.step()
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        LBFGS([p], line_search_fn="armijo")


def test_hooks_and_schedulers_work_as_with_torchs():
    runs = []
    for module in (torch.optim, hpml_lab.optim):
        optimizer, seen = module.LBFGS(parameters(), max_iter=3), []
        optimizer.register_step_pre_hook(lambda _, args, by_name, seen=seen: seen.append(("before", len(args), dict(by_name))))
        optimizer.register_step_post_hook(lambda *_, seen=seen: seen.append("after"))
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for _ in range(3):
            stepped(optimizer, bowl, steps=1)
            schedule.step()
        runs.append(([p.detach() for p in optimizer.param_groups[0]["params"]], [str(entry) for entry in seen]))
    assert same(*runs) and len(runs[1][1]) == 6
    assert optimizer.param_groups[0]["lr"] == 0.125


def test_every_parameters_explanation_shows_the_one_state():
    optimizer = LBFGS(parameters(), line_search_fn="strong_wolfe")
    assert "no step yet" in repr(optimizer.explain(1))
    stepped(optimizer, bowl, steps=1)
    for parameter in (0, 1):
        shown = repr(optimizer.explain(parameter))
        assert "after one step or more" in shown and "d = d (19,) float32" in shown and "S = old_stps: " in shown
