"""The search for the largest batch, and the rows batch-size and checkpointing."""

import math
from dataclasses import replace

import pytest
import torch

from hpml_lab.core.counting import peak_bytes
from hpml_lab.core.timing import Timing
from hpml_lab.tuning import experiments_checkpoint, experiments_memory
from hpml_lab.tuning.blocks import gradient_bytes, mlp_blocks
from hpml_lab.tuning.experiments_checkpoint import VARIANTS, checkpointing
from hpml_lab.tuning.experiments_memory import BatchStep, batch_size
from hpml_lab.tuning.limits import capped, largest_batch, until_out_of_memory, within_budget

CPU = torch.device("cpu")


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 8, 1000, 1023, 1024, 1025])
def test_the_search_finds_a_planted_limit_in_few_tries(limit):
    search = largest_batch(lambda batch: batch <= limit)
    assert search.batch == limit
    assert (limit, True) in search.tries and (limit + 1, False) in search.tries
    assert len(search.tries) == len(set(search.tries)) <= 2 * math.log2(limit) + 2


def test_the_search_says_0_where_nothing_fits_and_stops_at_the_most():
    assert largest_batch(lambda batch: False).batch == 0
    assert largest_batch(lambda batch: False).tries == ((1, False),)
    for most in (1, 48, 64):
        search = largest_batch(lambda batch: True, most=most)
        assert search.batch == most and max(batch for batch, _ in search.tries) == most
    assert largest_batch(lambda batch: True, most=0).tries == ()


def test_where_fitting_is_not_monotone_the_answer_fits_and_one_more_does_not():
    def odd(batch):  # a hole from 40 to 50, as fragmented memory may have
        return batch <= 100 and not 40 <= batch <= 50

    search = largest_batch(odd)
    assert odd(search.batch) and not odd(search.batch + 1)
    holed = largest_batch(lambda batch: batch <= 100 and not 60 <= batch <= 70)
    assert holed.batch == 59


def test_the_search_never_tries_more_than_twice_what_fits():
    search = largest_batch(lambda batch: batch <= 700)
    assert max(batch for batch, _ in search.tries) <= 2 * 700


def test_a_budget_gives_the_batch_that_its_bytes_allow():
    def step(batch):
        torch.empty(batch, 100)  # 400 bytes each

    assert largest_batch(within_budget(step, 40_000, CPU)).batch == 100
    assert largest_batch(within_budget(step, 39_999, CPU)).batch == 99
    assert largest_batch(within_budget(step, 399, CPU)).batch == 0


def test_running_out_of_memory_is_no_crash_and_leaves_no_gradients():
    net = mlp_blocks(1, 8)

    def step(batch):
        net(torch.ones(batch, 8)).sum().backward()
        if batch > 5:  # as a GPU does in the middle of a step
            raise torch.OutOfMemoryError("planted")

    fits = until_out_of_memory(step, lambda: net.zero_grad(set_to_none=True), CPU)
    assert largest_batch(fits).batch == 5
    assert gradient_bytes(net) == 0


def test_the_tensors_of_a_failed_step_are_free_when_the_next_is_tried():
    import weakref

    seen = []

    def step(batch):
        assert all(one() is None for one in seen)
        held = torch.ones(batch)
        seen.append(weakref.ref(held))
        if batch > 3:
            raise torch.OutOfMemoryError("planted")

    assert largest_batch(until_out_of_memory(step, lambda: None, CPU)).batch == 3
    assert len(seen) == 4 and all(one() is None for one in seen)


def test_another_error_is_not_taken_for_a_lack_of_memory():
    def step(batch):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        largest_batch(until_out_of_memory(step, lambda: None, CPU))


@pytest.mark.cuda
def test_a_gpu_that_runs_out_of_memory_gives_all_of_it_back():
    device = torch.device("cuda:0")
    step = BatchStep(2, 64, device, torch.bfloat16)
    step(2)
    before = torch.cuda.memory_allocated(device)
    with capped(64 << 20, device):
        fits = until_out_of_memory(step, step.clear, device)
        search = largest_batch(fits)
        assert fits(search.batch) and not fits(search.batch + 1)
    assert torch.cuda.memory_allocated(device) == before
    torch.empty(256 << 20, dtype=torch.uint8, device=device)  # the cap is gone


