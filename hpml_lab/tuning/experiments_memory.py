"""The experiment of notebook 10 on the batch size: throughput, memory, and the largest batch that fits."""

import functools

import psutil
import torch

from hpml_lab.core import style
from hpml_lab.core.counting import peak_bytes, saved_tensors
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timing import measure
from hpml_lab.tuning.blocks import mlp_blocks
from hpml_lab.tuning.limits import capped, clean, largest_batch, until_out_of_memory, within_budget

NOTEBOOK = "10_tuning"


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
        """Bytes that the forward pass keeps for the backward pass, parameters not counted."""
        with saved_tensors(self.net.parameters()) as saved:
            self.loss(batch, amp)
        return sum(saved.values())


def draw_batch_size(result: Result):
    """Left: samples per second against the batch size. Right: the most memory in use in a step against
    the batch size in float32 and under autocast, with the limit and the largest batches that fit below it."""
    figure = style.new_figure(9.5, 3.8)
    left, right = figure.subplots(1, 2)
    batches = [row["batch"] for row in result.rows]
    left.plot(batches, [row["samples/s"] for row in result.rows], "o-", color=style.BLUE)
    left.set(xscale="log", yscale="log", xlabel="batch size", ylabel="samples per second")
    limits = result.arrays["limits"]
    for name, colour, marker in (("float32", style.ORANGE, "o"), ("autocast", style.BLUE, "s")):
        right.plot(batches, [row[f"peak {name}, MB"] for row in result.rows], marker + "-", color=colour, label=name)
        right.axvline(limits[name], color=colour, linestyle=":")
    if result.arrays["limit, MB"] is not None:
        right.axhline(result.arrays["limit, MB"], color=style.GREY, linestyle="--", label="limit")
    right.set(xscale="log", yscale="log", xlabel="batch size (dotted: the largest that fits)", ylabel="most memory in use, MB")
    right.legend()
    return figure


