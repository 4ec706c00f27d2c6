"""The experiments of notebook 04."""

import math
from collections.abc import Callable

import torch

from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timing import measure
from hpml_lab.descent import softmax
from hpml_lab.descent.figures import draw_gd_variants, draw_learning_rate, draw_momentum, draw_nesterov, draw_saddle_and_minima
from hpml_lab.landscape import SURFACES, TWINS, path, quadratic, run_grid, twin
from hpml_lab.landscape.stability import best_settings, largest_stable_rate, stability_map
from hpml_lab.optim.formulas import FORMULAS

NOTEBOOK = "04_descent"
GPU_NOTE = (
    "No CUDA GPU here: on one, a large batch costs hardly more than a small one. "
    "Run `hpml-lab run gd-variants --size full` on a machine that has one."
)


def _steps_until(values: list[float], bound: float) -> int | None:
    """The first index from which on every value is at most `bound`, or None."""
    above = [i for i, value in enumerate(values) if not value <= bound]
    first = above[-1] + 1 if above else 0
    return first if first < len(values) else None


# ---- gd-variants -------------------------------------------------------------------------------------------


def _marks(updates: int) -> list[int]:
    """Numbers of updates at which the loss is looked at: 0, 1, 2, … evenly on a logarithmic axis."""
    return sorted({0, updates, *(round(10 ** (i / 8)) for i in range(int(8 * math.log10(updates)) + 1))})


def _train(x: torch.Tensor, y: torch.Tensor, batch: int, lr: float, updates: int, seeds: int) -> tuple[list[int], torch.Tensor]:
    """Softmax regression from zero for several seeds side by side: (marks, loss on all samples (marks, seeds))."""
    n = len(x)
    generators = [torch.Generator().manual_seed(seed) for seed in range(seeds)]
    w = torch.zeros(seeds, x.shape[1], y.shape[1], dtype=x.dtype, device=x.device)
    marks, losses, order, place = _marks(updates), [], None, n
    for update in range(updates + 1):
        if update in marks:
            losses.append(softmax.loss(w, x, y))
        if update == updates:
            break
        if batch == n:
            w = w - lr * softmax.gradient(w, x, y)
            continue
        if place + batch > n:  # a new epoch; what is left of the old one is too small for a batch
            order, place = torch.stack([torch.randperm(n, generator=g) for g in generators]).to(x.device), 0
        chosen = order[:, place : place + batch]
        w, place = w - lr * softmax.gradient(w, x[chosen], y[chosen]), place + batch
    return marks, torch.stack(losses)


