"""The parts of a step on real ranks, and what becomes of laps that are known."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.rank_errors import RankError
from hpml_lab.distributed import time_step_parts
from hpml_lab.distributed.experiments import step_parts as module
from hpml_lab.distributed.tools.parts_of_a_step import RankParts, StepLap, StepRow, step, step_rows

MILLISECOND = 1e-3


def linear():
    return nn.Linear(4, 3)


def numbers(size):
    return torch.randn(size, 4), torch.randint(3, (size,))


def test_a_net_of_ones_own_on_one_rank_and_on_two():
    one, two = time_step_parts(linear, numbers, ranks=2, batches=(8,), samples=3)
    assert (one.ranks, two.ranks) == (1, 2)
    assert one.sent == one.all_reduce == one.waiting == 0 and one.speed_up == 1
    assert two.sent == 4 * 15, "2 (N − 1) / N times 15 numbers of float32"
    assert min(two.forward, two.backward, two.optimizer, two.all_reduce) > 0


def known(ranks=2, synced=(2.0, 6.0, 1.0), quiet=(2.0, 4.0, 1.0), alone=(3.0, 4.0)):
    """Ranks that need 7 ms alone; on two the backward pass takes 2 ms more for the all-reduce."""

    def laps(parts):
        return [StepLap(*(MILLISECOND * part for part in parts))] * 3

    one = {(1, 8, True): laps(quiet)}
    both = {(2, 8, True): laps(synced), (2, 8, False): laps(quiet)}
    return [RankParts(one | both, {2: [MILLISECOND * alone[rank]] * 3}, 4000, 40) for rank in range(ranks)]


def test_known_laps_become_known_rows():
    one, two = step_rows(known(), [1, 2], [8])
    assert (one.step, one.forward, one.backward, one.optimizer) == pytest.approx((7, 2, 4, 1))
    assert (two.step, two.backward, two.waiting, two.all_reduce) == pytest.approx((9, 4, 2, 4))
    assert two.predicted == pytest.approx(7 + 4), "nothing hidden"
    assert two.rate == pytest.approx(16 / 9e-3) and two.speed_up == pytest.approx(2 * 7 / 9)
    assert (two.sent, two.buffers, one.buffers) == (4000, 40, 0)
    assert two.busy == pytest.approx(100 * 4 / 9)


def test_a_step_takes_as_long_as_on_its_slowest_rank():
    found = known()
    found[1].laps[2, 8, True] = [StepLap(0.02, 0.0, 0.0)] * 3
    assert step_rows(found, [1, 2], [8])[1].step == pytest.approx(20)


def sent_buffers():
    """On a rank: how often DDP sends its buffers in steps with and without messages."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    optimizer, sent, found = torch.optim.SGD(model.parameters(), 0.1), [], {}
    of_ddp = model._sync_buffers
    model._sync_buffers = lambda: (sent.append(1), of_ddp())[1]
    for sync in (True, False, True, False, False, True):
        before = len(sent)
        step(model, optimizer, *numbers(8), nn.functional.cross_entropy, sync, [])
        found.setdefault(sync, []).append(len(sent) - before)
    return found


def test_buffers_are_sent_in_the_step_that_sends_gradients():
    assert launch(sent_buffers, ranks=2) == [{True: [1, 1, 1], False: [0, 0, 0]}] * 2


@pytest.mark.parametrize(
    "given", [{"ranks": ()}, {"ranks": (0,)}, {"batches": (1.5,)}, {"batches": ()}, {"ranks": True}, {"samples": 0}]
)
def test_numbers_that_are_none_are_named(given):
    with pytest.raises(LabError, match="no whole numbers from 1 on"):
        time_step_parts(linear, numbers, **given)


def test_a_net_that_fails_is_named_with_its_rank():
    def broken(size):
        return torch.randn(size, 5), torch.randint(3, (size,))

    with pytest.raises(RankError, match="mat1 and mat2"):
        time_step_parts(linear, broken, batches=(2,), samples=1)


def test_strong_scaling_is_read_off_where_parts_of_a_batch_were_measured():
    def row(ranks, batch, step):
        names = {name: 0 for name in StepRow.__dataclass_fields__}
        return StepRow(**names | {"ranks": ranks, "batch": batch, "step": step})

    rows = [row(1, 8, 4.0), row(1, 16, 8.0), row(2, 8, 5.0), row(2, 16, 9.0)]
    assert module.strong(rows) == [module.StrongRow(16, 2, 8 / 5)]


# ---- the experiment --------------------------------------------------------------------------------------------------


@pytest.fixture
def result(ran):
    """What the notebook found in this run of the tests; run here where it did not."""
    return ran("step-parts")


def test_it_is_sound(result, sound):
    sound(result)


def test_its_bytes_are_those_of_the_net_counted_by_hand(result):
    gradients, buffers = (row.nbytes for row in result.rows(module.SentRow))
    parameters = 3 * 16 * 9 + 16 + 2 * 16 + 16 * 32 * 9 + 32 + 2 * 32 + 2048 * 512 + 512 + 512 * 10 + 10
    assert gradients == 4 * parameters
    assert buffers == 2 * 4 * (16 + 32) + 2 * 8, "two averages a channel, and two counts in int64"


def test_its_exact_claims_can_fail(monkeypatch):
    monkeypatch.setattr(module, "launch", lambda function, ranks: [(1, False, False), (1, False, False)])
    again = replace(module.step_parts, quick={"ranks": 2, "batches": (2, 4), "samples": 2})("quick", device="cpu")
    assert [claim.holds for claim in again.claims if claim.exact] == [False, False]
