"""Attention composed of operators, by the online softmax, and by each kernel of scaled_dot_product_attention."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.experiment.fits import SHARE, free_bytes
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.machine import free_memory_bytes
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.clock import SAMPLES, Ceiling, ceiling, interleaved
from hpml_lab.core.timing.counting import operators, peak_bytes, saved_tensors
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.tuning.experiments.tuned_networks import largest_difference, output_and_gradients
from hpml_lab.tuning.lessons.attention import composed_attention, one_pass, online_attention

# n, d and the block of the comparison in float64: blocks that divide n, that do not, of one key, of more keys than there are
CHECKED = ((16, 4, 8), (33, 8, 5), (7, 3, 1), (6, 2, 64))
SHAPE = dict(shown=1024, width=64, block=128, checked=CHECKED)
QUICK = SHAPE | dict(lengths=(128, 256, 512, 1024), gpu_lengths=(1024, 4096), heads=2, samples=SAMPLES)
FULL = SHAPE | dict(lengths=(512, 1024, 2048), gpu_lengths=(1024, 4096, 16384, 32768), heads=16, samples=9)
COMPOSED, ONLINE = "composed", "online softmax"
FUSED = {
    "SDPA, flash": SDPBackend.FLASH_ATTENTION,
    "SDPA, memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "SDPA, cuDNN": SDPBackend.CUDNN_ATTENTION,
}
BACKENDS = {"SDPA, math": SDPBackend.MATH} | FUSED
MOST_SPACINGS = 16  # of the largest error: the scores are rounded before the exponential multiplies what was rounded
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass
class AttentionRun(Row):
    """One implementation of attention, forward and backward, at one length."""

    implementation: str = column("implementation")
    length: int = column("length", "tokens")
    calls: int | None = column("operator calls")
    largest_mb: float | None = column("largest result of an operator", "MB")
    kept_mb: float | None = column("kept for the backward pass", "MB")
    peak_mb: float = column("peak memory, or what it would be", "MB")
    time_ms: float | None = column("time", "ms")
    rate_share: float | None = column("share of the matrix product rate")
    bandwidth_share: float | None = column("share of the copy bandwidth")
    gain: float | None = column("speed-up over composed", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)


def by_backend(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """scaled_dot_product_attention with one of its kernels, or a RuntimeError where that takes no such tensors."""
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v)


def inputs_of(length: int, params: Params, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Random Q, K and V of shape (1, heads, length, width), and the gradient of O."""
    shape = (4, 1, params.heads, length, params.width)
    return torch.randn(shape, device=params.device.torch, dtype=dtype).unbind()


def step_of(attention: Attention, tensors: tuple[Tensor, ...]) -> Callable[[], tuple[Tensor, ...]]:
    """Forward and backward: O and the gradients of Q, K and V."""
    *inputs, upstream = tensors
    return partial(output_and_gradients, attention, tuple(each.detach().requires_grad_() for each in inputs), upstream)


def implementations(params: Params, tensors: tuple[Tensor, ...]) -> tuple[dict[str, Attention], list[str]]:
    """What runs on this device with tensors of this type, and the names of the kernels that do not."""
    found: dict[str, Attention] = {COMPOSED: composed_attention, ONLINE: partial(online_attention, block=params.block)}
    missing = []
    for name, backend in BACKENDS.items():
        attention = partial(by_backend, backend)
        try:
            with collect_warnings():  # torch warns why it takes another
                step_of(attention, tensors)()
            found[name] = attention
        except RuntimeError:  # no available kernel
            missing.append(name)
    return found, missing


def kept_bytes(attention: Attention, tensors: tuple[Tensor, ...]) -> int:
    """Bytes that autograd keeps for the backward pass, without Q, K and V."""
    inputs = [each.detach().requires_grad_() for each in tensors[:3]]
    with saved_tensors(inputs) as saved:
        output = attention(*inputs)
        del output
    return sum(saved.values())


def free_memory(device: torch.device) -> float:
    """Bytes that are free, on the GPU or of the memory that this process may use."""
    return free_bytes(device) if device.type == "cuda" else free_memory_bytes()


def online_error(length: int, width: int, block: int, device: torch.device) -> float:
    """The largest difference of the online softmax from the composed form in float64, output and gradients."""
    tensors = torch.randn(4, 2, length, width, device=device, dtype=torch.float64).unbind()
    return largest_difference(*(step_of(f, tensors)() for f in (partial(online_attention, block=block), composed_attention)))


