"""One batch of ids looked up by both ways: time, memory, and whether rows and gradients are equal."""

from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional as F

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.experiment.fits import free_bytes as free_gpu_bytes
from hpml_lab.core.system.machine import free_memory_bytes
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.counting import peak_bytes
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.targets.lessons.one_hot import one_hot_bytes, product

RESERVE = 0.2  # of the free memory stays for others


@dataclass
class LookUp(Row):
    """Rows for one batch of ids from a table of one size, by both ways."""

    vocabulary: int = column("vocabulary")
    embedding_us: float = column("embedding", "µs")
    product_us: float | None = column("product alone", "µs", None)
    one_hot_us: float | None = column("one-hot and product", "µs", None)
    times_as_long: float | None = column("slowdown", default=None)
    interval: str | None = column("90 % interval", default=None)
    embedding_bytes: int = column("embedding, peak", "bytes", 0)
    one_hot_bytes: int = column("one-hot, peak by formula", "bytes", 0)
    counted_bytes: int | None = column("counted", "bytes", None)
    weight_bytes: int = column("weight", "bytes", 0)
    equal_rows: bool | None = column("rows bitwise equal", default=None)
    equal_gradients: bool | None = column("gradients bitwise equal", default=None)
    not_run: str | None = column("not run", default=None)


def look_up(ids: torch.Tensor, weight: torch.Tensor, one_hot_to: int, samples: int) -> tuple[LookUp, SpeedUp | None]:
    """Both ways for one size of the table; the one-hot way only up to `one_hot_to` rows, and if it fits into memory."""
    device, vocabulary = weight.device, len(weight)
    turns = partial(interleaved, samples=samples, gpu=device if device.type == "cuda" else None)
    works = {"embedding": partial(F.embedding, ids, weight)}
    needed = one_hot_bytes(len(ids), vocabulary)
    row = LookUp(
        vocabulary,
        0.0,
        embedding_bytes=peak_bytes(works["embedding"], device),
        one_hot_bytes=needed,
        weight_bytes=weight.nbytes,
    )
    # The gradient is of the size of the table, and exists twice for the comparison.
    needed += 3 * weight.nbytes
    if vocabulary > one_hot_to:
        row.not_run = f"needs {row.one_hot_bytes / 1e9:.3g} GB; this size stops at {one_hot_to:,} rows"
    elif not fits(needed, device):
        row.not_run = f"needs {row.one_hot_bytes / 1e9:.3g} GB; {free_bytes(device) / 1e9:.3g} GB are free"
    if row.not_run:
        row.embedding_us = turns(works)["embedding"].seconds * 1e6
        return row, None

    row.counted_bytes = peak_bytes(partial(product, ids, weight), device)
    row.equal_rows = torch.equal(product(ids, weight), F.embedding(ids, weight))
    row.equal_gradients = equal_gradients(ids, weight)
    works["one-hot"] = partial(product, ids, weight)
    times = turns(works, placebo="embedding")
    slower = speed_up(times, "embedding", "one-hot")
    row.embedding_us, row.one_hot_us = times["embedding"].seconds * 1e6, times["one-hot"].seconds * 1e6
    row.times_as_long, row.interval = slower.slowdown.ratio, slower.slowdown.interval
    vectors = F.one_hot(ids, vocabulary).to(weight.dtype)
    row.product_us = turns({"product": lambda: vectors @ weight})["product"].seconds * 1e6
    return row, slower


def equal_gradients(ids: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether both ways give the table bitwise the same gradient. The gradient of the rows is made of small integers: no sum
    of them is rounded, so that its order, which the two ways do not share, changes nothing."""
    table = weight.detach().requires_grad_()
    rows = F.embedding(ids, table)
    upstream = torch.randint(-8, 9, rows.shape, generator=torch.Generator().manual_seed(0)).to(weight)
    (found,) = torch.autograd.grad(rows, table, upstream)
    return torch.equal(found, torch.autograd.grad(product(ids, table), table, upstream)[0])


def free_bytes(device: torch.device) -> int:
    """Memory that is free on the device now."""
    return int(free_gpu_bytes(device)) if device.type == "cuda" else free_memory_bytes()


def fits(needed: int, device: torch.device) -> bool:
    """Whether `needed` bytes can be had on the device with something left for others."""
    return needed <= (1 - RESERVE) * free_bytes(device)
