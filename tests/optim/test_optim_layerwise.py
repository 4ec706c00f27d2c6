"""LARS, LAMB and NovoGrad, which torch.optim does not have, against their papers' equations in 50 digits and against timm.

The rules in mpmath work on lists of numbers, one list for each tensor. They use neither torch nor the classes.
"""

import copy
import inspect
import io
import math
from functools import partial

import mpmath
import pytest
import torch
from mpmath import mpf, sqrt
from timm.optim import Lamb, Lars, NvNovoGrad

import hpml_lab.optim
from hpml_lab.core.system.errors import LabError
from hpml_lab.optim import LAMB, LARS, SGD, Adam, AdamW, NovoGrad, matrices_and_rest
from hpml_lab.optim.machinery.layerwise import LayerwiseOptimizer

mpmath.mp.dps = 50
BETAS, LOW_BETAS = (mpf("0.9"), mpf("0.999")), (mpf("0.95"), mpf("0.98"))
ETA, DECAY, EPS, LARGE_EPS = mpf("0.001"), mpf("0.01"), mpf("1e-8"), mpf("1e-6")
STEPS, TURN = 40, 20  # the learning rate is quartered at TURN
SHAPES = ((3, 2), (4,), (1,))
BOUND = 1e-12
CLASSES = [LARS, LAMB, NovoGrad]
by_class = pytest.mark.parametrize("make", CLASSES, ids=lambda make: make.__name__)


def sequence(dtype=torch.float64, zero_first=False):
    """Start and gradients of three tensors: gradients from 1e-3 to 10, some of their elements zero."""
    made = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, dtype=dtype, generator=made) for shape in SHAPES]
    gradients = []
    for t in range(STEPS):
        size = 10.0 ** (t % 5 - 3)
        row = [torch.randn(shape, dtype=dtype, generator=made) * size for shape in SHAPES]
        row[1][t % 4] = 0.0
        gradients.append(row)
    if zero_first:
        gradients[0][1].zero_()
    return start, gradients


def track_of(make, start, gradients, rate=None):
    """All parameters after each step, (steps, numbers); the rate of every group is quartered at TURN."""
    params = [p.clone().requires_grad_() for p in start]
    optimizer, track = make(params), []
    for t, row in enumerate(gradients):
        if t == TURN:
            for group in optimizer.param_groups:
                group["lr"] /= 4
        for p, g in zip(params, row, strict=True):
            p.grad = g.clone()
        optimizer.step()
        track.append(torch.cat([p.detach().flatten() for p in params]))
    return torch.stack(track)


# ---- the papers' equations -----------------------------------------------------------------------------------


def length(values):
    return sqrt(sum(value**2 for value in values))


def lars(theta, g, s, t, lr, everything, momentum=0, dampening=0, weight_decay=0, nesterov=False, trust_coeff=ETA,
         eps=EPS, always_adapt=True, maximize=False):  # fmt: skip
    """You, Gitman and Ginsburg 2017, equations 3 to 6: λ = η ‖w‖ / (‖∇L‖ + β ‖w‖); the rate is outside the velocity."""
    g = [-x if maximize else x for x in g]
    adapts = (always_adapt or weight_decay) and length(theta) and length(g)
    ratio = trust_coeff * length(theta) / (length(g) + weight_decay * length(theta) + eps) if adapts else 1
    g = [ratio * (x + weight_decay * w) for x, w in zip(g, theta, strict=True)]
    if momentum:
        s["v"] = [momentum * v + (1 - dampening) * x for v, x in zip(s["v"], g, strict=True)] if t > 1 else g
        g = [x + momentum * v for x, v in zip(g, s["v"], strict=True)] if nesterov else s["v"]
    return [w - lr * x for w, x in zip(theta, g, strict=True)]