def ran(rows: Iterable[AttentionRun], implementation: str) -> list[AttentionRun]:
    """The lengths that an implementation has run."""
    return [row for row in rows if row.implementation == implementation and row.time_ms is not None]


def draw(result: Result):
    """Attention, forward and backward, by length. Left: time. Middle: what autograd keeps for the backward pass (lines), and
    the peak memory (dotted; a cross is a length that might not fit and was not run). A line twice as steep grows with the
    square of the length. Right: at the longest length that each ran, its share of the rate of a large matrix product."""
    rows = result.rows(AttentionRun)
    names = list(dict.fromkeys(row.implementation for row in rows))
    figure = style.new_figure(11, 3.8)
    times, memory, shares = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
    last = {}
    for index, name in enumerate(names):
        own = [row for row in rows if row.implementation == name]
        done = ran(rows, name)
        look = dict(color=style.CYCLE[index], marker=style.MARKERS[index], linestyle=style.LINES[index], markersize=5)
        lengths = [row.length for row in done]
        times.plot(lengths, [row.time_ms for row in done], label=name, **look)
        memory.plot(lengths, [row.kept_mb for row in done], **look)
        memory.plot([row.length for row in own], [row.peak_mb for row in own], ":", color=style.CYCLE[index], linewidth=1)
        refused = [row for row in own if row not in done]
        memory.plot([row.length for row in refused], [row.peak_mb for row in refused], "x", color=style.CYCLE[index])
        last[name] = done[-1]
    for axes, title, unit in ((times, "time", "time in ms"), (memory, "memory", "memory in MB")):
        axes.set(xscale="log", yscale="log", title=title, xlabel="length in tokens", ylabel=unit)
        axes.set_xticks(lengths := sorted({row.length for row in rows}), [f"{n:,}" for n in lengths], rotation=30, ha="right")
        axes.minorticks_off()
    names, percent = zip(*((f"{name}, {row.length:,}", 100 * row.rate_share) for name, row in last.items()), strict=True)
    horizontal_bars(shares, names, percent, labels="{:.2g} %", color=style.CYCLE)
    shares.set_xlabel("% of the matrix product rate")
    figure.legend(*times.get_legend_handles_labels(), loc="outside lower left", ncols=6, fontsize=8)
    return figure


def runs_of(
    attentions: dict[str, Attention], params: Params, dtype: torch.dtype, limit: Ceiling
) -> tuple[dict[tuple[str, int], AttentionRun], dict[tuple[str, int], SpeedUp], list[str]]:
    """{(implementation, length): its row}, the speed-ups over the composed form, and notes on lengths that were not run.

    A length is not run where the peak of the length before, grown with n², does not fit into the memory that is free.
    """
    device, rows, gains, notes = params.device.torch, {}, {}, []
    for length in params.gpu_lengths if params.device.is_cuda else params.lengths:
        tensors, steps = inputs_of(length, params, dtype), {}
        for name, attention in attentions.items():
            before = ran(rows.values(), name)
            needed = before[-1].peak_mb * (length / before[-1].length) ** 2 if before else 0.0
            if needed * 1e6 > SHARE * (free := free_memory(device)):
                rows[name, length] = AttentionRun(name, length, None, None, None, needed, None, None, None)
                gb = f"{needed / 1e3:,.3g} GB, and {free / 1e9:,.3g} GB are free"
                notes.append(f"{name}: {length:,} tokens would need up to {gb}, so this length was not run.")
                continue
            steps[name] = step_of(attention, tensors)
            called = operators(steps[name])
            rows[name, length] = AttentionRun(
                implementation=name,
                length=length,
                calls=len(called),
                largest_mb=max(op.written for op in called) / 1e6,
                kept_mb=kept_bytes(attention, tensors) / 1e6,
                peak_mb=peak_bytes(steps[name], device) / 1e6,
                time_ms=0.0,
                rate_share=0.0,
                bandwidth_share=sum(op.bytes for op in called) / limit.gb_per_s / 1e9,
            )
        base = COMPOSED if COMPOSED in steps else next(iter(steps), None)
        times = interleaved(steps, samples=params.samples, placebo=base, gpu=device if params.device.is_cuda else None)
        flops = 12 * params.heads * params.width * length**2  # two products forward, four backward
        for name in steps:
            row, seconds = rows[name, length], times[name].seconds
            row.time_ms, row.rate_share = seconds * 1e3, flops / seconds / limit.gflop_per_s / 1e9
            row.bandwidth_share /= seconds
            if base == COMPOSED != name:
                gains[name, length] = speed_up(times, COMPOSED, name)
                row.gain, row.interval, row.verdict = gains[name, length].columns.values()
    return rows, gains, notes


