"""Decoding with a cache of keys and values: the same tokens for a fraction of the work, and why memory is then the limit."""

import copy
import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.timing.clock import Ceiling, captured, ceiling, interleaved
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.core.timing.roofline import draw_roof
from hpml_lab.decoding.experiments.cached_step import cached_step, scores_behind
from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize, KVCache, decode, decode_again
from hpml_lab.decoding.lessons.decoding_cost import (
    LARGE,
    MACHINES,
    DecodingMachine,
    batch_at_ridge,
    cache_bytes,
    decode_rate,
    price_of_tokens,
    step_bytes,
    step_flops,
    step_intensity,
)
from hpml_lab.decoding.lessons.python_text import python_text, trained_decoder

NOTEBOOK = "22_decoding"
READER = DecoderSize(layers=2, heads=4, kv_heads=2, head_dim=16, vocabulary=128, length=256)  # trained on text
SMALL = DecoderSize(layers=4, heads=8, kv_heads=2, head_dim=64, length=512)
QUICK = dict(timed=SMALL, gpu=SMALL, steps=150, prompt=64, new=96, prefill=128, batches=(1, 4, 16, 64))

FULL = dict(
    timed=DecoderSize(layers=8, heads=16, kv_heads=4, head_dim=64, length=1024),
    gpu=DecoderSize(layers=16, heads=16, kv_heads=4, head_dim=128, vocabulary=32_000, length=4096),
    steps=1500,
    prompt=64,
    new=192,
    prefill=512,
    batches=(1, 4, 16, 64, 256),
)
CONTEXT = 2048  # tokens, of what LARGE decodes
AGAIN, CACHED = "computed again", "with a cache"
SHARING = {"multi-head": 1, "grouped-query": 2, "multi-query": None}  # query heads to a head of keys and values; None: all
BOUND = 1e-10  # of the scores, in float64


@dataclass
class SameTokens(Row):
    """Greedy decoding of one prompt by both ways, in one type of number."""

    dtype: str = column("numbers")
    same: int = column("equal tokens, from the first")
    tokens: int = column("tokens")
    difference: float = column("largest difference of the scores")
    gap: float = column("smallest lead of the best token")


@dataclass
class CacheSize(Row):
    """What a cache holds and what a step computes, counted and by formula, by the sharing of heads."""

    attention: str = column("attention")
    kv_heads: int = column("heads of K and V")
    counted_bytes: int = column("cache of a sequence, counted", "bytes")
    formula_bytes: int = column("by formula", "bytes")
    prefill_flops: int = column("FLOPs of the prompt, counted")
    prefill_formula: int = column("of the prompt, by formula")
    decode_flops: int = column("FLOPs of one token, counted")
    decode_formula: int = column("of one token, by formula")


@dataclass
class GrowingStep(Row):
    """One more token behind so many: by computing all again, and with a cache."""

    before: int = column("tokens so far")
    again_ms: float = column("computed again", "ms")
    cached_ms: float = column("with a cache", "ms")


@dataclass
class RoofStep(Row):
    """One step of a larger net under the roofline: the prompt at once, or one token of each sequence of a batch."""

    step: str = column("step")
    batch: int = column("sequences")
    tokens: int = column("new tokens")
    intensity: float = column("intensity", "FLOP/byte")
    time_ms: float = column("time", "ms")
    rate: float = column("rate", "GFLOP/s")
    share: float = column("rate / roofline")
    tokens_per_s: float = column("tokens per second")


@dataclass
class MachinePrice(Row):
    """The roofs of a machine for decoding with a large net: no figure can be better."""

    machine: str = column("machine")
    ridge: float = column("ridge", "FLOP/byte")
    turn: int | None = column("batch from which computing limits")
    alone: float = column("tokens per second, batch 1")
    together: float | None = column("tokens per second, batch 64", "", None)
    alone_price: float | None = column("a million tokens, batch 1", "$", None)
    together_price: float | None = column("a million tokens, batch 64", "$", None)


# ---- the same tokens -------------------------------------------------------------------------------------------------


@torch.no_grad()
def both_ways(net: Decoder, prompt: Tensor, new: int) -> SameTokens:
    """Decode by both ways; compare the scores of each step on the tokens of the first."""
    again, cached = decode_again(net, prompt, new)[0], decode(net, prompt, new)[0]
    start = prompt.shape[1]
    stepwise = scores_behind(net, again[None, :-1], start - 1)[0, start - 1 :]
    whole = torch.cat([net(again[None, : at + 1], last_only=True)[0] for at in range(start - 1, start + new - 1)])
    best = whole.topk(2).values.double()
    equal = (again == cached)[start:].long().cumprod(0).sum()
    return SameTokens(
        dtype=str(net.scores.weight.dtype).removeprefix("torch."),
        same=int(equal),
        tokens=new,
        difference=float((stepwise - whole).abs().max()),
        gap=float((best[:, 0] - best[:, 1]).min()),
    )


