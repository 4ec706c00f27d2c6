"""How much faster the batched program is than the lecture's loop: the same nets, optimizers, batch size and number of steps.

Three ways to train the seven nets of one of the lecture's plots, one net for each optimizer:

    loader loop       one net after another, as in the lecture's code: each image is a PIL image that becomes a normalized
                      tensor, in a DataLoader without workers; forward, backward by autograd, the optimizer's step
    tensor loop       the same loop on slices of a tensor that holds all images on the device: no loader
    batched program   all seven nets in one `Program`
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.data import DataSet
from hpml_lab.race.tools.program import GATHER, FullyConnected, Program, Setting

LOADER, TENSOR, BATCHED = "loader loop", "tensor loop", "batched program"
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


@dataclass
class WayToTrain(Row):
    """One way to train the seven nets of a plot, and its speed-up over the loader loop."""

    way: str = column("way")
    ms: float = column("one iteration of all seven nets", "ms")
    gain: float = column("compared with the loader loop", "speed-up")
    interval: str = column("90 % interval")


class PilImages(Dataset):
    """The training images as torchvision's MNIST gives them: PIL images, each made a normalized tensor when asked for."""

    def __init__(self, data: DataSet) -> None:
        self.pixels = (data.train_x[:, 0] * 255).to(torch.uint8).cpu().numpy()
        self.labels = data.train_y.tolist()
        self.to_tensor = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.to_tensor(Image.fromarray(np.asarray(self.pixels[i]))), self.labels[i]


def loader_batches(data: DataSet, batch: int) -> Batches:
    """Batches of a DataLoader as in the lecture's code, epoch after epoch."""
    loader = DataLoader(PilImages(data), batch, shuffle=True, drop_last=True)
    while True:
        yield from loader


def tensor_batches(x: torch.Tensor, y: torch.Tensor, batch: int) -> Batches:
    """Slices of `x` and `y`, again and again."""
    while True:
        for start in range(0, len(x) - batch + 1, batch):
            yield x[start : start + batch], y[start : start + batch]


def plain_loop(
    net: FullyConnected, setting: Setting, inputs: int, batches: Batches, device: torch.device
) -> Callable[[int], None]:
    """The lecture's training loop of one net: a function that takes so many steps."""
    model = nn.Sequential(nn.Flatten(), net.module(inputs)).to(device)
    optimizer = setting.build(model.parameters())

    def run(steps: int) -> None:
        for _ in range(steps):
            x, y = next(batches)
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return run


def one_after_another(loops: Sequence[Callable[[int], None]], steps: int) -> Callable[[], None]:
    """A function that lets each of `loops` take `steps` steps."""

    def run() -> None:
        for loop in loops:
            loop(steps)

    return run


def ways_to_train(
    net: FullyConnected, settings: Sequence[Setting], data: DataSet, x: torch.Tensor, y: torch.Tensor, batch: int, samples: int
) -> tuple[list[WayToTrain], SpeedUp]:
    """Time the three ways in turns on `net`; also the batched program's speed-up over the loader loop.

    data  the images for the loader; `x` and `y` are the same images as rows on the device, and labels
    """
    program = Program(net, settings, [0], x, y, batch)
    steps = min(GATHER, program.per_epoch)  # the program gathers so many batches at once: each sample has its share of that
    few = max(1, steps // 4)  # the loader loop takes so long that these are a sample
    loader, slices = loader_batches(data, batch), tensor_batches(x, y, batch)

    def loops(batches: Batches) -> list[Callable[[int], None]]:
        return [plain_loop(net, setting, x.shape[1], batches, x.device) for setting in settings]

    works = {
        LOADER: one_after_another(loops(loader), few),
        TENSOR: one_after_another(loops(slices), steps),
        BATCHED: one_after_another([program.run], steps),
    }
    times = {
        way: replace(
            timing, samples=tuple(seconds / (steps if way in (TENSOR, BATCHED) else few) for seconds in timing.samples)
        )
        for way, timing in interleaved(works, samples=samples, placebo=LOADER).items()
    }
    gains = {way: speed_up(times, LOADER, way) for way in (TENSOR, BATCHED)}
    rows = [WayToTrain(LOADER, 1e3 * times[LOADER].seconds, 1.0, f"noise ±{100 * gains[BATCHED].noise:.2g} %")]
    for way, gain in gains.items():
        rows.append(WayToTrain(way, 1e3 * times[way].seconds, gain.ratio, gain.interval))
    return rows, gains[BATCHED]


def seconds_alone(
    net: FullyConnected, settings: Sequence[Setting], x: torch.Tensor, y: torch.Tensor, batch: int, samples: int
) -> dict[str, float]:
    """Seconds of one iteration of `net` trained alone by each setting's optimizer, on one CPU thread or on the GPU.

    In a program of many settings the time of an iteration belongs to all of them; an axis of seconds is made from these.
    """
    steps = 10
    programs = {setting.optimizer: Program(net, [setting], [0], x, y, batch) for setting in settings}
    timings = interleaved({name: lambda p=program: p.run(steps) for name, program in programs.items()}, samples=samples)
    return {name: timing.seconds / steps for name, timing in timings.items()}
