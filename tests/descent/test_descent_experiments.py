"""The experiments of notebook 04 hold what they claim, and their figures can be drawn from a file."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from hpml_lab import descent
from hpml_lab.core.timing.clock import Timing
from hpml_lab.descent.experiments.learning_rate import DROPS, SCHEDULES, schedule_factor
from hpml_lab.descent.experiments.path_measures import steps_to_a_millionth
from hpml_lab.descent.experiments.rate_maps import map_arrays
from hpml_lab.descent.experiments.saddle_and_minima import BestRate, best_of_sweep, many_starts
from hpml_lab.descent.lessons import minibatch_descent as descent_batches
from hpml_lab.descent.lessons.boundary import bisect
from hpml_lab.descent.lessons.softmax_regression import softmax_loss
from hpml_lab.landscape import SURFACES, StabilityMap, best_settings, path, quadratic, torch_equivalent
from hpml_lab.optim.formulas.by_name import FORMULAS
from hpml_lab.optim.schedules import multi_step, torch_scheduler

PICTURES = {
    "gd_variants": ["noise_and_cost"],
    "learning_rate": ["schedules_under_noise"],
    "momentum": ["momentum_paths", "two_forms"],
    "nesterov": ["nesterov_convergence"],
    "saddle_and_minima": ["paths_on_surfaces", "saddle_escapes"],
}
NAMES = list(PICTURES)


@pytest.fixture(scope="module")
def results(ran):
    return {name: ran(name.replace("_", "-")) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_is_sound(results, name, sound):
    sound(results[name])


@pytest.mark.parametrize("name", NAMES)
def test_every_further_figure_is_that_of_the_file_and_readable(results, name, as_shown):
    result = results[name]
    for draw in (getattr(descent, picture) for picture in PICTURES[name]):
        here = draw(result)
        assert as_shown(result, here.figure, draw) and len(here.caption) > 40
        assert here.figure.get_size_inches()[0] <= 9
        panels = [axes for axes in here.figure.axes if axes.get_label() != "<colorbar>"]
        assert len(panels) <= (16 if draw is descent.paths_on_surfaces else 4)
        assert all(axes.get_xlabel() for axes in panels if axes.get_subplotspec().is_last_row())


def test_axes_that_show_an_angle_have_one_scale(results):
    for figure in (results["nesterov"].figure(), descent.paths_on_surfaces(results["saddle_and_minima"]).figure):
        assert all(axes.get_aspect() == 1 for axes in figure.axes)


def test_gd_variants_compares_the_three_in_noise_cost_and_progress(results):
    result = results["gd_variants"]
    rows = {row.name: row for row in result.rows()}
    assert list(rows) == ["batch", "mini-batch", "stochastic"] and rows["stochastic"].batch == 1
    assert rows["batch"].noise < 1e-9 < rows["mini-batch"].noise < rows["stochastic"].noise / 10
    for name, row in rows.items():
        curve = result.arrays["curves"][name]
        assert curve["samples"][0] == 0 and curve["median"][0] == pytest.approx(math.log(10), abs=1e-5)
        assert curve["median"][-1] < result.arrays["level"] and row.update_us > 0
        assert all(low <= mid <= high for low, mid, high in zip(curve["low"], curve["median"], curve["high"], strict=True))
    spread = result.arrays["curves"]["stochastic"]
    assert max(high - low for low, high in zip(spread["low"], spread["high"], strict=True)) > 0.01, "seeds differ"


def test_the_seconds_of_gd_variants_are_updates_times_the_cost_of_one(monkeypatch):
    costs = {"batch": 8e-3, "mini-batch": 2e-4, "stochastic": 1e-4}  # seconds of an update

    def timed(works, **_):
        seconds = {name: next((cost for variant, cost in costs.items() if name.startswith(variant)), 1e-5) for name in works}
        return {name: Timing((seconds[name],) * 7, 1) for name in works}

    monkeypatch.setattr("hpml_lab.descent.experiments.gd_variants.interleaved", timed)
    small = dict(most=640, seeds=2, updates=(90, 300, 900), rates=(1.0, 0.5, 0.05), draws=20)
    result = replace(descent.gd_variants, quick=descent.gd_variants.quick | small)("quick", device="cpu")
    seconds = {}
    for row, batch in zip(result.rows(), (640, 32, 1), strict=True):
        curve = result.arrays["curves"][row.name]
        updates = [seen / batch for seen in curve["samples"]]
        assert (row.batch, row.updates_per_epoch) == (batch, 640 // batch) and updates[:3] == [0, 1, 2]
        assert curve["seconds"] == pytest.approx([update * costs[row.name] for update in updates])
        assert row.update_us == pytest.approx(1e6 * costs[row.name])
        assert row.sample_us == pytest.approx(1e6 * costs[row.name] / batch)
        first = next(index for index, loss in enumerate(curve["median"]) if loss <= 0.5)
        assert row.samples_to_level == curve["samples"][first]
        assert row.seconds_to_level == curve["seconds"][first]
        seconds[row.name] = curve["seconds"][first]
        assert row.draw_us == pytest.approx(10 if batch < 640 else 0)
        assert row.gain == (None if row.name == "batch" else pytest.approx(seconds["batch"] / seconds[row.name]))
    noise = [row.noise for row in result.rows()]
    assert result.here("noise of one sample / noise of a mini-batch") == noise[2] / noise[1]
    assert result.here("time per sample, stochastic / batch") == pytest.approx(1e-4 / (8e-3 / 640))
    assert result.here("share of a stochastic update that draws the sample") == pytest.approx(10)
    fastest = min(seconds, key=seconds.get) == "mini-batch"
    assert result.claims[-1].text.startswith("Mini-batches reach") and result.claims[-1].holds == fastest


def test_every_epoch_draws_every_sample_once_and_leaves_out_a_rest():
    drawn = descent_batches.drawn_batches(10, 4, seeds=2, device=torch.device("cpu"))
    epochs = [torch.cat([next(drawn), next(drawn)], 1) for _ in range(2)]
    for epoch in epochs:
        assert epoch.shape == (2, 8) and all(len(set(samples.tolist())) == 8 for samples in epoch)
    assert not torch.equal(epochs[0], epochs[1]) and not torch.equal(epochs[0][0], epochs[0][1])


@pytest.mark.parametrize("batch", [1, 4, 12])
def test_the_timed_update_computes_what_training_computes(batch):
    torch.manual_seed(0)
    x, y = torch.randn(12, 5), torch.nn.functional.one_hot(torch.arange(12) % 3, 3).float()
    w = torch.zeros(5, 3)
    update, _ = descent_batches.update_and_draw(w, x, y, batch, 0.5)
    _, losses = descent_batches.train(x, y, batch, 0.5, updates=1, seeds=1)
    assert softmax_loss(update().squeeze(0), x, y).item() == pytest.approx(losses[-1].item(), rel=1e-6)


def test_learning_rate_finds_the_boundary_of_each_problem(results):
    result = results["learning_rate"]
    assert [row.eigenvalue for row in result.rows()[:3]] == [2, 25, 400]
    assert "digits" in result.rows()[-1].problem
    for row in result.rows():
        assert row.theory * row.eigenvalue == pytest.approx(2)
        assert row.ratio == row.measured / row.theory == pytest.approx(1, abs=0.01)
    assert result.here("boundary × λmax, quadratic") == pytest.approx(2, rel=1e-9)


def test_the_curves_of_learning_rate_are_medians_and_the_real_sweep_reports_its_steps(results):
    result = results["learning_rate"]
    size, arrays = result.experiment.quick, result.arrays
    valley, factor = SURFACES["noisy-valley"], schedule_factor("cosine", size["steps"])
    runs = sorted(
        valley.value(*path(valley, "gradient_descent", size["steps"], lr=size["lr"], schedule=factor, seed=seed)[-1])
        for seed in range(size["seeds"])
    )
    curve = arrays["schedules"]["cosine"]
    assert curve["steps"][-1] == size["steps"] and len(curve["steps"]) == len(curve["median"]) == 1 + len(curve["rates"])
    assert curve["median"][-1] == pytest.approx((runs[11] + runs[12]) / 2, rel=1e-4)
    assert runs[5] <= curve["low"][-1] <= runs[6] and runs[17] <= curve["high"][-1] <= runs[18]
    assert arrays["real"]["steps"] == 3 * size["real_steps"]
    # The Hessian of the softmax is largest where all classes are equally likely: at the start.
    assert result.here("λmax at the start / λmax at the minimum, real data") > 1


def test_bisection_needs_a_boundary_between_its_ends():
    assert bisect(lambda lr: lr > 0.3, 0.1, 1.0, 40) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="not between"):
        bisect(lambda lr: False, 0.1, 1.0, 40)
    with pytest.raises(ValueError, match="not between"):
        bisect(lambda lr: True, 0.1, 1.0, 40)


@pytest.mark.parametrize("steps", [20, 250])
@pytest.mark.parametrize("name", ["constant", "step", "cosine", "one-cycle"])
def test_a_schedules_formula_is_torchs_scheduler_on_this_packages_sgd(name, steps):
    surface, factor = SURFACES["noisy-valley"], schedule_factor(name, steps)
    theta = torch.tensor(surface.start, dtype=torch.float64, requires_grad=True)
    optimizer = torch_equivalent("gradient_descent", [theta], lr=0.3)
    scheduler = torch_scheduler(name, optimizer, 0.3, steps, DROPS)
    rates, points = [], [theta.tolist()]
    for t in range(1, steps + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        theta.grad = torch.stack(surface.seen_gradient(*theta.detach(), t))
        optimizer.step()
        if t < steps:  # OneCycleLR raises an error for a step beyond its end
            scheduler.step()
        points.append(theta.tolist())
    torch.testing.assert_close(rates, [0.3 * factor(t) for t in range(1, steps + 1)], rtol=1e-10, atol=1e-15)
    by_formula = path(surface, "gradient_descent", steps, lr=0.3, schedule=factor)
    torch.testing.assert_close(torch.tensor(points), torch.tensor(by_formula), rtol=0, atol=1e-9)
    assert name in SCHEDULES
    assert name == "constant" or min(rates) < max(rates) / 20


def test_the_lectures_schedule_drops_after_n_and_again_after_m():
    factors = [multi_step(t, [4, 4 + 3]) for t in range(9)]
    assert factors == pytest.approx([1, 1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01])
    factor = schedule_factor("step", 400)  # in the figure: N = M = two fifths of the steps
    assert [factor(t) for t in (1, 160, 161, 320, 321, 400)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_momentum_rows_give_the_known_counts_and_rates(results):
    rows = results["momentum"].rows()
    assert [row.rule for row in rows[:2]] == ["gradient descent", "momentum"]
    for plain, fast in zip(rows[::2], rows[1::2], strict=True):
        assert plain.momentum == 0 and fast.rate < plain.rate
        # The loss shrinks by rate² per step: a millionth takes ln 10⁻⁶ / (2 ln rate) steps, or some more for two modes.
        assert plain.steps == pytest.approx(math.log(1e-6) / 2 / math.log(plain.rate), rel=0.1)


def test_the_map_and_the_two_forms_of_the_figure_are_what_was_measured(results):
    result = results["momentum"]
    cells = torch.arange(9, dtype=torch.float64).view(3, 3) / 10
    found = StabilityMap(
        "momentum", 25.0, torch.tensor([[0.01, 0.02, 0.04]]), torch.tensor([[0.0], [0.5], [0.9]]), cells, 1 + cells
    )
    arrays = map_arrays(found, 2)
    assert arrays["lr"] == pytest.approx([0.25, 1.0]) and arrays["momentum"] == pytest.approx([0.0, 0.9])
    assert arrays["measured"] == [[0.0, 0.2], [0.6, 0.8]] and arrays["theory"] == [[1.0, 1.2], [1.5, 1.5]]
    assert arrays["boundary"] == pytest.approx([2.0, 3.8])
    constant, changed = result.arrays["forms"].values()
    assert max(constant) < 1e-11 and max(changed[:151]) < 1e-11 < 1e-4 < changed[160]
    gamma, kappa = 0.9, result.here("κ for which γ = 0.9 is best")
    assert best_settings(1.0, kappa)["momentum"].momentum == pytest.approx(gamma)


def test_nesterovs_rows_report_rates_by_theory_and_steps(results):
    plain, ahead = results["nesterov"].rows()
    assert results["nesterov"].here("steps, Nesterov / classical momentum") == ahead.steps / plain.steps < 1
    assert plain.theory_rate == pytest.approx(4 / 6)  # (√κ − 1) / (√κ + 1)
    assert ahead.theory_rate == pytest.approx(1 - 2 / math.sqrt(76))  # 1 − 2 / √(3κ + 1)
    for row in (plain, ahead):
        assert row.map_rate == pytest.approx(row.theory_rate, abs=0.02)


def test_steps_are_counted_until_the_loss_stays_low():
    points = [(1.0, 0.0), (1e-4, 0.0), (1.0, 0.0), (1e-4, 0.0), (1e-5, 0.0)]
    bowl = quadratic(25)
    assert steps_to_a_millionth(points, bowl) == 3 and steps_to_a_millionth(points[:3], bowl) is None


def test_the_nesterov_arrows_differ_only_in_their_gradient(results):
    arrows = results["nesterov"].arrays["arrows"]
    plain, ahead = arrows["classical momentum"], arrows["Nesterov"]
    assert plain["start"] == ahead["start"] and plain["momentum"] == ahead["momentum"]
    assert math.dist(plain["gradient"], ahead["gradient"]) > 0.1
    surface, corner = quadratic(25), [a + b for a, b in zip(ahead["start"], ahead["momentum"], strict=True)]
    assert ahead["gradient"] == pytest.approx([-0.04 * g for g in surface.gradient(*corner)])


def test_each_rule_has_the_best_rate_with_which_its_path_stays_in_the_frame(results):
    best = results["saddle_and_minima"].rows(BestRate)
    paths = results["saddle_and_minima"].arrays["paths"]
    assert len(best) == 16 and all((row.ends_at is not None) == (row.distance < 0.05) for row in best)
    for row in best:
        surface, name = SURFACES[row.surface], next(name for name in FORMULAS if FORMULAS[name].title == row.optimizer)
        (x0, x1, y0, y1), points = surface.window, path(surface, name, 500, lr=row.lr)
        assert all(x0 <= x <= x1 and y0 <= y <= y1 for x, y in points), "a step out of the frame cannot be seen"
        shown = paths[row.surface][name]
        assert shown[0] == pytest.approx(surface.start, abs=1e-4) and len(shown) > 75
        assert min(math.dist(shown[-1], minimum) for minimum in surface.minima) == pytest.approx(row.distance, abs=0.01)


def test_a_rate_that_leaves_the_frame_is_not_the_best_one():
    """On the bowl the best momentum overshoots far: from (-3.5, 1) within 4 it may not."""
    bowl = quadratic(25)
    found = best_of_sweep(bowl, "momentum", 300, 40, torch.device("cpu"))
    rates = torch.logspace(-5, 0, 40, dtype=torch.float64).tolist()
    ends = {rate: bowl.value(*path(bowl, "momentum", 300, lr=rate)[-1]) for rate in rates}
    inside = [rate for rate in ends if all(abs(x) <= 4 and abs(y) <= 1.5 for x, y in path(bowl, "momentum", 300, lr=rate))]
    assert found.lr == pytest.approx(min(inside, key=ends.get)) and found.loss == pytest.approx(ends[min(inside, key=ends.get)])


def test_escape_times_follow_the_distance_to_the_ridge(results):
    times = results["saddle_and_minima"].arrays["escapes"]
    plain = times["gradient descent"]
    assert plain == sorted(plain) and len(plain) == 10
    assert plain[-1] - plain[0] == pytest.approx(9 * math.log(10) / math.log(1.1), abs=6)
    assert times["momentum"][-1] < plain[-1] / 2


def test_a_sweep_counts_the_rates_that_converge():
    bowl = quadratic(25)
    found = best_of_sweep(bowl, "gradient_descent", 60, 30, torch.device("cpu"))
    lr = torch.logspace(-5, 0, 30, dtype=torch.float64)
    ends = [bowl.value(*path(bowl, "gradient_descent", 60, lr=rate)[-1]) for rate in lr.tolist()]
    assert found.converging == sum(end < 1e-2 for end in ends) and 0 < found.converging < 15
    assert found.loss == pytest.approx(min(ends))  # without momentum a path that converges stays in the frame
    assert found.lr == pytest.approx(lr[ends.index(min(ends))].item())


def test_the_time_to_leave_is_the_number_of_steps_taken(monkeypatch):
    kept = torch.zeros(6, 2, 2, dtype=torch.float64)  # steps 0 … 5, x and y, two starts
    kept[3:, 1, 0] = -0.6  # over ½ after three steps; the other never
    monkeypatch.setattr(many_starts, "run_grid", lambda *_, **options: SimpleNamespace(kept=kept[list(options["keep"])]))
    times = many_starts.escape_times(torch.tensor([0.1, 0.01]), 5, torch.device("cpu"))
    assert list(times.values()) == [[3, None]] * len(many_starts.ESCAPING_RULES)


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_exact_claims_hold_on_a_gpu(name):
    result = getattr(descent, name)("quick", device="cuda")
    assert [(claim.text, claim.measured) for claim in result.claims if claim.exact and not claim.holds] == []