@experiment(
    "batch-size",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_batch_size,
    quick=dict(blocks=4, width=64, batches=(1, 4, 16, 64, 256, 1024), cpu_budget=8 << 20, gpu_budget=1 << 30, samples=3),
    full=dict(
        blocks=16, width=512, batches=(1, 4, 16, 64, 256, 1024, 4096, 16384), cpu_budget=256 << 20, gpu_budget=None, samples=7
    ),
    uses=("cuda",),
)
def batch_size(size: Size) -> Result:
    """Throughput and memory against the batch size, up to the largest batch that fits."""
    device = size.device.torch
    half = torch.float16 if size.device.dtype == torch.float16 else torch.bfloat16
    step = BatchStep(size.blocks, size.width, device, half)
    for amp in (False, True):  # the optimizer's momentum and a library's workspace stay: they come before the measurement
        step(2, amp)
    # A quarter of what is free: the search tries up to about twice the budget.
    budget = size.gpu_budget if size.device.is_cuda else min(size.cpu_budget, psutil.virtual_memory().available // 4)
    clean(step.clear, device)
    found = {}
    again = []
    with capped(budget, device):
        for name, amp in (("float32", False), ("autocast", True)):
            run = functools.partial(step, amp=amp)
            fits = until_out_of_memory(run, step.clear, device) if size.device.is_cuda else within_budget(run, budget, device)
            found[name] = largest_batch(fits)
            again.append(fits(found[name].batch))
    # Never beyond the limit: a batch that does not fit on a GPU may fill a CPU's memory.
    batches = [batch for batch in size.batches if batch <= found["float32"].batch]
    rows = []
    for batch in batches:
        time = measure(lambda batch=batch: step(batch), samples=size.samples)
        rows.append(
            {
                "batch": batch,
                "samples/s": batch / time.seconds,
                "step, ms": time.seconds * 1e3,
                "saved float32, bytes": step.saved_bytes(batch, False),
                "saved autocast, bytes": step.saved_bytes(batch, True),
                "peak float32, MB": peak_bytes(lambda batch=batch: step(batch), device) / 1e6,
                "peak autocast, MB": peak_bytes(lambda batch=batch: step(batch, True), device) / 1e6,
            }
        )

    first, last = rows[0], rows[-1]
    kept = {name: _slopes(batches, [row[f"saved {name}, bytes"] for row in rows]) for name in found}
    # Small batches are left out: there the gradients, not the activations, make the peak.
    large = [found["float32"].batch * part // 8 for part in (2, 3, 4)]
    line = _slopes(large, [peak_bytes(lambda batch=batch: step(batch), device) for batch in large])
    apart = abs(line[-1] / line[-2] - 1)
    limits = {name: one.batch for name, one in found.items()}
    steps = [len(one.tries) <= 2 * max(1, one.batch).bit_length() + 2 for one in found.values()]
    more = limits["autocast"] / max(1, limits["float32"])
    times = last["samples/s"] / first["samples/s"]
    plateau = last["samples/s"] / rows[-2]["samples/s"]
    claims = [
        Claim(
            "what float32 keeps for the backward pass is proportional to the batch, to the byte",
            len({row["saved float32, bytes"] / row["batch"] for row in rows}) == 1,
            f"{first['saved float32, bytes']} bytes a sample",
        ),
        Claim(
            "under autocast it is a constant (16-bit copies of the weights) plus at most 0.6 times as much a sample",
            len(set(kept["autocast"])) == 1 and kept["autocast"][0] <= 0.6 * kept["float32"][0],
            f"{kept['autocast'][0]:.0f} bytes a sample",
        ),
        # Measured, for a GPU's allocator hands out larger blocks than it was asked for, and others may use the same GPU.
        Claim(
            "the peak grows in a straight line with the batch: equal slopes, to 2 %", apart < 0.02, f"{apart:.1e}", exact=False
        ),
        Claim(
            "the search ends with a batch that fitted and one sample more that did not",
            all({(one.batch, True), (one.batch + 1, False)} <= set(one.tries) for one in found.values()),
            str(limits),
        ),
        Claim("tried once more, each of the two limits still fits", all(again), exact=False),
        Claim(
            "it takes at most 2 log₂ of the batch tries, and 4 for the ends",
            all(steps),
            f"{[len(one.tries) for one in found.values()]}",
        ),
        Claim("autocast raises the limit by more than 1.4 times", more > 1.4, f"{more:.2f} times", exact=False),
        Claim(
            "the largest batch gives at least twice the samples per second of batch 1", times >= 2, f"{times:.1f}×", exact=False
        ),
        Claim(
            "there is a plateau: the last 4 times larger batch gains less than 2 times",
            plateau < 2,
            f"{plateau:.2f}×",
            exact=False,
        ),
    ]
    quantities = {
        "largest batch that fits, float32": limits["float32"],
        "largest batch that fits, autocast": limits["autocast"],
        "autocast over float32, times": more,
        "best throughput, samples/s": max(row["samples/s"] for row in rows),
        "throughput of the largest over batch 1, times": times,
    }
    notes = []
    if not size.device.is_cuda:
        what = (
            f"the limit is a budget of {budget / 1e6:.1f} MB, because a CPU out of memory raises nothing that could be caught"
        )
        notes.append(NO_CUDA.format(what=what, slug="batch-size"))
    tries = {name: [list(one) for one in search.tries] for name, search in found.items()}
    arrays = {"limits": limits, "limit, MB": None if budget is None else budget / 1e6, "tries": tries}
    return Result(rows, claims, quantities, notes, arrays)


def _slopes(batches: list[int], amounts: list[float]) -> list[float]:
    """What each further sample adds, between neighbours of the curve."""
    pairs = list(zip(batches, amounts, strict=True))
    return [(b - a) / (n - m) for (m, a), (n, b) in zip(pairs, pairs[1:], strict=False)]
