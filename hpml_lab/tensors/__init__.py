"""Tensors: what a tensor is, and what the machine under it can do (notebook 01).

Experiments, in the order of the notebook:
    tensor_basics   shapes, strides, views and copies, and the gradient of a sum
    cpu_vs_gpu      bandwidth, matrix products and a small CNN on both devices, and the roofline
Tools:
    shares_memory   whether two tensors lie in the same storage
    positions       the positions in its storage that a tensor reads
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.tensor_basics": ["tensor_basics"],
        "experiments.cpu_vs_gpu": ["cpu_vs_gpu"],
        "memory": ["shares_memory", "positions"],
    },
)
