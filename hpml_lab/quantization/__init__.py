"""Smaller models by fewer bits: quantization, from its arithmetic to int8 kernels (notebook 16).

Experiments, in the order of the notebook:
    affine_quantization     floats as integers with a scale and a zero point: rounding error by bits, and equality with torch
    dynamic_quantization    which layers the lecture's call changes, and where int8 weights make a model smaller and faster
    static_and_qat          rounding after training and during training, next to a float net that is trained as long
    pt2e_inductor           static int8 for convolutions: PT2E, its traps, and what inductor makes of it
Further figures:
    explore_affine          controls for bits, range, scheme and layer: a layer's weights, their error, and the net's accuracy
    channel_ranges          the ranges of conv1's channels in three nets that compute the same
Tools:
    LeNet                   the lecture's net, with LabeledImages, train, accuracy and trained (a net that is trained only once)
    affine_parameters       a scale and a zero point for a value_range; quantize, dequantize and fake_quantize use them
    quantized               a copy of a model in one of several formats, in which every layer of a kind has been quantized
    sizes                   bytes of a model's file and of its tensors, and bits of its values
    with_fake_quantization  a copy of a net whose layers round weights and inputs; calibrate it, then train on
    scale_channels          multiply the channels between two layers, and divide what reads them: the same function
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.quantization.experiments.affine_quantization import affine_quantization as affine_quantization
    from hpml_lab.quantization.experiments.dynamic_quantization import dynamic_quantization as dynamic_quantization
    from hpml_lab.quantization.experiments.static_and_qat import static_and_qat as static_and_qat
    from hpml_lab.quantization.experiments.pt2e_inductor import pt2e_inductor as pt2e_inductor
    from hpml_lab.quantization.views.affine_explorer import explore_affine as explore_affine
    from hpml_lab.quantization.experiments.static_and_qat.scaled_nets import channel_ranges as channel_ranges
    from hpml_lab.quantization.lessons.lenet import (
        LabeledImages as LabeledImages,
        LeNet as LeNet,
        accuracy as accuracy,
        train as train,
        trained as trained,
    )
    from hpml_lab.quantization.lessons.affine import (
        affine_parameters as affine_parameters,
        dequantize as dequantize,
        fake_quantize as fake_quantize,
        quantize as quantize,
        value_range as value_range,
    )
    from hpml_lab.quantization.tools.quantizers import quantized as quantized
    from hpml_lab.quantization.tools.sizes import sizes as sizes
    from hpml_lab.quantization.lessons.fake_quantized import (
        calibrate as calibrate,
        with_fake_quantization as with_fake_quantization,
    )
    from hpml_lab.quantization.lessons.equalization import scale_channels as scale_channels
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
