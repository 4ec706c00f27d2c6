"""The experiment `scaling` on two real ranks, and what it makes of times that are known."""

import pytest
import torch

from hpml_lab.core.system import placement
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.distributed.experiments import scaling as module
from hpml_lab.distributed.experiments.scaling import figure as pictures
from hpml_lab.distributed.experiments.scaling.on_ranks import (
    AGAIN,
    ALONE,
    COMPUTE_ONLY,
    STRONG,
    WEAK,
    RankTimes,
    fastest_all_reduce,
    gains_in,
    measure_rank,
)
from hpml_lab.distributed.lessons.alpha_beta import MIB, Interconnect, ring_seconds

WORKS = [(ALONE, 1), (STRONG, 2), (WEAK, 2), (COMPUTE_ONLY, 2), (AGAIN, 1)]


@pytest.fixture(scope="module")
def times():
    return launch(measure_rank, 32, 16, [4096, MIB], 2, "cpu", ranks=2)


def test_each_rank_takes_part_in_what_concerns_it(times):
    first, second = times
    assert list(first.steps) == list(second.steps) == WORKS
    assert all(len(samples) == 2 and min(samples) > 0 for samples in first.steps.values())
    assert second.steps[ALONE, 1] == second.cpu[ALONE, 1] == [0.0, 0.0], "it only waits"
    assert set(first.all_reduce) == {4096, MIB}


def test_an_all_reduce_takes_as_long_as_its_slowest_rank_and_the_fastest_counts():
    ranks = [RankTimes({}, {}, {MIB: times}, 0) for times in ([3.0, 1.0, 2.0], [1.0, 4.0, 2.5])]
    assert fastest_all_reduce(ranks) == {MIB: 2.5}


def test_the_bytes_of_the_gradients_are_counted(times):
    assert times[0].gradient_bytes == 4 * (784 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10)


def known_times(shared, compute_only=0.5):
    """Two ranks: one needs 1 s alone, `shared` s for its half; 0.6 and 0.8 s of CPU time."""
    wall = {(ALONE, 1): 1.0, (STRONG, 2): shared, (WEAK, 2): 1.25, (COMPUTE_ONLY, 2): compute_only, (AGAIN, 1): 1.0}

    def rank(number):
        alone = number == 0
        steps = {name: [value if name[1] == 2 or alone else 0.0] * 7 for name, value in wall.items()}
        cpu = {name: [0.4 if name[1] == 2 else 0.6 * alone] * 7 for name in wall}
        return RankTimes(steps, cpu, {}, 4 * MIB)

    return [rank(0), rank(1)]


def test_gains_count_samples_per_second():
    gains, cpu = gains_in(known_times(shared=0.625))
    assert gains[STRONG, 2].ratio == pytest.approx(1.6)
    assert gains[WEAK, 2].ratio == pytest.approx(1.6), "twice the samples in 1.25 times the time"
    assert cpu.slowdown.ratio == pytest.approx(0.8 / 0.6)


def test_rows_set_the_prediction_next_to_the_measurement():
    found = known_times(shared=0.625)
    gains, _ = gains_in(found)
    link = Interconnect("known", 0.0, 4 * MIB / 0.125)
    assert ring_seconds(2, 4 * MIB, link) == pytest.approx(0.125)
    rows = {row.work: row for row in pictures.scaling_rows(found, gains, link)}
    shared, own = rows[pictures.WORKS[STRONG]], rows[pictures.WORKS[WEAK]]
    assert (shared.predicted_ms, own.predicted_ms) == (pytest.approx(625), pytest.approx(1125))
    assert shared.efficiency == pytest.approx(80) and shared.cpu_ms == pytest.approx(800)


@pytest.mark.parametrize("high, noise, holds", [(1.8, 0.05, True), (1.8, 0.2, False), (2.1, 0.0, False)])
def test_less_than_twice_is_claimed_outside_the_noise_only(high, noise, holds):
    assert module._below_two(SpeedUp(1.7, 1.6, high, noise)) == holds


@pytest.mark.parametrize("gpus, size, ranks", [(0, "full", (4, "cpu")), (1, "full", (4, "cpu")), (8, "full", (8, "cuda"))])
def test_at_full_size_every_gpu_is_a_rank_and_one_gpu_is_none(monkeypatch, gpus, size, ranks):
    class Gpu:
        is_cuda = True

    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    where = placement.placement(4, Gpu(), all_gpus=size == "full")
    assert (where.ranks, where.device) == ranks and bool(where.note) == (where.device == "cpu")
    assert placement.placement(2, Gpu(), all_gpus=False).ranks == 2


def test_more_ranks_than_cores_are_said(monkeypatch):
    monkeypatch.setattr(placement, "cores", lambda: 2)
    assert placement.crowded(2) == []
    assert "4 ranks share 2 cores" in placement.crowded(4)[0]


def test_the_experiment_is_sound(ran, sound):
    result = ran("scaling")
    sound(result)
    line, drawn_out = pictures.all_reduce_fit(result).figure.axes
    assert line.get_ylabel() == "all-reduce in ms"
    shared = next(row for row in result.rows(pictures.ScalingRow) if row.work == pictures.WORKS[STRONG])
    _, strong = (found for found in drawn_out.lines if len(found.get_xdata()) == 14)
    by_the_line = 100 * result.rows()[0].time_ms / 2 / shared.predicted_ms
    assert strong.get_ydata()[1] == pytest.approx(by_the_line), "two ranks by the line: compute / 2 + ring"
    assert len(result.claims) == 6
    key = "one hop of a message of 4 KiB"
    assert result.here(key) == pytest.approx(500 * result.rows(pictures.AllReduceRow)[0].time_ms)
    said = result.here("twice the ranks, the same batch")
    doubled = next(row for row in result.rows() if row.ranks == 2)
    assert said.startswith(f"{doubled.gain:.3g}×") and doubled.interval in said, "the number with its interval"
    in_fit = [row for row in result.rows(pictures.AllReduceRow) if row.fitted]
    assert min(row.nbytes for row in in_fit) >= MIB and len(in_fit) >= 3


@pytest.mark.cuda
def test_on_several_gpus_the_ranks_use_nccl():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    found = launch(measure_rank, 32, 16, [4096, MIB], 2, "cuda", ranks=2, device="cuda")
    assert all(min(samples) > 0 for samples in found[0].steps.values())
