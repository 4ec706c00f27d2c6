"""The formulas agree with the classes of torch.optim and of this package; the relations of the lecture's forms hold."""

import math

import mpmath
import pytest
import torch

import hpml_lab.optim
from hpml_lab.optim.formulas.arithmetic import Floats
from hpml_lab.optim.formulas.by_name import FORMULAS, State

STEPS = 300

# A formula's hyperparameters, and the same ones as the class names them.
CASES = [
    ("gradient_descent", {}, {}),
    ("momentum", {"momentum": 0.9}, {"momentum": 0.9}),
    ("momentum", {"momentum": 0.5}, {"momentum": 0.5}),
    ("nesterov", {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}),
    ("nesterov", {"momentum": 0.3}, {"momentum": 0.3, "nesterov": True}),
    ("adagrad", {}, {}),
    ("adagrad", {"eps": 0.1}, {"eps": 0.1}),
    ("adadelta", {}, {}),
    ("adadelta", {"rho": 0.7, "eps": 0.01}, {"rho": 0.7, "eps": 0.01}),
    ("rmsprop", {}, {}),
    ("rmsprop", {"alpha": 0.8, "eps": 0.01}, {"alpha": 0.8, "eps": 0.01}),
    ("adam", {}, {}),
    ("adam", {"beta1": 0.6, "beta2": 0.8, "eps": 0.01}, {"betas": (0.6, 0.8), "eps": 0.01}),
    ("adamw", {}, {}),
    ("adamw", {"weight_decay": 0.3, "beta1": 0.6}, {"weight_decay": 0.3, "betas": (0.6, 0.999)}),
    ("adamax", {}, {}),
    ("adamax", {"beta1": 0.6, "beta2": 0.8, "eps": 0.01}, {"betas": (0.6, 0.8), "eps": 0.01}),
    ("nadam", {}, {}),
    ("nadam", {"momentum_decay": 0.1, "beta2": 0.9}, {"momentum_decay": 0.1, "betas": (0.9, 0.9)}),
    ("radam", {}, {}),
    ("radam", {"beta1": 0.6, "beta2": 0.95, "eps": 0.01}, {"betas": (0.6, 0.95), "eps": 0.01}),
    ("radam", {"beta2": 0.6}, {"betas": (0.9, 0.6)}),
    ("rprop", {}, {}),
    ("rprop", {"eta_minus": 0.3, "eta_plus": 1.5}, {"etas": (0.3, 1.5)}),
]
TWINS = {case[0] for case in CASES}


@pytest.fixture(autouse=True)
def default_dtype():
    """float64: torch keeps NAdam's product of momenta in the default type, whatever the parameter's is."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def gradients():
    made = torch.Generator().manual_seed(3)
    scale = torch.tensor([0.01, 1.0, 10.0, 0.3])
    return torch.randn(STEPS, 4, generator=made) * scale


def rate(t, lr, changes):
    return lr / 4 if changes and t >= STEPS // 2 else lr


def walk(name, theta, slopes, lr, changes=False, **hyper):
    """The parameters after each step of a formula."""
    run = FORMULAS[name].run(theta, slopes, lr=lambda t: rate(t - 1, lr, changes), **hyper)
    return [theta for theta, _, _ in run]


def by_class(cls, start, lr, changes, options):
    """The parameters after each step of an optimizer's class."""
    theta, track = start.clone().requires_grad_(), []
    optimizer = cls([theta], lr=lr, **options)
    for t, g in enumerate(gradients()):
        optimizer.param_groups[0]["lr"] = rate(t, lr, changes)
        theta.grad = g.clone()
        optimizer.step()
        track.append(theta.detach().clone())
    return track


def distance(track, other):
    """Largest difference of two tracks, relative to the largest value on them."""
    a, b = torch.stack(list(track)), torch.stack(list(other))
    return ((a - b).abs().max() / b.abs().max()).item()


START = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("package", [torch.optim, hpml_lab.optim], ids=["torch", "hpml_lab"])
@pytest.mark.parametrize("changes", [False, True], ids=["constant rate", "rate changes"])
@pytest.mark.parametrize("name, hyper, options", CASES, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(CASES)])
def test_a_formula_is_its_class(package, name, hyper, options, changes):
    lr = 0.5 if name == "adadelta" else 0.02
    track = by_class(getattr(package, FORMULAS[name].torch_equivalent), START, lr, changes, options)
    assert distance(walk(name, START, gradients(), lr, changes, **hyper), track) < 1e-12


CLASSES = {"lars": "LARS", "lamb": "LAMB", "novograd": "NovoGrad"}
LAYERWISE = [  # rules with norms of a layer, in the form of this package's classes: torch.optim has none of them
    ("lars", {}, {"momentum": 0.9}),
    ("lars", {"momentum": 0.5, "trust_coeff": 0.1, "eps": 0.01}, {"momentum": 0.5, "trust_coeff": 0.1, "eps": 0.01}),
    ("lamb", {}, {}),
    ("lamb", {"beta1": 0.6, "beta2": 0.8, "weight_decay": 0.3}, {"betas": (0.6, 0.8), "weight_decay": 0.3}),
    ("novograd", {}, {}),
    ("novograd", {"beta1": 0.6, "beta2": 0.8, "eps": 0.01}, {"betas": (0.6, 0.8), "eps": 0.01}),
]


