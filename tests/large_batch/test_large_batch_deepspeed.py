"""The rates that a DeepSpeed JSON's range test and one-cycle are said to have, against DeepSpeed's own classes."""

import importlib.util

import pytest
import torch

from hpml_lab.large_batch.lessons.deepspeed_schedules import one_cycle_rate, range_test_rate

pytestmark = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")


def groups_by_step(scheduler, optimizer, steps):
    """The group's options in each step: a schedule of DeepSpeed sets the first ones when it is made."""
    for _ in range(steps):
        yield dict(optimizer.param_groups[0])
        optimizer.step()
        scheduler.step()


def optimizer(kind, **options):
    return kind([torch.zeros(1, requires_grad=True)], lr=1.0, **options)


def test_the_range_test_climbs_in_a_straight_line():
    from deepspeed.runtime.lr_schedules import LRRangeTest

    sgd = optimizer(torch.optim.SGD)
    scheduler = LRRangeTest(sgd, lr_range_test_min_lr=1e-3, lr_range_test_step_size=50, lr_range_test_step_rate=9.0)
    found = [group["lr"] for group in groups_by_step(scheduler, sgd, 120)]
    assert found == pytest.approx([range_test_rate(t, 1e-3, 50, 9.0) for t in range(120)], rel=1e-12)
    assert found[0] == 1e-3 and found[50] == pytest.approx(1e-2)


@pytest.mark.parametrize("up, down", [(30, 70), (50, 50), (1, 9)])
def test_one_cycle_is_two_straight_lines_and_then_flat(up, down):
    from deepspeed.runtime.lr_schedules import OneCycle

    adamw = optimizer(torch.optim.AdamW)
    scheduler = OneCycle(adamw, 0.04, 1.0, cycle_first_step_size=up, cycle_second_step_size=down)
    groups = list(groups_by_step(scheduler, adamw, 120))
    wanted = [one_cycle_rate(t, 0.04, 1.0, up, down) for t in range(120)]
    assert [group["lr"] for group in groups] == pytest.approx(wanted, rel=1e-12)
    assert wanted[0] == wanted[up + down] == wanted[-1] == 0.04 and wanted[up] == 1.0
    beta1, beta2 = zip(*(group["betas"] for group in groups), strict=True)
    assert (beta1[up], beta1[-1]) == pytest.approx((0.8, 0.9)) and set(beta2) == {0.99}, "β₂ is no longer AdamW's 0.999"


def test_the_momentum_of_sgd_is_not_moved():
    from deepspeed.runtime.lr_schedules import OneCycle

    sgd = optimizer(torch.optim.SGD, momentum=0.9)
    scheduler = OneCycle(sgd, 0.04, 1.0, cycle_first_step_size=30)
    assert {group["momentum"] for group in groups_by_step(scheduler, sgd, 70)} == {0.9}
