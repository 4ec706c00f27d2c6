"""tune-loader: the tuner's choice is found in the grid, and a setting that beats it is named."""

from dataclasses import replace

import pytest

from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.show import style
from hpml_lab.core.timing.noise import speed_up_of
from hpml_lab.loading import tune_loader
from hpml_lab.loading.experiments import tune_loader as experiment
from hpml_lab.loading.experiments.tune_loader import GridSetting
from hpml_lab.loading.tools.search import loader_options
from hpml_lab.loading.tools.trials import LoaderTrial, Trials
from hpml_lab.loading.tools.tuner import Tuned

SMALL = dict(samples=16, wait=0.001, workers=(1,), ahead=(2,), rounds=2)


def test_every_setting_is_measured_and_the_figure_is_drawn_from_a_saved_result(ran, tmp_path):
    result = ran("tune-loader")
    assert [claim.text for claim in [*result.claims, *result.checks] if claim.exact and not claim.holds] == []
    rows = result.rows(GridSetting)
    names = ("samples wait", "samples compute", "samples are there")
    for name in names:
        mine = [row for row in rows if row.data == name]
        settings = {"0", *map(str, tune_loader.quick["workers"])}
        assert settings <= {row.setting for row in mine} and sum(row.chosen for row in mine) == 1
        assert result.here(f"{name}: best of the grid") >= 1, "the choice is part of the grid"
    figure = load_result(result.save(tmp_path)).figure()
    assert len(style.png(figure)) > 5000 and len(figure.axes) == len(names)


@pytest.mark.parametrize("two_workers, kept", [(0.5, False), (0.94, False), (0.97, True), (0.99, True)])
def test_a_setting_that_beats_the_choice_is_named(monkeypatch, two_workers, kept):
    """The tuner chooses one worker; two take this part of its time."""
    chosen = loader_options(1, 2, experiment.EPOCHS)
    seconds = {0: 4.0, 1: 1.0, 2: two_workers}

    def trial(self, options):
        return LoaderTrial(options, 0.0, seconds[options["num_workers"]])

    monkeypatch.setattr(Trials, "trial", trial)
    monkeypatch.setattr(experiment, "tune", lambda *_, **__: Tuned(chosen, [], "", 2, experiment.EPOCHS))
    result = replace(tune_loader, quick=SMALL | dict(workers=(1, 2)))("quick", device="cpu")
    assert [claim.holds for claim in result.claims if "beats the tuner" in claim.text] == [kept] * 3
    assert result.here("samples wait: workers chosen") == 1
    rows = {row.setting: row for row in result.rows(GridSetting) if row.data == "samples wait"}
    assert rows["1"].chosen and rows["1"].gain == 1
    assert rows["2"].gain == pytest.approx(1 / two_workers) and rows["0"].verdict == "slower"
    best = speed_up_of([1.0] * 2, [two_workers] * 2, [1.0] * 2)
    assert str(best) in result.claims[0].measured


@pytest.mark.parametrize("one_worker, simplest", [(0.6, True), (0.52, False)])
def test_a_simpler_setting_that_is_as_fast_as_the_choice_is_named(monkeypatch, one_worker, simplest):
    """The tuner chooses two workers; one worker takes this many seconds, two take half a second."""
    seconds = {0: 4.0, 1: one_worker, 2: 0.5, 4: 0.5}
    monkeypatch.setattr(Trials, "trial", lambda self, options: LoaderTrial(options, 0.0, seconds[options["num_workers"]]))
    chosen = loader_options(2, 2, experiment.EPOCHS)
    monkeypatch.setattr(experiment, "tune", lambda *_, **__: Tuned(chosen, [], "", 2, experiment.EPOCHS))
    result = replace(tune_loader, quick=SMALL | dict(workers=(1, 2, 4)))("quick", device="cpu")
    claims = [claim for claim in result.claims if "simpler" in claim.text]
    assert [claim.holds for claim in claims] == [simplest] * 3
    assert ("; 1 is 0.962×" in claims[0].measured) != simplest
