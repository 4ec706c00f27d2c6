"""Large nets on many H100s: what the formulas of a mesh are drawn for, by `mesh` and by its sliders."""

from hpml_lab.distributed import LINKS, Interconnect
from hpml_lab.model_parallel.lessons.mesh_cost import TransformerShape

PEAK = 989e12  # FLOP/s of an H100 in 16 bits, by its data sheet
MEMORY = {"H100": 80}  # GB
NVLINK, NODE = LINKS["NVLink 4"], 8
INFINIBAND = LINKS["InfiniBand NDR"]
TOKENS = 4096  # of a sequence; each micro-batch is one
BATCH = 1024  # sequences of a step, for all replicas together
NETS = {
    "1.2 billion parameters": TransformerShape(layers=24, width=2048, tokens=TOKENS),
    "6.4 billion": TransformerShape(layers=32, width=4096, tokens=TOKENS),
    "64 billion": TransformerShape(layers=80, width=8192, tokens=TOKENS),
    "412 billion": TransformerShape(layers=128, width=16384, tokens=TOKENS),
}


def inside_link(tensor: int) -> Interconnect:
    """NVLink up to a node of eight, InfiniBand beyond."""
    latency = NVLINK.latency if tensor <= NODE else INFINIBAND.latency
    bandwidth = NVLINK.bandwidth if tensor <= NODE else INFINIBAND.bandwidth
    return Interconnect(name="tensor axis", latency=latency, bandwidth=bandwidth)
