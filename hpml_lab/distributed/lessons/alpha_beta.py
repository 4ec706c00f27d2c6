"""What an all-reduce costs by the alpha-beta model, fitted to measured times and extrapolated to thousands of ranks.

A message of m bytes over a link takes α + m / β seconds: α is the latency, β the bandwidth. For n bytes on N ranks:

    ring          2 (N − 1) · (α + n / (N β))
    tree          2 ⌈log₂ N⌉ · α + 2 n / β
    hierarchical  a ring inside each node of G ranks, and between the M = N / G nodes a tree on n / G bytes

The ring sends the fewest bytes, but its latency grows with N. The tree is Sanders' double tree, as in NCCL: two trees, each of
which carries half of the bytes in small pieces (Sanders, Speck and Träff, Parallel Computing 35, 2009).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hpml_lab.core.system.errors import LabError

MIB = 1 << 20
NODE = 8  # GPUs that share NVLink in the usual node


@dataclass(frozen=True)
class Interconnect:
    """A connection between two ranks: `latency` α in seconds per message, `bandwidth` β in bytes per second."""

    name: str
    latency: float
    bandwidth: float
    source: str = "measured here"


_NCCL = "latency: NCCL's cost table, ring with the Simple protocol (github.com/NVIDIA/nccl, src/graph/tuning.cc)"

# Published constants. A bandwidth is what NCCL reaches, not the number on the box, and it is that of one card or GPU.
LINKS = {
    link.name: link
    for link in (
        Interconnect("NVLink 4", 3.4e-6, 370e9, f"{_NCCL}; bandwidth: 370 of 450 GB/s (nccl-tests, issue 212)"),
        Interconnect("InfiniBand NDR", 14e-6, 47e9, f"{_NCCL}; bandwidth: 46 to 48 of 50 GB/s (nccl-tests, issue 290)"),
        Interconnect("InfiniBand HDR", 14e-6, 24e9, f"{_NCCL}; bandwidth: 24 of 25 GB/s (nccl-tests, issue 119)"),
        Interconnect("PCIe 3.0 x16", 5.7e-6, 12e9, f"{_NCCL}; bandwidth: PCI_BW in src/graph/topo.h"),
        Interconnect(
            "10 Gbit/s Ethernet",
            250e-6,
            1.18e9,
            "latency: half of a round trip of 500 µs in a data center (J. Dean, Numbers everyone should know); bandwidth: "
            "1,448 of the 1,538 bytes that a frame takes on an Ethernet cable are TCP's payload",
        ),
    )
}
NVLINK = LINKS["NVLink 4"]


# ---- one all-reduce ---------------------------------------------------------------------------------------------------------


def ring_seconds(ranks: int, nbytes: float, link: Interconnect) -> float:
    """2 (N − 1) · (α + n / (N β)): N − 1 steps of reduce-scatter, N − 1 of all-gather, each with an N-th of the bytes."""
    return 2 * (ranks - 1) * (link.latency + nbytes / (ranks * link.bandwidth))


def tree_seconds(ranks: int, nbytes: float, link: Interconnect) -> float:
    """2 ⌈log₂ N⌉ · α + 2 n / β: up the tree and down again; 0 for one rank."""
    depth = (ranks - 1).bit_length()
    return 2 * depth * link.latency + 2 * nbytes / link.bandwidth if depth else 0.0


def hierarchical_seconds(
    ranks: int, nbytes: float, link: Interconnect, inside: Interconnect = NVLINK, node: int = NODE
) -> float:
    """Reduce-scatter inside each node, all-reduce of each rank's n / G between the nodes over `link`, all-gather inside.

    Every rank has a card of its own, so that all G parts travel at once. Up to G ranks fit into one node.
    """
    if ranks > node and ranks % node:
        raise LabError(f"{ranks} ranks do not fill nodes of {node}.", f"Use a multiple of {node}.")
    between = tree_seconds(ranks // node, nbytes / node, link) if ranks > node else 0.0
    return ring_seconds(min(ranks, node), nbytes, inside) + between


ALGORITHMS: dict[str, Callable[[int, float, Interconnect], float]] = {
    "ring": ring_seconds,
    "tree": tree_seconds,
    "hierarchical": hierarchical_seconds,
}


# ---- what it means for training ---------------------------------------------------------------------------------------------


# FLOP per second of one H100 in the training of Llama 3 405B: 380 to 430e12 (The Llama 3 Herd of Models, 2024, table 4).
GPU_FLOPS = 400e12


def transformer_seconds(parameters: float, tokens: float) -> float:
    """Forward and backward pass of one H100: 6 FLOP per parameter and token (Kaplan et al., 2020)."""
    return 6 * parameters * tokens / GPU_FLOPS


def efficiency(compute_seconds: float, communication_seconds: float, overlap: float = 0.0) -> float:
    """compute / (compute + communication that is not hidden): the share of a rank's time that is work.

    overlap  the share of the compute behind which communication can hide: the backward pass is about 2/3 of it
    """
    return compute_seconds / (compute_seconds + max(0.0, communication_seconds - overlap * compute_seconds))


def weak_efficiency(ranks: int, compute_seconds: float, nbytes: float, link: Interconnect, algorithm: str = "ring") -> float:
    """Weak scaling: each rank always computes `compute_seconds`, and N ranks do N times the work."""
    return efficiency(compute_seconds, ALGORITHMS[algorithm](ranks, nbytes, link))


def strong_efficiency(ranks: int, compute_seconds: float, nbytes: float, link: Interconnect, algorithm: str = "ring") -> float:
    """Strong scaling: the ranks share one rank's `compute_seconds`, so each has an N-th of them; speed-up / N."""
    return efficiency(compute_seconds / ranks, ALGORITHMS[algorithm](ranks, nbytes, link))


# ---- fit --------------------------------------------------------------------------------------------------------------------


def fit_link(ranks: int, sizes: Sequence[int], seconds: Sequence[float], smallest: int = MIB) -> Interconnect:
    """The link for which a ring of `ranks` best explains the measured times, by relative least squares.

    Only messages of at least `smallest` bytes count: small ones live in caches, in socket buffers and in the burst that a
    shaper lets through, and a line through all of them finds a bandwidth that no link has. For the same reason the line may
    meet the axis below 0; α is then 0.
    """
    if ranks < 2:
        raise LabError("One rank sends nothing, so there is no link to fit.", "Measure at least two ranks.")
    points = [(size, time) for size, time in zip(sizes, seconds, strict=True) if size >= smallest]
    if len({size for size, _ in points}) < 2:
        raise LabError(f"A line needs two sizes of at least {smallest:,} bytes.", "Measure larger messages.")
    x, t = np.array(points, dtype=float).T
    intercept, slope = np.linalg.lstsq(np.stack([1 / t, x / t], axis=1), np.ones_like(t), rcond=None)[0]
    if slope <= 0:  # noise has turned the line around: lay it through the origin
        intercept, slope = 0.0, (x / t).sum() / ((x / t) ** 2).sum()
    return Interconnect("fitted", max(0.0, float(intercept)) / (2 * (ranks - 1)), 2 * (ranks - 1) / (ranks * float(slope)))