# ---- counts ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def counted(size: DecoderSize, attention: str, prompt: int, length: int) -> CacheSize:
    """Bytes of a cache by its storages, and FLOPs of the prompt and of the next token as torch counts them."""
    net = Decoder(size).eval()
    cache = KVCache(size, 1, length, like=net.scores.weight)
    flops = []
    for new in (prompt, 1):
        # Attention as two products: before 2.15 torch counts nothing of its fused kernel on a CPU.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            net(torch.zeros(1, new, dtype=torch.long), cache, last_only=True)
        flops.append(counter.get_total_flops())
    held = sum({each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in (cache.keys, cache.values)}.values())
    return CacheSize(
        attention=attention,
        kv_heads=size.kv_heads,
        counted_bytes=held,
        formula_bytes=cache_bytes(size, length, 4),
        prefill_flops=flops[0],
        prefill_formula=step_flops(size, prompt, 0),
        decode_flops=flops[1],
        decode_formula=step_flops(size, 1, prompt),
    )


# ---- times -----------------------------------------------------------------------------------------------------------


def growing(net: Decoder, lengths: tuple[int, ...]) -> tuple[list[GrowingStep], dict]:
    """Times of one more token by both ways, and those of the longest in turns with a placebo."""
    rows, times = [], {}
    for before in lengths:
        again = torch.no_grad()(partial(net, torch.zeros(1, before + 1, dtype=torch.long), last_only=True))
        works = {AGAIN: again, CACHED: cached_step(net, 1, before)}
        times = interleaved(works, placebo=AGAIN)
        rows.append(GrowingStep(before, 1e3 * times[AGAIN].seconds, 1e3 * times[CACHED].seconds))
    return rows, times


def under_the_roof(params: Params, net: Decoder, limits: Ceiling) -> list[RoofStep]:
    """The prompt at once, and one token of each sequence of ever larger batches."""
    before, number_bytes = params.prefill, net.scores.weight.dtype.itemsize
    shapes = {"prefill": (before, 0, 1)} | {f"decode, batch {batch}": (1, before, batch) for batch in params.batches}
    works, gpu = {name: cached_step(net, *shape) for name, shape in shapes.items()}, None
    if params.device.is_cuda:
        gpu = net.scores.weight.device
        works = {name: captured(work, gpu) for name, work in works.items()}
    times = interleaved(works, gpu=gpu)
    rows = []
    for name, (new, at, batch) in shapes.items():
        seconds, intensity = times[name].seconds, step_intensity(net.size, new, at, number_bytes, batch)
        rate = step_flops(net.size, new, at, batch) / seconds / 1e9
        share, tokens = rate / limits.attainable(intensity), new * batch
        rows.append(RoofStep(name, batch, tokens, intensity, 1e3 * seconds, rate, share, tokens / seconds))
    return rows


