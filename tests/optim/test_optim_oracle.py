"""Every optimizer against its paper's equations in numbers of 50 digits, so that "equal to torch" is not the only witness.

The rules below are plain scalars of mpmath. They use neither torch nor hpml_lab.optim.formulas. What torch adds to a paper (ε
in Adamax, a first step without dampening) is said where it stands. Both torch.optim and hpml_lab.optim are held to them, in
float64, within 1e-12 of the largest value that a parameter had.
"""

import inspect

import mpmath
import pytest
import torch
from mpmath import mpf, sqrt

import hpml_lab.optim

mpmath.mp.dps = 50
STEPS, TURN = 120, 60  # the learning rate changes at TURN
BOUND = 1e-12
# torch's defaults
BETAS, RHO, ALPHA, DECAY, PSI = (mpf("0.9"), mpf("0.999")), mpf("0.9"), mpf("0.99"), mpf("0.01"), mpf("0.004")
ETAS, SIZES, LAMBD, POWER = (mpf("0.5"), mpf("1.2")), (mpf("1e-6"), mpf(50)), mpf("1e-4"), mpf("0.75")
SMALL_EPS, EPS, LARGE_EPS = mpf("1e-10"), mpf("1e-8"), mpf("1e-6")


@pytest.fixture(autouse=True)
def default_dtype():
    """float64: torch keeps NAdam's product of momenta in the default type, whatever the parameter's is."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def sgd(theta, gradients, lr, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False):
    """Polyak 1964 and Sutskever et al. 2013, with the rate outside the velocity."""
    velocity = None
    for t, g in enumerate(gradients):
        g = (-g if maximize else g) + weight_decay * theta
        if momentum:
            velocity = g if velocity is None else momentum * velocity + (1 - dampening) * g  # torch: no dampening at first
            g = g + momentum * velocity if nesterov else velocity
        theta -= lr(t) * g
        yield theta


def adagrad(theta, gradients, lr, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=SMALL_EPS, maximize=False):
    """Duchi et al. 2011, equation 1 with a diagonal matrix; ε outside the root."""
    total = initial_accumulator_value
    for t, g in enumerate(gradients):
        g = (-g if maximize else g) + weight_decay * theta
        total += g**2
        theta -= lr(t) / (1 + t * lr_decay) * g / (sqrt(total) + eps)
        yield theta


def adadelta(theta, gradients, lr, rho=RHO, eps=LARGE_EPS, weight_decay=0, maximize=False):
    """Zeiler 2012, Algorithm 1: RMS[x] = √(E[x²] + ε)."""
    mean_g2 = mean_dx2 = mpf(0)
    for t, g in enumerate(gradients):
        g = (-g if maximize else g) + weight_decay * theta
        mean_g2 = rho * mean_g2 + (1 - rho) * g**2
        dx = -sqrt(mean_dx2 + eps) / sqrt(mean_g2 + eps) * g
        mean_dx2 = rho * mean_dx2 + (1 - rho) * dx**2
        theta += lr(t) * dx
        yield theta


def rmsprop(theta, gradients, lr, alpha=ALPHA, eps=EPS, weight_decay=0, momentum=0, centered=False, maximize=False):
    """Hinton's lecture 6e; centred: Graves 2013, equations 38 to 41 (there with ε under the root)."""
    mean_square = mean = velocity = mpf(0)
    for t, g in enumerate(gradients):
        g = (-g if maximize else g) + weight_decay * theta
        mean_square = alpha * mean_square + (1 - alpha) * g**2
        mean = alpha * mean + (1 - alpha) * g
        step = g / (sqrt(mean_square - mean**2 if centered else mean_square) + eps)
        velocity = momentum * velocity + step
        theta -= lr(t) * velocity
        yield theta


def adam(
    theta, gradients, lr, betas=BETAS, eps=EPS, weight_decay=0, amsgrad=False, maximize=False,
    decoupled=False,
):  # fmt: skip
    """Kingma and Ba 2015, Algorithm 1; amsgrad: Reddi et al. 2018, Algorithm 2, with Adam's corrections; Loshchilov and Hutter
    2019, Algorithm 2."""
    m = v = largest = mpf(0)
    for t, g in enumerate(gradients):
        g = -g if maximize else g
        if decoupled:
            theta *= 1 - lr(t) * weight_decay
        else:
            g += weight_decay * theta
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        largest = max(largest, v)
        m_hat = m / (1 - betas[0] ** (t + 1))
        v_hat = (largest if amsgrad else v) / (1 - betas[1] ** (t + 1))
        theta -= lr(t) * m_hat / (sqrt(v_hat) + eps)
        yield theta


