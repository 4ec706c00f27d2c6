"""Grids of trajectories: each cell is the class's own result, whatever happens in the other cells."""

import math

import pytest
import torch

from hpml_lab.landscape import RULES_WITH_CLASS, SURFACES, path, run_grid, torch_equivalent
from hpml_lab.optim.formulas.by_name import FORMULAS

# The hyperparameter on the grid's second axis.
SECOND = {"rmsprop": "alpha", "adadelta": "rho"} | {name: "beta1" for name in ("adam", "adamw", "adamax", "nadam", "radam")}
SECOND |= {"momentum": "momentum", "nesterov": "momentum"}
# torch keeps NAdam's product of momenta in float32, whatever the parameter is; the formula does not.
LOOSE = {"nadam": 1e-6, "radam": 1e-9}  # … and RAdam's ρ is what two numbers near 2000 differ by
CELLS, STEPS, SAMPLED = 12, 150, 6


# Rates for rules that scale the gradient; the others' steps are of the rate's own length.
RATES = {"rosenbrock": 0.001, "beale": 0.02, "himmelblau": 0.012, "saddle": 0.5, "rastrigin": 0.004}


def settings(name, surface="quadratic"):
    top = {"adadelta": 2.0}.get(name) or (
        RATES.get(surface, 0.1) if FORMULAS[name].torch_equivalent in ("SGD", "RAdam") else 0.1
    )
    lr = torch.linspace(top / 100, top, CELLS, dtype=torch.float64)[None]
    if name not in SECOND:
        return {"lr": lr.expand(CELLS, CELLS)}
    return {"lr": lr, SECOND[name]: torch.linspace(0.01, 0.95, CELLS, dtype=torch.float64)[:, None]}


def by_class(surface, name, steps, start, **hyper):
    """The end of one trajectory, stepped by the optimizer class, and the largest coordinate on its way."""
    theta = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer, size = torch_equivalent(name, [theta], **hyper), 0.0
    for t in range(1, steps + 1):
        size = max(size, theta.detach().abs().max().item())
        theta.grad = torch.stack(surface.seen_gradient(*theta.detach(), t))
        optimizer.step()
    return theta.detach(), size


@pytest.mark.parametrize("name", RULES_WITH_CLASS)
@pytest.mark.parametrize("surface", SURFACES.values(), ids=SURFACES)
def test_a_cell_is_what_the_class_gives_to_1e_12(surface, name):
    """Relative to the path's largest coordinate, in the calm cells: those that end within the bound when each gradient is
    moved by a twentieth of it. In the others any two roundings part."""
    hyper = settings(name, surface.name)
    grid = run_grid(surface, name, STEPS, dtype=torch.float64, **hyper)
    bound = LOOSE.get(name, 1e-12)
    shaken = [
        run_grid(surface, name, STEPS, noise=surface.noise + k * bound / 20, dtype=torch.float64, **hyper) for k in (1, -1)
    ]
    chosen = torch.randperm(CELLS * CELLS, generator=torch.Generator().manual_seed(0))[:SAMPLED].tolist()
    calm = 0
    for i, j in (divmod(cell, CELLS) for cell in chosen):
        cell = {key: value.expand(CELLS, CELLS)[i, j].item() for key, value in hyper.items()}
        right, size = by_class(surface, name, STEPS, surface.start, **cell)
        got, *near = (torch.stack((run.x[i, j], run.y[i, j])) for run in (grid, *shaken))
        assert torch.equal(got.isfinite(), right.isfinite())
        if max((end - got).abs().max().item() for end in near) <= bound * size:
            calm += 1
            assert (got - right).abs().max().item() <= bound * size, (i, j, cell)
    assert calm >= SAMPLED // 3


def test_a_cell_that_diverges_stays_alone():
    surface = SURFACES["quadratic"]
    lr = torch.linspace(0.001, 0.5, 50)[None]
    momentum = torch.linspace(0, 0.9, 40)[:, None]
    grid = run_grid(surface, "momentum", 500, lr=lr, momentum=momentum)
    wild = ~(grid.x.isfinite() & grid.y.isfinite())
    assert 0 < wild.sum() < wild.numel() and torch.equal(wild & grid.diverged(), wild)
    for i, j in ((0, 2), (20, 7), (39, 6)):
        alone = run_grid(surface, "momentum", 500, lr=lr[:, j : j + 1], momentum=momentum[i : i + 1])
        assert not wild[i, j] and torch.equal(grid.x[i, j], alone.x[0, 0]) and torch.equal(grid.y[i, j], alone.y[0, 0])


