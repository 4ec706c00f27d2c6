"""Works timed in turns on ranks: all take part, and each begins together."""

import sys
import time

import pytest
import torch
from torch import distributed as dist

from hpml_lab.core.system.launcher import launch
from hpml_lab.core.timing.rank_turns import in_turns_on_ranks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")


def timed(until_all):
    rank, order = dist.get_rank(), []
    works = {
        "both": lambda: order.append("both"),
        "rank 1 is late": lambda: time.sleep(0.3 * rank),
        "rank 0 alone": (lambda: order.append("alone")) if rank == 0 else None,
    }
    return order, in_turns_on_ranks(works, 2, torch.device("cpu"), until_all)


@pytest.mark.parametrize("until_all", [False, True])
def test_works_take_turns_and_a_rank_without_part_has_no_time(until_all):
    (order, first), (_, second) = launch(timed, until_all)
    assert order == ["both", "alone"] * 3, "a turn for warming up, and two that count"
    assert list(first) == ["both", "rank 1 is late", "rank 0 alone"]
    assert all(len(samples) == 2 for samples in first.values()) and min(each.wall for each in first["rank 0 alone"]) > 0
    assert second["rank 0 alone"] == [(0.0, 0.0)] * 2
    assert min(each.wall for each in second["rank 1 is late"]) >= 0.3, "it began with the other rank, and slept"
    assert (min(each.wall for each in first["rank 1 is late"]) >= 0.3) == until_all
    assert max(each.cpu for each in second["rank 1 is late"]) < 0.3, "sleeping takes no processor time"