def adamw(theta, gradients, lr, weight_decay=DECAY, **options):
    return adam(theta, gradients, lr, weight_decay=weight_decay, decoupled=True, **options)


def adamax(
    theta, gradients, lr, betas=BETAS, eps=EPS, weight_decay=0, maximize=False
):  # fmt: skip
    """Kingma and Ba 2015, Algorithm 2; torch adds ε to |g|."""
    m = u = mpf(0)
    for t, g in enumerate(gradients):
        g = (-g if maximize else g) + weight_decay * theta
        m = betas[0] * m + (1 - betas[0]) * g
        u = max(betas[1] * u, abs(g) + eps)
        theta -= lr(t) / (1 - betas[0] ** (t + 1)) * m / u
        yield theta


def nadam(
    theta, gradients, lr, betas=BETAS, eps=EPS, weight_decay=0, momentum_decay=PSI,
    decoupled_weight_decay=False, maximize=False,
):  # fmt: skip
    """Dozat 2016, Algorithm 2: g' = g/(1 - Πμ), m̄ = (1 - μ) g' + μ⁺ m', with the schedule of its appendix."""

    def mu(t):
        return betas[0] * (1 - mpf("0.5") * mpf("0.96") ** (t * momentum_decay))

    m = v = mpf(0)
    product = mpf(1)
    for t, g in enumerate(gradients, 1):
        g = -g if maximize else g
        if decoupled_weight_decay:
            theta *= 1 - lr(t - 1) * weight_decay
        else:
            g += weight_decay * theta
        product *= mu(t)
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        ahead = mu(t + 1) * m / (1 - product * mu(t + 1)) + (1 - mu(t)) * g / (1 - product)
        theta -= lr(t - 1) * ahead / (sqrt(v / (1 - betas[1] ** t)) + eps)
        yield theta


def radam(theta, gradients, lr, betas=BETAS, eps=EPS, weight_decay=0, decoupled_weight_decay=False, maximize=False):
    """Liu et al. 2020, Algorithm 2, from the sixth step or so on (ρ > 5, there 4); ε as in torch."""
    m = v = mpf(0)
    longest = 2 / (1 - betas[1]) - 1
    for t, g in enumerate(gradients, 1):
        g = -g if maximize else g
        if decoupled_weight_decay:
            theta *= 1 - lr(t - 1) * weight_decay
        else:
            g += weight_decay * theta
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        step = m / (1 - betas[0] ** t)
        length = longest - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
        if length > 5:
            rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            step *= sqrt(rectified) * sqrt(1 - betas[1] ** t) / (sqrt(v) + eps)
        theta -= lr(t - 1) * step
        yield theta


def rprop(theta, gradients, lr, etas=ETAS, step_sizes=SIZES, maximize=False):
    """Riedmiller and Braun 1993, without the step back: a gradient that changed its sign counts as 0."""
    size, before = lr(0), mpf(0)
    for g in gradients:
        g = -g if maximize else g
        if g * before > 0:
            size = min(size * etas[1], step_sizes[1])
        elif g * before < 0:
            size, g = max(size * etas[0], step_sizes[0]), mpf(0)
        theta -= size * mpmath.sign(g)
        before = g
        yield theta


def asgd(theta, gradients, lr, lambd=LAMBD, alpha=POWER, t0=1e6, weight_decay=0, maximize=False):
    """Polyak and Juditsky 1992 with Bottou's rate; torch computes the rate of a step at the end of the one before."""
    rate = lr(0)
    for t, g in enumerate(gradients, 1):
        g = (-g if maximize else g) + weight_decay * theta
        theta = (1 - lambd * rate) * theta - rate * g
        rate = lr(t - 1) / (1 + lambd * lr(t - 1) * t) ** alpha
        yield theta


ORACLES = {
    "SGD": sgd, "Adagrad": adagrad, "Adadelta": adadelta, "RMSprop": rmsprop, "Adam": adam, "AdamW": adamw, "Adamax": adamax,
    "NAdam": nadam, "RAdam": radam, "Rprop": rprop, "ASGD": asgd,
}  # fmt: skip