@experiment(
    "gd-variants",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_gd_variants,
    quick=dict(data="digits", most=1280, batch=32, seeds=4, rates=(1.0, 0.5, 0.05), updates=(300, 1500, 4000), draws=600),
    full=dict(data="mnist", most=57_600, batch=128, seeds=8, rates=(0.3, 0.1, 0.005), updates=(1000, 4500, 57_600), draws=600),
    uses=("cuda",),
)
def gd_variants(size: Size) -> Result:
    """Batch, stochastic and mini-batch gradient descent on real data."""
    device = size.device.torch
    x, y, name, notes = softmax.real_data(size.data, device, most=size.most)
    n = len(x) // size.batch * size.batch
    x, y = x[:n], y[:n]
    variants = dict(zip(("batch", "mini-batch", "stochastic"), (n, size.batch, 1), strict=True))

    # The noise of a gradient, at a point on the way: |g_B − g|² / |g|², over draws and against the formula.
    w = torch.zeros(x.shape[1], 10, device=device)
    for _ in range(20):
        w = w - size.rates[0] * softmax.gradient(w, x, y)
    true = softmax.gradient(w, x, y)
    errors = torch.softmax(x @ w, -1) - y  # a sample's gradient is the outer product of x and its error
    scatter = ((x.square().sum(1) * errors.square().sum(1)).mean() - true.square().sum()).item()  # E|g_i − g|²
    made = torch.Generator().manual_seed(0)
    noise, noise_theory = {}, {}
    for variant, size_of_batch in variants.items():
        picks = torch.stack([torch.randperm(n, generator=made)[:size_of_batch] for _ in range(size.draws)]).to(device)
        if size_of_batch == n:
            got = softmax.gradient(w, x[picks[0]], y[picks[0]])[None]
        else:
            got = softmax.gradient(w, x[picks], y[picks])
        noise[variant] = ((got - true).square().sum((1, 2)).mean() / true.square().sum()).item()
        noise_theory[variant] = scatter / true.square().sum().item() / size_of_batch * (n - size_of_batch) / (n - 1)

    x64, y64, w64 = x.double(), y.double(), w.double()
    parts = softmax.gradient(w64, x64.view(-1, size.batch, x.shape[1]), y64.view(-1, size.batch, 10))
    whole = softmax.gradient(w64, x64, y64)
    mean_apart = ((parts.mean(0) - whole).norm() / whole.norm()).item()

    rows, curves = [], {}
    for (variant, b), lr, updates in zip(variants.items(), size.rates, size.updates, strict=True):
        marks, losses = _train(x, y, b, lr, updates, 1 if b == n else size.seeds)
        cut_x, cut_y = x[:b], y[:b]
        cost = measure(lambda cx=cut_x, cy=cut_y, lr=lr: w - lr * softmax.gradient(w, cx, cy), samples=7)
        losses = losses.double().cpu()
        curves[variant] = {
            "samples": [mark * b for mark in marks],
            "seconds": [mark * cost.seconds for mark in marks],
            "low": losses.amin(1).tolist(),
            "median": losses.median(1).values.tolist(),
            "high": losses.amax(1).tolist(),
        }
        rows.append(
            {
                "variant": variant,
                "batch": b,
                "learning rate": lr,
                "noise |g_B − g|² / |g|²": noise[variant],
                "by formula": noise_theory[variant],
                "one update, µs": cost.seconds * 1e6,
                "one sample, µs": cost.seconds / b * 1e6,
                "updates per epoch": n // b,
            }
        )

    gpu_note = [] if size.device.is_cuda else [GPU_NOTE]

    def reach(variant: str, axis: str, level: float) -> float:
        """How many samples or seconds until the median loss is at most `level`."""
        curve = curves[variant]
        return next((a for a, value in zip(curve[axis], curve["median"], strict=True) if value <= level), math.inf)

    level = 0.5
    for row in rows:
        row[f"samples to loss {level}"] = reach(row["variant"], "samples", level)
        row[f"seconds to loss {level}"] = reach(row["variant"], "seconds", level)
    cost = {row["variant"]: row for row in rows}
    quick = min(rows, key=lambda row: row[f"seconds to loss {level}"])["variant"]
    return Result(
        rows,
        claims=[
            Claim(
                "The mean of an epoch's mini-batch gradients at one point is the batch gradient",
                mean_apart < 1e-12,
                f"{mean_apart:.1e} apart in float64",
            ),
            Claim(
                "The noise of a batch of B out of N is σ²/B · (N − B)/(N − 1): measured over draws, within a fifth",
                all(abs(noise[v] - noise_theory[v]) <= 0.2 * noise_theory[v] + 1e-9 for v in variants),
                ", ".join(f"{v} {noise[v]:.2e} ({noise_theory[v]:.2e})" for v in variants),
            ),
            Claim(
                "To the same loss, batch gradient descent needs the most samples",
                reach("batch", "samples", level) > 2 * max(reach(v, "samples", level) for v in ("mini-batch", "stochastic")),
                ", ".join(f"{v} {reach(v, 'samples', level):.0f}" for v in variants),
            ),
            Claim(
                "One update on the whole batch costs more than one on a single sample",
                cost["batch"]["one update, µs"] > cost["stochastic"]["one update, µs"],
                f"{cost['batch']['one update, µs'] / cost['stochastic']['one update, µs']:.1f} times",
                exact=False,
            ),
            Claim(
                "A sample costs more in a stochastic update than in a batch",
                cost["stochastic"]["one sample, µs"] > cost["batch"]["one sample, µs"],
                f"{cost['stochastic']['one sample, µs'] / cost['batch']['one sample, µs']:.0f} times",
                exact=False,
            ),
            Claim(f"Mini-batches reach loss {level} in the fewest seconds", quick == "mini-batch", quick, exact=False),
        ],
        quantities={
            "stochastic noise over mini-batch noise": noise["stochastic"] / noise["mini-batch"],
            "stochastic cost per sample over batch cost per sample": cost["stochastic"]["one sample, µs"]
            / cost["batch"]["one sample, µs"],
        },
        notes=notes
        + gpu_note
        + [f"Softmax regression on {n} samples of {name}; seconds are updates × the measured cost of one."],
        arrays={"curves": curves, "level": level},
    )


# ---- learning-rate -----------------------------------------------------------------------------------------


def bisect(diverges: Callable[[float], bool], low: float, high: float, rounds: int) -> float:
    """The learning rate between `low`, which converges, and `high`, which diverges, where it turns."""
    if diverges(low) or not diverges(high):
        raise ValueError(f"the boundary is not between {low} and {high}")
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (low, middle) if diverges(middle) else (middle, high)
    return (low + high) / 2


def _moves_away(surface, lr: float, steps: int = 100) -> bool:
    """True where `steps` steps of gradient descent lead away from the minimum along y."""
    return abs(path(surface, "gradient_descent", steps, (0.0, 1.0), lr=lr)[-1][1]) > 1


def drop_by_ten(first: int, then: int) -> Callable[[int], float]:
    """The lecture's schedule: the rate drops by 10 after `first` steps and again after `then` more."""

    def factor(t: int) -> float:
        return 1.0 if t <= first else 0.1 if t <= first + then else 0.01

    return factor


def schedules(steps: int) -> dict[str, Callable[[int], float]]:
    """Four schedules as formulas: step t, from 1, -> factor on the learning rate."""
    n = steps * 2 // 5

    def one_cycle(t: int) -> float:
        # torch's defaults: up from 1/25 in the first 30 % of the run, down to 1/250 000, both along a cosine.
        up, low, end = 0.3 * steps - 1, 1 / 25, 1 / 25 / 1e4
        i = t - 1
        if i <= up:
            return 1 + (low - 1) * (1 + math.cos(math.pi * i / up)) / 2
        return end + (1 - end) * (1 + math.cos(math.pi * (i - up) / (steps - 1 - up))) / 2

    return {
        "constant": lambda t: 1.0,
        "drop by 10 twice": drop_by_ten(n, n),
        "cosine": lambda t: (1 + math.cos(math.pi * (t - 1) / steps)) / 2,
        "one-cycle": one_cycle,
    }


def torch_schedules(steps: int, lr: float) -> dict[str, Callable]:
    """The same four by torch.optim.lr_scheduler: optimizer -> scheduler."""
    from torch.optim import lr_scheduler as by_torch

    n = steps * 2 // 5
    return {
        "constant": lambda o: by_torch.ConstantLR(o, factor=1.0),
        "drop by 10 twice": lambda o: by_torch.MultiStepLR(o, milestones=[n, 2 * n], gamma=0.1),
        "cosine": lambda o: by_torch.CosineAnnealingLR(o, T_max=steps),
        "one-cycle": lambda o: by_torch.OneCycleLR(o, max_lr=lr, total_steps=steps, cycle_momentum=False),
    }


