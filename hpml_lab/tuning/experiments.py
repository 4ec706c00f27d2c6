"""The experiments of notebook 10, by what a switch saves: a better convolution, memory, calls, kernels; and all together."""

# Each import registers its experiments.
from hpml_lab.tuning.experiments_convs import channels_last, cudnn_benchmark  # isort: skip
from hpml_lab.tuning.experiments_memory import batch_size  # isort: skip
from hpml_lab.tuning.experiments_checkpoint import checkpointing  # isort: skip
from hpml_lab.tuning.experiments_calls import conv_bias_bn, zero_grad  # isort: skip
from hpml_lab.tuning.experiments_debug import debug_apis  # isort: skip
from hpml_lab.tuning.experiments_kernels import fused_layernorm, pointwise_fusion  # isort: skip
from hpml_lab.tuning.experiments_optimizers import fused_optimizers  # isort: skip
from hpml_lab.tuning.experiments_switches import all_switches  # isort: skip

__all__ = [
    "cudnn_benchmark",
    "batch_size",
    "conv_bias_bn",
    "zero_grad",
    "debug_apis",
    "pointwise_fusion",
    "checkpointing",
    "fused_optimizers",
    "fused_layernorm",
    "channels_last",
    "all_switches",
]