def lamb(theta, g, s, t, lr, everything, betas=BETAS, eps=LARGE_EPS, weight_decay=DECAY,
         bias_correction=True, max_grad_norm=None, pre_normalize=False, always_adapt=True, decoupled_weight_decay=False,
         maximize=False):  # fmt: skip
    """You et al. 2019, Algorithm 2: version 1 with bias correction, version 3 without; Sreenivas et al. for NVLAMB."""
    whole = length(everything)
    divisor = whole if pre_normalize else max(mpf(1), whole / max_grad_norm) if max_grad_norm else 1
    g = [(-x if maximize else x) / divisor for x in g]
    if decoupled_weight_decay:
        theta = [w - lr * weight_decay * w for w in theta]
    zero = [mpf(0)] * len(g)
    s["m"] = [betas[0] * m + (1 - betas[0]) * x for m, x in zip(s.get("m", zero), g, strict=True)]
    s["v"] = [betas[1] * v + (1 - betas[1]) * x**2 for v, x in zip(s.get("v", zero), g, strict=True)]
    c1, c2 = (1 - betas[0] ** t, 1 - betas[1] ** t) if bias_correction else (1, 1)
    inside = 0 if decoupled_weight_decay else weight_decay
    u = [m / c1 / (sqrt(v / c2) + eps) + inside * w for m, v, w in zip(s["m"], s["v"], theta, strict=True)]
    adapts = (always_adapt or weight_decay) and length(theta) and length(u)
    ratio = length(theta) / length(u) if adapts else 1
    return [w - lr * ratio * x for w, x in zip(theta, u, strict=True)]


def novograd(theta, g, s, t, lr, everything, betas=LOW_BETAS, eps=EPS, weight_decay=0,
             grad_averaging=False, decoupled_weight_decay=False, maximize=False):  # fmt: skip
    """Ginsburg et al. 2019, Algorithm 1: v₁ = ‖g₁‖², m₁ = g₁ / √v₁ + d w₁."""
    g = [-x if maximize else x for x in g]
    if decoupled_weight_decay:
        theta, weight_decay = [w - lr * weight_decay * w for w in theta], 0
    s["v"] = betas[1] * s["v"] + (1 - betas[1]) * length(g) ** 2 if t > 1 else length(g) ** 2
    d = [x / (sqrt(s["v"]) + eps) + weight_decay * w for x, w in zip(g, theta, strict=True)]
    share = 1 - betas[0] if grad_averaging else 1
    s["m"] = [betas[0] * m + share * x for m, x in zip(s.get("m", [mpf(0)] * len(d)), d, strict=True)]
    return [w - lr * m for w, m in zip(theta, s["m"], strict=True)]


