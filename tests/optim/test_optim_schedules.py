"""Schedules are torch's schedulers as functions of time."""

import pytest
import torch

from hpml_lab.optim.schedules import SCHEDULES, factor, milestones, multi_step, step_at, torch_scheduler


def rates_by_torch(name, T, peak=0.3, **options):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    scheduler, rates = torch_scheduler(name, optimizer, peak, T, **options), []
    for _ in range(T):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("T", [9, 20, 61, 400])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_gives_the_rates_of_torchs_scheduler(name, T):
    assert rates_by_torch(name, T) == pytest.approx([0.3 * factor(name, t, T) for t in range(T)], abs=1e-12)


def test_step_drops_where_it_is_told_to():
    schedule = step_at(0.4, 0.8)
    assert rates_by_torch("step", 50, drops=(0.4, 0.8)) == pytest.approx([0.3 * schedule(t, 50) for t in range(50)], abs=1e-12)
    assert [schedule(t, 5) for t in range(5)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    assert [multi_step(t, (4, 7)) for t in range(9)] == pytest.approx([1, 1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01])


def test_schedules_do_what_their_names_say():
    T = 200
    rates = {name: [factor(name, t, T) for t in range(T)] for name in SCHEDULES}
    assert set(rates["constant"]) == {1.0}
    assert sorted({round(rate, 10) for rate in rates["step"]}) == [0.01, 0.1, 1.0]
    assert rates["cosine"][0] == 1 and rates["cosine"] == sorted(rates["cosine"], reverse=True) and rates["cosine"][-1] < 1e-3
    top = rates["one-cycle"].index(max(rates["one-cycle"]))
    assert max(rates["one-cycle"]) == pytest.approx(1.0) and 0.25 * T < top < 0.35 * T and rates["one-cycle"][-1] < 1e-4
    assert rates["warm-up"] == sorted(rates["warm-up"]) and rates["warm-up"].index(1.0) == T // 10 - 1


@pytest.mark.parametrize("T", [100, 200, 1000])
def test_a_milestone_in_per_cent_is_no_step_early(T):
    assert milestones([k / 100 for k in range(1, 100)], T) == [k * T // 100 for k in range(1, 100)]
