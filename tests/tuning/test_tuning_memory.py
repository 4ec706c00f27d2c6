"""The search for the largest batch, and the experiments batch-size and checkpointing."""

import gc
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from hpml_lab.core.timing.clock import Timing
from hpml_lab.core.timing.counting import peak_bytes
from hpml_lab.tuning.experiments import batch_size, checkpointing
from hpml_lab.tuning.experiments.batch_size import BatchCost, BatchLimit, BatchStep
from hpml_lab.tuning.experiments.checkpointing import SEGMENTS, VARIANTS, CheckpointedStep, OperatorValue, ReentrantForm
from hpml_lab.tuning.experiments.tuned_networks import gradient_bytes
from hpml_lab.tuning.lessons.recomputing import mlp_blocks, recompute
from hpml_lab.tuning.tools import batch_search
from hpml_lab.tuning.tools.batch_search import capped_memory, largest_batch, until_out_of_memory, within_budget

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def old_objects_are_not_visited():
    """The experiments collect garbage before each sample, and would visit each time what imports and other tests left."""
    peak_bytes(lambda: torch.ones(1), CPU)  # imports what torch's profiler needs
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 8, 1000, 1023, 1024, 1025])
def test_the_search_finds_a_known_limit_in_few_tries(limit):
    search = largest_batch(lambda batch: batch <= limit)
    assert search.batch == limit
    assert (limit, True) in search.tries and (limit + 1, False) in search.tries
    assert len(search.tries) == len(set(search.tries)) <= 2 * math.log2(limit) + 2


def test_the_search_returns_0_if_nothing_fits_and_stops_at_the_most():
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


def test_running_out_of_memory_does_not_crash_and_leaves_no_gradients():
    net = mlp_blocks(1, 8)

    def step(batch):
        net(torch.ones(batch, 8)).sum().backward()
        if batch > 5:  # as a GPU does in the middle of a step
            raise torch.OutOfMemoryError("simulated")

    fits = until_out_of_memory(step, lambda: net.zero_grad(set_to_none=True), CPU)
    assert largest_batch(fits).batch == 5
    assert gradient_bytes(net) == 0


def test_the_tensors_of_a_failed_step_are_free_when_the_next_is_tried():
    import weakref

    seen = []

    def step(batch):
        assert all(reference() is None for reference in seen)
        held = torch.ones(batch)
        seen.append(weakref.ref(held))
        if batch > 3:
            raise torch.OutOfMemoryError("simulated")

    assert largest_batch(until_out_of_memory(step, lambda: None, CPU)).batch == 3
    assert len(seen) == 4 and all(reference() is None for reference in seen)


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    def step(batch):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        largest_batch(until_out_of_memory(step, lambda: None, CPU))


FULL_GPU = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("CUDA driver error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
]
OTHER_ERRORS = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"),
    RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    ValueError("CUDA error: out of memory"),
]


@pytest.mark.parametrize("error", FULL_GPU, ids=str)
def test_a_library_that_finds_the_gpu_full_is_out_of_memory_too(error):
    def step(batch):
        if batch > 5:
            raise error

    assert largest_batch(until_out_of_memory(step, lambda: None, CPU)).batch == 5


@pytest.mark.parametrize("error", OTHER_ERRORS, ids=str)
def test_any_other_error_of_a_step_is_raised(error):
    def step(batch):
        raise error

    with pytest.raises(type(error)) as raised:
        largest_batch(until_out_of_memory(step, lambda: None, CPU))
    assert raised.value is error


@pytest.fixture
def spilling_gpu(monkeypatch):
    """A GPU of 8 GB, of which 2 GB are free, and whose driver raises no error for more, as on Windows.

    The fixture is a list of the fractions of its memory that torch was limited to.
    """
    limits, gb = [0.9], 1e9
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=8 * gb))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda _: limits[-1])
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda fraction, _: limits.append(fraction))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 1 * gb)
    monkeypatch.setattr(batch_search, "free_bytes", lambda _: 2 * gb)
    monkeypatch.setattr(batch_search, "synchronize", lambda _: None)
    monkeypatch.setattr(batch_search, "free_memory", lambda *_: None)
    return limits


def test_a_search_ends_where_the_driver_would_move_memory_to_the_host(spilling_gpu):
    def step(batch):  # of 0.1 GB for each sample
        assert batch < 1000, "nothing stops the search"
        if 1e9 + batch * 1e8 > spilling_gpu[-1] * 8e9:  # torch's own limit
            raise torch.OutOfMemoryError("CUDA out of memory.")

    search = largest_batch(until_out_of_memory(step, lambda: None, torch.device("cuda:0")))
    assert search.batch == 20 and spilling_gpu[-1] == 0.9, "the limit that was there before is there again"


