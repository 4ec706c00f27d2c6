"""A training run whose optimizations can be switched on one at a time. All off is the run that the tuning guide warns about."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from hpml_lab.tuning.lessons.compositions import gelu, layer_norm

ROOT_OF_TWO = 2**0.5  # the lecture's 1.41421 would show in float64


@dataclass(frozen=True)
class GuideSwitches:
    """Which of the guide's optimizations are on.

    search            cudnn.benchmark
    no_wasted_bias    convolutions before batch norm have no bias
    gradients_to_none zero_grad(set_to_none=True)
    fused_pointwise   torch's GELU instead of five operators
    fused_layer_norm  torch's layer norm instead of a composition
    fused_optimizer   Adam as one kernel instead of a loop over the parameters
    channels_last     images stored pixel by pixel (NHWC)
    checkpointing     the wide layers keep only their input and compute the rest again
    debugging         anomaly mode is on: the one switch that should be off
    """

    search: bool = False
    no_wasted_bias: bool = False
    gradients_to_none: bool = False
    fused_pointwise: bool = False
    fused_layer_norm: bool = False
    fused_optimizer: bool = False
    channels_last: bool = False
    checkpointing: bool = False
    debugging: bool = False


OPTIMIZATIONS = tuple(field.name for field in fields(GuideSwitches) if field.name != "debugging")


class SwitchedBlock(nn.Module):
    """x + wide layers(layer norm(GELU(batch norm(3 × 3 convolution(x))))), over (N, channels, H, W)."""

    def __init__(self, channels: int, switches: GuideSwitches) -> None:
        super().__init__()
        self.switches = switches
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=not switches.no_wasted_bias)
        self.batch_norm = nn.BatchNorm2d(channels)
        self.layer_norm = nn.LayerNorm(channels)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.gelu(self.batch_norm(self.conv(x)))
        if self.switches.checkpointing:
            # Batch norm stays outside: computed twice, it would count each batch twice in its running statistics.
            return x + checkpoint(self.wide, inner, use_reentrant=False)
        return x + self.wide(inner)

    def wide(self, x: torch.Tensor) -> torch.Tensor:
        """Layer norm, then two linear layers, for each pixel separately."""
        x = x.permute(0, 2, 3, 1)
        if self.switches.fused_layer_norm:
            x = self.layer_norm(x)
        else:
            x = layer_norm(x, self.layer_norm.weight, self.layer_norm.bias)
        return self.down(self.gelu(self.up(x))).permute(0, 3, 1, 2)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x) if self.switches.fused_pointwise else gelu(x, ROOT_OF_TWO)


class SwitchedRun:
    """A network, its optimizer and its batches, with some switches on; `step()` trains on one batch and returns its loss.

    All runs start with the same weights and see the same batches, whatever their switches.
    """

    def __init__(
        self, switches: GuideSwitches, images: torch.Tensor, labels: torch.Tensor, *, channels: int, blocks: int, batch: int
    ) -> None:
        self.switches, self.batch, self.batch_index = switches, batch, 0
        torch.manual_seed(0)
        # Drawn with all biases and then copied, so that leaving a bias out does not shift the random numbers that follow.
        stem, head = nn.Conv2d(1, channels, 3, padding=1), nn.Linear(channels, 10)
        full_blocks = [SwitchedBlock(channels, GuideSwitches()) for _ in range(blocks)]
        own_blocks = [SwitchedBlock(channels, switches) for _ in range(blocks)]
        for own, full in zip(own_blocks, full_blocks, strict=True):
            own.load_state_dict({name: full.state_dict()[name] for name in own.state_dict()})
        net = nn.Sequential(stem, *own_blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
        layout = torch.channels_last if switches.channels_last else torch.contiguous_format
        self.net = net.to(device=images.device, dtype=images.dtype, memory_format=layout)
        self.images, self.labels = images.contiguous(memory_format=layout), labels
        self.optimizer = torch.optim.Adam(self.net.parameters(), foreach=False, fused=switches.fused_optimizer)

    def next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.batch_index * self.batch % (len(self.images) - self.batch + 1)
        self.batch_index += 1
        return self.images[start : start + self.batch], self.labels[start : start + self.batch]

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.net(images), labels)

    def step(self) -> torch.Tensor:
        """Train on the next batch; the loss stays on the device."""
        with cudnn_search(self.switches.search), torch.autograd.set_detect_anomaly(self.switches.debugging):
            self.optimizer.zero_grad(set_to_none=self.switches.gradients_to_none)
            loss = self.loss(*self.next_batch())
            loss.backward()
            self.optimizer.step()
        return loss.detach()


@contextlib.contextmanager
def cudnn_search(on: bool) -> Iterator[None]:
    """Set cudnn.benchmark in a `with` block: cuDNN tries algorithms at the first call with each shape and keeps the fastest.

    Only of shapes that were not run before in this process: see experiments.cudnn_benchmark.in_process.Convolutions.
    """
    cudnn = torch.backends.cudnn  # flags() would set what is not named here to its defaults
    kept = {name: getattr(cudnn, name) for name in ("enabled", "benchmark_limit", "deterministic", "allow_tf32")}
    with cudnn.flags(benchmark=on, **kept):
        yield