@pytest.mark.parametrize("start", [START, torch.zeros(4, dtype=torch.float64)], ids=["start", "from zeros"])
@pytest.mark.parametrize("name, hyper, options", LAYERWISE, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(LAYERWISE)])
def test_a_layers_formula_is_its_class(name, hyper, options, start):
    track = by_class(getattr(hpml_lab.optim, CLASSES[name]), start, 0.02, True, options)
    assert FORMULAS[name].layerwise and distance(walk(name, start, gradients(), 0.02, True, **hyper), track) < 1e-12


@pytest.mark.parametrize("name", CLASSES)
def test_a_layers_defaults_are_its_classs(name):
    """Not LARS's momentum, which the class leaves out as torch's SGD does."""
    defaults = getattr(hpml_lab.optim, CLASSES[name])([torch.zeros(1)]).defaults
    options = {**defaults, **dict(zip(("beta1", "beta2"), defaults.get("betas", ()), strict=False))}
    options |= {"momentum": FORMULAS["momentum"].defaults["momentum"]}
    assert FORMULAS[name].defaults == {key: options[key] for key in FORMULAS[name].defaults}


def test_every_formula_has_a_twin_here_or_a_relation_below():
    assert {name for name, formula in FORMULAS.items() if formula.torch_equivalent} == TWINS
    assert set(FORMULAS) - TWINS == {
        "lecture_momentum", "lecture_nesterov", "lecture_adagrad", "ruder_rmsprop", "paper_adamax", "ruder_nadam",
        "lars", "lamb", "novograd",
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name, formula in FORMULAS.items() if formula.torch_equivalent not in (None, "SGD")])
def test_a_formulas_defaults_are_its_classs(name):
    """Not SGD's, which start at the lecture's rate and momentum."""
    formula = FORMULAS[name]
    defaults = getattr(torch.optim, formula.torch_equivalent)([torch.zeros(1)]).defaults
    options = {**defaults, **dict(zip(("beta1", "beta2"), defaults.get("betas", ()), strict=False))}
    options |= dict(zip(("eta_minus", "eta_plus"), defaults.get("etas", ()), strict=False))
    assert formula.defaults == {key: options[key] for key in formula.defaults}


@pytest.mark.parametrize("name", FORMULAS)
def test_one_code_moves_floats_tensors_and_numbers_of_mpmath(name):
    slopes = gradients()[:40]
    tensors = [walk(name, START[i : i + 1], slopes[:, i : i + 1], 0.02)[-1] for i in range(4)]
    whole, layer = (
        walk(name, START, slopes, 0.02)[-1],
        walk(name, Floats(START.tolist()), map(Floats, slopes.tolist()), 0.02)[-1],
    )
    assert isinstance(layer, Floats) and layer == pytest.approx(whole.tolist(), rel=1e-13, abs=1e-14)
    assert FORMULAS[name].layerwise is not torch.allclose(torch.cat(tensors), whole, rtol=1e-13), "each parameter by itself"
    floats = [walk(name, START[i].item(), slopes[:, i].tolist(), 0.02) for i in range(4)]
    mpmath.mp.dps = 40
    exact = [walk(name, mpmath.mpf(START[i].item()), map(mpmath.mpf, slopes[:, i].tolist()), 0.02) for i in range(4)]
    for i in range(4):
        assert isinstance(floats[i][-1], float) and isinstance(exact[i][-1], mpmath.mpf)
        for mine, true in ((tensors[i].item(), exact[i][-1]), (floats[i][-1], exact[i][-1])):
            assert abs(mine - true) < (1e-9 if name == "radam" else 1e-13) * abs(true) + 1e-14  # ρ is what is left of ρ∞


@pytest.mark.parametrize("name", FORMULAS)
def test_each_line_of_code_stands_next_to_its_formula_and_computes_its_state(name):
    lines = FORMULAS[name].lines
    assert len(lines) >= 1 and lines[-1][1].startswith("theta = ")
    for formula, code in lines:
        assert "=" in formula and "=" in code and "θ" not in code
        kept = code.split(" = ")[0]
        assert (
            kept in ("theta", "mu", "mu_next", "u", "n", "rho_inf", "rho", "q", "r", "k", "c", "eta", "size")
            or kept.removeprefix("s.") in FORMULAS[name].state
        )


@pytest.mark.parametrize("name", FORMULAS)
def test_a_step_replaces_state_and_changes_nothing_in_place(name):
    formula, theta, g = FORMULAS[name], START.clone(), gradients()[0]
    state = formula.start(theta)
    before = {key: value.clone() for key, value in vars(state).items()}
    held = dict(vars(state))
    formula.step(theta, g, state, 1)
    assert torch.equal(theta, START) and torch.equal(g, gradients()[0])
    assert all(torch.equal(held[key], before[key]) for key in before)


# ---- The lecture's, Ruder's and the papers' forms ----------------------------------------------------------


