"""The experiments of notebook 04 hold what they claim, and their figures can be drawn from a file."""

import math

import pytest
import torch

from hpml_lab.descent import experiments
from hpml_lab.landscape import SURFACES, TWINS, path, quadratic
from hpml_lab.optim.formulas import FORMULAS

NAMES = ["gd_variants", "learning_rate", "momentum", "nesterov", "saddle_and_minima"]


@pytest.fixture(scope="module")
def results():
    return {name: getattr(experiments, name)("quick", device="cpu") for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_sound(results, name, sound):
    sound(results[name])


def test_gd_variants_compares_the_three_in_noise_cost_and_progress(results):
    result = results["gd_variants"]
    rows = {row["variant"]: row for row in result.rows}
    assert list(rows) == ["batch", "mini-batch", "stochastic"] and rows["stochastic"]["batch"] == 1
    noise = {name: row["noise |g_B − g|² / |g|²"] for name, row in rows.items()}
    assert noise["batch"] < 1e-9 < noise["mini-batch"] < noise["stochastic"] / 10
    for name, row in rows.items():
        curve = result.arrays["curves"][name]
        assert curve["samples"][0] == 0 and curve["median"][0] == pytest.approx(math.log(10), abs=1e-5)
        assert curve["median"][-1] < result.arrays["level"] and row["one update, µs"] > 0
        assert all(low <= mid <= high for low, mid, high in zip(curve["low"], curve["median"], curve["high"], strict=True))
    spread = result.arrays["curves"]["stochastic"]
    assert max(high - low for low, high in zip(spread["low"], spread["high"], strict=True)) > 0.01, "seeds differ"


def test_learning_rate_finds_the_boundary_of_each_problem(results):
    result = results["learning_rate"]
    assert [row["λmax"] for row in result.rows[:3]] == [2, 25, 400]
    assert "digits" in result.rows[-1]["problem"]
    for row in result.rows:
        assert row["2 / λmax"] * row["λmax"] == pytest.approx(2)
        assert row["measured / theory"] == pytest.approx(1, abs=0.01)
    assert result.quantities["boundary × λmax, quadratic"] == pytest.approx(2, rel=1e-9)


def test_bisection_wants_a_boundary_between_its_ends():
    assert experiments.bisect(lambda lr: lr > 0.3, 0.1, 1.0, 40) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="not between"):
        experiments.bisect(lambda lr: False, 0.1, 1.0, 40)
    with pytest.raises(ValueError, match="not between"):
        experiments.bisect(lambda lr: True, 0.1, 1.0, 40)


@pytest.mark.parametrize("steps", [20, 250])
@pytest.mark.parametrize("name", ["constant", "drop by 10 twice", "cosine", "one-cycle"])
def test_a_schedules_formula_is_torchs_scheduler(name, steps):
    factor = experiments.schedules(steps)[name]
    made = experiments.torch_schedules(steps, 0.3)[name]
    rates, points = experiments._by_scheduler(SURFACES["noisy-valley"], made, steps, 0.3)
    torch.testing.assert_close(rates, [0.3 * factor(t) for t in range(1, steps + 1)], rtol=1e-10, atol=1e-15)
    assert len(points) == steps + 1
    assert name == "constant" or min(rates) < max(rates) / 20


def test_the_lectures_schedule_drops_after_n_and_again_after_m():
    factor = experiments.drop_by_ten(4, 3)
    assert [factor(t) for t in range(1, 10)] == [1, 1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01]


def test_momentum_rows_give_the_known_counts_and_rates(results):
    rows = results["momentum"].rows
    assert [row["rule"] for row in rows[:2]] == ["gradient descent", "momentum"]
    for plain, fast in zip(rows[::2], rows[1::2], strict=True):
        assert plain["momentum γ"] == 0 and fast["rate by theory"] < plain["rate by theory"]
        # The loss shrinks by rate² per step: a millionth takes ln 10⁻⁶ / (2 ln rate) steps, or some more for two modes.
        assert plain["steps to a millionth of the loss"] == pytest.approx(
            math.log(1e-6) / 2 / math.log(plain["rate by theory"]), rel=0.1
        )


def test_the_nesterov_arrows_differ_only_in_their_gradient(results):
    arrows = results["nesterov"].arrays["arrows"]
    plain, ahead = arrows["classical momentum"], arrows["Nesterov"]
    assert plain["from"] == ahead["from"] and plain["momentum step"] == ahead["momentum step"]
    assert math.dist(plain["gradient step"], ahead["gradient step"]) > 0.1
    surface, corner = quadratic(25), [a + b for a, b in zip(ahead["from"], ahead["momentum step"], strict=True)]
    assert ahead["gradient step"] == pytest.approx([-0.04 * g for g in surface.gradient(*corner)])


def test_every_surface_meets_every_optimizer_that_has_a_class(results):
    rows, sweeps = results["saddle_and_minima"].rows, results["saddle_and_minima"].arrays["sweeps"]
    assert [row["optimizer"] for row in rows] == [FORMULAS[name].title for name in TWINS] and len(rows) == 10
    assert all(set(row) == {"optimizer", *SURFACES} for row in rows)
    assert len(sweeps) == 70
    for one in sweeps:
        assert (one["ends at"] != "–") == (one["distance to it"] < 0.05)
        if one["surface"] != "noisy-valley":
            name = next(name for name in TWINS if FORMULAS[name].title == one["optimizer"])
            end = path(SURFACES[one["surface"]], name, 20, lr=one["learning rate"])[-1]
            assert all(math.isfinite(x) for x in end), "the best rate does not diverge at once"


def test_escape_times_follow_the_distance_to_the_ridge(results):
    times = results["saddle_and_minima"].arrays["escapes"]
    plain = times["gradient descent"]
    assert plain == sorted(plain) and len(plain) == 10
    assert plain[-1] - plain[0] == pytest.approx(9 * math.log(10) / math.log(1.1), abs=6)
    assert times["momentum"][-1] < plain[-1] / 2


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_exact_claims_hold_on_a_gpu(name):
    result = getattr(experiments, name)("quick", device="cuda")
    assert [(claim.text, claim.measured) for claim in result.claims if claim.exact and not claim.holds] == []
