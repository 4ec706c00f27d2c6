"""Throughput and memory against the batch size, and a search for the largest batch that fits, in float32 and under autocast."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.experiment.fits import free_bytes
from hpml_lab.core.show import style
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.machine import free_memory_bytes
from hpml_lab.core.timing.clock import PLACEBO, SAMPLES, Timing
from hpml_lab.core.timing.counting import peak_bytes, saved_tensors
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.tuning.experiments.turns import in_turns, one_sample
from hpml_lab.tuning.lessons.recomputing import mlp_blocks
from hpml_lab.tuning.tools.batch_search import (
    BatchSearch,
    capped_memory,
    free_memory,
    largest_batch,
    until_out_of_memory,
    within_budget,
)
from hpml_lab.tuning.tools.memory_history import in_use, memory_history

QUICK = dict(blocks=4, width=64, cpu_budget=8 << 20, gpu_budget=1 << 30, samples=SAMPLES)
FULL = dict(blocks=16, width=256, cpu_budget=256 << 20, gpu_budget=None, samples=SAMPLES)
LEVEL = 1.1  # a doubling that gains less than this is called level


@dataclass
class BatchCost(Row):
    """One training step with one batch size."""

    batch: int = column("batch size")
    samples_per_second: float = column("throughput", "samples/s")
    gain: float = column("times the throughput of batch 1")
    interval: str = column("90 % interval")
    step_ms: float = column("step", "ms")
    saved_float32: int = column("kept for backward, float32", "bytes")
    saved_autocast: int = column("kept for backward, autocast", "bytes")
    peak_float32_mb: float = column("peak memory, float32", "MB")
    peak_autocast_mb: float = column("peak memory, autocast", "MB")


@dataclass
class BatchLimit(Row):
    """The largest batch that fits."""

    number_format: str = column("number format")
    batch: int = column("largest batch")
    tries: int = column("tries")
    limit_mb: float = column("memory limit", "MB")


class BatchStep:
    """A training step of a chain of MLP blocks for any batch size, in float32 or under autocast to a 16-bit format."""

    def __init__(self, blocks: int, width: int, device: torch.device, half: torch.dtype) -> None:
        self.net = mlp_blocks(blocks, width).to(device)
        self.width, self.device, self.half = width, device, half
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)

    def loss(self, batch: int, amp: bool) -> torch.Tensor:
        """Mean of the squared outputs."""
        x = torch.ones(batch, self.width, device=self.device)
        with torch.autocast(self.device.type, dtype=self.half, enabled=amp):
            return self.net(x).float().square().mean()

    def __call__(self, batch: int, amp: bool = False) -> None:
        self.loss(batch, amp).backward()
        self.optimizer.step()
        self.clear()

    def clear(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def saved_bytes(self, batch: int, amp: bool) -> int:
        """Bytes that the forward pass keeps for the backward pass, not counting parameters."""
        with saved_tensors(self.net.parameters()) as saved:
            self.loss(batch, amp)
        return sum(saved.values())

    def peak(self, batch: int, amp: bool = False) -> int:
        """Bytes in use at the peak of a step."""
        return peak_bytes(partial(self, batch, amp), self.device)


def search_limit(step: BatchStep, amp: bool, budget: float) -> BatchSearch:
    """The largest batch that fits."""
    run = partial(step, amp=amp)
    cuda = step.device.type == "cuda"
    fits = until_out_of_memory(run, step.clear, step.device) if cuda else within_budget(run, budget, step.device)
    return largest_batch(fits)


def batch_sizes(limit: int) -> list[int]:
    """1, 4, 16, … and the largest batch that fits."""
    powers = [4**exponent for exponent in range(max(1, limit).bit_length()) if 4**exponent < limit]
    return [*powers, max(1, limit)]


def again(batch: int) -> str:
    """The name of a batch size's placebo."""
    return f"{batch}, {PLACEBO}"


def throughput(step: BatchStep, batches: list[int], samples: int) -> dict[str, Timing]:
    """Times of a step with each of some batch sizes, in turns. Each batch that others are compared with takes part twice."""

    def sample(batch: int) -> float:
        if step.device.type == "cuda":
            # Near the limit, blocks that the allocator kept of another batch size would have to be returned within the sample.
            free_memory(step.clear, step.device)
        return one_sample(partial(step, batch))

    works = {str(batch): batch for batch in batches} | {again(batch): batch for batch in (batches[0], halved(batches[-1]))}
    works[str(halved(batches[-1]))] = halved(batches[-1])
    return in_turns({name: partial(sample, batch) for name, batch in works.items()}, samples=samples)