@experiment("attention-kernels", lecture="L3 L4", notebook="11_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def attention_kernels(params: Params) -> Result:
    """Attention: composed, by the online softmax, and by torch's kernels; memory n² or n."""
    device, is_cuda = params.device.torch, params.device.is_cuda
    dtype = params.device.dtype if is_cuda else torch.float32
    tensors = inputs_of((params.gpu_lengths if is_cuda else params.lengths)[0], params, dtype)
    attentions, missing = implementations(params, tensors)
    truth = step_of(composed_attention, tuple(each.double() for each in tensors))()
    errors = {name: largest_difference(step_of(f, tensors)(), truth) / torch.finfo(dtype).eps for name, f in attentions.items()}
    loop = kept_bytes(lambda q, k, v: one_pass(q, k, v, params.block)[0], tensors)
    rows, gains, notes = runs_of(attentions, params, dtype, ceiling(device, dtype))

    fused = [name for name in FUSED if name in attentions]
    firsts = {name: ran(rows.values(), name)[:2] for name in attentions}
    if not fused or min(map(len, firsts.values())) < 2:
        problem = "Attention needs a fused kernel of torch, and memory for two lengths at least."
        raise LabError(problem, " ".join(notes) or f"This torch has no fused kernel for {dtype} on {device}.")
    growth = {name: math.log(b.kept_mb / a.kept_mb) / math.log(b.length / a.length) for name, (a, b) in firsts.items()}
    longest = max(length for _, length in gains)
    fastest = max((name for name in fused if (name, longest) in gains), key=lambda name: gains[name, longest].ratio)
    best = max((row for name in fused for row in ran(rows.values(), name)), key=lambda row: row.rate_share)
    kept = {name: rows[name, params.shown].kept_mb for name in (COMPOSED, fastest)}

    result = Result([Table("Attention, forward and backward", list(rows.values()))], notes=notes)
    result.key_figure(f"kept at {params.shown} tokens, composed over SDPA", kept[COMPOSED] / kept[fastest], "times")
    result.key_figure("SDPA's fastest kernel over composed", str(gains[fastest, longest]))
    result.key_figure("length of this comparison", longest, "tokens")
    result.key_figure("SDPA's fastest kernel, share of the matrix product rate", best.rate_share)
    error = max(online_error(*sizes, device) for sizes in params.checked)
    result.claim(
        "In float64 the online softmax has the composed form's output and gradients, within 1e-12, for blocks of any size",
        error < 1e-12,
        f"{error:.0e}",
    )
    linear = [growth[name] for name in (ONLINE, *fused)]
    result.claim(
        "What is kept for the backward pass grows with n² if composed, with n by the online softmax and SDPA's fused kernels",
        growth[COMPOSED] > 1.95 and max(linear) < 1.05,
        f"n^{growth[COMPOSED]:.2f}; " + ", ".join(f"n^{power:.2f}" for power in linear),
    )
    first = firsts[COMPOSED][0]
    result.claim(
        "Blocks alone save nothing: autograd through the loop over them keeps more than the composed form",
        loop > first.kept_mb * 1e6,
        f"{loop / first.kept_mb / 1e6:.1f} times as much at {first.length} tokens",
    )
    result.claim(
        f"Every implementation is within {MOST_SPACINGS} roundings of its number format of attention in float64",
        max(errors.values()) < MOST_SPACINGS,
        ", ".join(f"{name} {error:.1f}" for name, error in errors.items()),
    )
    gain = gains[fastest, longest]
    result.measured(f"At {longest:,} tokens {fastest} is faster than the composed form", gain.faster, str(gain))
    share = f"{best.implementation} at {best.length:,} tokens: {best.rate_share:.0%}"
    third = "An SDPA kernel computes at a third of the rate of a large matrix product, or more"
    result.measured(third, best.rate_share >= 1 / 3, share)
    if missing:
        result.notes.append(f"Not on this {'GPU' if is_cuda else 'CPU'} for {dtype}: {', '.join(missing)}.")
    if not is_cuda:
        what = "a CPU has one fused kernel, and its cache holds what a GPU would have to write to memory"
        result.notes.append(NO_CUDA.format(what=what, slug="attention-kernels"))
    return result