CASES = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.8, "dampening": 0.3}),
    ("SGD", {"momentum": 0.95, "nesterov": True}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.05, "nesterov": True}),
    ("SGD", {"weight_decay": 0.1, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adagrad", {"initial_accumulator_value": 0.1, "eps": 0.01}),
    ("Adagrad", {"weight_decay": 0.1, "lr_decay": 0.02, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"rho": 0.95, "eps": 1e-3}),
    ("Adadelta", {"weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.9, "eps": 0.01}),
    ("RMSprop", {"momentum": 0.9}),
    ("RMSprop", {"centered": True, "alpha": 0.8, "eps": 0.1}),
    ("RMSprop", {"centered": True, "momentum": 0.7, "weight_decay": 0.1, "alpha": 0.9, "eps": 0.1}),
    ("RMSprop", {"maximize": True}),
    ("Adam", {}),
    ("Adam", {"betas": (0.7, 0.95), "eps": 0.01}),
    ("Adam", {"betas": (0.0, 0.5)}),
    ("Adam", {"amsgrad": True, "betas": (0.9, 0.6)}),
    ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"weight_decay": 0.1, "maximize": True}),
    ("AdamW", {}),
    ("AdamW", {"weight_decay": 0.3, "betas": (0.7, 0.95), "eps": 0.01}),
    ("AdamW", {"amsgrad": True, "maximize": True, "betas": (0.5, 0.6)}),
    ("Adamax", {}),
    ("Adamax", {"betas": (0.5, 0.8), "eps": 0.01}),
    ("Adamax", {"weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"betas": (0.7, 0.95), "momentum_decay": 0.1, "eps": 0.01}),
    ("NAdam", {"weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {}),
    ("RAdam", {"betas": (0.7, 0.95), "eps": 0.01}),
    ("RAdam", {"weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "betas": (0.5, 0.6)}),
    ("Rprop", {}),
    ("Rprop", {"etas": (0.3, 1.5), "step_sizes": (0.001, 0.02), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lambd": 0.1, "alpha": 0.9, "t0": 3.0}),
    ("ASGD", {"weight_decay": 0.1, "lambd": 0.0, "maximize": True}),
]  # fmt: skip

# Powers of two as rates: α and α/4 are the same numbers in float64 and in 50 digits.
RATES = {"Adadelta": 1.0, "SGD": 2.0**-5}


def exactly(value):
    """A float, or a tuple of them, as the same number in 50 digits."""
    if isinstance(value, tuple):
        return tuple(map(mpf, value))
    return value if isinstance(value, bool) else mpf(value)


def sequence():
    """Start and gradients of five parameters: from 1e-3 to 1e2, one that begins with zeros, one that changes sign."""
    made = torch.Generator().manual_seed(0)
    start = torch.randn(5, dtype=torch.float64, generator=made)
    scale = torch.tensor([1e-3, 0.1, 1.0, 10.0, 100.0], dtype=torch.float64)
    gradients = torch.randn(STEPS, 5, dtype=torch.float64, generator=made) * scale
    gradients[:, 3] += 5 * torch.sin(torch.arange(STEPS, dtype=torch.float64))
    gradients[:3, 2] = 0.0
    return start, gradients


def track_of(optimizer_class, lr, options):
    """The parameters after each step of the class, (STEPS, 5)."""
    start, gradients = sequence()
    theta = start.clone().requires_grad_()
    optimizer = optimizer_class([theta], lr=lr, **options)
    track = []
    for t in range(STEPS):
        if t == TURN:
            optimizer.param_groups[0]["lr"] = lr / 4
        theta.grad = gradients[t].clone()
        optimizer.step()
        track.append(theta.detach().clone())
    return torch.stack(track)


def distance(name, optimizer_class, options, oracle=None):
    """The largest distance of the class from the oracle, relative to the largest value of that parameter."""
    lr = RATES.get(name, 2.0**-7)
    track = track_of(optimizer_class, lr, options)
    start, gradients = sequence()
    exact = {key: exactly(value) for key, value in options.items()}
    worst = mpf(0)
    for i in range(len(start)):
        slopes = [mpf(g.item()) for g in gradients[:, i]]
        rule = (oracle or ORACLES[name])(mpf(start[i].item()), slopes, lambda t: mpf(lr) if t < TURN else mpf(lr) / 4, **exact)
        true = list(rule)
        largest = max(map(abs, true))
        worst = max(worst, *(abs(mpf(track[t, i].item()) - value) / largest for t, value in enumerate(true)))
    return float(worst)


# RAdam's ρ is what two numbers near 2000 differ by.
BOUNDS = {"RAdam": 1e-9}


@pytest.mark.parametrize("package", [torch.optim, hpml_lab.optim], ids=["torch", "hpml_lab"])
@pytest.mark.parametrize("name, options", CASES, ids=[f"{name}-{'-'.join(options) or 'plain'}" for name, options in CASES])
def test_the_class_computes_its_papers_equations(package, name, options):
    assert distance(name, getattr(package, name), options) < BOUNDS.get(name, BOUND)


@pytest.mark.parametrize("package", [torch.optim, hpml_lab.optim], ids=["torch", "hpml_lab"])
def test_nadams_product_in_float32_costs_digits_under_float64_parameters(package):
    """torch's own choice, which hpml_lab follows to be bitwise identical: with it NAdam is right to eight digits or so."""
    torch.set_default_dtype(torch.float32)
    assert 1e-11 < distance("NAdam", package.NAdam, {"momentum_decay": 0.1}) < 1e-7


def test_the_oracle_sees_a_wrong_decimal():
    """The bound can fail: a β₂ or an ε that is a little off is seen."""

    def careless(theta, gradients, lr, **options):
        return adam(theta, gradients, lr, betas=(mpf("0.9"), mpf("0.9990001")), **options)

    assert distance("Adam", torch.optim.Adam, {}, careless) > 1e-9
    assert distance("Adam", torch.optim.Adam, {"eps": 1e-7}, lambda *arguments, eps: adam(*arguments)) > 1e-9


def test_every_class_with_every_option_that_changes_the_rule_has_a_case():
    tried = {name: {"lr", *(key for case, options in CASES if case == name for key in options)} for name in ORACLES}
    how = {"foreach", "fused", "differentiable", "capturable", "params", "self", "decoupled_weight_decay"}
    for name in ORACLES:
        options = set(inspect.signature(getattr(torch.optim, name)).parameters) - how
        assert options <= tried[name], f"{name}: {options - tried[name]} untried"


def sparse_adam(theta, gradients, lr, beta1, beta2, eps):
    """Adam in the order of its section 2, α√(1 - β₂ᵗ)/(1 - β₁ᵗ) · m/(√v + ε), and only where a gradient came (None: none)."""
    m = v = mpf(0)
    for t, g in enumerate(gradients, 1):
        if g is not None:
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
            theta -= lr * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + eps)
        yield theta


@pytest.mark.parametrize("package", [torch.optim, hpml_lab.optim], ids=["torch", "hpml_lab"])
def test_asgds_average_is_the_mean_of_all_points_since_t0(package):
    start, gradients = sequence()
    theta, points = start.clone().requires_grad_(), []
    optimizer = package.ASGD([theta], lr=0.01, t0=20)
    for g in gradients:
        theta.grad = g.clone()
        optimizer.step()
        points.append(theta.detach().clone())
    # with weight 1 / max(1, t − t₀) from the step after t on, so that the first of them is the one after step t₀ + 1
    average = torch.stack(points[21:]).mean(0)
    torch.testing.assert_close(optimizer.state[theta]["ax"], average, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("package", [torch.optim, hpml_lab.optim], ids=["torch", "hpml_lab"])
@pytest.mark.parametrize("shape", [(6,), (3, 4)], ids=str)
@pytest.mark.parametrize("options", [{}, {"beta2_decay": -0.5, "d": 1.25, "eps": (1e-6, 0.5), "weight_decay": 0.1}], ids=str)
def test_adafactor_computes_its_papers_equations(package, shape, options):
    """Shazeer and Stern 2018, Algorithms 4 and 5, with means for sums and ε₁ as a floor, as torch documents."""
    made = torch.Generator().manual_seed(2)
    start = torch.randn(shape, dtype=torch.float64, generator=made)
    theta = start.clone().requires_grad_()
    optimizer = package.Adafactor([theta], lr=2.0**-4, maximize=True, **options)
    rows, columns = shape if len(shape) == 2 else (1, shape[0])
    x = mpmath.matrix(start.reshape(rows, columns).tolist())
    tau, d = mpf(options.get("beta2_decay", -0.8)), mpf(options.get("d", 1.0))
    eps1, eps2 = map(mpf, options.get("eps", (torch.finfo(torch.float64).eps, 1e-3)))
    V, R, C = mpmath.zeros(rows, columns), [mpf(0)] * rows, [mpf(0)] * columns
    cells = [(i, j) for i in range(rows) for j in range(columns)]

    def rms(matrix):
        return sqrt(sum(matrix[cell] ** 2 for cell in cells) / len(cells))

    for t in range(1, 41):
        slope = torch.randn(shape, dtype=torch.float64, generator=made)
        theta.grad = -slope
        optimizer.step()
        g, new = mpmath.matrix(slope.reshape(rows, columns).tolist()), mpf(t) ** tau
        rate = max(eps2, rms(x)) * min(mpf(2) ** -4, 1 / sqrt(mpf(t)))
        x *= 1 - mpf(2) ** -4 * mpf(options.get("weight_decay", 0))
        for i, j in cells:
            V[i, j] += new * (g[i, j] ** 2 - V[i, j])
        R = [r + new * (sum(g[i, j] ** 2 for j in range(columns)) / columns - r) for i, r in enumerate(R)]
        C = [c + new * (sum(g[i, j] ** 2 for i in range(rows)) / rows - c) for j, c in enumerate(C)]
        u = mpmath.zeros(rows, columns)
        for i, j in cells:
            second = R[i] * C[j] / max(sum(R) / rows, eps1) if len(shape) == 2 else V[i, j]
            u[i, j] = g[i, j] / max(sqrt(second), eps1)
        x -= rate / max(1, rms(u) / d) * u
    found = theta.detach().reshape(rows, columns).tolist()
    assert max(abs(found[i][j] - x[i, j]) for i, j in cells) < BOUND


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)], ids=str)
def test_muon_brings_the_singular_values_near_1_and_keeps_the_vectors(shape):
    """The first step is −α √max(1, rows / columns) U p(Σ) Vᵀ, p the polynomial five times; bfloat16 has 8 bits."""
    made = torch.Generator().manual_seed(4)
    g = torch.randn(shape, dtype=torch.float64, generator=made)
    U, sigma, V = torch.linalg.svd(g, full_matrices=False)
    sigma = sigma / sigma.norm()
    for _ in range(5):
        sigma = 3.4445 * sigma - 4.775 * sigma**3 + 2.0315 * sigma**5
    expected = -(U * sigma) @ V * max(1, shape[0] / shape[1]) ** 0.5
    for package in (torch.optim, hpml_lab.optim):
        theta = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        theta.grad = g.clone()
        package.Muon([theta], lr=1.0).step()
        assert (theta - expected).norm() < 0.05 * expected.norm()
    assert 0.6 < sigma.min() and sigma.max() < 1.3


@pytest.mark.parametrize("package", [torch.optim, hpml_lab.optim], ids=["torch", "hpml_lab"])
def test_sparse_adam_moves_only_the_rows_that_were_seen(package):
    made = torch.Generator().manual_seed(1)
    start = torch.randn(6, 2, dtype=torch.float64, generator=made)
    theta = start.clone().requires_grad_()
    optimizer = package.SparseAdam([theta], lr=2.0**-4, betas=(0.75, 0.96875), eps=0.015625)
    slopes = {(row, column): [] for row in range(6) for column in range(2)}
    for _ in range(60):
        rows = torch.randperm(5, generator=made)[:2]  # the last row never
        values = torch.randn(2, 2, dtype=torch.float64, generator=made)
        for row in range(6):
            found = (rows == row).nonzero()
            for column in range(2):
                slopes[row, column].append(mpf(values[found[0, 0], column].item()) if len(found) else None)
        theta.grad = torch.sparse_coo_tensor(rows[None], values, (6, 2), check_invariants=True)
        optimizer.step()
    for (row, column), column_slopes in slopes.items():
        exact = (mpf(2) ** -4, mpf(0.75), mpf(0.96875), mpf(0.015625))
        *_, end = sparse_adam(mpf(start[row, column].item()), column_slopes, *exact)
        assert abs(theta[row, column].item() - end) < BOUND
    assert torch.equal(theta[5].detach(), start[5])