def test_chunks_change_nothing():
    hyper = {"lr": torch.linspace(0.01, 0.3, 9)[None], "beta1": torch.linspace(0, 0.9, 7)[:, None]}
    whole = run_grid(SURFACES["beale"], "adam", 60, keep=(0, 30, 60), **hyper)
    for chunk in (1, 10, 20, 62):
        parts = run_grid(SURFACES["beale"], "adam", 60, keep=(0, 30, 60), chunk=chunk, **hyper)
        assert torch.equal(parts.x, whole.x) and torch.equal(parts.y, whole.y) and torch.equal(parts.kept, whole.kept)


@pytest.mark.parametrize("name", FORMULAS)
def test_one_path_on_floats_is_the_grids(name):
    surface = SURFACES["noisy-valley"]
    points = path(surface, name, 80, lr=0.02, seed=3)
    keep = range(81)
    grid = run_grid(surface, name, 80, keep=keep, lr=torch.tensor([0.02], dtype=torch.float64), seed=3, dtype=torch.float64)
    torch.testing.assert_close(torch.tensor(points, dtype=torch.float64), grid.kept[:, :, 0], rtol=1e-12, atol=1e-12)
    assert points[0] == surface.start and len(set(points)) > 70


def test_a_path_that_diverges_raises_nothing():
    for surface in SURFACES.values():
        for name in RULES_WITH_CLASS:
            end = path(surface, name, 300, lr=50.0)[-1]
            assert all(isinstance(coordinate, float) for coordinate in end)
    assert not math.isfinite(path(SURFACES["quadratic"], "gradient_descent", 500, lr=1.0)[-1][1])


def test_the_start_may_differ_from_cell_to_cell():
    x, y = torch.meshgrid(torch.linspace(-4, 4, 6), torch.linspace(-4, 4, 5), indexing="xy")
    grid = run_grid(SURFACES["himmelblau"], "gradient_descent", 300, (x, y), keep=[0], lr=0.01)
    assert torch.equal(grid.kept[0], torch.stack((x, y)))
    distance = torch.stack([torch.hypot(grid.x - a, grid.y - b) for a, b in SURFACES["himmelblau"].minima]).amin(0)
    assert (distance < 1e-3).float().mean() > 0.9 and len(grid.x.flatten().round(decimals=1).unique()) >= 4


def test_a_schedule_multiplies_the_rate():
    def halved(t):
        return 1.0 if t <= 10 else 0.5

    lr = torch.tensor([0.01, 0.02], dtype=torch.float64)
    surface = SURFACES["quadratic"]
    grid = run_grid(surface, "momentum", 20, keep=(10, 20), lr=lr, schedule=halved, dtype=torch.float64)
    constant = run_grid(surface, "momentum", 20, keep=(10, 20), lr=lr, dtype=torch.float64)
    assert torch.equal(grid.kept[0], constant.kept[0]) and not torch.allclose(grid.kept[1], constant.kept[1])
    assert path(surface, "momentum", 20, lr=0.02, schedule=halved)[-1] == pytest.approx(grid.kept[1, :, 1].tolist())


def test_gradient_mode_threads_and_denormals_are_set_back():
    torch.set_flush_denormal(False)
    threads = torch.get_num_threads()
    run_grid(SURFACES["saddle"], "adam", 3, lr=torch.tensor([0.1]))
    assert torch.is_grad_enabled() and torch.get_num_threads() == threads
    assert (torch.tensor([1e-38]) * 0.01).item() > 0


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="has no beta1"):
        run_grid(SURFACES["saddle"], "momentum", beta1=0.9)
    with pytest.raises(ValueError, match="between 0 and 10"):
        run_grid(SURFACES["saddle"], "momentum", 10, keep=[11])
    with pytest.raises(ValueError, match="no optimizer class"):
        torch_equivalent("lecture_momentum", [torch.zeros(2)])


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_the_gpu_gives_the_same_cells(name):
    hyper = settings(name)
    here, there = (
        run_grid(SURFACES["himmelblau"], name, 50, keep=[20], dtype=torch.float64, device=device, **hyper)
        for device in ("cpu", "cuda")
    )
    assert there.x.is_cuda
    calm = here.x.isfinite() & (here.x.abs() < 10)
    torch.testing.assert_close(there.x.cpu()[calm], here.x[calm], rtol=1e-6, atol=1e-6)
