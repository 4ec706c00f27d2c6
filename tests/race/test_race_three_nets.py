"""The experiment mnist-three-nets: its claims, tables and figures, and that its judgments of the study can go both ways."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from hpml_lab import race
from hpml_lab.core.experiment import Result
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.timing.noise import SpeedUp, times_faster
from hpml_lab.optim.formulas.colors import optimizer_style
from hpml_lab.race.experiments.mnist_three_nets import RaceEntry, Ranking, _Race, setting_records
from hpml_lab.race.experiments.mnist_three_nets.setting_records import Record, standings
from hpml_lab.race.experiments.mnist_three_nets.study import judge_study
from hpml_lab.race.experiments.mnist_three_nets.training import log_points
from hpml_lab.race.experiments.training_speed import WayToTrain
from hpml_lab.race.lessons.rate_sweep import LECTURE_LR, RateSweep, choose_rates
from hpml_lab.race.lessons.seed_by_seed import median_and_range
from hpml_lab.race.tools.program import NETS, OPTIMIZERS
from hpml_lab.race.views.curves import CEILING

# Narrow nets, half of the iterations and few samples of the times: quick itself is run in the notebook.
SMALL = dict(width=0.1, iterations=150, sweep_iterations=150, watched=200, samples=2)


def run():
    return replace(race.mnist_three_nets, quick=race.mnist_three_nets.quick | SMALL)("quick", "cpu")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return load_result(run().save(tmp_path_factory.mktemp("race")))


def test_there_is_a_claim_for_each_conclusion_of_the_study(result):
    assert len(result.claims) == 4 and not result.checks
    assert all(claim.text.startswith("At the best rates, ") for claim in result.claims)
    assert sum("at the lecture's rates it " in claim.measured for claim in result.claims) == 4


def test_standings_are_those_of_the_table(result):
    for row in result.rows(RaceEntry):
        for rates in ("best", "lecture"):
            found = standings(result, row.net, rates)[row.optimizer]
            if row.rate_from in ("both", {"best": "the best", "lecture": "the lecture's"}[rates]):
                assert (found.lr, median_and_range(found.exits)) == (row.lr, row.exit)
                assert row.accuracy.startswith(f"{found.accuracy:.3g} ") and len(found.losses) == 4
                assert row.diverged or found.loss == pytest.approx(float(row.loss.split(" ")[0]), rel=0.01)


def test_the_table_has_each_net_and_optimizer_at_the_lectures_rate_and_at_its_best(result):
    for net in NETS:
        for name in OPTIMIZERS:
            kinds = sorted(row.rate_from for row in result.rows(RaceEntry) if (row.net, row.optimizer) == (net, name))
            assert kinds in (["both"], ["the best", "the lecture's"])


def test_each_net_has_a_ranking_by_the_median_loss(result):
    group = {"a": made_record([3.0, 1.0, 9.0]), "b": made_record([2.0, 2.5, 9.0]), "c": made_record([math.inf] * 3)}
    assert setting_records.ranking(group) == "b, a, c"
    rows = result.rows(Ranking)
    assert [(row.net, row.rates) for row in rows] == [(net, which) for net in NETS for which in ("the lecture's", "the best")]
    assert all(set(row.order.split(", ")) == set(OPTIMIZERS) for row in rows)


def test_no_band_is_of_one_seed_and_the_curves_are_complete(result):
    points = result.arrays["points"]
    assert points[0] == 0 and points[-1] == result.here("iterations")
    for found in result.arrays["nets"].values():
        for group in (found["lecture"], found["best"]):
            for record in group.values():
                assert len(record["loss"]) == len(record["accuracy"]) >= 4
                assert all(len(curve) == len(points) for curve in record["loss"] + record["accuracy"])


def test_the_trainings_learn(result):
    """At its best rate, each optimizer ends net 1 and net 2 above 90 % on digits that it has not seen."""
    for row in result.rows(RaceEntry):
        if row.net != "net 3" and row.rate_from != "the lecture's":
            assert float(row.accuracy.split()[0]) > 90, row


def test_the_figures_show_what_was_measured(result):
    figure = result.figure()
    for panel, (net, found) in zip(figure.axes, result.arrays["nets"].items(), strict=True):
        assert panel.get_title().startswith(net) and panel.get_xlabel() == "iterations"
        assert_final_medians(panel, found["lecture"])
    for panel, found in zip(race.race_at_best_rates(result).figure.axes, result.arrays["nets"].values(), strict=True):
        assert_final_medians(panel, found["best"])
    for panel, found in zip(race.race_sweep(result).figure.axes, result.arrays["nets"].values(), strict=True):
        lines = {line.get_label(): line for line in panel.get_lines()}
        for name, rates in found["sweep"].items():
            assert list(lines[name].get_xdata()) == rates["lr"]
    for seed, panel in enumerate(race.race_by_seed(result).figure.axes):
        lines = {line.get_label(): line for line in panel.get_lines()}
        for name, record in result.arrays["nets"]["net 3"]["best"].items():
            assert list(lines[name].get_ydata()) == record["loss"][seed][1:]
    assert len({str(optimizer_style(name)) for name in OPTIMIZERS}) == len(OPTIMIZERS)


def assert_final_medians(panel, group):
    lines = {line.get_label(): line for line in panel.get_lines()}
    assert list(lines) == list(OPTIMIZERS)
    for name, line in lines.items():
        ends = sorted(curve[-1] for curve in group[name]["loss"])
        assert line.get_ydata()[-1] == pytest.approx(min(CEILING, (ends[1] + ends[2]) / 2))


def test_the_recorded_race_on_mnist_is_whole_in_the_notebook(result):
    """Its pictures, rankings, verdicts and seconds are shown first, on any machine."""
    recorded = race.mnist_three_nets.reference()
    assert recorded.size == "full" and recorded.here("iterations") == 20_000
    assert len(recorded.rows(race.Ranking)) == 6
    assert {claim.text for claim in recorded.claims} >= {claim.text for claim in result.claims}
    for draw in (race.race_at_best_rates, race.race_sweep):
        assert len(draw(recorded).figure.axes) == 3
    assert len(race.race_by_seed(recorded).figure.axes) == 4
    assert list(recorded.arrays["nets"]["net 3"]["seconds"]) == list(OPTIMIZERS)
    assert [row.way for row in recorded.rows(WayToTrain)] == ["loader loop", "tensor loop", "batched program"]


def test_running_it_again_gives_the_same_losses(result, monkeypatch):
    no_times = ([], SpeedUp(1.0, 1.0, 1.0, 0.0))  # which would differ, and take most of the time
    monkeypatch.setattr("hpml_lab.race.experiments.mnist_three_nets.ways_to_train", lambda *_: no_times)
    again = run()
    for net, found in result.arrays["nets"].items():
        assert again.arrays["nets"][net]["sweep"] == found["sweep"]


def test_the_speed_up_is_a_key_figure_and_a_row_per_way(result):
    rows = result.rows(WayToTrain)
    assert [row.way for row in rows] == ["loader loop", "tensor loop", "batched program"]
    assert result.arrays["speed_up"] == result.here("batched program compared with the loader loop, net 3")
    assert result.arrays["speed_up"].startswith(times_faster(rows[2].gain))


def test_a_note_says_how_much_of_the_sweep_was_done(result):
    tried = sum(len(rates["lr"]) for net in result.arrays["nets"].values() for rates in net["sweep"].values())
    assert result.here("trainings of the sweep") == 2 * tried
    assert any(f"The sweep tried {tried} rates" in note and "50 %" in note for note in result.notes)


def test_the_table_says_which_rate_is_at_the_edge_of_its_sweep(result):
    for row in result.rows(RaceEntry):
        rates = result.arrays["nets"][row.net]["sweep"][row.optimizer]
        assert row.at_edge == (row.lr in (min(rates["lr"]), max(rates["lr"])))
        if row.rate_from != "the lecture's":
            assert row.lr == rates["best"]


@pytest.mark.parametrize(("device", "size", "at_most"), [("cuda", "full", 16), ("cuda", "quick", 16), ("cpu", "quick", 32)])
def test_a_gpu_trains_many_settings_at_once_on_one_worker(device, size, at_most):
    params = SimpleNamespace(size=size, **getattr(race.mnist_three_nets, size))
    trainings = _Race(params, {}, SimpleNamespace(x=SimpleNamespace(device=torch.device(device))))
    assert (trainings.settings_per_task, trainings.trainer.workers) == (at_most, 1)


# ---- the sweep, on made-up losses ------------------------------------------------------------------------------------


def swept(loss_at):
    """The sweeps of two nets whose validation losses are `loss_at(net, optimizer, step)`; and how often they trained."""
    asked = []

    def train(settings):
        asked.append(settings)
        return {
            net: [
                made_record([0.0, 0.0], lr=setting.lr, valid=[loss_at(net, setting.optimizer, setting.lr)] * 2)
                for setting in some
            ]
            for net, some in settings.items()
        }

    return choose_rates(["net 1", "net 3"], train), asked


def test_a_sweep_grows_until_the_best_rate_lies_inside():
    best = {"SGD": 300.0, "Adam": 1e-5}

    def loss_at(net, name, lr):
        return abs(math.log(lr / best.get(name, LECTURE_LR[name])))

    sweeps, asked = swept(loss_at)
    for some in sweeps.values():
        assert not any(sweep.at_edge(sweep.best_lr) for sweep in some.values())
        assert some["SGD"].best_lr == 316 and some["Adam"].best_lr == 1e-5
        assert all(some[name].best_lr == LECTURE_LR[name] for name in OPTIMIZERS if name not in best)
    assert {setting.optimizer for setting in asked[-1]["net 1"]} == {"SGD"}, "only what is at an edge is trained again"
    every = [setting for some in asked for setting in some["net 1"]]
    assert len(every) == len(set(every)), "and nothing twice"


def test_a_sweep_that_never_turns_ends_at_its_limit_and_says_so():
    sweeps, _ = swept(lambda net, name, lr: -lr)
    sweep = sweeps["net 3"]["Adadelta"]
    assert sweep.best_lr == 1e5 and sweep.at_edge(sweep.best_lr)


def test_a_diverged_seed_makes_a_rate_the_last_choice():
    sweep = RateSweep("SGD", {0: [0.5, 0.6, 0.7], 1: [0.1, 0.1, math.inf], 2: [math.inf] * 3})
    assert sweep.best == 0
    assert RateSweep("SGD", {0: [math.inf], 1: [math.inf]}).wanted() == [-2, -1], "where all diverge, smaller rates follow"


# ---- the judgements, on made-up results -------------------------------------------------------------------------------


def made_record(end, final=0.9, exit=(1.0, 1.0), lr=0.1, valid=()):
    return Record("SGD", lr, loss=[], accuracy=[], end=list(end), valid=list(valid), final=[final, final], exit=list(exit))


def nets_of(**changed):
    """Three nets on which all optimizers are alike, except for the changes {net_optimizer: record}."""
    nets = {net: {name: made_record([0.5, 0.6]) for name in OPTIMIZERS} for net in NETS}
    for key, value in changed.items():
        net, name = key.split("_")
        nets[f"net {net[-1]}"][name] = value
    return nets


def judged(**changed):
    result = Result()
    judge_study(result, nets_of(), nets_of(**changed))
    return [claim.holds for claim in result.claims]


def test_where_all_are_alike_nothing_leads_and_nothing_fails():
    assert judged() == [False, True, True, False]


def test_adagrad_leads_only_with_its_whole_band():
    assert judged(net1_Adagrad=made_record([0.1, 0.2]))[0]
    assert not judged(net1_Adagrad=made_record([0.1, 0.55]))[0]


@pytest.mark.parametrize(
    "bad",
    [
        made_record([0.1, 0.2]),
        made_record([0.7, 0.8]),
        made_record([0.5, math.inf]),
        made_record([0.5, 0.6], exit=(9.0, math.inf)),
    ],
)
def test_adadelta_must_neither_lead_nor_fail(bad):
    assert not judged(net2_Adadelta=bad)[1]


def test_sgd_and_momentum_may_be_two_points_behind():
    assert judged(net3_SGD=made_record([0.5, 0.6], final=0.881))[2]
    assert not judged(net3_SGD=made_record([0.5, 0.6], final=0.87))[2]
    assert not judged(net1_Momentum=made_record([0.5, 0.6], final=0.87))[2]


def test_adam_on_net_3_needs_the_lowest_loss_and_another_with_the_best_accuracy():
    low = made_record([0.1, 0.2])
    assert judged(net3_Adam=low, net3_SGD=made_record([0.5, 0.6], final=0.95))[3]
    assert not judged(net3_Adam=made_record([0.1, 0.2], final=0.99))[3]


def test_a_curve_that_ends_above_its_start_or_as_no_number_has_diverged():
    assert (
        setting_records.diverged([2.3, 9.0])
        and setting_records.diverged([2.3, math.nan])
        and setting_records.diverged([2.3, math.inf])
    )
    assert not setting_records.diverged([2.3, 9.0, 0.1])


def test_a_plateau_is_left_when_the_loss_stays_below_it():
    points = [0, 1, 10, 100]
    assert setting_records.leaves_plateau([2.4, 2.3, 1.0, 0.5], points) == 10
    assert setting_records.leaves_plateau([2.4, 2.2, 2.3, 0.5], points) == 100
    assert setting_records.leaves_plateau([2.4, 2.3, 2.3, 2.3], points) == math.inf
    assert setting_records.leaves_plateau([2.4, 1.0, math.nan, math.nan], points) == math.inf
    assert setting_records.leaves_plateau([1.0, 1.0, 1.0, 1.0], points) == 0


def test_points_are_log_spaced_from_0_to_the_last():
    points = log_points(20_000, 30)
    assert points[0] == 0 and points[1] == 1 and points[-1] == 20_000 and points == sorted(set(points))
    ratios = [b / a for a, b in zip(points[12:-1], points[13:], strict=True)]
    assert max(ratios) / min(ratios) < 1.1
