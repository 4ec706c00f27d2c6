"""What a mesh of ranks costs in training, by formula: memory, bytes and waiting of data × tensor × pipeline parallelism.

R = D · T · P ranks train a transformer of L layers and width d, about 12 · L · d² parameters, on sequences of s tokens. Each of
the D replicas computes m micro-batches of b sequences a step. A rank has L/P layers, and of each weight in them a T-th.

    parameters     12 · L · d² / (T · P)
    computing      6 · parameters · m · b · s FLOPs                  2 forward, 4 backward
    tensor axis    4 · L/P · m · 2 (T−1)/T · a bytes                 four sums over activations of a layer, forward and backward
    pipeline axis  2 · m · a/T bytes                                 activations to the next stage, gradients back
    data axis      2 (D−1)/D · g · parameters bytes                  a sum over gradients of g bytes, once a step
    bubble         (P − 1) / (m + P − 1)
    memory         16 · parameters, or 16/D fully sharded, and 34 · b · s · d bytes a layer / T for the backward pass

with a = 2 · b · s · d bytes of activations of a micro-batch in 16 bits, sequence parallelism on the tensor axis, and at most P
micro-batches that are kept (1F1B). Attention's own s² and the vocabulary are left out.
Sources: Narayanan et al. 2021 (three axes), Korthikanti et al. 2022 (34 · b · s · d), Kaplan et al. 2020 (6 FLOPs).
"""

from dataclasses import dataclass

from hpml_lab.core.system.errors import LabError
from hpml_lab.distributed import Interconnect

STATE_BYTES, GRADIENT_BYTES, NUMBER_BYTES = 16, 2, 2  # a parameter with Adam in mixed precision; what is summed; an activation


@dataclass(frozen=True)
class TransformerShape:
    """L layers of width d, and sequences of s tokens."""

    layers: int
    width: int
    tokens: int


@dataclass(frozen=True)
class RankMesh:
    """D · T · P ranks: `data` replicas, of which each has `tensor` ranks in each of `pipeline` stages."""

    data: int
    tensor: int
    pipeline: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise LabError(f"An axis of {value} ranks is none ({name}).", "Use 1 for an axis that is not divided.")

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.pipeline


@dataclass(frozen=True)
class ReplicaBatch:
    """What each replica computes a step: m micro-batches of b sequences."""

    micro_batches: int
    sequences: int


# ---- what a rank has and sends -----------------------------------------------------------------------------------------


def parameters_of_rank(net: TransformerShape, mesh: RankMesh) -> float:
    """12 · L · d² / (T · P)."""
    return 12 * net.layers * net.width * net.width / (mesh.tensor * mesh.pipeline)


def flops_of_rank(net: TransformerShape, mesh: RankMesh, batch: ReplicaBatch) -> float:
    """6 · parameters · tokens of a step."""
    return 6 * parameters_of_rank(net, mesh) * batch.micro_batches * batch.sequences * net.tokens


def activation_bytes(net: TransformerShape, batch: ReplicaBatch) -> float:
    """2 · b · s · d: what one layer hands to the next, of a micro-batch."""
    return NUMBER_BYTES * batch.sequences * net.tokens * net.width


def tensor_bytes(net: TransformerShape, mesh: RankMesh, batch: ReplicaBatch) -> float:
    """What a rank sends along the tensor axis a step, with rings."""
    sums = 4 * net.layers / mesh.pipeline * batch.micro_batches
    return sums * 2 * (mesh.tensor - 1) / mesh.tensor * activation_bytes(net, batch)


def pipeline_bytes(net: TransformerShape, mesh: RankMesh, batch: ReplicaBatch) -> float:
    """What a rank between two stages sends along the pipeline a step; nothing where there is one stage."""
    sent = 2 * batch.micro_batches * activation_bytes(net, batch) / mesh.tensor
    return sent if mesh.pipeline > 1 else 0.0


def data_bytes(net: TransformerShape, mesh: RankMesh) -> float:
    """What a rank sends for the sum of all replicas' gradients, with a ring."""
    return 2 * (mesh.data - 1) / mesh.data * GRADIENT_BYTES * parameters_of_rank(net, mesh)


def state_bytes(net: TransformerShape, mesh: RankMesh, is_sharded: bool) -> float:
    """Parameters, gradients and optimizer state of a rank; fully sharded, each replica keeps its D-th of them."""
    return STATE_BYTES * parameters_of_rank(net, mesh) / (mesh.data if is_sharded else 1)


def kept_bytes_of_rank(net: TransformerShape, mesh: RankMesh, batch: ReplicaBatch) -> float:
    """What the first stage keeps for the backward pass: 34 · b · s · d a layer and micro-batch, shared by the tensor ranks."""
    kept = min(batch.micro_batches, mesh.pipeline) * net.layers / mesh.pipeline
    return 34 * batch.sequences * net.tokens * net.width / mesh.tensor * kept


# ---- how long a step takes -----------------------------------------------------------------------------------------------


def stage_seconds(net: TransformerShape, mesh: RankMesh, batch: ReplicaBatch, peak: float, link: Interconnect) -> float:
    """Computing and the tensor axis of all micro-batches: nothing computes while a sum over activations is under way."""
    sums = 4 * net.layers / mesh.pipeline * batch.micro_batches
    latency = sums * 2 * (mesh.tensor - 1) * link.latency
    return flops_of_rank(net, mesh, batch) / peak + latency + tensor_bytes(net, mesh, batch) / link.bandwidth


def mesh_seconds(
    net: TransformerShape, mesh: RankMesh, batch: ReplicaBatch, peak: float, inside: Interconnect, between: Interconnect
) -> float:
    """A training step: the stages with their bubble and messages, then the gradients' sum; nothing overlaps.

    peak     FLOP/s of a rank
    inside   the link of the tensor axis, whose ranks are neighbors; `between` that of the others
    """
    stages = stage_seconds(net, mesh, batch, peak, inside) * (batch.micro_batches + mesh.pipeline - 1) / batch.micro_batches
    messages = (2 * batch.micro_batches if mesh.pipeline > 1 else 0) * between.latency
    messages = messages + pipeline_bytes(net, mesh, batch) / between.bandwidth
    gradients = 2 * (mesh.data - 1) * between.latency + data_bytes(net, mesh) / between.bandwidth
    return stages + messages + gradients


def share_of_peak(
    net: TransformerShape, mesh: RankMesh, batch: ReplicaBatch, peak: float, inside: Interconnect, between: Interconnect
) -> float:
    """Which part of a step a rank computes at its peak."""
    return flops_of_rank(net, mesh, batch) / peak / mesh_seconds(net, mesh, batch, peak, inside, between)


# ---- from when on an axis costs more than it computes --------------------------------------------------------------------


def ranks_until_bound(width: int, tokens: int, peak: float, link: Interconnect) -> int:
    """The fewest tensor ranks of which each waits for the sums over activations at least as long as it computes.

    Both times grow with the tokens, computing by d² / T and the bytes by d: without latency T − 1 = 9/2 · d · bandwidth / peak.
    """
    net, batch = TransformerShape(layers=1, width=width, tokens=tokens), ReplicaBatch(micro_batches=1, sequences=1)
    ranks = 2
    while stage_seconds(net, mesh := RankMesh(1, ranks, 1), batch, peak, link) < 2 * flops_of_rank(net, mesh, batch) / peak:
        ranks += 1
    return ranks
