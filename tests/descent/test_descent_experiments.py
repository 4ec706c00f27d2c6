"""The experiments of notebook 04 hold what they claim, and their figures can be drawn from a file."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from hpml_lab.core.timing import Timing
from hpml_lab.descent import experiments
from hpml_lab.landscape import SURFACES, TWINS, path, quadratic
from hpml_lab.landscape.stability import StabilityMap, best_settings
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


def test_the_seconds_of_gd_variants_are_updates_times_the_cost_of_one(monkeypatch):
    costs = {"batch": 8e-3, "mini-batch": 2e-4, "stochastic": 1e-4}  # seconds of an update
    asked = iter(costs.values())
    monkeypatch.setattr(experiments, "measure", lambda work, **_: Timing((next(asked),) * 3, 1))
    small = replace(
        experiments.gd_variants,
        quick=experiments.gd_variants.quick | dict(most=640, seeds=2, updates=(90, 300, 900), rates=(1.0, 0.5, 0.05), draws=20),
    )
    result = small("quick", device="cpu")
    fewest = {}
    for row, batch in zip(result.rows, (640, 32, 1), strict=True):
        name, curve = row["variant"], result.arrays["curves"][row["variant"]]
        updates = [seen / batch for seen in curve["samples"]]
        assert (row["batch"], row["updates per epoch"]) == (batch, 640 // batch) and updates[:3] == [0, 1, 2]
        assert curve["seconds"] == pytest.approx([one * costs[name] for one in updates])
        assert row["one update, µs"] == pytest.approx(1e6 * costs[name])
        assert row["one sample, µs"] == pytest.approx(1e6 * costs[name] / batch)
        first = next(place for place, loss in enumerate(curve["median"]) if loss <= 0.5)
        assert row["samples to loss 0.5"] == curve["samples"][first]
        assert row["seconds to loss 0.5"] == curve["seconds"][first]
        fewest[name] = curve["seconds"][first]
    noise = [row["noise |g_B − g|² / |g|²"] for row in result.rows]
    assert result.quantities["stochastic noise over mini-batch noise"] == noise[2] / noise[1]
    assert result.quantities["stochastic cost per sample over batch cost per sample"] == pytest.approx(1e-4 / (8e-3 / 640))
    assert result.claims[-1].measured == min(fewest, key=fewest.get)


def test_learning_rate_finds_the_boundary_of_each_problem(results):
    result = results["learning_rate"]
    assert [row["λmax"] for row in result.rows[:3]] == [2, 25, 400]
    assert "digits" in result.rows[-1]["problem"]
    for row in result.rows:
        assert row["2 / λmax"] * row["λmax"] == pytest.approx(2)
        assert row["measured / theory"] == pytest.approx(1, abs=0.01)
    assert result.quantities["boundary × λmax, quadratic"] == pytest.approx(2, rel=1e-9)


def test_the_curves_of_learning_rate_are_medians_and_the_real_sweep_tells_its_steps(results):
    result = results["learning_rate"]
    size, arrays = result.experiment.quick, result.arrays
    valley, factor = SURFACES["noisy-valley"], experiments.schedules(size["steps"])["cosine"]
    runs = sorted(
        valley.value(*path(valley, "gradient_descent", size["steps"], lr=size["lr"], schedule=factor, seed=seed)[-1])
        for seed in range(size["seeds"])
    )
    curve = arrays["schedules"]["cosine"]
    assert curve["median"][-1] == pytest.approx((runs[11] + runs[12]) / 2, rel=1e-4)
    assert runs[5] <= curve["low"][-1] <= runs[6] and runs[17] <= curve["high"][-1] <= runs[18]
    assert arrays["real"]["steps"] == 3 * size["real_steps"]
    # the Hessian of the softmax is at its largest where all classes are equally likely: at the start
    assert result.quantities["λmax at the start over λmax at the minimum, real data"] > 1


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


def test_the_map_and_the_two_forms_of_the_figure_are_what_was_measured(results):
    result = results["momentum"]
    cells = torch.arange(9, dtype=torch.float64).view(3, 3) / 10
    found = StabilityMap(
        "momentum", 25.0, torch.tensor([[0.01, 0.02, 0.04]]), torch.tensor([[0.0], [0.5], [0.9]]), cells, 1 + cells
    )
    arrays = experiments._map_arrays(found, 2)
    assert arrays["lr"] == pytest.approx([0.25, 1.0]) and arrays["momentum"] == pytest.approx([0.0, 0.9])
    assert arrays["measured"] == [[0.0, 0.2], [0.6, 0.8]] and arrays["theory"] == [[1.0, 1.2], [1.5, 1.5]]
    assert arrays["boundary"] == pytest.approx([2.0, 3.8])
    constant, changed = result.arrays["forms"].values()
    assert max(constant) < 1e-11 and max(changed[:151]) < 1e-11 < 1e-4 < changed[160]
    gamma, kappa = 0.9, result.quantities["κ for which γ = 0.9 is best"]
    assert best_settings(1.0, kappa)["momentum"].momentum == pytest.approx(gamma)


def test_nesterovs_rows_say_which_rates_are_theory_and_which_rule_needs_fewer_steps(results):
    plain, ahead = results["nesterov"].rows
    steps = [row["steps to a millionth of the loss"] for row in (plain, ahead)]
    assert results["nesterov"].quantities["steps, Nesterov over classical"] == steps[1] / steps[0] < 1
    assert plain["best rate by theory"] == pytest.approx(4 / 6)  # (√κ − 1) / (√κ + 1)
    assert ahead["best rate by theory"] == pytest.approx(1 - 2 / math.sqrt(76))  # 1 − 2 / √(3κ + 1)
    for row in (plain, ahead):
        assert row["best rate on the map"] == pytest.approx(row["best rate by theory"], abs=0.02)


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


def test_a_sweep_counts_the_rates_that_converge():
    bowl = quadratic(25)
    found = experiments._best_of_sweep(bowl, "gradient_descent", 60, 30, torch.device("cpu"))
    lr = torch.logspace(-5, 0, 30, dtype=torch.float64)
    ends = [bowl.value(*path(bowl, "gradient_descent", 60, lr=rate)[-1]) for rate in lr.tolist()]
    assert found["converging rates"] == sum(end < 1e-2 for end in ends) and 0 < found["converging rates"] < 15
    assert found["loss above the minimum"] == pytest.approx(min(ends))
    assert found["learning rate"] == pytest.approx(lr[ends.index(min(ends))].item())


def test_the_time_to_leave_is_the_number_of_steps_taken(monkeypatch):
    kept = torch.zeros(6, 2, 2, dtype=torch.float64)  # steps 0 … 5, x and y, two starts
    kept[3:, 1, 0] = -0.6  # over ½ after three steps; the other never
    monkeypatch.setattr(experiments, "run_grid", lambda *_, **how: SimpleNamespace(kept=kept[list(how["keep"])]))
    times = experiments.escape_times(torch.tensor([0.1, 0.01]), 5, torch.device("cpu"))
    assert list(times.values()) == [[3, None]] * len(experiments.ESCAPERS)


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_exact_claims_hold_on_a_gpu(name):
    result = getattr(experiments, name)("quick", device="cuda")
    assert [(claim.text, claim.measured) for claim in result.claims if claim.exact and not claim.holds] == []
