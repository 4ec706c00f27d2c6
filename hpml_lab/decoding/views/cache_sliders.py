"""Sliders over what decoding needs: bytes of a cache by the sharing of heads, the share of its arithmetic that a GPU uses."""

from dataclasses import replace

from hpml_lab.core.show.formula_figure import Bars, Choice, Curves, FormulaFigure
from hpml_lab.decoding.lessons.decoder import DecoderSize
from hpml_lab.decoding.lessons.decoding_cost import LARGE, MACHINES, DecodingMachine, cache_bytes, step_bytes, step_flops

SIXTEEN_BITS = 2
H100, T4 = MACHINES["H100"], MACHINES["T4"]
NETS = {
    "0.3 billion weights": replace(LARGE, layers=16, heads=10, kv_heads=2, vocabulary=32_000),
    "6 billion": LARGE,
    "56 billion": replace(LARGE, layers=80, heads=64),
}
CONTEXTS = {f"{2**power:,}": 2**power for power in range(8, 18)}
BATCHES = {f"{2**power:,}": 2**power for power in range(11)}
SHARING = ("each query head its own", "shared as the net is made", "one for all query heads")
ALT = (
    "Left: GB of the cache of all sequences, by the sharing of heads of keys and values, next to the memory of two GPUs. "
    "Right: the share of its arithmetic that each GPU can use when it decodes, by the number of sequences."
)


def with_sharing(way: int, size: DecoderSize) -> DecoderSize:
    """The same net with the heads of keys and values that a way of SHARING has."""
    kv_heads = size.heads if way == 0 else (size.kv_heads if way == 1 else 1)
    return DecoderSize(
        layers=size.layers,
        heads=size.heads,
        kv_heads=kv_heads,
        head_dim=size.head_dim,
        vocabulary=size.vocabulary,
        length=size.length,
    )


def cache_gigabytes(way: int, size: DecoderSize, context: int, batch: int) -> float:
    """The cache of all sequences."""
    return cache_bytes(with_sharing(way, size), context, SIXTEEN_BITS, batch) / 1e9


def used_share(machine: DecodingMachine, size: DecoderSize, context: int, batch: int) -> float:
    """% of the peak: 100 where computing limits, less where memory does."""
    intensity = step_flops(size, 1, context, batch) / step_bytes(size, 1, context, SIXTEEN_BITS, batch)
    return 100 * min(1, intensity * machine.bytes_per_s / machine.flops_per_s)


def percent_of_peak(gpu: int, size: DecoderSize, context: int, batch: int) -> float:
    """By the GPU's number."""
    return used_share(H100, size, context, batch) if gpu == 0 else used_share(T4, size, context, batch)


def cache_sliders() -> FormulaFigure:
    """A bar for each sharing of heads, and a curve over the batch for each GPU."""
    choices = [
        Choice("net", NETS, "6 billion", slider=False),
        Choice("tokens so far", CONTEXTS, "2,048"),
        Choice("sequences", BATCHES, "32"),
    ]
    limits = {name: machine.memory_bytes / 1e9 for name, machine in MACHINES.items()}
    panels = [
        Bars(SHARING, cache_gigabytes, "GB of cache, 16 bits", "GB", ends=(0.01, 1e5), log=True, limits=limits),
        Curves(tuple(MACHINES), percent_of_peak, "% of peak", over="sequences", ends=(0, 103)),
    ]
    return FormulaFigure("decoding.cache_sliders", ALT, choices, panels)
