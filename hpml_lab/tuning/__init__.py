"""Tuning: the PyTorch performance tuning guide, one optimization at a time (notebook 10).

Experiments, in the order of the notebook:
    cudnn_benchmark    cuDNN's search for the fastest convolution
    batch_size         throughput and memory up to the largest batch that fits
    conv_bias_bn       a bias before batch norm is wasted
    zero_grad          gradients to None instead of zero
    debug_apis         the cost of debugging tools, and what anomaly mode finds
    pointwise_fusion   GELU as five kernels and as one
    checkpointing      keep less for the backward pass and compute it again
    fused_optimizers   Adam as a loop, on lists, fused, and in Triton
    fused_layernorm    layer norm composed, fused and compiled
    channels_last      NCHW and NHWC
    all_switches       everything together on one training run
Tools:
    largest_batch      find the largest batch that fits; within_budget and until_out_of_memory say whether one fits
    compiled           compile a function and count the kernels that are generated
    TritonAdam         torch.optim.Adam as one Triton kernel (adam_kernel)
    triton_gelu        GELU as one Triton kernel (gelu_kernel)
For the notebook:
    gelu, layer_norm   composed of simple operators
    MlpBlock, deep_mlp small networks
    FAULTS             losses with a NaN or an infinity, for anomaly mode
    attempt, collect_warnings, saved_tensors   what a line raises, what it warns, what autograd keeps (of core)
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.cudnn_benchmark": ["cudnn_benchmark"],
        "experiments.batch_size": ["batch_size"],
        "experiments.conv_bias_bn": ["conv_bias_bn"],
        "experiments.zero_grad": ["zero_grad"],
        "experiments.debug_apis": ["debug_apis"],
        "experiments.pointwise_fusion": ["pointwise_fusion"],
        "experiments.checkpointing": ["checkpointing"],
        "experiments.fused_optimizers": ["fused_optimizers"],
        "experiments.fused_layernorm": ["fused_layernorm"],
        "experiments.channels_last": ["channels_last"],
        "experiments.all_switches": ["all_switches"],
        "batch_search": ["largest_batch", "within_budget", "until_out_of_memory"],
        "compilation": ["compiled"],
        "triton_adam": ["TritonAdam", "adam_kernel"],
        "triton_pointwise": ["triton_gelu", "gelu_kernel"],
        "anomaly": ["FAULTS"],
        "compositions": ["gelu", "layer_norm"],
        "networks": ["MlpBlock", "deep_mlp"],
        "hpml_lab.core.attempt": ["attempt"],
        "hpml_lab.core.warned": ["collect_warnings"],
        "hpml_lab.core.counting": ["saved_tensors"],
    },
)