@pytest.mark.parametrize("budget, fraction", [(0.6e9, 0.2), (None, 0.375), (80e9, 0.9)])
def test_a_limit_of_memory_is_put_back_to_what_it_was(spilling_gpu, budget, fraction):
    with pytest.raises(KeyError), capped_memory(budget, torch.device("cuda:0")):
        assert spilling_gpu[-1] == pytest.approx(fraction)
        raise KeyError
    assert spilling_gpu == pytest.approx([0.9, fraction, 0.9])


def test_a_gpu_that_is_named_without_its_number_is_the_current_one(spilling_gpu, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda _, device: asked.append(device))
    with capped_memory(None, torch.device("cuda")):
        pass
    assert asked == [torch.device("cuda:1")] * 2, "torch's limits raise a ValueError for a device without an index"


@pytest.mark.cuda
def test_the_throughput_of_a_gpu_is_measured_up_to_its_limit():
    result = batch_size.batch_size("quick", device="cuda")
    limit = result.rows(BatchLimit)[0].batch
    assert limit > 16384 // 16 and result.rows(BatchCost)[-1].batch == limit


@pytest.mark.cuda
def test_a_gpu_that_runs_out_of_memory_gives_all_of_it_back():
    device = torch.device("cuda:0")
    step = BatchStep(2, 64, device, torch.bfloat16)
    step(2)
    before = torch.cuda.memory_allocated(device)
    with capped_memory(64 << 20, device):
        fits = until_out_of_memory(step, step.clear, device)
        search = largest_batch(fits)
        assert fits(search.batch) and not fits(search.batch + 1)
    assert torch.cuda.memory_allocated(device) == before
    torch.empty(256 << 20, dtype=torch.uint8, device=device)  # the limit is removed


# --- the experiments ----------------------------------------------------------------------------------------------------------


def test_batch_size(ran, sound):
    result = ran("batch-size")
    sound(result)
    rows, limits = result.rows(BatchCost), result.rows(BatchLimit)
    assert all(row.saved_autocast < row.saved_float32 for row in rows if row.batch >= 64)
    assert "history" not in result.arrays and any("No history of memory" in note for note in result.notes)
    memory = [
        claim for claim in result.claims if "linearly" in claim.text or "limit" in claim.text and "Throughput" not in claim.text
    ]
    assert len(memory) == 2 and [claim.text for claim in memory if not claim.holds] == []
    # Where the activations make the peak, two points of the curve predict the limit: it was found, not assumed.
    peaks = {"float32": [row.peak_float32_mb for row in rows], "autocast": [row.peak_autocast_mb for row in rows]}
    (n, m) = (row.batch for row in rows[-2:])
    for limit in limits:
        low, high = (peak * 1e6 for peak in peaks[limit.number_format][-2:])
        slope = (high - low) / (m - n)
        assert limit.batch == math.floor(n + (limit.limit_mb * 1e6 - low) / slope)
        tries = result.arrays["tries"][limit.number_format]
        assert len(tries) == limit.tries and [limit.batch, True] in tries


def test_the_batch_sizes_end_with_the_largest_that_fits():
    assert batch_size.batch_sizes(0) == batch_size.batch_sizes(1) == [1]
    assert batch_size.batch_sizes(16) == [1, 4, 16] and batch_size.batch_sizes(17) == [1, 4, 16, 17]
    assert batch_size.batch_sizes(1_400_000)[-3:] == [262144, 1048576, 1_400_000]


SMALL = dict(blocks=1, width=8, cpu_budget=1 << 13, gpu_budget=1 << 30, samples=5)


@pytest.mark.parametrize("growth, level", [(0.0, False), (1.0, True)])
def test_with_known_times_the_curve_shows_samples_per_second(monkeypatch, growth, level):
    """A step takes 0.5 s for each sample (level), or 0.5 s whatever its batch."""

    def known(samplers, samples):
        return {name: Timing((0.5 * int(name.split(",")[0]) ** growth,) * samples, 1) for name in samplers}

    monkeypatch.setattr(batch_size, "in_turns", known)
    result = replace(batch_size.batch_size, quick=SMALL)("quick", device="cpu")
    rows, limit = result.rows(BatchCost), result.rows(BatchLimit)[0].batch
    assert [row.batch for row in rows] == batch_size.batch_sizes(limit) and limit > 16
    for row in rows:
        seconds = 0.5 * row.batch**growth
        assert (row.step_ms, row.samples_per_second) == (pytest.approx(500 * row.batch**growth), row.batch / seconds)
        assert row.gain == pytest.approx(row.batch ** (1 - growth))
    assert result.here("throughput, largest batch over batch 1") == pytest.approx(limit ** (1 - growth))
    [claim] = [claim for claim in result.claims if "leveled off" in claim.text]
    assert claim.holds is level, claim


