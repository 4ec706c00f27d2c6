"""The experiments of notebook 11, in two files: formats and matrix products, training."""

# Each import registers its experiments.
from hpml_lab.precision.experiments_numbers import fp16_vs_bf16, gemm_tensor_cores  # isort: skip
from hpml_lab.precision.experiments_training import amp_training, loss_scaling  # isort: skip

__all__ = ["gemm_tensor_cores", "amp_training", "loss_scaling", "fp16_vs_bf16"]
