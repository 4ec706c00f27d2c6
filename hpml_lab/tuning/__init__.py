"""Tuning: the PyTorch performance tuning guide, one optimization at a time (notebook 11).

Experiments, in the order of the notebook:
    cudnn_benchmark    cuDNN's search for the fastest convolution
    batch_size         throughput and memory up to the largest batch that fits
    conv_bias_bn       a bias before batch norm is wasted
    zero_grad          gradients to None instead of zero
    debug_apis         the cost of debugging tools, and what anomaly mode finds
    pointwise_fusion   GELU as five kernels and as one
    checkpointing      keep less for the backward pass and compute it again
    offload            send what backward needs to another memory, or compute it again
    fused_optimizers   Adam, SGD and LAMB as a loop, on lists, fused, and in Triton
    fused_layernorm    layer norm composed, fused and compiled
    attention_kernels  attention composed, by the online softmax, and by each of torch's kernels
    channels_last      NCHW and NHWC
    all_switches       everything together on one training run
Tools:
    largest_batch      find the largest batch that fits; within_budget and until_out_of_memory say whether one fits
    memory_history     the allocations and frees of a GPU's allocator in a block; in_use makes memory over time of them
    compiled           compile a function and count the kernels that are generated
    guarded_launch     run a kernel in Triton's interpreter; a load or store that is wrong is a MemoryFault before it happens
    TritonAdam         torch.optim.Adam as one Triton kernel (adam_kernel)
    TritonLAMB         LAMB as two Triton kernels
    triton_gelu        GELU as one Triton kernel (gelu_kernel)
For the notebook:
    gelu, layer_norm   composed of simple operators
    MlpBlock, deep_mlp small networks
    Offload            hooks that send saved tensors away, into a mapped_file on a CPU
    kernel_speed       time the kernel that you wrote for an exercise, if there is a GPU
    FAULTS             losses with a NaN or an infinity, for anomaly mode
    attempt, collect_warnings, saved_tensors   what a line raises, what it warns, what autograd keeps (of core)
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.tuning.experiments.cudnn_benchmark import cudnn_benchmark as cudnn_benchmark
    from hpml_lab.tuning.experiments.batch_size import batch_size as batch_size
    from hpml_lab.tuning.experiments.conv_bias_bn import conv_bias_bn as conv_bias_bn
    from hpml_lab.tuning.experiments.zero_grad import zero_grad as zero_grad
    from hpml_lab.tuning.experiments.debug_apis import debug_apis as debug_apis
    from hpml_lab.tuning.experiments.pointwise_fusion import pointwise_fusion as pointwise_fusion
    from hpml_lab.tuning.experiments.checkpointing import checkpointing as checkpointing
    from hpml_lab.tuning.experiments.offload import offload as offload
    from hpml_lab.tuning.experiments.fused_optimizers import fused_optimizers as fused_optimizers
    from hpml_lab.tuning.experiments.fused_layernorm import fused_layernorm as fused_layernorm
    from hpml_lab.tuning.experiments.attention_kernels import attention_kernels as attention_kernels
    from hpml_lab.tuning.experiments.channels_last import channels_last as channels_last
    from hpml_lab.tuning.experiments.all_switches import all_switches as all_switches
    from hpml_lab.tuning.tools.batch_search import (
        largest_batch as largest_batch,
        within_budget as within_budget,
        until_out_of_memory as until_out_of_memory,
    )
    from hpml_lab.tuning.tools.memory_history import memory_history as memory_history, in_use as in_use
    from hpml_lab.tuning.tools.generated_kernels import compiled as compiled
    from hpml_lab.tuning.tools.guarded_memory import guarded_launch as guarded_launch, MemoryFault as MemoryFault
    from hpml_lab.tuning.tools.written_kernels import kernel_speed as kernel_speed
    from hpml_lab.tuning.lessons.triton_adam import TritonAdam as TritonAdam, adam_kernel as adam_kernel
    from hpml_lab.tuning.tools.triton_lamb import TritonLAMB as TritonLAMB
    from hpml_lab.tuning.lessons.triton_gelu import triton_gelu as triton_gelu, gelu_kernel as gelu_kernel
    from hpml_lab.tuning.lessons.faults import FAULTS as FAULTS
    from hpml_lab.tuning.lessons.compositions import gelu as gelu, layer_norm as layer_norm
    from hpml_lab.tuning.experiments.tuned_networks import deep_mlp as deep_mlp
    from hpml_lab.tuning.lessons.recomputing import MlpBlock as MlpBlock
    from hpml_lab.tuning.lessons.offloading import Offload as Offload, mapped_file as mapped_file
    from hpml_lab.core.system.attempt import attempt as attempt
    from hpml_lab.core.system.warned import collect_warnings as collect_warnings
    from hpml_lab.core.timing.counting import saved_tensors as saved_tensors
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