ORACLES = {LARS: lars, LAMB: lamb, NovoGrad: novograd}
CASES = [
    (LARS, {}),
    (LARS, {"momentum": 0.9, "weight_decay": 0.05, "trust_coeff": 0.02}),
    (LARS, {"momentum": 0.8, "dampening": 0.25, "eps": 0.01}),
    (LARS, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    (LARS, {"momentum": 0.9, "always_adapt": False}),
    (LARS, {"weight_decay": 0.05, "always_adapt": False, "maximize": True}),
    (LAMB, {}),
    (LAMB, {"betas": (0.7, 0.95), "eps": 0.01, "weight_decay": 0.25}),
    (LAMB, {"bias_correction": False}),
    (LAMB, {"pre_normalize": True}),
    (LAMB, {"max_grad_norm": 0.5, "weight_decay": 0.1}),
    (LAMB, {"weight_decay": 0.0, "always_adapt": False}),
    (LAMB, {"decoupled_weight_decay": True, "weight_decay": 0.25, "maximize": True}),
    (NovoGrad, {}),
    (NovoGrad, {"betas": (0.7, 0.9), "eps": 0.01, "weight_decay": 0.05}),
    (NovoGrad, {"grad_averaging": True, "weight_decay": 0.05}),
    (NovoGrad, {"decoupled_weight_decay": True, "weight_decay": 0.25, "maximize": True}),
]


def exactly(value):
    """An option as the same number in 50 digits."""
    if isinstance(value, tuple):
        return tuple(map(mpf, value))
    return value if isinstance(value, bool) else mpf(value)


def distance(make, options, oracle=None, lr=2.0**-5):
    """The largest distance of the class from the equations after any step, relative to the largest number on the way."""
    start, gradients = sequence()
    track = track_of(lambda params: make(params, lr=lr, **options), start, gradients)
    exact = {name: exactly(value) for name, value in options.items()}
    theta, states = [[mpf(x) for x in p.flatten().tolist()] for p in start], [{} for _ in start]
    worst = largest = mpf(0)
    for t, row in enumerate(gradients, 1):
        g = [[mpf(x) for x in values.flatten().tolist()] for values in row]
        rate, everything = mpf(lr) / (4 if t > TURN else 1), [x for values in g for x in values]
        theta = [
            (oracle or ORACLES[make])(w, x, s, t, rate, everything, **exact) for w, x, s in zip(theta, g, states, strict=True)
        ]
        flat = [x for w in theta for x in w]
        largest = max(largest, *map(abs, flat))
        worst = max(worst, *(abs(mpf(own) - true) for own, true in zip(track[t - 1].tolist(), flat, strict=True)))
    return float(worst / largest)


@pytest.mark.parametrize(
    "make, options", CASES, ids=[f"{make.__name__}-{'-'.join(options) or 'plain'}" for make, options in CASES]
)
def test_the_class_computes_its_papers_equations(make, options):
    assert distance(make, options) < BOUND


def test_the_oracle_sees_a_wrong_decimal():
    def careless(*arguments, **options):
        return lamb(*arguments, eps=mpf("1.00001e-6"), **options)

    assert distance(LAMB, {}, careless) > 1e-11
    assert distance(LARS, {"trust_coeff": 0.00100001}, lambda *arguments, trust_coeff: lars(*arguments)) > 1e-11


@by_class
def test_every_option_that_changes_the_rule_has_a_case(make):
    tried = {"lr", "params", "differentiable", *(name for case, options in CASES if case is make for name in options)}
    assert set(inspect.signature(make).parameters) <= tried


# ---- timm ------------------------------------------------------------------------------------------------------

TIMM = [
    (LARS, dict(momentum=0.9, weight_decay=0.05), Lars, {}),
    (LARS, dict(momentum=0.9, weight_decay=0.05, nesterov=True, trust_coeff=0.02), Lars, {}),
    (LARS, dict(momentum=0.9, dampening=0.3, always_adapt=True), Lars, {}),
    (LARS, dict(momentum=0.9, always_adapt=False), Lars, {}),
    (LAMB, dict(weight_decay=0.05), Lamb, dict(max_grad_norm=None)),
    (LAMB, dict(max_grad_norm=1.0), Lamb, {}),
    (LAMB, dict(bias_correction=False), Lamb, dict(max_grad_norm=None)),
    (LAMB, dict(weight_decay=0, always_adapt=True), Lamb, dict(max_grad_norm=None)),
    (LAMB, dict(weight_decay=0, always_adapt=False), Lamb, dict(max_grad_norm=None)),
    (LAMB, dict(decoupled_weight_decay=True, weight_decay=0.1), Lamb, dict(max_grad_norm=None)),
    (NovoGrad, dict(weight_decay=0.05), NvNovoGrad, {}),
    (NovoGrad, dict(weight_decay=0.05, grad_averaging=True, betas=(0.8, 0.9)), NvNovoGrad, {}),
    (NovoGrad, dict(weight_decay=0.05, decoupled_weight_decay=True), NvNovoGrad, {}),
]


@pytest.fixture
def float64():
    """timm keeps NovoGrad's second moment in the default type, whatever the parameter's is."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("zero_first", [False, True], ids=["", "a gradient starts at zero"])
@pytest.mark.parametrize("make, options, timms, more", TIMM, ids=lambda value: str(getattr(value, "__name__", value)))
def test_the_class_agrees_with_timm(make, options, timms, more, zero_first):
    start, gradients = sequence(zero_first=zero_first)
    theirs = {"decoupled_decay" if name == "decoupled_weight_decay" else name: value for name, value in options.items()} | more
    ours = track_of(lambda params: make(params, lr=0.03, **options), start, gradients)
    judge = track_of(lambda params: timms(params, lr=0.03, **theirs), start, gradients)
    assert ((ours - judge).abs().max() / judge.abs().max()).item() < BOUND
    plain = track_of(lambda params: SGD(params, lr=0.03), start, gradients)
    assert (ours - plain).abs().max() > 1e-3


def test_timms_defaults_differ_where_the_options_say_so():
    start, gradients = sequence()

    def ends(make, **options):
        return track_of(lambda params: make(params, lr=0.03, **options), start, gradients)

    plain = ends(SGD, momentum=0.9)
    assert torch.equal(ends(Lars, momentum=0.9), plain), "timm's LARS without decay is SGD"
    assert torch.equal(ends(LARS, momentum=0.9, always_adapt=False), plain)
    assert (ends(LARS, momentum=0.9) - plain).abs().max() > 0.1
    adam = ends(Adam, eps=1e-6)
    torch.testing.assert_close(ends(Lamb, weight_decay=0, max_grad_norm=None), adam, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(ends(LAMB, weight_decay=0, always_adapt=False), adam, rtol=1e-13, atol=1e-13)
    assert (ends(Lamb) - ends(LAMB)).abs().max() > 1e-3, "timm clips the global norm to 1"


# ---- what each rule promises -----------------------------------------------------------------------------------


def test_a_step_of_lamb_moves_each_tensor_by_the_rate_times_its_norm():
    start, gradients = sequence()
    for options in ({}, {"bias_correction": False}, {"pre_normalize": True}, {"weight_decay": 0.0}):
        params = [p.clone().requires_grad_() for p in start]
        optimizer = LAMB(params, lr=0.01, **options)
        for row in gradients:
            before = [p.detach().clone() for p in params]
            for p, g in zip(params, row, strict=True):
                p.grad = g.clone()
            optimizer.step()
            for p, old in zip(params, before, strict=True):
                assert (p.detach() - old).norm().item() == pytest.approx(0.01 * old.norm().item(), rel=1e-12)


def test_lars_and_novograd_do_not_see_the_size_of_a_layers_gradient():
    start, gradients = sequence()
    gradients = [[torch.where(g == 0, 0.1, g) for g in row] for row in gradients]  # without ε, LAMB would divide 0 by 0
    sizes = (1e-6, 1.0, 1e6)
    scaled = [[g * size for g, size in zip(row, sizes, strict=True)] for row in gradients]
    for make in (partial(LARS, eps=0.0, momentum=0.9), partial(NovoGrad, eps=0.0), partial(LAMB, eps=0.0)):
        same, other = (track_of(make, start, rows) for rows in (gradients, scaled))
        torch.testing.assert_close(same, other, rtol=1e-11, atol=1e-12)
    plain = [track_of(lambda params: SGD(params, lr=1e-3), start, rows) for rows in (gradients, scaled)]
    assert (plain[0] - plain[1]).abs().max() > 1


def test_nvlamb_does_not_see_the_size_of_all_gradients_and_clipping_only_where_it_clips():
    start, gradients = sequence()
    larger = [[g * (1 + t) for g in row] for t, row in enumerate(gradients)]

    def change(**options):
        a, b = (track_of(lambda params: LAMB(params, lr=0.01, **options), start, rows) for rows in (gradients, larger))
        return (a - b).abs().max().item()

    assert change(pre_normalize=True) < 1e-12
    assert change() > 1e-3 and change(max_grad_norm=1.0) > 1e-3
    assert change(max_grad_norm=1e-6) < 1e-12, "a limit below every norm always divides"


@by_class
def test_the_state_has_one_number_per_tensor_besides_the_copies(make):
    p, q = torch.nn.Parameter(torch.ones(300, 20)), torch.nn.Parameter(torch.ones(20))
    optimizer = make([p, q], **({"momentum": 0.9} if make is LARS else {}))
    for tensor in (p, q):
        tensor.grad = torch.ones_like(tensor)
    optimizer.step()
    copies = {LARS: 1, LAMB: 2, NovoGrad: 1}[make]
    for tensor in (p, q):
        state = optimizer.state[tensor].values()
        assert sum(value.shape == tensor.shape for value in state) == copies
        assert sum(value.nbytes for value in state if value.ndim == 0) <= 8


def test_a_tensor_of_zeros_takes_the_plain_step():
    zero, weight = torch.zeros(3, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    for make, options in ((LARS, {"lr": 0.5}), (LAMB, {"lr": 0.5, "eps": 1e-12, "weight_decay": 0.0})):
        with torch.no_grad():
            zero.zero_()
        optimizer = make([zero, weight], **options)
        zero.grad, weight.grad = torch.tensor([1.0, -1.0, 1.0]), torch.zeros(2, 2)
        optimizer.step()
        torch.testing.assert_close(zero.detach(), torch.tensor([-0.5, 0.5, -0.5]))
        assert optimizer.state[zero]["trust_ratio"] == 1.0
        assert weight.isfinite().all()


# ---- torch's contract --------------------------------------------------------------------------------------------


@by_class
def test_a_save_and_a_copy_go_on_alike_in_every_dtype(make):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        start, gradients = sequence(dtype)
        whole = track_of(lambda params: make(params, weight_decay=0.01), start, gradients)
        params = [p.clone().requires_grad_() for p in start]
        optimizer = make(params, weight_decay=0.01)
        for t, row in enumerate(gradients):
            if t == TURN:
                file = io.BytesIO()
                torch.save(optimizer.state_dict(), file)
                file.seek(0)
                params = [p.detach().clone().requires_grad_() for p in params]
                optimizer = make(params, lr=7.0)
                optimizer.load_state_dict(torch.load(file))
                optimizer = copy.deepcopy(optimizer)
                params = optimizer.param_groups[0]["params"]
                optimizer.param_groups[0]["lr"] /= 4
            for p, g in zip(params, row, strict=True):
                p.grad = g.clone()
            optimizer.step()
        assert torch.equal(torch.cat([p.detach().flatten() for p in params]), whole[-1])


@by_class
def test_biases_have_a_group_of_their_own(make):
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2))
    rest = {"weight_decay": 0.0} if make is NovoGrad else {}
    matrices, others = make(matrices_and_rest(net.parameters(), **rest), weight_decay=0.1).param_groups
    assert [p.ndim for p in matrices["params"]] == [2, 2] and len(others["params"]) == 4
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert others.get("always_adapt", False) is False
    assert len(matrices_and_rest([torch.ones(2, 2)])) == 1


@by_class
def test_large_complex_and_noncontiguous_tensors_are_taken_whole(make):
    """A large tensor is not cut into pieces, whose norms would be others; complex numbers are pairs of real ones."""
    made = torch.Generator().manual_seed(3)
    large = torch.randn(700, 800, generator=made, dtype=torch.float64)
    gradient = torch.randn(700, 800, generator=made, dtype=torch.float64)
    ends = []
    for view in (
        lambda x: x.clone(),
        lambda x: x.t().contiguous().t(),
        lambda x: torch.view_as_complex(x.view(700, 400, 2).clone()),
    ):
        p = view(large).requires_grad_()
        optimizer = make([p], lr=0.01)
        for _ in range(3):
            p.grad = view(gradient)
            optimizer.step()
        ends.append(torch.view_as_real(p.detach()).reshape(700, 800) if p.is_complex() else p.detach())
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=1e-12, atol=1e-12)


@by_class
def test_the_loss_has_a_derivative_by_the_learning_rate(make):
    def loss_after(lr):
        p = torch.tensor([[1.5, -0.7, 0.3]], dtype=torch.float64, requires_grad=True).clone()
        b = torch.zeros(2, dtype=torch.float64, requires_grad=True).clone()  # a norm of 0 has no derivative
        optimizer = make(
            [p, b], lr=lr, weight_decay=0.01, differentiable=True, **({"trust_coeff": 1.0} if make is LARS else {})
        )
        for _ in range(4):
            seen, also = p.clone(), b.clone()
            loss = (torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64) * seen**2).sum() + ((also - 1) ** 2).sum()
            p.grad, b.grad = torch.autograd.grad(loss, (seen, also), create_graph=True)
            optimizer.step()
        return (p**2).sum() + (b**2).sum()

    lr, h = torch.tensor(0.02, dtype=torch.float64, requires_grad=True), 1e-6
    (slope,) = torch.autograd.grad(loss_after(lr), lr)
    up, down = (loss_after(torch.tensor(0.02 + d, dtype=torch.float64)).item() for d in (h, -h))
    assert slope.item() == pytest.approx((up - down) / (2 * h), rel=1e-6) and slope.item() != 0


@by_class
def test_explain_shows_rule_state_and_trust_ratio(make):
    p = torch.nn.Parameter(torch.full((2, 2), 0.5))
    optimizer = make([p], weight_decay=0.1)
    p.grad = torch.full((2, 2), 0.25)
    optimizer.step()
    shown = repr(optimizer.explain())
    if make is not NovoGrad:  # w = 1; LARS: 0.001 / (0.5 + 0.1 + ε)
        assert (
            f"r = trust_ratio () float32: {0.00167 if make is LARS else optimizer.state[p]['trust_ratio'].item():.3g}" in shown
        )
    else:
        assert "v = exp_avg_sq () float32: 0.25" in shown
    assert "weight_decay=0.1" in shown and shown.count("│") >= 8


def test_gradients_of_all_groups_count_in_the_norm_and_are_not_changed():
    a, b, unused = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    optimizer = LAMB([{"params": [a]}, {"params": [b, unused]}], lr=0.1, pre_normalize=True, betas=(0.0, 0.0))
    a.grad, b.grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    optimizer.step()
    assert torch.equal(a.grad, torch.tensor([3.0, 0.0])) and torch.equal(unused, torch.ones(2))
    torch.testing.assert_close(optimizer.state[a]["exp_avg"], torch.tensor([0.6, 0.0]))
    torch.testing.assert_close(optimizer.state[b]["exp_avg"], torch.tensor([0.0, 0.8]))
    LAMB([unused], pre_normalize=True).step()  # no gradient at all
    a.grad, b.grad = torch.zeros(2), torch.zeros(2)
    optimizer.step()
    assert a.isfinite().all()


@by_class
def test_sparse_gradients_are_refused(make):
    for options in ({}, {"max_grad_norm": 1.0}) if make is LAMB else ({},):
        p = torch.nn.Parameter(torch.ones(3, 2))
        p.grad = torch.ones(3, 2).to_sparse()
        with pytest.raises(RuntimeError, match=f"{make.__name__} does not support sparse gradients"):
            make([p], **options).step()


REFUSED = [
    (LARS, {"lr": -1.0}, "Invalid learning rate: -1.0"),
    (LARS, {"trust_coeff": -0.1}, "Invalid trust_coeff value: -0.1"),
    (LARS, {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
    (LAMB, {"betas": (0.9, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
    (LAMB, {"eps": math.inf}, "epsilon value: inf"),
    (LAMB, {"max_grad_norm": 0.0}, "no gradient would be left"),
    (LAMB, {"max_grad_norm": -1.0}, "Invalid max_grad_norm value: -1.0"),
    (LAMB, {"max_grad_norm": 1.0, "pre_normalize": True}, "give one of the two"),
    (NovoGrad, {"betas": (0.9,)}, "give two numbers"),
    (NovoGrad, {"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
]


@pytest.mark.parametrize("make, options, why", REFUSED, ids=str)
def test_what_cannot_work_is_refused_with_the_reason(make, options, why):
    with pytest.raises(ValueError, match=why):
        make([torch.ones(2, requires_grad=True)], **options)


def test_a_norm_limit_belongs_to_all_groups_and_a_group_cannot_have_its_own():
    p, q = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    with pytest.raises(ValueError, match="max_grad_norm.*all groups"):
        LAMB([{"params": [p], "max_grad_norm": 2.0}, {"params": [q]}])
    optimizer = LAMB([p], max_grad_norm=2.0)
    with pytest.raises(ValueError, match="pre_normalize.*all groups"):
        optimizer.add_param_group({"params": [q], "pre_normalize": True})
    assert len(optimizer.param_groups) == 1


def test_they_are_offered_and_torch_has_none_of_them():
    offered = {name for name in hpml_lab.optim.__all__ if isinstance(getattr(hpml_lab.optim, name), type)}
    layerwise = {name for name in offered if issubclass(getattr(hpml_lab.optim, name), LayerwiseOptimizer)}
    assert layerwise == {make.__name__ for make in CLASSES} == {name for name in offered if not hasattr(torch.optim, name)}
    from hpml_lab.adaptive.experiments.optimizer_conformance.torch_inputs import CLASSES as compared

    assert not layerwise & set(compared), "the table of bitwise equality has torch's classes only"


def test_an_unknown_parameter_is_named():
    with pytest.raises(LabError, match="no parameter 1 in this LARS"):
        LARS([torch.ones(2, requires_grad=True)]).explain(1)
    assert AdamW.takes_lists and not LARS.takes_lists


def test_matrices_and_the_rest_are_found_in_whatever_an_optimizer_takes():
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2))
    named = LARS(matrices_and_rest(net.named_parameters())).param_groups
    assert [group["param_names"] for group in named] == [["0.weight", "2.weight"], ["0.bias", "1.weight", "1.bias", "2.bias"]]
    layers = [{"params": net[0].parameters(), "lr": 0.5}, {"params": net[1].weight, "lr": 0.1}]
    groups = LARS(matrices_and_rest(layers)).param_groups
    assert [(len(group["params"]), group["lr"], group["always_adapt"]) for group in groups] == [
        (1, 0.5, True),
        (1, 0.5, False),
        (1, 0.1, False),
    ]
    assert matrices_and_rest(net[0].weight) == [{"params": [net[0].weight]}]
