"""Tensors: what a tensor is, and what the machine under it can do (notebook 01).

Experiments, in the order of the notebook:
    tensor_basics   shapes, strides, views and copies, and the gradient of a sum
    cpu_vs_gpu      bandwidth, matrix products and a small CNN on both devices, and the roofline
    GpuGain, Images, Product, Copy, Roofline   rows of its tables
    peak_shares_of  its table of training per peak FLOP/s, of any run
    dot_product     one dot product in seven ways under the roofline, and four ways to add up
    Dot, Sum        rows of its tables
    utilization     a processor that is always busy, and the share of its measured peak that training loops reach: MFU and HFU
Lessons:
    linear_flops, convolution_flops, attention_flops    FLOPs of a forward pass
    training_flops, share_of_peak    FLOPs of a training step, and what it reaches of a peak
Tools:
    shares_memory   whether two tensors lie in the same storage
    positions       the positions in its storage that a tensor reads
    roofline        your own measured kernels under measured or given limits
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.tensors.experiments.tensor_basics import tensor_basics as tensor_basics
    from hpml_lab.tensors.experiments.cpu_vs_gpu import cpu_vs_gpu as cpu_vs_gpu
    from hpml_lab.tensors.experiments.cpu_vs_gpu.comparisons import GpuGain as GpuGain, peak_shares_of as peak_shares_of
    from hpml_lab.tensors.experiments.cpu_vs_gpu.rows import (
        Images as Images,
        Product as Product,
        Copy as Copy,
        Roofline as Roofline,
    )
    from hpml_lab.tensors.experiments.dot_product import dot_product as dot_product, Dot as Dot, Sum as Sum
    from hpml_lab.tensors.experiments.utilization import utilization as utilization
    from hpml_lab.tensors.lessons.model_flops import (
        linear_flops as linear_flops,
        convolution_flops as convolution_flops,
        attention_flops as attention_flops,
        training_flops as training_flops,
        share_of_peak as share_of_peak,
    )
    from hpml_lab.core.timing.roofline import roofline as roofline
    from hpml_lab.tensors.lessons.memory import shares_memory as shares_memory, positions as positions
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
