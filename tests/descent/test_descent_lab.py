"""What notebook 04 answers to its questions about the optimizer lab is what the lab computes."""

import math
from statistics import mean

import pytest
import torch

from hpml_lab.landscape import best_settings
from hpml_lab.landscape.optimizer_lab.details import settings_map
from hpml_lab.landscape.optimizer_lab.lab_paths import run_path, settings, surface_named

BOWL, COLUMNS, ROWS = "quadratic-37", 120, 80
MEMORY = torch.linspace(0, 2.5, 2 * ROWS + 1)[1::2]  # of the map's rows


def steps_needed(lr, momentum, rule="momentum"):
    """The steps until the loss stays below a thousandth of the first; None if the path diverges or takes over 200."""
    bowl = surface_named(BOWL)
    path = run_path(bowl, rule, {"lr": lr, "momentum": momentum} if momentum else {"lr": lr}, bowl.start)
    above = max(t for t, loss in enumerate(path.losses) if loss > 1e-3 * path.losses[0])
    return None if path.end or above == 200 else above + 1


@pytest.mark.parametrize(
    "rule, hyper, converges, diverges",
    [
        ("gradient_descent", {}, 0.054, 0.0541),
        ("momentum", {"momentum": 0.9}, 0.102, 0.103),
        ("nesterov", {"momentum": 0.9}, 0.0366, 0.0368),
    ],
)
def test_the_largest_rates_are_those_of_the_answers(rule, hyper, converges, diverges):
    bowl = surface_named(BOWL)
    ends = [abs(run_path(bowl, rule, hyper | {"lr": lr}, (0.0, 1.0), steps=500).y[-1]) for lr in (converges, diverges)]
    assert ends[0] < 1 < ends[1]


def test_the_fewest_steps_on_the_map_are_inside_the_boundary_and_polyaks_needs_more():
    cells = settings_map(settings(BOWL, "momentum"), COLUMNS, ROWS)
    assert cells[cells > 0].min() == 14 == steps_needed(0.071, 0.593)
    assert 0.071 < 0.85 * 2 * (1 + 0.593) / 37, "well inside"
    polyak = best_settings(1.0, 37.0)["momentum"]
    assert (polyak.lr, polyak.momentum) == (pytest.approx(0.080, abs=5e-4), pytest.approx(0.515, abs=5e-4))
    assert steps_needed(polyak.lr, polyak.momentum) == 21


def test_nesterov_is_better_where_momentum_is_large():
    classical, ahead = (settings_map(settings(BOWL, rule), COLUMNS, ROWS) for rule in ("momentum", "nesterov"))
    better = (ahead > 0) & ((classical <= 0) | (ahead < classical))
    gamma = 1 - 10**-MEMORY
    assert not better[gamma < 0.7].any()
    rates = torch.logspace(math.log10(0.01) - 1.5, math.log10(0.01) + 1.8, 2 * COLUMNS + 1)[1::2]
    row = int((gamma - 0.9).abs().argmin())
    assert better[row][(rates > 0.003) & (rates < 0.0355)].all() and not better[row][rates < 0.0025].any()


def test_no_constant_rate_ends_as_low_as_the_cosine():
    valley = surface_named("noisy-valley")

    def end(lr, schedule="constant"):
        """The mean loss of the last ten of 200 steps, over seeds."""
        runs = [
            run_path(valley, "gradient_descent", {"lr": lr}, valley.start, valley.noise, schedule, 200, s) for s in range(20)
        ]
        return mean(mean(run.losses[-10:]) for run in runs)

    constant = {lr: end(lr) for lr in (0.4, 0.2, 0.1, 0.08, 0.06, 0.04)}
    assert end(0.4, "cosine") < 0.6 * min(constant.values()), constant
    assert min(constant, key=constant.get) in (0.08, 0.1), "below, the path is still on its way"