def descend(name, changes=False, steps=STEPS, lr=1e-3, **hyper):
    """A formula on Rosenbrock's valley: θ and the point at which the gradient was taken, step by step."""

    def gradient(point, step):
        x, y = point
        return torch.stack([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)])

    formula, start = FORMULAS[name], torch.tensor([-1.2, 1.0])
    run = formula.run(start, range(steps), gradient, lambda t: rate(t - 1, lr, changes), **hyper)
    return tuple(zip(*((theta, formula.gradient_point(theta, state, **hyper)) for theta, _, state in run), strict=True))


def test_the_lectures_momentum_is_torchs_while_the_rate_is_constant_and_parts_when_it_changes():
    assert distance(descend("lecture_momentum")[0], descend("momentum")[0]) < 1e-12
    before, after = (descend(name, changes=True)[0] for name in ("lecture_momentum", "momentum"))
    assert distance(before[: STEPS // 2], after[: STEPS // 2]) < 1e-12
    assert distance(before, after) > 1e-3


def test_torchs_nesterov_parameter_is_the_lectures_look_ahead_point():
    lecture, asked = descend("lecture_nesterov")
    torchs, _ = descend("nesterov")
    assert distance(asked, torchs) < 1e-12, "θ - γ v is torch's θ"
    assert distance(lecture, torchs) > 1e-3, "the lecture's own θ is another point"
    assert distance(descend("lecture_nesterov", changes=True)[1], descend("nesterov", changes=True)[0]) > 1e-3


def test_nesterov_along_an_eigendirection_is_momentum_with_less_friction():
    """Sutskever et al. 2013, Theorem 2.1: μ (1 - λ α) in place of μ."""
    for curvature in (0.1, 1.0, 5.0):
        lr, momentum = 0.15, 0.9
        tracks = []
        for name, used in (("lecture_nesterov", momentum), ("lecture_momentum", momentum * (1 - curvature * lr))):
            run = FORMULAS[name].run(1.0, [curvature] * STEPS, lambda point, curvature: curvature * point, lr, momentum=used)
            tracks.append([theta for theta, _, _ in run])
        assert max(abs(a - b) for a, b in zip(*tracks, strict=True)) < 1e-14


@pytest.mark.parametrize("inside, outside", [("lecture_adagrad", "adagrad"), ("ruder_rmsprop", "rmsprop")])
def test_eps_inside_and_outside_the_root_differ_but_for_zero(inside, outside):
    same = {} if inside == "lecture_adagrad" else {"alpha": 0.9}
    slopes = gradients()

    def both(eps):
        return distance(*(walk(name, START, slopes, 0.02, eps=eps, **same) for name in (inside, outside)))

    assert both(0.0) < 1e-13
    assert both(1e-2) > 1e-3


def test_the_papers_adamax_is_torchs_without_eps_and_divides_zero_by_zero():
    slopes = gradients()
    assert distance(walk("paper_adamax", START, slopes, 0.02), walk("adamax", START, slopes, 0.02, eps=0.0)) < 1e-14
    slopes[0, 2] = 0.0
    assert walk("paper_adamax", START, slopes, 0.02)[0].isnan().tolist() == [False, False, True, False]
    assert torch.stack(walk("adamax", START, slopes, 0.02)).isfinite().all()


def test_ruders_nadam_under_a_constant_gradient_steps_by_a_closed_form():
    """m̂ = g and v̂ = g² at each step, so the step is α (β₁ + (1 − β₁) / (1 − β₁ᵗ)) / (1 + ε / |g|), against the sign of g."""
    beta1, eps, slope, theta = 0.9, 1e-8, 2.0, 1.0
    for t, found in enumerate(walk("ruder_nadam", 1.0, [slope] * 30, 0.02), 1):
        theta -= 0.02 * (beta1 + (1 - beta1) / (1 - beta1**t)) / (1 + eps / slope)
        assert found == pytest.approx(theta, rel=1e-12)


def test_ruders_nadam_is_not_torchs():
    tracks = [walk(name, START, gradients(), 0.02) for name in ("ruder_nadam", "nadam")]
    assert distance(*tracks) > 1e-3


@pytest.mark.parametrize("gap", [1e-4, 1e-6, 1e-8])
def test_adagrad_is_adam_in_a_limit(gap):
    """β₁ = 0, β₂ = 1 - gap, the rate α/√t, ε = 0: v̂ tends to G/t; what is left is of the order gap · steps."""
    adagrad = walk("adagrad", START, gradients(), 0.02, eps=0.0)
    options = dict(beta1=0.0, beta2=1 - gap, eps=0.0)
    run = FORMULAS["adam"].run(START, gradients(), lr=lambda t: 0.02 / math.sqrt(t), **options)
    track = [theta for theta, _, _ in run]
    assert gap * 1e-3 < distance(track, adagrad) < gap * STEPS


def test_the_state_starts_at_its_start_values():
    state = FORMULAS["nadam"].start(START)
    assert isinstance(state, State) and torch.equal(state.mu_product, torch.ones(4)) and not state.m.any()