# --- the rows ----------------------------------------------------------------------------------------------------------------


def test_batch_size(sound):
    result = batch_size("quick", device="cpu")
    sound(result)
    assert all(row["saved autocast, bytes"] < row["saved float32, bytes"] for row in result.rows if row["batch"] >= 64)
    assert [
        claim.text for claim in result.claims if ("straight" in claim.text or "limit" in claim.text) and not claim.holds
    ] == []
    # Where the activations make the peak, two points of the curve tell the limit: it was found, not assumed.
    for name in ("float32", "autocast"):
        (n, low), (m, high) = [(row["batch"], row[f"peak {name}, MB"] * 1e6) for row in result.rows[-2:]]
        slope = (high - low) / (m - n)
        assert result.arrays["limits"][name] == math.floor(n + (result.arrays["limit, MB"] * 1e6 - low) / slope)


def test_with_planted_times_the_curve_tells_samples_a_second(monkeypatch):
    monkeypatch.setattr(experiments_memory, "measure", lambda *_, **__: Timing((0.5,), 1))
    small = dict(blocks=1, width=8, batches=(1, 4, 16), cpu_budget=1 << 16, gpu_budget=1 << 30, samples=3)
    result = replace(batch_size, quick=small)("quick", device="cpu")
    assert [(row["batch"], row["samples/s"], row["step, ms"]) for row in result.rows] == [
        (1, 2, 500),
        (4, 8, 500),
        (16, 32, 500),
    ]
    assert result.quantities["throughput of the largest over batch 1, times"] == 16
    assert result.quantities["best throughput, samples/s"] == 32


def test_with_planted_times_recomputing_costs_what_they_say(planted_times, monkeypatch):
    planted_times(experiments_checkpoint, lambda name, _: 0.5 if name == "none" else 2.0)
    monkeypatch.setattr(experiments_checkpoint, "measure", lambda *_, **__: Timing((0.004,), 1))
    result = replace(checkpointing, quick=dict(batch=8, width=16, depth=32, samples=3))("quick", device="cpu")
    by = {row["checkpointed"]: (row["step, ms"], row["times as long"]) for row in result.rows}
    assert by["none"] == (500, 1) and by["8 segments"] == by["GELU + next linear"] == (2000, 4)
    assert result.quantities["8 segments, times as long"] == 4
    kinds = {one["operator"]: one for one in result.arrays["operators"]}
    out = 8 * 32 * 4 / 1e6
    assert (kinds["ReLU"]["output, MB"], kinds["ReLU"]["ms"]) == (out, 4)
    assert kinds["ReLU"]["MB per ms"] == out / 4 == kinds["upsampling ×4"]["MB per ms"] / 4


def test_checkpointing(sound):
    result = checkpointing("quick", device="cpu")
    sound(result)
    assert [row["checkpointed"] for row in result.rows] == list(VARIANTS)
    one = result.rows[0]
    assert one["saved, MB"] * 1e6 == 47 * 256 * 64 * 4 and one["products forward"] == 32
    blocks = next(row for row in result.rows if row["checkpointed"] == "each block")
    assert blocks["GELUs forward"] == 2 * one["GELUs forward"] < blocks["products forward"]


@pytest.mark.nightly
def test_the_full_size_has_the_peaks_that_were_measured_before_this_code():
    net, x = mlp_blocks(16, 512), torch.randn(2048, 512)

    def step(way):
        way(net, x).sum().backward()
        net.zero_grad()

    peaks = [peak_bytes(lambda way=way: step(way), CPU) / 1e6 for way in list(VARIANTS.values())[:5]]
    assert peaks == pytest.approx([205.5, 121.7, 79.7, 58.8, 84.0], rel=0.05)