def prices(limits: Ceiling) -> list[MachinePrice]:
    """What the roofs allow a large net in 16 bits, on machines of which the constants are known, and on this one; nothing where
    weights and caches do not fit."""
    rows = []
    here = DecodingMachine(1e9 * limits.gb_per_s, 1e9 * limits.gflop_per_s, memory_bytes=math.inf, per_hour=math.nan)
    for name, machine in (MACHINES | {"this machine": here}).items():
        fit = [batch for batch in (1, 64) if step_bytes(LARGE, 1, CONTEXT, 2, batch) <= machine.memory_bytes]
        rates = [decode_rate(LARGE, CONTEXT, 2, batch, machine) if batch in fit else None for batch in (1, 64)]
        costs = [None if machine is here or rate is None else price_of_tokens(rate, machine.per_hour) for rate in rates]
        rows.append(MachinePrice(name, machine.ridge, batch_at_ridge(LARGE, CONTEXT, 2, machine.ridge), *rates, *costs))
    return rows


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: the time of one more token, by the tokens so far; without a cache it grows with them. Right: one step of a larger
    net under the roofline. The prompt at once uses each weight for all of its tokens, one token of one sequence uses it once:
    a batch of sequences moves to the right, until their caches are what is read."""
    figure = style.new_figure(10, 4.4)
    left, right = figure.subplots(1, 2)
    rows = result.rows(GrowingStep)
    lengths = [row.before for row in rows]
    left.plot(lengths, [row.again_ms for row in rows], "o-", color=style.ORANGE, label=AGAIN)
    left.plot(lengths, [row.cached_ms for row in rows], "s--", color=style.BLUE, label=CACHED)
    left.set(xlabel="tokens so far", ylabel="time of one more token, ms", ylim=(0, None), title="A cache")
    left.legend()
    limits = result.arrays["ceiling"]
    draw_roof(right, Ceiling(limits["GB/s"], limits["GFLOP/s"], threads=1), style.INK, "measured limits")
    steps = result.rows(RoofStep)
    for index, row in enumerate(steps):
        look = dict(color=style.CYCLE[index % len(style.CYCLE)], marker=style.MARKERS[index % len(style.MARKERS)])
        right.plot([row.intensity], [row.rate], linestyle="none", markersize=8, label=row.step, **look)
    right.legend(fontsize=8, loc="lower right")
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("kv-cache", lecture="own", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def kv_cache(params: Params) -> Result:
    """Decoding with and without a cache of keys and values: tokens, bytes, FLOPs, and where both phases stand."""
    net = trained_decoder(READER, params.steps)
    prompt = python_text()[None, : params.prompt]
    same = [
        both_ways(copy.deepcopy(net).to(dtype), prompt, params.new) for dtype in (torch.float64, torch.float32, torch.bfloat16)
    ]
    sizes = {name: replace(READER, kv_heads=READER.heads // (group or READER.heads)) for name, group in SHARING.items()}
    caches = [counted(size, name, params.prompt, READER.length) for name, size in sizes.items()]
    lengths = tuple(READER.length // part - 1 for part in (8, 4, 2, 1))
    grown, times = growing(net, lengths)
    on_gpu = params.device.is_cuda
    dtype = torch.bfloat16 if on_gpu else torch.float32
    limits = ceiling(params.device.torch, dtype)
    with torch.device(params.device.torch):
        torch.manual_seed(0)
        large = Decoder(params.gpu if on_gpu else params.timed).to(dtype).eval()
    steps, billions = under_the_roof(params, large, limits), step_bytes(LARGE, 1, 0, 1, batch=0) / 1e9  # of weights

    result = Result(
        [
            Table(f"{params.new} tokens behind a prompt of {params.prompt}", same),
            Table("A cache by the sharing of heads, float32", caches),
            Table("One more token", grown),
            Table(f"One step behind {params.prefill} tokens, {str(dtype).removeprefix('torch.')}", steps),
            Table(f"Roofs of decoding with {billions:.2g} billion weights in 16 bits, {CONTEXT} tokens", prices(limits)),
        ],
        arrays={"ceiling": {"GB/s": limits.gb_per_s, "GFLOP/s": limits.gflop_per_s}},
    )
    add_key_figures(result, large.size, params.prefill, dtype.itemsize, limits.ridge)
    add_claims(result, times)
    return result


def add_key_figures(result: Result, size: DecoderSize, before: int, number_bytes: int, ridge: float) -> None:
    last, steps = result.rows(GrowingStep)[-1], result.rows(RoofStep)
    result.key_figure(f"token {last.before + 1}, computed again", last.again_ms, unit="ms")
    result.key_figure(f"token {last.before + 1}, with a cache", last.cached_ms, unit="ms")
    result.key_figure("intensity of the prompt at once", steps[0].intensity, unit="FLOP/byte")
    result.key_figure("intensity of one token", steps[1].intensity, unit="FLOP/byte")
    result.key_figure("ridge of this machine", ridge, unit="FLOP/byte")
    turn = batch_at_ridge(size, before, number_bytes, ridge)
    result.key_figure("batch from which computing limits decoding, by formula", "none" if turn is None else turn)


def add_claims(result: Result, times: dict) -> None:
    exact, *others = result.rows(SameTokens)
    result.claim(
        "In float64 decoding with a cache gives the greedy tokens of computing all again: scores differ by less than 1e-10, "
        "and the best token leads by more",
        exact.same == exact.tokens and exact.difference < BOUND < exact.gap,
        f"{exact.same} tokens; scores differ by {exact.difference:.1g}, the smallest lead is {exact.gap:.1g}",
    )
    result.measured(
        "They are the same tokens in float32 and in bfloat16, too",
        all(row.same == row.tokens for row in others),
        "; ".join(f"{row.dtype}: {row.same} of {row.tokens}, lead {row.gap:.1g} at least" for row in others),
    )
    caches = result.rows(CacheSize)
    result.claim(
        "A cache takes 2 · L · H_kv · d · n · b bytes, counted by its storages: H / H_kv times less where query heads share",
        all(row.counted_bytes == row.formula_bytes > 0 for row in caches)
        and all(row.counted_bytes * READER.heads == caches[0].counted_bytes * row.kv_heads for row in caches),
        ", ".join(f"{row.attention} {row.counted_bytes:,}" for row in caches),
    )
    result.claim(
        "torch counts the FLOPs of the formula, for the prompt and for one token",
        all((row.prefill_flops, row.decode_flops) == (row.prefill_formula, row.decode_formula) for row in caches),
        ", ".join(f"{row.attention} {row.decode_flops:,} a token" for row in caches),
    )
    gain = speed_up(times, AGAIN, CACHED)
    result.measured("Behind the longest text the next token is faster with the cache", gain.faster, str(gain))
    steps = [row for row in result.rows(RoofStep) if row.step != "prefill"]
    result.measured(
        f"A batch of {steps[-1].batch} gives over twice the tokens per second of one sequence: a weight is read once for all",
        steps[-1].tokens_per_s > 2 * steps[0].tokens_per_s,
        f"{steps[0].tokens_per_s:,.0f} and {steps[-1].tokens_per_s:,.0f} tokens per second",
    )