def test_on_a_gpu_each_sample_of_a_batch_size_begins_with_free_memory(monkeypatch):
    order, step = [], BatchStep(1, 8, CPU, torch.bfloat16)
    monkeypatch.setattr(batch_size, "free_memory", lambda *_: order.append("free"))
    monkeypatch.setattr(batch_size, "one_sample", lambda work: order.append(work.args[0]) or 1.0)
    times = batch_size.throughput(step, [1, 4, 10], samples=2)
    assert order == [1, 4, 10, 1, 5, 5] * 2, "a CPU has no cache of blocks, and to collect garbage takes longer than the step"
    order.clear()
    step.device = torch.device("cuda")
    batch_size.throughput(step, [1, 4, 10], samples=2)
    assert order == ["free", 1, "free", 4, "free", 10, "free", 1, "free", 5, "free", 5] * 2
    assert set(times) == {"1", "4", "10", "5", "1, placebo", "5, placebo"}


def test_noise_is_not_a_plateau():
    times = {"1": Timing((1.0,) * 5, 1), "2": Timing((1.0, 2.0, 0.5, 2.0, 2.0), 1), "1, placebo": Timing((1.0,) * 5, 1)}
    assert batch_size.gain_per_sample(times, 1, 2).high >= batch_size.LEVEL


def test_with_known_times_recomputing_costs_what_they_say(known_times, monkeypatch):
    known_times(checkpointing, lambda name, _: {"none": 0.5, checkpointing.FORWARD: 0.25}.get(name, 2.0))
    monkeypatch.setattr(checkpointing, "measure", lambda *_, **__: Timing((0.004,), 1))
    small = dict(batch=8, gpu_batch=0, width=16, depth=32, samples=5)
    result = replace(checkpointing.checkpointing, quick=small)("quick", device="cpu")
    steps = {row.checkpointed: (row.step_ms, row.times_as_long, row.extra_forwards) for row in result.rows(CheckpointedStep)}
    assert steps["none"] == (500, 1, 0) and steps["8 segments"] == steps["GELU + next linear"] == (2000, 4, 6)
    assert result.here("8 segments, slowdown") == 4 and result.here("8 segments, extra time") == 6
    values = {row.operator: row for row in result.rows(OperatorValue)}
    output_mb = 8 * 32 * 4 / 1e6
    assert (values["ReLU"].output_mb, values["ReLU"].time_ms) == (output_mb, 4)
    assert values["ReLU"].mb_per_ms == output_mb / 4 == values["upsampling ×4"].mb_per_ms / 4


def test_checkpointing(ran, sound):
    result = ran("checkpointing")
    sound(result)
    steps = {row.checkpointed: row for row in result.rows(CheckpointedStep)}
    assert list(steps) == list(VARIANTS)
    assert [steps[name].kept for name in SEGMENTS] == [47, 1, 3, 7, 15], "n − 1 inputs of n segments: the first is the batch"
    assert [steps[name].products for name in SEGMENTS] == [32, *(64 - segments for segments in (2, 4, 8, 16))]
    assert steps["policy: keep products"].products == 32 and steps["GELU + next linear"].gelus == 32
    not_given, reentrant, not_reentrant = result.rows(ReentrantForm)
    assert not_given.warns and reentrant.outcome.startswith("RuntimeError") and not_reentrant.outcome == "works"
    none, each_block = steps["none"], steps["each block"]
    assert none.kept_mb * 1e6 == 47 * 256 * 64 * 4 and none.products == 32
    assert each_block.gelus == 2 * none.gelus < each_block.products


@pytest.mark.parametrize("preserve", [True, False])
def test_a_checkpointed_dropout_draws_the_same_mask_again_only_with_the_generators_state(preserve):
    """For exp(dropout(x)) at x = 1: where x was kept, the output is exp(2) and the gradient 2·exp(2); elsewhere 1 and 0."""
    torch.manual_seed(1)
    x = torch.ones(1000, requires_grad=True)
    y = recompute(lambda x: torch.exp(torch.nn.functional.dropout(x, 0.5)), x, preserve_rng_state=preserve)
    y.sum().backward()
    assert torch.equal(y > 1.5, x.grad != 0) is preserve


@pytest.mark.cuda
@pytest.mark.parametrize("experiment", [batch_size.batch_size, checkpointing.checkpointing], ids=lambda found: found.slug)
def test_on_a_gpu_what_is_counted_is_the_same(experiment):
    result = experiment("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []


@pytest.mark.nightly("full size on the CPU")
def test_the_full_size_has_the_peaks_that_were_measured_before_this_code():
    net, x = mlp_blocks(16, 512), torch.randn(2048, 512)

    def step(forward):
        forward(net, x).sum().backward()
        net.zero_grad()

    peaks = [peak_bytes(lambda name=name: step(VARIANTS[name]), CPU) / 1e6 for name in SEGMENTS]
    assert peaks == pytest.approx([205.5, 121.7, 79.7, 58.8, 84.0], rel=0.05)
