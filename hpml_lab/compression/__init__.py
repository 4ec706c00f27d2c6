"""Smaller models: quantization and pruning (notebook 14).

Experiments, in the order of the notebook:
    affine_quantization     floats as integers with a scale and a zero point: rounding error by bits, and equality with torch
    dynamic_quantization    which layers the lecture's call changes, and where int8 weights make a model smaller and faster
    static_and_qat          rounding after training and during training, next to a float net that is trained as long
    pt2e_inductor           static int8 for convolutions: PT2E, its traps, and what inductor makes of it
    pruning                 the lecture's examples counted and drawn, what a file holds, and accuracy against sparsity
    sparse_formats          why zeros alone gain nothing: time and bytes of CSR, BSR, 2:4, and of rows and channels taken out
Further figures:
    explore_affine          controls for bits, range, scheme and layer: a layer's weights, their error, and the net's accuracy
    channel_ranges          the ranges of conv1's channels in three nets that compute the same
    accuracy_by_sparsity    random and L1, in each layer and over all; tuned and not, at once and step by step
    lost_masks              ways to train a pruned net on, and how many pruned weights each moves
    format_bytes            the memory of a matrix in each format, by its share of zeros
Tools:
    LeNet                   the lecture's net, with images (28 × 28), train, accuracy and trained (a net that is trained once)
    affine_parameters       a scale and a zero point for a value_range; quantize, dequantize and fake_quantize use them
    quantized               a copy of a model in one of FORMATS; quantized_modules lists which layers changed
    sizes                   bytes of a model's file and of its tensors, and bits of its values
    with_fake_quantization  a copy of a net whose layers round weights and inputs (FakeQuantized); calibrate it, then train on
    equalize_layers         cross-layer equalization: the same function with equal ranges; scale_channels makes them unequal
    random_mask             with l1_mask and channel_mask: what to prune of one weight; global_masks compares all layers
    apply_masks             set what the masks prune to 0; weights_of names the weights of a net, zeros counts what is 0
    without_zero_channels   a smaller LeNet without the channels that are all zeros (weakest and zero_channels choose and clear)
    two_of_four             a matrix in which two of every four elements are 0
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.affine_quantization": ["affine_quantization"],
        "experiments.dynamic_quantization": ["dynamic_quantization"],
        "experiments.static_and_qat": ["static_and_qat"],
        "experiments.pt2e_inductor": ["pt2e_inductor"],
        "experiments.pruning": ["pruning"],
        "experiments.sparse_formats": ["sparse_formats"],
        "affine_explorer": ["explore_affine"],
        "scaled_nets": ["channel_ranges"],
        "sparsity": ["accuracy_by_sparsity"],
        "kept_masks": ["lost_masks"],
        "format_pictures": ["format_bytes"],
        "lenet": ["LeNet", "accuracy", "images", "train", "trained"],
        "affine": ["affine_parameters", "dequantize", "fake_quantize", "quantize", "value_range"],
        "quantizers": ["FORMATS", "quantized", "quantized_modules"],
        "sizes": ["sizes"],
        "fake_quantized": ["FakeQuantized", "calibrate", "with_fake_quantization"],
        "equalize": ["equalize_layers", "scale_channels"],
        "masks": ["apply_masks", "channel_mask", "global_masks", "l1_mask", "random_mask", "weights_of", "zeros"],
        "channels": ["weakest", "without_zero_channels", "zero_channels"],
        "formats": ["two_of_four"],
    },
)
