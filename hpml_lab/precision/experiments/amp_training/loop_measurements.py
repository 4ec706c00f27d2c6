"""Accuracy, speed, memory and gradients of the loops of `loops.py`, whether they compute the same, and when they wait."""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hpml_lab.core.experiment import Params
from hpml_lab.core.timing.clock import Timing, interleaved
from hpml_lab.core.timing.counting import peak_bytes, saved_tensors
from hpml_lab.data.dataset import DataSet
from hpml_lab.data.shuffled import batches
from hpml_lab.precision.lessons import loops
from hpml_lab.precision.lessons.recipes import small_net

FP32, AMP_FP16, AMP_BF16 = "fp32", "AMP, fp16 and scaler", "AMP, bf16, no scaler"
LOOPS: dict[str, torch.dtype | None] = {FP32: None, AMP_FP16: torch.float16, AMP_BF16: torch.bfloat16}
FP32_WITH_TF32 = "fp32, TF32 allowed"


def conv_net(channels: int, blocks: int) -> nn.Sequential:
    """`blocks` convolutions C → C, on which speed and memory are measured: x (N, 3, H, W) → logits (N, 10)."""
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU()]
    for _ in range(blocks):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """`make()` with a seed; the global random state is not changed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def seeded_net(data: DataSet, seed: int = 0) -> nn.Module:
    """The small network for the images of `data`, on their device."""
    return seeded(lambda: small_net(data.train_x.shape[-1]), seed).to(data.train_x.device)


def autocast(device: torch.device, dtype: torch.dtype | None) -> torch.autocast:
    """Autocast to `dtype`, or a disabled one for None."""
    return torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def run_loop(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterable, device: torch.device, dtype: torch.dtype | None
) -> list[torch.Tensor]:
    """The loop for that dtype (None: fp32), with a scaler of its own if it needs one."""
    if dtype is None:
        return loops.train_fp32(model, optimizer, data)
    return loops.train_amp(model, optimizer, data, device, dtype, loops.scaler_for(device, dtype))


def train_and_test(
    data: DataSet, dtype: torch.dtype | None, seed: int, batch: int, epochs: int, rate: float
) -> tuple[list[float], float, nn.Module]:
    """Losses of all steps, test accuracy in % and the network, trained by the loop for that dtype from that seed."""
    model = seeded_net(data, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    order = torch.Generator().manual_seed(seed)
    steps = [step for _ in range(epochs) for step in batches(data.train_x, data.train_y, batch, order)]
    losses = torch.stack(run_loop(model, optimizer, steps, data.train_x.device, dtype)).tolist()
    with torch.no_grad():
        right = (model(data.test_x).argmax(1) == data.test_y).float().mean().item()
    return losses, 100 * right, model


def gradient_vector(model: nn.Module, x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype | None, factor: float = 1.0):
    """All weight gradients as one vector, under autocast if a dtype is given; the loss is multiplied by `factor`."""
    with autocast(x.device, dtype):
        loss = F.cross_entropy(model(x), y)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss * factor, list(model.parameters()))])


# ---- speed and memory -------------------------------------------------------------------------------------------------------


def speed_problem(params: Params) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The network for speed and memory and a batch for it, on the device, channels last."""
    device = params.device.torch
    model = seeded(lambda: conv_net(params.channels, params.blocks), 0).to(device, memory_format=torch.channels_last)
    x = torch.randn(params.images, 3, params.side, params.side, generator=torch.Generator().manual_seed(0))
    y = torch.arange(params.images) % 10
    return model, x.to(device, memory_format=torch.channels_last), y.to(device)


def memory_of_step(params: Params, dtype: torch.dtype | None) -> tuple[int, int]:
    """Bytes that autograd keeps for the backward pass of one step, and the step's peak memory in bytes."""
    device = params.device.torch
    model, x, y = speed_problem(params)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with saved_tensors([*model.parameters(), x, y]) as saved, autocast(device, dtype):
        F.cross_entropy(model(x), y)

    def step() -> None:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            run_loop(model, optimizer, [(x, y)], device, dtype)
        optimizer.zero_grad()  # each step frees what it allocated, as peak_bytes requires

    return sum(saved.values()), peak_bytes(step, device)


def step_times(params: Params) -> dict[str, Timing]:
    """Times of one step of each loop whose dtype is fast on this device, in turns, with the fp32 loop as the placebo.

    On a GPU they are taken between two events in its stream. Where it has TF32, float32 is timed with it too: that is torch's
    default for cuDNN's convolutions.
    """
    device = params.device.torch
    fast = {FP32}
    if params.device.can("bf16"):
        fast |= {AMP_BF16}
    if params.device.is_cuda and params.device.dtype != torch.float32:
        fast |= {AMP_FP16}
    model, x, y = speed_problem(params)
    steps = {name: timed_step(model, x, y, dtype, tf32=False) for name, dtype in LOOPS.items() if name in fast}
    if params.device.can("tf32"):
        steps[FP32_WITH_TF32] = timed_step(model, x, y, None, tf32=True)
    return interleaved(steps, samples=params.samples, placebo=FP32, gpu=device if params.device.is_cuda else None)


def timed_step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype | None, tf32: bool) -> Callable[[], None]:
    """One step of the loop for that dtype, as work to be timed.

    Each step sets cuDNN's flags, which takes the same few microseconds in all loops: the flags say which kernels are chosen.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = loops.scaler_for(x.device, dtype) if dtype else None

    def step() -> None:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=tf32):
            if dtype is None:
                loops.train_fp32(model, optimizer, [(x, y)])
            else:
                loops.train_amp(model, optimizer, [(x, y)], x.device, dtype, scaler)

    return step


# ---- what the loops compute alike, and when they wait -----------------------------------------------------------------------


def five_batches(data: DataSet) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(data.train_x[:320].split(64), data.train_y[:320].split(64), strict=True))


def reproducible_cudnn():
    """Some of cuDNN's gradients are sums in an order that varies: use those that are not."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)


def amp_switched_off_is_fp32(data: DataSet, rate: float) -> bool:
    """Whether the AMP loop with autocast and scaler off gives bitwise the same losses and weights as the fp32 loop."""
    device, runs = data.train_x.device, []
    for amp in (False, True):
        model = seeded_net(data)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        with reproducible_cudnn():
            if amp:
                scaler = torch.amp.GradScaler(device.type, enabled=False)
                losses = loops.train_amp(model, optimizer, five_batches(data), device, torch.bfloat16, scaler, on=False)
            else:
                losses = loops.train_fp32(model, optimizer, five_batches(data))
        runs.append([*losses, *model.parameters()])
    return all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


class ReadNumbers(TorchDispatchMode):
    """Counts the numbers that Python reads from tensors, as `.item()` does: each time it waits for the device."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ == "_local_scalar_dense"
        return func(*args, **(kwargs or {}))


def numbers_read(data: DataSet, rate: float, dtype: torch.dtype | None) -> int:
    """How many numbers Python reads from the device in five steps of the loop for that dtype (None: fp32)."""
    model = seeded_net(data)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    with ReadNumbers() as seen:
        run_loop(model, optimizer, five_batches(data), data.train_x.device, dtype)
    return seen.count
