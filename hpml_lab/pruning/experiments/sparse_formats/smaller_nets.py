"""What channels taken out gain: LeNet by hand, and ResNet-18 by torch-pruning, which follows the layers' dependencies."""

import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.installed import need
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.quantization import sizes

FULL_NET, ZEROED, SMALLER = "as it was", "half of the channels are 0", "half of the channels taken out"


@dataclass
class SmallerNet(Row):
    """A net's parameters, file and time, as it was and with half of its channels gone."""

    net: str = column("net")
    channels: str = column("channels")
    parameters: int | None = column("parameters")
    kilobytes: float | None = column("file", "kB")
    time_ms: float | None = column("time", "ms")
    gain: float | None = column("speed-up", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str = column("verdict", "", "")


def compared(name: str, nets: dict[str, nn.Module], x: Tensor, samples: int) -> tuple[list[SmallerNet], SpeedUp]:
    """A row for each of `nets`, timed in turns on the same images, and how much faster the last one is than the first."""
    base, *_, last = nets
    works = {kind: partial(infer, net, x) for kind, net in nets.items()}
    times = interleaved(works, samples=samples, placebo=base, gpu=x.device if x.is_cuda else None)
    rows = []
    for kind, net in nets.items():
        columns = {} if kind == base else speed_up(times, base, kind).columns
        rows.append(SmallerNet(name, kind, parameters(net), sizes(net).file_bytes / 1e3, times[kind].seconds * 1e3, **columns))
    return rows, speed_up(times, base, last)


@torch.inference_mode()
def infer(net: nn.Module, x: Tensor) -> Tensor:
    return net(x)


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def half_of_resnet18(side: int) -> tuple[nn.Module, nn.Module]:
    """ResNet-18, with random weights, and its half by torch-pruning; LabError where that is not installed.

    side  of the images with which the dependencies between the layers are traced
    """
    with collect_warnings():
        pruning = need("torch_pruning", "torch-pruning")
        from torchvision.models import resnet18

        net = resnet18(weights=None).eval()
        half = copy.deepcopy(net)
        strength = pruning.importance.MagnitudeImportance(p=2)
        example = torch.zeros(1, 3, side, side)
        # fc has an output for each class: only its inputs may go.
        pruning.pruner.BasePruner(half, example, importance=strength, pruning_ratio=0.5, ignored_layers=[half.fc]).step()
    return net, half.eval()