def halved(batch: int) -> int:
    return max(1, batch // 2)


def gain_per_sample(times: dict[str, Timing], small: int, large: int) -> SpeedUp:
    """How many times as fast a sample is in the batch `large` as in `small`."""
    before, after, placebo = (times[name].samples for name in (str(small), str(large), again(small)))
    return speed_up_of(
        [seconds / small for seconds in before],
        [seconds / large for seconds in after],
        [seconds / small for seconds in placebo],
    )


def slopes(batches: list[int], amounts: list[float]) -> list[float]:
    """What each additional sample adds between neighboring points of the curve."""
    points = list(zip(batches, amounts, strict=True))
    return [(b - a) / (n - m) for (m, a), (n, b) in zip(points, points[1:], strict=False)]


def draw(result: Result):
    """Left: samples per second against the batch size, up to the largest batch that fits (dotted); look for the bend. Right:
    peak memory of a step against the batch size in float32 and under autocast. The dashed line is the memory limit, dotted
    lines mark the largest batches that fit. Below, where a GPU's allocator recorded it: the memory in use during one step."""
    history = result.arrays.get("history")
    figure = style.new_figure(9, 7 if history else 3.8)
    panels = figure.subplot_mosaic([["throughput", "memory"], *([["history"] * 2] if history else [])])
    throughput, memory = panels["throughput"], panels["memory"]
    rows = result.rows(BatchCost)
    batches = [row.batch for row in rows]
    throughput.plot(batches, [row.samples_per_second for row in rows], "o-", color=style.BLUE)
    throughput.set(xscale="log", yscale="log", xlabel="batch size (float32)", ylabel="samples per second")
    peaks = {"float32": [row.peak_float32_mb for row in rows], "autocast": [row.peak_autocast_mb for row in rows]}
    limits = result.rows(BatchLimit)
    throughput.axvline(limits[0].batch, color=style.ORANGE, linestyle=":")
    for limit, color, marker in zip(limits, (style.ORANGE, style.BLUE), "os", strict=True):
        memory.plot(batches, peaks[limit.number_format], marker + "-", color=color, label=limit.number_format)
        memory.axvline(limit.batch, color=color, linestyle=":")
    memory.axhline(limits[0].limit_mb, color=style.GREY, linestyle="--", label="limit")
    memory.set(xscale="log", yscale="log", xlabel="batch size (dotted: the largest that fits)", ylabel="peak memory in MB")
    memory.legend()
    if history:
        colors = (style.BLUE, style.ORANGE, style.GREY)
        panels["history"].stackplot(
            history["ms"], *history["mb"].values(), labels=list(history["mb"]), colors=colors, step="post"
        )
        panels["history"].set(xlabel="ms since the step began, on the host", ylabel="MB in use", title=history["title"])
        panels["history"].legend(loc="upper left")
    return figure


def step_history(step: BatchStep, batch: int) -> dict[str, Any]:
    """The memory in use during one step in float32, by the sizes of what is allocated."""
    free_memory(step.clear, step.device)
    with memory_history(step.device) as events:
        step(batch)
    ms, found = in_use(events, {4 * batch * step.width: "activations", 4 * step.width**2: "gradients of weights"})
    title = f"One step, batch {batch}: its activations, and what the backward pass makes of them"
    return {"title": title, "ms": ms, "mb": {kind: [amount / 1e6 for amount in line] for kind, line in found.items()}}


@experiment("batch-size", lecture="L4", notebook="11_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def batch_size(params: Params) -> Result:
    """Throughput and memory against the batch size, up to the largest batch that fits."""
    device = params.device.torch
    half = torch.float16 if params.device.dtype == torch.float16 else torch.bfloat16
    step = BatchStep(params.blocks, params.width, device, half)
    for amp in (False, True):  # momentum and library workspaces appear in the first steps and stay
        step(2, amp)
    free_memory(step.clear, device)
    if params.device.is_cuda:
        budget = params.gpu_budget or free_bytes(device)
    else:  # at most a quarter of the free memory, because the search tries up to about twice the budget
        budget = min(params.cpu_budget, free_memory_bytes() // 4)
    limit_mb = budget / 1e6
    with capped_memory(budget, device):
        float32, autocast = search_limit(step, False, budget), search_limit(step, True, budget)
    searches = {"float32": float32, "autocast": autocast}
    batches = batch_sizes(float32.batch)
    times = throughput(step, batches, params.samples)
    rows = []
    for batch in batches:
        free_memory(step.clear, device)
        gain = gain_per_sample(times, batches[0], batch)
        rows.append(
            BatchCost(
                batch=batch,
                samples_per_second=batch / times[str(batch)].seconds,
                gain=gain.ratio,
                interval=gain.interval,
                step_ms=times[str(batch)].seconds * 1e3,
                saved_float32=step.saved_bytes(batch, False),
                saved_autocast=step.saved_bytes(batch, True),
                peak_float32_mb=step.peak(batch) / 1e6,
                peak_autocast_mb=step.peak(batch, True) / 1e6,
            )
        )
    last_doubling = gain_per_sample(times, halved(float32.batch), max(1, float32.batch))
    limits = [BatchLimit(name, search.batch, len(search.tries), limit_mb) for name, search in searches.items()]
    first, last = rows[0], rows[-1]
    float32_slope = slopes(batches, [row.saved_float32 for row in rows])[0]
    autocast_slopes = slopes(batches, [row.saved_autocast for row in rows])
    # Large batches only: in small ones the gradients make the peak, not the activations.
    large = [float32.batch * eighths // 8 for eighths in (2, 3, 4)]
    earlier, later = slopes(large, [step.peak(batch) for batch in large])
    bend = abs(later / earlier - 1)
    raised = autocast.batch / max(1, float32.batch)
    gain = gain_per_sample(times, first.batch, last.batch)

    result = Result([Table("One training step", rows), Table("The largest batch that fits", limits)])
    result.key_figure("largest batch that fits, float32", float32.batch)
    result.key_figure("largest batch that fits, autocast", autocast.batch)
    result.key_figure("largest batch, autocast over float32", raised, unit="times")
    result.key_figure("best throughput", max(row.samples_per_second for row in rows), unit="samples/s")
    result.key_figure("throughput, largest batch over batch 1", gain.ratio, unit="times")

    result.claim(
        "What float32 keeps for the backward pass is exactly proportional to the batch size",
        len({row.saved_float32 / row.batch for row in rows}) == 1,
        f"{first.saved_float32} bytes per sample",
    )
    result.claim(
        "Autocast keeps a constant (16-bit copies of the weights) plus at most 0.6 times as much per sample",
        len(set(autocast_slopes)) == 1 and autocast_slopes[0] <= 0.6 * float32_slope,
        f"{autocast_slopes[0]:.0f} bytes per sample",
    )
    # Measured, because a GPU's allocator hands out larger blocks than requested, and others may use the same GPU.
    result.measured("Peak memory grows linearly with the batch size, with slopes equal to 2 %", bend < 0.02, f"{bend:.1e}")
    result.measured("Autocast raises the limit by more than 1.4 times", raised > 1.4, f"{raised:.2f} times")
    result.measured("The largest batch has at least twice the throughput of batch 1", gain.low >= 2, str(gain))
    # Not "within noise": on a noisy machine that would hold for any gain. The whole interval must be below the bound.
    result.measured(
        f"Throughput has leveled off at the limit: the last doubling of the batch gains less than {LEVEL - 1:.0%}",
        last_doubling.high < LEVEL,
        str(last_doubling),
    )
    if not params.device.is_cuda:
        what = f"the limit is a budget of {limit_mb:.1f} MB, because a CPU that runs out of memory raises no exception"
        result.notes.append(NO_CUDA.format(what=what, slug="batch-size"))
        result.notes.append(
            "No history of memory is drawn: only the allocator of a CUDA GPU records one. Notebook 10 draws a CPU's."
        )
    else:
        result.arrays["history"] = step_history(step, max(1, float32.batch // 2))
    result.arrays["tries"] = {name: [list(entry) for entry in search.tries] for name, search in searches.items()}
    return result
