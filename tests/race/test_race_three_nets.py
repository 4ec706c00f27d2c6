"""The row mnist-three-nets: its exact claims, its table and figure, and that its judgements of the study can go both ways."""

import math

import pytest
import torch

from hpml_lab.core.experiment import find
from hpml_lab.core.result import Result
from hpml_lab.race import three_nets
from hpml_lab.race.figures import CEILING, LOOK, draw_race_curves
from hpml_lab.race.program import NETS, OPTIMIZERS, Program, Setting
from hpml_lab.race.training import log_points


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    made = find("mnist-three-nets")("quick", "cpu")
    return Result.load(made.save(tmp_path_factory.mktemp("race")))


def test_every_exact_claim_holds(result):
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
    assert sum(claim.exact for claim in result.claims) == 5
    assert sum(claim.text.startswith("Study,") for claim in result.claims) == 8


def test_the_table_has_each_net_and_optimizer_at_the_lectures_rate_and_at_its_best(result):
    for net in NETS:
        for name in OPTIMIZERS:
            rates = [row["rate"] for row in result.rows if (row["net"], row["optimizer"]) == (net, name)]
            kinds = sorted(rate[rate.index("(") :] for rate in rates)
            assert kinds in (["(both)"], ["(best)", "(lecture)"])


def test_each_net_has_a_ranking_by_the_median_loss(result):
    group = {"a": {"end": [3.0, 1.0, 9.0]}, "b": {"end": [2.0, 2.5, 9.0]}, "c": {"end": [math.inf] * 3}}
    assert three_nets.ranking(group) == "b, a, c"
    for net in NETS:
        for where in ("lecture's rates", "best rates"):
            assert set(result.quantities[f"ranking on {net} by loss, {where}"].split(", ")) == set(OPTIMIZERS)


def test_no_band_is_of_one_seed_and_the_curves_are_whole(result):
    points = result.arrays["points"]
    assert points[0] == 0 and points[-1] == result.quantities["iterations"]
    for found in result.arrays["nets"].values():
        for group in (found["lecture"], found["best"]):
            for record in group.values():
                assert len(record["loss"]) == len(record["accuracy"]) >= 4
                assert all(len(curve) == len(points) for curve in (*record["loss"], *record["accuracy"]))


def test_the_trainings_learn(result):
    """At its best rate, each optimizer ends net 1 and net 2 above 90 % on digits it has not seen."""
    for row in result.rows:
        if row["net"] != "net 3" and "best" in row["rate"]:
            assert float(row["test accuracy %, median (band)"].split()[0]) > 90, row


def test_the_figures_show_what_was_measured(result):
    figure = result.figure()
    assert [panel.get_xlabel() for panel in figure.axes[:4]] == [
        "iterations",
        "iterations",
        "seconds of training",
        "learning rate",
    ]
    for panel, (net, found) in zip(figure.axes[0::4], result.arrays["nets"].items(), strict=True):
        assert panel.get_ylabel().startswith(net)
        lines = {line.get_label(): line for line in panel.get_lines()}
        assert list(lines) == list(OPTIMIZERS)
        for name, line in lines.items():
            ends = sorted(curve[-1] for curve in found["lecture"][name]["loss"])
            assert line.get_ydata()[-1] == pytest.approx(min(CEILING, (ends[1] + ends[2]) / 2))
    assert len({str(look) for look in LOOK.values()}) == len({colour for colour, _ in LOOK.values()}) == len(OPTIMIZERS)
    assert len(draw_race_curves(result).axes) == 12


def test_running_it_again_gives_the_same_losses(result):
    again = find("mnist-three-nets")("quick", "cpu")
    for net, found in result.arrays["nets"].items():
        assert again.arrays["nets"][net]["sweep"] == found["sweep"]


def test_the_sweep_holds_the_lectures_rates_and_the_studys():
    settings = three_nets.sweep((0.3, 3.0), study=True)
    for name, lr in three_nets.LECTURE_LR.items():
        assert Setting(name, lr=lr) in settings
    assert Setting("Momentum", lr=0.05) in settings and Setting("Adam", lr=0.002) in settings
    assert len(settings) == len(set(settings))


# ---- the judgements, on made-up results -------------------------------------------------------------------------------


def record(end, final=0.9, diverged=0, exit=(1.0, 1.0)):
    return {"end": list(end), "final": [final, final], "diverged": diverged, "exit": list(exit)}


