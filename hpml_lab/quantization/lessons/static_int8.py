"""Static quantization of a whole net to int8: torchao's PT2E, which inductor compiles, and torch's older eager mode.

    graph = pt2e_int8(net, calibration)                       # the reference: quantize, dequantize and convolve in float32
    compiled_for(graph, x)(x)                                 # inductor replaces that by int8 convolutions
    eager_mode_int8(net, calibration, pairs_to_fuse)          # torch.ao.quantization

Static means that the scales of the activations are found once, on `calibration`, and then kept.
"""

import copy
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.compilation import QUICKLY, compiler_missing, no_compiler
from hpml_lab.quantization.tools.torchao_parts import torchao, without_torchaos_warnings

Tensor = torch.Tensor
WIDTH = 64  # channels of each hidden layer
LARGEST_BATCH = 4096


def all_convolutional() -> nn.Sequential:
    """(N, 1, 28, 28) -> (N, 10) logits by five convolutions, 146,048 weights, in channels_last.

    The layers inside have the same 7 × 7 × 64 outputs, so that a compiler needs one kernel for all their ReLUs. No layer is
    a Linear: dynamic quantization changes nothing here.
    """
    layers: list[tuple[str, nn.Module]] = [("conv1", nn.Conv2d(1, WIDTH, 8, stride=4, padding=2)), ("relu1", nn.ReLU())]
    for i in (2, 3, 4):
        layers += [(f"conv{i}", nn.Conv2d(WIDTH, WIDTH, 3, padding=1)), (f"relu{i}", nn.ReLU())]
    layers += [("conv5", nn.Conv2d(WIDTH, 10, 7)), ("flatten", nn.Flatten())]
    return nn.Sequential(OrderedDict(layers)).to(memory_format=torch.channels_last)


FUSED = [[f"conv{i}", f"relu{i}"] for i in (1, 2, 3, 4)]  # the pairs of all_convolutional that one int8 operator computes


# ---- PT2E ------------------------------------------------------------------------------------------------------------


def exported(net: nn.Module, x: Tensor, strict: bool = True, any_batch: bool = True) -> nn.Module:
    """The graph of `net`, as torch.export records it for `x`.

    strict     record by Dynamo, which keeps two calls of one module apart; torch's default, False, need not
    any_batch  leave the batch size open (2 and more); False, as by default in torch, takes only that of `x`
    """
    shapes = ({0: torch.export.Dim("batch", min=2, max=LARGEST_BATCH)},) if any_batch else None
    with collect_warnings():
        return torch.export.export(net, (x,), dynamic_shapes=shapes, strict=strict).module()


def prepared(graph: nn.Module, qat: bool = False) -> nn.Module:
    """An exported graph with the observers that inductor's int8 operators for x86 processors ask for.

    qat  round, too, so that the net can be trained with it
    """
    torchao()  # where it is missing, this says what to do
    with without_torchaos_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(is_qat=qat))
        return prepare_qat_pt2e(graph, quantizer) if qat else prepare_pt2e(graph, quantizer)


@torch.no_grad()
def pt2e_int8(net: nn.Module, calibration: Tensor, any_batch: bool = True) -> nn.Module:
    """`net` in static int8, as the reference graph. Raises LabError where torchao is not installed."""
    observed = prepared(exported(net, calibration, any_batch=any_batch))
    with without_torchaos_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

        observed(calibration)
        return convert_pt2e(observed)


def int8_weights(graph: nn.Module) -> list[Tensor]:
    """The int8 weights of a graph that pt2e_int8 returned, in the order of its layers."""
    return [value for value in graph.state_dict().values() if value.dtype == torch.int8]


# ---- compiling -------------------------------------------------------------------------------------------------------


@contextmanager
def compiled_apart() -> Iterator[None]:
    """Without gradients; what is compiled inside is compiled anew, in a folder that is removed, also after an error."""
    from torch._inductor.utils import fresh_cache

    with torch.no_grad(), tempfile.TemporaryDirectory(prefix="hpml-inductor-") as folder, fresh_cache(dir=folder):
        torch.compiler.reset()
        yield
        torch.compiler.reset()


def compiled_for(net: nn.Module, x: Tensor) -> Callable[[Tensor], Tensor]:
    """`net` compiled by inductor for inputs like `x`, under torch.no_grad.

    Frozen: the weights are constants, which can be packed ahead of time; without that nothing becomes int8.
    Raises LabError if there is no C++ compiler. A later reset of the compiler would make the next call compile once more.
    """
    from torch._inductor import config

    # Given as options too: otherwise a net that was compiled without freezing could serve for the same net with it.
    options: dict[str, Any] = {**QUICKLY, "freezing": True}
    function = torch.compile(net, dynamic=False, options=options)
    # Headers compiled ahead would pay from a handful of kernels on, and leave a file of 150 MB; here each net has one kernel.
    with collect_warnings(), config.patch({**options, "cpp_cache_precompile_headers": False}):
        try:
            function(x)
        except RuntimeError as error:  # Dynamo and Inductor raise subclasses of RuntimeError
            if not no_compiler(error):
                raise
            raise compiler_missing(error) from error
    return function


# ---- eager mode ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def eager_mode_int8(net: nn.Module, calibration: Tensor, fused: Sequence[Sequence[str]] = (), stubs: bool = True) -> nn.Module:
    """`net` in static int8 by torch.ao.quantization, for the int8 engine that torch uses on this processor.

    fused  names of modules that one operator computes, such as a convolution and its ReLU
    stubs  wrap the net in QuantStub and DeQuantStub; without them nothing quantizes its input
    """
    with collect_warnings():
        from torch.ao import quantization

        net = copy.deepcopy(net).eval()
        if fused:
            net = quantization.fuse_modules(net, [list(names) for names in fused])
        net = quantization.QuantWrapper(net) if stubs else net
        net.qconfig = quantization.get_default_qconfig(torch.backends.quantized.engine)
        observed = quantization.prepare(net)
        observed(calibration)
        return quantization.convert(observed)


def lecture_qat(net: nn.Module, training: bool = False) -> nn.Module:
    """The lecture's three lines for quantization-aware training, on a copy of `net`; `training` for the mode that it omits."""
    with collect_warnings():
        import torch.ao.quantization as quantization  # the lecture's torch.quantization is an alias of it

        model = copy.deepcopy(net).train(training)
        model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
        return quantization.prepare_qat(model)
