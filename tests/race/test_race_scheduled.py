"""Schedules are torch's, and the contest between schedules and adaptive methods can end either way."""

import math

import pytest
import torch

from hpml_lab.data import load
from hpml_lab.optim.schedules import SCHEDULES
from hpml_lab.race import checkpoints, scheduled
from hpml_lab.race.program import NETS, flat_inputs

CPU = torch.device("cpu")


def test_every_exact_claim_holds_and_a_wrong_schedule_is_noticed(monkeypatch):
    claims = scheduled.schedule_claims(CPU)
    assert len(claims) == 2 and all(claim.holds and claim.exact for claim in claims)
    monkeypatch.setitem(SCHEDULES, "cosine", lambda t, T: (1 + math.cos(math.pi * (t + 1) / T)) / 2)
    assert not any(claim.holds for claim in scheduled.schedule_claims(CPU))


def test_wrong_labels_are_as_many_as_asked_for_and_the_data_sets_own_stay():
    y = torch.arange(10_000) % 10
    changed = scheduled.with_wrong_labels(y, 0.2)
    assert 0.16 < (changed != y).double().mean().item() < 0.20  # a tenth of those drawn anew are right by chance
    assert torch.equal(y, torch.arange(10_000) % 10) and torch.equal(changed, scheduled.with_wrong_labels(y, 0.2))
    assert torch.equal(scheduled.with_wrong_labels(y, 0.0), y)


@pytest.fixture(scope="module")
def parts():
    data = load("digits")
    x, test_x = flat_inputs(data)
    return (x[:1000], data.train_y[:1000]), (x[1000:], data.train_y[1000:]), (test_x, data.test_y)


def run(parts, folder, iterations=24):
    return scheduled.run(NETS["net 2"].scaled(0.1), (0, 1), *parts, iterations, 32, 6, folder)


def same(a, b):
    return all(
        torch.equal(getattr(a, name).nan_to_num(9), getattr(b, name).nan_to_num(9)) for name in ("valid", "loss", "test")
    )


def test_a_run_that_was_killed_goes_on_with_the_same_bits(parts, tmp_path, monkeypatch):
    torch.set_num_threads(1)
    right = run(parts, tmp_path / "a")
    assert not list((tmp_path / "a").glob("*"))
    monkeypatch.setattr(checkpoints.Checkpoint, "due", lambda self: True)
    evaluate, calls = scheduled.Program.evaluate, []

    def dies(self, *what):
        calls.append(self.iteration)
        if len(calls) == 8:
            raise MemoryError("killed")
        return evaluate(self, *what)

    monkeypatch.setattr(scheduled.Program, "evaluate", dies)
    with pytest.raises(MemoryError):
        run(parts, tmp_path / "b")
    assert len(list((tmp_path / "b").glob("*"))) == 1
    again = run(parts, tmp_path / "b")
    assert same(again, right) and calls[8] == calls[6], "it went on where it was killed"
    assert not list((tmp_path / "b").glob("*"))


def test_another_contests_checkpoint_is_not_taken(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints.Checkpoint, "due", lambda self: True)
    monkeypatch.setattr(checkpoints.Checkpoint, "remove", lambda self: None)
    run(parts, tmp_path)
    run(parts, tmp_path, iterations=30)
    (x, y), *rest = parts
    run(((x, y.flip(0)), *rest), tmp_path)
    assert len(list(tmp_path.glob("*.pt"))) == 3


def entrants(**finals):
    """Finished entrants, all with the same validation score but for the best schedules."""
    found = {}
    for entrant in scheduled.ENTRANTS:
        final = finals.get(entrant[0] if entrant[1] == "constant" else f"{entrant[0]}_scheduled", 0.9)
        found[entrant] = {"valid": (final, 0.0), "final": [final] * 8, "reached": [100.0] * 8}
    return found


def test_the_contest_can_end_either_way():
    for_schedules = scheduled.contest_claims(entrants(Momentum_scheduled=0.95, Adam_scheduled=0.93), 0.9)
    assert [claim.holds for claim in for_schedules[:4]] == [True, True, True, True]
    against = scheduled.contest_claims(entrants(Adam=0.97, Momentum=0.96), 0.9)
    assert [claim.holds for claim in against[:4]] == [False] * 4
    assert not any(claim.exact for claim in against)


def test_who_is_there_first_counts_seeds_and_the_one_who_never_arrives_is_last():
    found = entrants()
    found["Adam", "constant"]["reached"] = [40.0] * 8
    assert [claim.holds for claim in scheduled.contest_claims(found, 0.9)[4:]] == [True, True]
    found["Adam", "constant"]["reached"] = [60.0] * 8
    assert [claim.holds for claim in scheduled.contest_claims(found, 0.9)[4:]] == [True, False]
    found["Adam", "constant"]["reached"] = [math.inf] * 8
    assert [claim.holds for claim in scheduled.contest_claims(found, 0.9)[4:]] == [False, False]
    for one in found.values():
        one["reached"] = [math.inf] * 8
    assert [claim.holds for claim in scheduled.contest_claims(found, 0.9)[4:]] == [False, False]


def test_the_best_peak_rate_is_chosen_on_validation_images_alone():
    places = [k for k, place in enumerate(scheduled.PLACES) if place[:2] == ("Adam", "cosine")]
    valid, test = torch.zeros(2, len(scheduled.PLACES), 4), torch.zeros(2, len(scheduled.PLACES), 4)
    valid[1, places[2]] = 0.8
    test[1, places[0]] = 0.99  # a lure
    curves = scheduled.Curves([0, 10], valid.double(), torch.ones_like(valid).double(), test.double())
    chosen = scheduled.summarise(curves, 0.5)["Adam", "cosine"]
    assert chosen["lr"] == scheduled.PEAKS["Adam"][2] and chosen["final"] == [0.0] * 4 and not chosen["edge"]
    assert chosen["reached"] == [10.0] * 4