def nets_of(**changed):
    """Three nets on which all optimizers are alike, but for the changes {(net, optimizer): record}."""
    nets = {net: {name: record([0.5, 0.6]) for name in OPTIMIZERS} for net in NETS}
    for place, value in changed.items():
        net, name = place.split("_")
        nets[f"net {net[-1]}"][name] = value
    return nets


def judged(**changed):
    return [claim.holds for claim in three_nets.study_claims(nets_of(**changed), "here")]


def test_where_all_are_alike_nothing_leads_and_nothing_fails():
    assert judged() == [False, True, True, False]


def test_adagrad_leads_only_with_its_whole_band():
    assert judged(net1_Adagrad=record([0.1, 0.2]))[0]
    assert not judged(net1_Adagrad=record([0.1, 0.55]))[0]


@pytest.mark.parametrize(
    "bad",
    [record([0.1, 0.2]), record([0.7, 0.8]), record([0.5, math.inf], diverged=1), record([0.5, 0.6], exit=(9.0, math.inf))],
)
def test_adadelta_must_neither_lead_nor_fail(bad):
    assert not judged(net2_Adadelta=bad)[1]


def test_sgd_and_momentum_may_be_two_points_behind():
    assert judged(net3_SGD=record([0.5, 0.6], final=0.881))[2]
    assert not judged(net3_SGD=record([0.5, 0.6], final=0.87))[2]
    assert not judged(net1_Momentum=record([0.5, 0.6], final=0.87))[2]


def test_adam_on_net_3_needs_the_lowest_loss_and_another_with_the_best_accuracy():
    low = record([0.1, 0.2])
    assert judged(net3_Adam=low, net3_SGD=record([0.5, 0.6], final=0.95))[3]
    assert not judged(net3_Adam=record([0.1, 0.2], final=0.99))[3]


def test_a_curve_that_ends_above_its_start_or_as_no_number_has_diverged():
    assert three_nets.diverged([2.3, 9.0]) and three_nets.diverged([2.3, math.nan]) and three_nets.diverged([2.3, math.inf])
    assert not three_nets.diverged([2.3, 9.0, 0.1])


def test_a_plateau_is_left_when_the_loss_stays_below_it():
    points = [0, 1, 10, 100]
    assert three_nets.leaves_plateau([2.4, 2.3, 1.0, 0.5], points) == 10
    assert three_nets.leaves_plateau([2.4, 2.2, 2.3, 0.5], points) == 100
    assert three_nets.leaves_plateau([2.4, 2.3, 2.3, 2.3], points) == math.inf
    assert three_nets.leaves_plateau([2.4, 1.0, math.nan, math.nan], points) == math.inf
    assert three_nets.leaves_plateau([1.0, 1.0, 1.0, 1.0], points) == 0


def test_the_plateau_claim_needs_seeds_that_differ():
    def claim(*exits):
        return three_nets.plateau_claim(
            [{"optimizer": "SGD", "lr": 0.1, "diverged": 0, "exit": list(exit)} for exit in exits], 100
        ).holds

    assert not claim((10.0, 10.0), (50.0, 50.0))
    assert claim((10.0, 10.0), (10.0, 15.0))
    assert claim((10.0, math.inf))
    assert not claim((math.inf, math.inf))


def test_a_rate_with_a_diverged_seed_is_not_the_best():
    common = {"optimizer": "SGD", "diverged": 0}
    records = [{**common, "lr": 1.0, "end": [0.1, math.inf]}, {**common, "lr": 0.1, "end": [0.3, 0.4]}]
    assert three_nets.at_best(records)["SGD"]["lr"] == 0.1


def test_the_programs_own_checks_notice_a_wrong_gradient(monkeypatch):
    right = Program._backward

    def wrong(self, images, targets):
        right(self, images, targets)
        self.gradients[:, :, 0] += 1e-6

    monkeypatch.setattr(Program, "_backward", wrong)
    assert [claim.holds for claim in three_nets.program_claims(torch.device("cpu"))][::2] == [False, False]


def test_points_are_log_spaced_from_0_to_the_last():
    points = log_points(20_000, 30)
    assert points[0] == 0 and points[1] == 1 and points[-1] == 20_000 and points == sorted(set(points))
    ratios = [b / a for a, b in zip(points[12:-1], points[13:], strict=True)]
    assert max(ratios) / min(ratios) < 1.1