def _by_scheduler(surface, make: Callable, steps: int, lr: float) -> tuple[list[float], list[list[float]]]:
    """Rates and points of this package's SGD under one of torch's schedulers."""
    theta = torch.tensor(surface.start, dtype=torch.float64, requires_grad=True)
    optimizer = twin("gradient_descent", [theta], lr=lr)
    scheduler = make(optimizer)
    rates, points = [], [theta.tolist()]
    for t in range(1, steps + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        theta.grad = torch.stack(surface.seen_gradient(*theta.detach(), t))
        optimizer.step()
        if t < steps:  # a step beyond its end is an error in OneCycleLR
            scheduler.step()
        points.append(theta.tolist())
    return rates, points


def _real_boundary(size: Size) -> dict:
    """Gradient descent on softmax regression with real data: λmax, the boundary by bisection, and a sweep from W = 0."""
    x, y, name, notes = softmax.real_data(size.data, size.device.torch, torch.float64, size.samples)
    best = softmax.minimum(x, y, size.decay)
    eigenvalue, direction, residual = softmax.largest_eigenvalue(best, x, y, size.decay)
    theory, lowest = 2 / eigenvalue, softmax.loss(best, x, y, size.decay)

    def run(w: torch.Tensor, lr, steps: int) -> torch.Tensor:
        for _ in range(steps):
            w = w - lr * softmax.gradient(w, x, y, size.decay)
        return w

    def moves_away(lr: float) -> bool:
        along = (run(best + 1e-6 * direction, lr, size.real_steps) - best).mul(direction).sum().abs().item()
        return not along <= 1e-6

    measured = bisect(moves_away, 0.5 * theory, 2 * theory, 11)
    ratios = torch.cat([torch.logspace(-2, -0.15, 9), torch.linspace(0.8, 1.2, 9), torch.linspace(1.3, 3, 6)])
    rates = (ratios * theory).to(x)[:, None, None]
    ends = softmax.loss(run(torch.zeros(len(ratios), *best.shape).to(x), rates, 3 * size.real_steps), x, y, size.decay)
    at_start = softmax.largest_eigenvalue(torch.zeros_like(best), x, y, size.decay)[0]
    return {
        "name": name,
        "notes": notes,
        "eigenvalue": eigenvalue,
        "residual": residual,
        "theory": theory,
        "measured": measured,
        "at_start": at_start,
        "ratios": ratios.tolist(),
        "excess": (ends - lowest).clamp(min=1e-16).tolist(),
        "steps": 3 * size.real_steps,
    }


@experiment(
    "learning-rate",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_learning_rate,
    quick=dict(conditions=(2, 25, 400), steps=400, seeds=24, lr=0.4, data="digits", samples=500, decay=0.01, real_steps=120),
    full=dict(conditions=(2, 25, 400), steps=4000, seeds=64, lr=0.4, data="mnist", samples=10_000, decay=0.05, real_steps=400),
)
def learning_rate(size: Size) -> Result:
    """The learning rate: too small, too large, the boundary between, and schedules."""
    rows, worst = [], 0.0
    for condition in size.conditions:
        surface = quadratic(condition)
        theory = 2 / surface.eigenvalues[1]
        measured = bisect(lambda lr, s=surface: _moves_away(s, lr), 0.5 * theory, 2 * theory, 50)
        worst = max(worst, abs(measured / theory - 1))
        rows.append(_boundary_row(f"quadratic, κ = {condition}", surface.eigenvalues[1], theory, measured))
    real = _real_boundary(size)
    rows.append(_boundary_row(f"softmax regression, {real['name']}", real["eigenvalue"], real["theory"], real["measured"]))

    # The sweep on the quadratic with κ = 25: one batched program over the rates, and four paths to look at.
    bowl = SURFACES["quadratic"]
    edge = 2 / bowl.eigenvalues[1]
    factors = torch.logspace(-3, math.log10(1.3), 60, dtype=torch.float64)
    swept = run_grid(bowl, "gradient_descent", 100, lr=factors * edge, dtype=torch.float64)
    losses = bowl.value(swept.x, swept.y)
    kinds = {"too small": 0.03, "good": 0.9, "oscillates": 0.99, "diverges": 1.01}
    paths = {kind: path(bowl, "gradient_descent", 100, lr=factor * edge) for kind, factor in kinds.items()}
    flips = {kind: sum(a[1] * b[1] < 0 for a, b in zip(p, p[1:], strict=False)) for kind, p in paths.items()}
    heights = {kind: [bowl.value(*point) for point in p] for kind, p in paths.items()}

    # Schedules, in the noisy valley: every seed its own noise.
    valley, steps = SURFACES["noisy-valley"], size.steps
    formulas, by_torch = schedules(steps), torch_schedules(steps, size.lr)
    curves, ends, rates_apart, path_apart = {}, {}, 0.0, 0.0
    for name, factor in formulas.items():
        rates, points = _by_scheduler(valley, by_torch[name], steps, size.lr)
        own = [size.lr * factor(t) for t in range(1, steps + 1)]
        rates_apart = max(rates_apart, max(abs(a - b) for a, b in zip(rates, own, strict=True)) / size.lr)
        same = path(valley, "gradient_descent", steps, lr=size.lr, schedule=factor)
        path_apart = max(path_apart, (torch.tensor(points) - torch.tensor(same)).abs().max().item())
        runs = torch.tensor(
            [
                [valley.value(*p) for p in path(valley, "gradient_descent", steps, lr=size.lr, schedule=factor, seed=seed)]
                for seed in range(size.seeds)
            ]
        )
        low, middle, high = runs.quantile(torch.tensor([0.25, 0.5, 0.75]), 0)
        curves[name] = {"rates": own, "low": low.tolist(), "median": middle.tolist(), "high": high.tolist()}
        ends[name] = runs[:, -steps // 20 :].mean().item()
    ratios, excess = real["ratios"], real["excess"]
    return Result(
        rows,
        claims=[
            Claim(
                "On quadratics the rate where gradient descent begins to diverge, found by bisection, is 2/λmax",
                worst < 1e-9,
                f"at most {worst:.0e} off",
            ),
            Claim(
                "Too small a rate is slow: at 0.03 of the boundary 100 steps leave over 1 % of the loss, at 0.9 less than 1e-5",
                heights["too small"][-1] > 0.01 * heights["too small"][0] and heights["good"][-1] < 1e-5 * heights["good"][0],
                f"{heights['too small'][-1] / heights['too small'][0]:.1e}, {heights['good'][-1] / heights['good'][0]:.1e}",
            ),
            Claim(
                "From half the boundary on, gradient descent oscillates: y changes its sign in every step, below it never does",
                flips["oscillates"] == flips["good"] == 100 and flips["too small"] == 0,
                str(flips),
            ),
            Claim(
                "Just above the boundary the loss grows",
                heights["diverges"][-1] > heights["diverges"][0] and heights["oscillates"][-1] < heights["oscillates"][0],
            ),
            Claim(
                "On softmax regression with real data, 2/λmax at the minimum is the boundary too, within 1 %",
                abs(real["measured"] / real["theory"] - 1) < 0.01 and real["residual"] < 1e-6,
                f"{real['measured']:.4f} measured, {real['theory']:.4f} from λmax",
            ),
            Claim(
                "There, started far away, every rate from 0.5 to 0.96 of it comes within 0.001 of the lowest loss, "
                "and no rate above 1.04 does, though none runs to infinity",
                all(e < 1e-3 for r, e in zip(ratios, excess, strict=True) if 0.5 < r < 0.96)
                and all(1e-3 < e < 1e3 for r, e in zip(ratios, excess, strict=True) if r > 1.04),
                f"at 0.95: {excess[ratios.index(min(ratios, key=lambda r: abs(r - 0.95)))]:.1e}, largest {max(excess):.1f}",
            ),
            Claim(
                "torch's schedulers on this package's SGD set the rates that the formulas give",
                rates_apart < 1e-12,
                f"{rates_apart:.0e} of the first rate",
            ),
            Claim("… and the paths are those of the plain formula", path_apart < 1e-9, f"at most {path_apart:.0e} apart"),
            Claim(
                "With noisy gradients a constant rate stays at a higher loss than any of the three schedules, over all seeds",
                ends["constant"] > 3 * max(value for name, value in ends.items() if name != "constant"),
                ", ".join(f"{name} {value:.1e}" for name, value in ends.items()),
            ),
        ],
        quantities={
            "boundary × λmax, quadratic": rows[0]["boundary measured"] * rows[0]["λmax"],
            "boundary × λmax, real data": real["measured"] * real["eigenvalue"],
            "λmax at the start over λmax at the minimum, real data": real["at_start"] / real["eigenvalue"],
        },
        notes=real["notes"],
        arrays={
            "factors": factors.tolist(),
            "losses": losses.tolist(),
            "loss_at_start": bowl.value(*bowl.start),
            "heights": heights,
            "kinds": kinds,
            "schedules": curves,
            "real": {"name": real["name"], "ratios": ratios, "excess": excess, "steps": real["steps"]},
        },
    )


def _boundary_row(problem: str, eigenvalue: float, theory: float, measured: float) -> dict:
    return {
        "problem": problem,
        "λmax": eigenvalue,
        "2 / λmax": theory,
        "boundary measured": measured,
        "measured / theory": measured / theory,
    }


# ---- momentum ----------------------------------------------------------------------------------------------


def _length(points: list[tuple[float, float]], surface) -> int | None:
    """Steps until the loss stays below a millionth of the first."""
    heights = [surface.value(*point) for point in points]
    return _steps_until(heights, 1e-6 * heights[0])


def _map_arrays(found, every: int) -> dict:
    """A stability map for the figure, thinned to every so many cells."""
    return {
        "lr": (found.lr[0] * found.largest).tolist()[::every],
        "momentum": found.momentum[:, 0].tolist()[::every],
        "measured": found.measured[::every, ::every].clamp(0, 1.5).tolist(),
        "theory": found.theory[::every, ::every].clamp(0, 1.5).tolist(),
        "boundary": [largest_stable_rate(found.kind, m, 1.0) for m in found.momentum[:, 0].tolist()[::every]],
    }


def _apart(a: list, b: list) -> float:
    """The largest distance of two paths, over the largest coordinate."""
    a, b = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    return ((a - b).abs().max() / b.abs().max()).item()


def _ten_times_less(t: int) -> float:
    return 1.0 if t <= 150 else 0.1


@experiment(
    "momentum",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_momentum,
    quick=dict(conditions=(25, 100, 1000), cells=200, steps=600),
    full=dict(conditions=(25, 100, 1000, 10_000), cells=300, steps=600),
    lecture_says={"momentum γ": "0.9"},
)
def momentum(size: Size) -> Result:
    """Momentum in an ill-conditioned valley: fewer steps, where it converges, and two ways to write it."""
    rows, ratios = [], {}
    for condition in size.conditions:
        surface = quadratic(condition)
        for name in ("gradient descent", "momentum"):
            best = best_settings(*surface.eigenvalues)[name]
            points = path(surface, "momentum", 12 * condition, lr=best.lr, momentum=best.momentum)
            rows.append(
                {
                    "surface": f"quadratic, κ = {condition}",
                    "rule": name,
                    "learning rate": best.lr,
                    "momentum γ": best.momentum,
                    "rate by theory": best.rate,
                    "steps to a millionth of the loss": _length(points, surface),
                }
            )
        slow, fast = (row["steps to a millionth of the loss"] for row in rows[-2:])
        ratios[condition] = slow / fast

    # The valley to look at, at one rate for all.
    valley = quadratic(25)
    looked_at = {
        "γ = 0": path(valley, "momentum", 60, lr=0.07, momentum=0.0),
        "γ = 0.5": path(valley, "momentum", 60, lr=0.07, momentum=0.5),
        "γ = 0.9": path(valley, "momentum", 60, lr=0.07, momentum=0.9),
    }
    turns = {name: sum(a[1] * b[1] < 0 for a, b in zip(p, p[1:], strict=False)) for name, p in looked_at.items()}

    found = stability_map("momentum", 25, size.cells, size.steps, device=size.device.torch)
    errors = found.errors
    row, column = divmod(int(found.measured.argmin()), size.cells)
    fastest = {"lr": found.lr[0, column].item(), "momentum": found.momentum[row, 0].item()}
    theory = best_settings(1.0, 25.0)["momentum"]

    # The lecture's form against torch's, on a surface that is no quadratic.
    hill = SURFACES["rosenbrock"]
    setting = {"lr": 2e-4, "momentum": 0.9}
    constant = [path(hill, name, 300, **setting) for name in ("lecture_momentum", "momentum")]
    changed = [path(hill, name, 300, schedule=_ten_times_less, **setting) for name in ("lecture_momentum", "momentum")]
    before = _apart(*(p[:151] for p in changed))
    return Result(
        rows,
        claims=[
            Claim(
                "Each at its best, momentum needs fewer steps than gradient descent, and the more so the longer the valley",
                all(ratio > 2 for ratio in ratios.values()) and list(ratios.values()) == sorted(ratios.values()),
                ", ".join(f"κ = {condition}: {ratio:.1f} times fewer" for condition, ratio in ratios.items()),
            ),
            Claim(
                "With momentum the path keeps its direction longer: at one rate, y changes its sign less often",
                turns["γ = 0"] > turns["γ = 0.5"] > turns["γ = 0.9"],
                str(turns),
            ),
            Claim(
                "The map diverges where α λmax > 2 (1 + γ) and nowhere else, in at least 99.97 % of the cells",
                found.agreeing >= 0.99975 * found.cells,
                f"{found.agreeing} of {found.cells}",
            ),
            Claim(
                "The measured rate is the spectral radius of the update matrix: median error below 1e-6, 95 % below 0.3 %",
                errors.median().item() < 1e-6 and errors.quantile(0.95).item() < 3e-3,
                f"median {errors.median().item():.0e}, 95 % below {errors.quantile(0.95).item():.1e}",
            ),
            Claim(
                "The fastest cell of the map is Polyak's setting, within 5 % of the rate and 0.05 of γ",
                abs(fastest["lr"] / theory.lr - 1) < 0.05 and abs(fastest["momentum"] - theory.momentum) < 0.05,
                f"α = {fastest['lr']:.4f} ({theory.lr:.4f}), γ = {fastest['momentum']:.3f} ({theory.momentum:.3f})",
            ),
            Claim(
                "At a constant rate the lecture's form (rate inside v) and torch's (outside) take the same steps",
                _apart(*constant) < 1e-12,
                f"{_apart(*constant):.0e} apart after 300 steps",
            ),
            Claim(
                "Once the rate drops by 10 they part",
                before < 1e-12 and _apart(*changed) > 1e-3,
                f"{before:.0e} before the drop, {_apart(*changed):.1e} after it",
            ),
        ],
        quantities={
            "momentum γ": fastest["momentum"],
            "times fewer steps with momentum, κ = 1000": ratios[1000],
            "κ for which γ = 0.9 is best": ((1 + math.sqrt(0.9)) / (1 - math.sqrt(0.9))) ** 2,
        },
        arrays={
            "paths": looked_at,
            "map": _map_arrays(found, max(1, size.cells // 100)),
            "best": [theory.lr * 25, theory.momentum],
            "forms": {"constant rate": _distances(*constant), "rate / 10 after step 150": _distances(*changed)},
        },
    )


def _distances(a: list, b: list) -> list[float]:
    return [max(1e-17, math.dist(p, q)) for p, q in zip(a, b, strict=True)]


# ---- nesterov ----------------------------------------------------------------------------------------------


def two_vectors(surface, steps: int, lr: float, momentum: float) -> dict[str, dict[str, list[float]]]:
    """The arrows of step `steps` + 1, from where classical momentum has come after `steps` steps.

    Each rule from the same θ and v: the momentum step −γ v, the gradient step −α g (classical: g at θ; Nesterov: at
    θ − γ v), and their sum.
    """
    rule, x, y = FORMULAS["lecture_momentum"], *surface.start
    sx, sy = rule.start(x), rule.start(y)
    for t in range(1, steps + 1):
        gx, gy = surface.gradient(x, y)
        x = rule.step(x, gx, sx, t, lr=lr, momentum=momentum)
        y = rule.step(y, gy, sy, t, lr=lr, momentum=momentum)
    carried = (-momentum * sx.v, -momentum * sy.v)
    arrows = {}
    for name, (px, py) in (("classical momentum", (x, y)), ("Nesterov", (x + carried[0], y + carried[1]))):
        gx, gy = surface.gradient(px, py)
        pull = (-lr * gx, -lr * gy)
        arrows[name] = {
            "from": [x, y],
            "momentum step": list(carried),
            "gradient step": list(pull),
            "whole step": [carried[0] + pull[0], carried[1] + pull[1]],
        }
    return arrows


@experiment(
    "nesterov",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_nesterov,
    quick=dict(steps=300, cells=200, lr=0.04, momentum=0.9),
    full=dict(steps=3000, cells=300, lr=0.04, momentum=0.9),
    lecture_says={"momentum γ": "0.9"},
)
def nesterov(size: Size) -> Result:
    """Nesterov momentum: look ahead first, then correct."""
    valley = quadratic(25)
    setting = {"lr": size.lr, "momentum": size.momentum}
    arrows = two_vectors(valley, 4, **setting)
    stepped = {
        "classical momentum": path(valley, "lecture_momentum", 5, **setting)[-1],
        "Nesterov": _one_step_after(valley, 4, **setting),
    }
    sums = max(
        math.dist([a + b for a, b in zip(one["from"], one["whole step"], strict=True)], stepped[name])
        for name, one in arrows.items()
    )

    # The lecture's look-ahead point θ − γ v is torch's θ, step for step.
    hill = SURFACES["rosenbrock"]
    fine = {"lr": 2e-4, "momentum": 0.9}
    constant = _look_ahead_points(hill, size.steps, None, **fine), path(hill, "nesterov", size.steps, **fine)
    changed = (
        _look_ahead_points(hill, size.steps, _ten_times_less, **fine),
        path(hill, "nesterov", size.steps, schedule=_ten_times_less, **fine),
    )

    # Sutskever's Theorem 2.1: on an eigendirection, Nesterov is classical momentum with γ (1 − α λ).
    theorem = {}
    for gamma in (0.5, 0.9, 0.99):
        ahead = path(valley, "lecture_nesterov", size.steps, lr=size.lr / 2, momentum=gamma)
        eigen = torch.tensor(valley.eigenvalues, dtype=torch.float64)
        classical = _classical_by_direction(valley, size.steps, size.lr / 2, gamma * (1 - size.lr / 2 * eigen))
        theorem[gamma] = _apart(ahead, classical.tolist())

    races = {
        name: path(valley, rule, size.steps, **setting)
        for name, rule in (("classical momentum", "momentum"), ("Nesterov", "nesterov"))
    }
    rows = []
    maps = {}
    for name, kind in (("classical momentum", "momentum"), ("Nesterov", "nesterov")):
        found = maps[name] = stability_map(kind, 25, size.cells, device=size.device.torch)
        rows.append(
            {
                "rule": name,
                "steps to a millionth of the loss": _length(races[name], valley),
                "sign changes of y": sum(a[1] * b[1] < 0 for a, b in zip(races[name], races[name][1:], strict=False)),
                "largest stable α λmax": largest_stable_rate(kind, size.momentum, 1.0),
                "cells that agree with theory": found.agreeing,
                "cells": found.cells,
                "best rate on the map": found.measured.min().item(),
                "best rate by theory": best_settings(1.0, 25.0)["momentum" if kind == "momentum" else "Nesterov, tuned"].rate,
            }
        )
    plain, ahead = rows
    worst = max(theorem.values())
    return Result(
        rows,
        claims=[
            Claim("The arrows of the figure add up to the steps that the two rules take", sums < 1e-12, f"{sums:.0e}"),
            Claim(
                "The lecture's look-ahead point θ − γ v is torch's θ, step for step, at a constant rate",
                _apart(*constant) < 1e-12,
                f"{_apart(*constant):.0e} apart",
            ),
            Claim(
                "Once the rate drops by 10 the two forms part",
                _apart(*(p[:151] for p in changed)) < 1e-12 and _apart(*changed) > 1e-3,
                f"{_apart(*changed):.1e} apart",
            ),
            Claim(
                "Theorem 2.1 of Sutskever et al.: on an eigendirection Nesterov is classical momentum with γ (1 − α λ)",
                worst < 1e-12,
                f"{worst:.0e} apart",
            ),
            Claim(
                "At the same α and γ, Nesterov arrives in fewer steps and turns back less often",
                ahead["steps to a millionth of the loss"] < plain["steps to a millionth of the loss"]
                and ahead["sign changes of y"] < plain["sign changes of y"],
                f"{ahead['steps to a millionth of the loss']} and {plain['steps to a millionth of the loss']} steps",
            ),
            Claim(
                "Nesterov's boundary is α λmax = 2 (1 + γ) / (1 + 2γ), and at least 99.97 % of the cells agree with it",
                ahead["cells that agree with theory"] >= 0.99975 * ahead["cells"],
                f"{ahead['cells that agree with theory']} of {ahead['cells']}",
            ),
            Claim(
                "Its stable region is smaller, and on this quadratic its best rate is slower than heavy ball's",
                ahead["largest stable α λmax"] < plain["largest stable α λmax"]
                and ahead["best rate on the map"] > plain["best rate on the map"],
                f"{ahead['best rate on the map']:.3f} and {plain['best rate on the map']:.3f} per step",
            ),
        ],
        quantities={"momentum γ": size.momentum, "steps, Nesterov over classical": _ratio(ahead, plain)},
        arrays={
            "arrows": arrows,
            "races": {name: points[:101] for name, points in races.items()},
            "heights": {name: [max(1e-16, valley.value(*p)) for p in points[:151]] for name, points in races.items()},
            "map": _map_arrays(maps["Nesterov"], max(1, size.cells // 100)),
        },
    )


def _ratio(ahead: dict, plain: dict) -> float:
    return ahead["steps to a millionth of the loss"] / plain["steps to a millionth of the loss"]


def _one_step_after(surface, steps: int, lr: float, momentum: float) -> tuple[float, float]:
    """Where Nesterov's rule goes from the θ and v that classical momentum has after `steps` steps."""
    rule, ahead, x, y = FORMULAS["lecture_momentum"], FORMULAS["lecture_nesterov"], *surface.start
    sx, sy, setting = rule.start(x), rule.start(y), {"lr": lr, "momentum": momentum}
    for t in range(1, steps + 1):
        gx, gy = surface.gradient(x, y)
        x, y = rule.step(x, gx, sx, t, **setting), rule.step(y, gy, sy, t, **setting)
    gx, gy = surface.gradient(ahead.gradient_point(x, sx, **setting), ahead.gradient_point(y, sy, **setting))
    return ahead.step(x, gx, sx, steps + 1, **setting), ahead.step(y, gy, sy, steps + 1, **setting)


def _look_ahead_points(surface, steps: int, schedule, lr: float, momentum: float) -> list[tuple[float, float]]:
    """The points θ − γ v of the lecture's form, after each step."""
    rule, x, y = FORMULAS["lecture_nesterov"], *surface.start
    sx, sy = rule.start(x), rule.start(y)
    points = [(x, y)]
    for t in range(1, steps + 1):
        setting = {"lr": lr * (schedule(t) if schedule else 1.0), "momentum": momentum}
        gx, gy = surface.gradient(*points[-1])
        x, y = rule.step(x, gx, sx, t, **setting), rule.step(y, gy, sy, t, **setting)
        points.append((rule.gradient_point(x, sx, **setting), rule.gradient_point(y, sy, **setting)))
    return points


def _classical_by_direction(surface, steps: int, lr: float, momentum: torch.Tensor) -> torch.Tensor:
    """The path (steps + 1, 2) of the lecture's momentum with a γ of its own for each direction."""
    rule, theta = FORMULAS["lecture_momentum"], torch.tensor(surface.start, dtype=torch.float64)
    state, points = rule.start(theta), [theta]
    for t in range(1, steps + 1):
        theta = rule.step(theta, torch.stack(surface.gradient(*theta)), state, t, lr=lr, momentum=momentum)
        points.append(theta)
    return torch.stack(points)


# ---- saddle-and-minima -------------------------------------------------------------------------------------


def _best_of_sweep(surface, name: str, steps: int, rates: int, device: torch.device) -> dict:
    """Run one optimizer at many rates as one program, and tell of the rate whose last loss is lowest."""
    low, high = (-3, 2.5) if name == "adadelta" else (-5, 0)  # Adadelta's own steps start tiny
    lr = torch.logspace(low, high, rates, dtype=torch.float64)
    grid = run_grid(surface, name, steps, lr=lr, dtype=torch.float64, device=device)
    values = surface.value(grid.x, grid.y).nan_to_num(nan=math.inf, posinf=math.inf, neginf=math.inf)
    cell = int(values.argmin())
    end = (grid.x[cell].item(), grid.y[cell].item())
    lowest = surface.value(*surface.minima[0])
    distances = [math.dist(end, minimum) for minimum in surface.minima]
    near = min(range(len(distances)), key=distances.__getitem__)
    return {
        "surface": surface.name,
        "optimizer": FORMULAS[name].title,
        "learning rate": lr[cell].item(),
        "loss above the minimum": values[cell].item() - lowest,
        "ends at": f"({surface.minima[near][0]:.2f}, {surface.minima[near][1]:.2f})" if distances[near] < 0.05 else "–",
        "distance to it": distances[near],
        "converging rates": int((values - lowest < 1e-2).sum()),
    }


def _basins(name: str, side: int, steps: int, device: torch.device, **hyper) -> tuple[torch.Tensor, torch.Tensor]:
    """Which of Himmelblau's minima (−1: none) is reached from each start (side, side) of the window."""
    surface = SURFACES["himmelblau"]
    grid = _from_everywhere(surface, name, side, steps, device, **hyper)
    distance = torch.stack([torch.hypot(grid.x - a, grid.y - b) for a, b in surface.minima])
    nearest = distance.nan_to_num(nan=math.inf).min(0)
    return nearest.indices.masked_fill(~(nearest.values < 0.3), -1).cpu()


def _from_everywhere(surface, name: str, side: int, steps: int, device: torch.device, **hyper):
    """Run a rule from each point of a side × side raster of the surface's window, as one batched program."""
    x0, x1, y0, y1 = surface.window
    x = torch.linspace(x0, x1, side)[None].expand(side, side)
    y = torch.linspace(y0, y1, side)[:, None].expand(side, side)
    return run_grid(surface, name, steps, (x, y), device=device, **hyper)


# The rules from many starts, each at a rate at which it neither creeps nor diverges.
FROM_MANY = {
    "gradient descent": ("gradient_descent", {"lr": 0.01}, {"lr": 0.002}),
    "momentum": ("momentum", {"lr": 0.01, "momentum": 0.9}, {"lr": 0.002, "momentum": 0.9}),
    "Adam": ("adam", {"lr": 0.3}, {"lr": 0.3}),
}
ESCAPERS = {
    "gradient descent": ("gradient_descent", {"lr": 0.1}),
    "momentum": ("momentum", {"lr": 0.1, "momentum": 0.9}),
    "Nesterov": ("nesterov", {"lr": 0.1, "momentum": 0.9}),
    "Adagrad": ("adagrad", {"lr": 0.1}),
    "RMSprop": ("rmsprop", {"lr": 0.01}),
    "Adam": ("adam", {"lr": 0.1}),
}


def escape_times(starts: torch.Tensor, steps: int, device: torch.device) -> dict[str, list[int | None]]:
    """Steps from (1, y) until |y| > ½, for each start y close to the saddle's ridge and each rule."""
    times = {}
    for title, (name, hyper) in ESCAPERS.items():
        grid = run_grid(
            SURFACES["saddle"], name, steps, (1.0, starts), keep=range(steps + 1), dtype=torch.float64, device=device, **hyper
        )
        away = (grid.kept[:, 1].abs() > 0.5).cpu()
        times[title] = [int(column.int().argmax()) if column.any() else None for column in away.T]
    return times


@experiment(
    "saddle-and-minima",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_saddle_and_minima,
    quick=dict(steps=500, rates=40, side=80, basin_steps=300, escape_steps=400),
    full=dict(steps=5000, rates=100, side=400, basin_steps=1000, escape_steps=2000),
)
def saddle_and_minima(size: Size) -> Result:
    """Saddles and local minima: every surface, every optimizer, many starts."""
    device = size.device.torch
    swept = {
        name: {surface.name: _best_of_sweep(surface, name, size.steps, size.rates, device) for surface in SURFACES.values()}
        for name in TWINS
    }
    rows = [
        {"optimizer": FORMULAS[name].title, **{on: found["loss above the minimum"] for on, found in each.items()}}
        for name, each in swept.items()
    ]
    solved = {name: sum(row[name] < 0.01 for row in rows) for name in SURFACES}

    basins, global_share, ends = {}, {}, {}
    for title, (name, gentle, rough) in FROM_MANY.items():
        basins[title] = _basins(name, size.side, size.basin_steps, device, **gentle)
        grid = _from_everywhere(SURFACES["rastrigin"], name, size.side, size.basin_steps, device, **rough)
        global_share[title] = (torch.hypot(grid.x, grid.y) < 0.3).float().mean().item()
        ends[title] = SURFACES["rastrigin"].value(grid.x, grid.y).cpu()
    reached = {title: (found >= 0).float().mean().item() for title, found in basins.items()}
    elsewhere = (basins["gradient descent"] != basins["momentum"]).float().mean().item()

    decades = list(range(1, 11))
    times = escape_times(torch.tensor([10.0**-k for k in decades], dtype=torch.float64), size.escape_steps, device)
    theory = [math.log(0.5 * 10**k) / math.log(1.1) for k in decades]
    gd = times["gradient descent"]
    off = max(abs(a - b) for a, b in zip(gd, theory, strict=True)) if None not in gd else math.inf
    on_ridge = path(SURFACES["saddle"], "gradient_descent", 1000, (1.0, 0.0), lr=0.1)[-1]
    shaken = path(SURFACES["saddle"], "gradient_descent", 1000, (1.0, 0.0), lr=0.1, noise=1e-3)[-1]
    spread = {title: column[-1] - column[0] for title, column in times.items() if None not in column}
    return Result(
        rows,
        claims=[
            Claim(
                "On the saddle surface every optimizer, at its best rate, reaches a minimum",
                solved["saddle"] == len(TWINS),
                f"{solved['saddle']} of {len(TWINS)}",
            ),
            Claim(
                "From its start, no optimizer at its best rate finds Rastrigin's lowest minimum by going downhill",
                solved["rastrigin"] == 0,
                f"{solved['rastrigin']} of {len(TWINS)} do",
            ),
            Claim(
                "Gradient descent from all over Himmelblau's window ends in one of the four minima, in at least 95 % of starts",
                reached["gradient descent"] >= 0.95 and set(basins["gradient descent"].unique().tolist()) >= {0, 1, 2, 3},
                f"{reached['gradient descent']:.1%}",
            ),
            Claim(
                "The rule decides, too: momentum ends in another minimum than gradient descent from over 5 % of the starts",
                elsewhere > 0.05,
                f"{elsewhere:.1%}",
            ),
            Claim(
                "On Rastrigin's surface fewer than one start in twenty reaches the lowest minimum, by any of the three rules",
                0 < max(global_share.values()) < 0.05,
                ", ".join(f"{title} {share:.1%}" for title, share in global_share.items()),
            ),
            Claim(
                "Near the saddle gradient descent's y grows by 1 + α a step: its time to leave is ln(½ / y) / ln(1 + α), "
                "within 5 steps",
                off <= 5,
                f"at most {off:.1f} steps off",
            ),
            Claim(
                "Started on the ridge itself, gradient descent never leaves it; a little noise sets it free",
                on_ridge[1] == 0 and abs(on_ridge[0]) < 1e-9 and abs(abs(shaken[1]) - 1) < 0.1,
                f"y = {on_ridge[1]} without, {shaken[1]:.3f} with noise",
            ),
            Claim(
                "From a billion times nearer the ridge, gradient descent leaves over 200 steps later, Adam under 50",
                spread.get("gradient descent", 0) > 200 and 0 <= spread.get("Adam", math.inf) < 50,
                ", ".join(f"{title} {later}" for title, later in spread.items()),
            ),
        ],
        quantities={
            "Himmelblau starts that momentum takes elsewhere": elsewhere,
            **{f"Rastrigin starts that end in the lowest minimum, {title}": share for title, share in global_share.items()},
        },
        arrays={
            "basins": {title: found.tolist() for title, found in basins.items()},
            "ends": {title: found.clamp(max=60).nan_to_num(nan=60).tolist() for title, found in ends.items()},
            "decades": decades,
            "escapes": times,
            "theory": theory,
            "sweeps": [found for each in swept.values() for found in each.values()],
        },
    )
