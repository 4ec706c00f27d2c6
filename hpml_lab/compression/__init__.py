"""Smaller models: quantization and pruning (notebook 16).

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

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.compression.experiments.affine_quantization import affine_quantization as affine_quantization
    from hpml_lab.compression.experiments.dynamic_quantization import dynamic_quantization as dynamic_quantization
    from hpml_lab.compression.experiments.static_and_qat import static_and_qat as static_and_qat
    from hpml_lab.compression.experiments.pt2e_inductor import pt2e_inductor as pt2e_inductor
    from hpml_lab.compression.experiments.pruning import pruning as pruning
    from hpml_lab.compression.experiments.sparse_formats import sparse_formats as sparse_formats
    from hpml_lab.compression.affine_explorer import explore_affine as explore_affine
    from hpml_lab.compression.scaled_nets import channel_ranges as channel_ranges
    from hpml_lab.compression.sparsity import accuracy_by_sparsity as accuracy_by_sparsity
    from hpml_lab.compression.kept_masks import lost_masks as lost_masks
    from hpml_lab.compression.format_pictures import format_bytes as format_bytes
    from hpml_lab.compression.lenet import (
        LeNet as LeNet,
        accuracy as accuracy,
        images as images,
        train as train,
        trained as trained,
    )
    from hpml_lab.compression.affine import (
        affine_parameters as affine_parameters,
        dequantize as dequantize,
        fake_quantize as fake_quantize,
        quantize as quantize,
        value_range as value_range,
    )
    from hpml_lab.compression.quantizers import (
        FORMATS as FORMATS,
        quantized as quantized,
        quantized_modules as quantized_modules,
    )
    from hpml_lab.compression.sizes import sizes as sizes
    from hpml_lab.compression.fake_quantized import (
        FakeQuantized as FakeQuantized,
        calibrate as calibrate,
        with_fake_quantization as with_fake_quantization,
    )
    from hpml_lab.compression.equalize import equalize_layers as equalize_layers, scale_channels as scale_channels
    from hpml_lab.compression.masks import (
        apply_masks as apply_masks,
        channel_mask as channel_mask,
        global_masks as global_masks,
        l1_mask as l1_mask,
        random_mask as random_mask,
        weights_of as weights_of,
        zeros as zeros,
    )
    from hpml_lab.compression.channels import (
        weakest as weakest,
        without_zero_channels as without_zero_channels,
        zero_channels as zero_channels,
    )
    from hpml_lab.compression.formats import two_of_four as two_of_four
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
