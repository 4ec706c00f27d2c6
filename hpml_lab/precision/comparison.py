"""What amp-training measures of the loops of `loops.py`: accuracy, speed, memory, gradients, the slide's slip."""

import torch
import torch.nn.functional as F
from torch import nn

from hpml_lab.core.counting import peak_bytes, saved_tensors
from hpml_lab.core.experiment import Size
from hpml_lab.core.timing import interleaved
from hpml_lab.data.batches import batches
from hpml_lab.data.dataset import DataSet
from hpml_lab.precision import loops, recipes

LOOPS = {"fp32": None, "AMP, fp16 and scaler": torch.float16, "AMP, bf16, no scaler": torch.bfloat16}


def conv_net(channels: int, blocks: int) -> nn.Sequential:
    """A net of `blocks` convolutions C → C, on which speed and memory are measured: x (N, 3, H, W) → logits (N, 10)."""
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU()]
    for _ in range(blocks):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def seeded(make, seed: int) -> nn.Module:
    """`make()` under a seed, the process's own random numbers left as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def run_loop(model: nn.Module, optimizer: torch.optim.Optimizer, some, device: torch.device, dtype) -> list[torch.Tensor]:
    """The loop of that dtype (None: fp32), with a scaler of its own where it needs one."""
    if dtype is None:
        return loops.train_fp32(model, optimizer, some)
    return loops.train_amp(model, optimizer, some, device, dtype, loops.scaler_for(device, dtype))


def trained(data: DataSet, dtype, seed: int, batch: int, epochs: int, rate: float) -> tuple[list[float], float, nn.Module]:
    """Losses of all steps, test accuracy in % and the net, trained by the loop of that dtype from that seed."""
    device = data.train_x.device
    model = seeded(lambda: recipes.net(data.train_x.shape[-1]), seed).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    order = torch.Generator().manual_seed(seed)
    some = [one for _ in range(epochs) for one in batches(data.train_x, data.train_y, batch, order)]
    losses = torch.stack(run_loop(model, optimizer, some, device, dtype)).tolist()
    with torch.no_grad():
        right = (model(data.test_x).argmax(1) == data.test_y).float().mean().item()
    return losses, 100 * right, model


def gradient_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor, device, dtype, factor: float = 1.0) -> torch.Tensor:
    """All weight gradients as one vector, under autocast where a dtype is given; the loss is multiplied by `factor`."""
    with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        loss = F.cross_entropy(model(x), y)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss * factor, list(model.parameters()))])


def memory_of(size: Size, dtype) -> dict[str, float]:
    """MB that autograd keeps for the backward pass of one step, and the step's peak."""
    device = size.device.torch
    model, x, y = speed_problem(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with saved_tensors([*model.parameters(), x, y]) as saved:
        with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            F.cross_entropy(model(x), y)

    def step() -> None:
        run_loop(model, optimizer, [(x, y)], device, dtype)
        optimizer.zero_grad()  # each step frees what it took: the profiler does not know blocks from before

    peak = peak_bytes(step, device)
    return {"kept for backward, MB": sum(saved.values()) / 1e6, "peak of a step, MB": peak / 1e6}


def speed_problem(size: Size) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The net for speed and memory and a batch for it, on the device, channels last."""
    device = size.device.torch
    model = seeded(lambda: conv_net(size.channels, size.blocks), 0).to(device, memory_format=torch.channels_last)
    x = torch.randn(size.images, 3, size.side, size.side, generator=torch.Generator().manual_seed(0))
    y = torch.arange(size.images) % 10
    return model, x.to(device, memory_format=torch.channels_last), y.to(device)


def timed(size: Size) -> dict[str, float]:
    """Seconds of one step of each loop whose dtype this device computes with fast, taken in turns.

    On a GPU float32 stands there twice: as IEEE has it, and with TF32, which torch lets cuDNN's convolutions use by itself.
    """
    device = size.device.torch
    fast = {"fp32"}
    if size.device.dtype == torch.bfloat16:
        fast |= {"AMP, bf16, no scaler"}
    if size.device.is_cuda and size.device.dtype != torch.float32:
        fast |= {"AMP, fp16 and scaler"}
    model, x, y = speed_problem(size)
    works = {}
    for name, dtype in LOOPS.items():
        if name in fast:
            works[name] = _step(model, x, y, device, dtype, tf32=False)
    if size.device.is_cuda:
        works["fp32, TF32 allowed"] = _step(model, x, y, device, None, tf32=True)
    return {name: one.seconds for name, one in interleaved(works, samples=size.samples).items()}


def _step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, device: torch.device, dtype, tf32: bool):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = loops.scaler_for(device, dtype) if dtype else None

    def step():
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=tf32):
            if dtype is None:
                loops.train_fp32(model, optimizer, [(x, y)])
            else:
                loops.train_amp(model, optimizer, [(x, y)], device, dtype, scaler)

    return step


def switched_off(data: DataSet, rate: float) -> bool:
    """Whether the AMP loop with both switches off gives float32's losses and weights, bit for bit."""
    device, found = data.train_x.device, []
    some = [(x, y) for x, y in zip(data.train_x[:320].split(64), data.train_y[:320].split(64), strict=True)]
    for amp in (False, True):
        model = seeded(lambda: recipes.net(data.train_x.shape[-1]), 0).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        # Some of cuDNN's gradients are sums in an order that varies.
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            if amp:
                scaler = torch.amp.GradScaler(device.type, enabled=False)
                losses = loops.train_amp(model, optimizer, some, device, torch.bfloat16, scaler, on=False)
            else:
                losses = loops.train_fp32(model, optimizer, some)
        found.append([*losses, *model.parameters()])
    return all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def slip(data: DataSet, rate: float) -> tuple[float, float]:
    """How far the weights lie apart, as a share of the way they went, after 5 steps of plain SGD: the slide's loop from the
    right one, and the slide's loop from the right one with twice the rate."""
    device, ends = data.train_x.device, []
    some = [(x, y) for x, y in zip(data.train_x[:320].split(64), data.train_y[:320].split(64), strict=True)]
    for loop, lr in ((loops.train_slide, rate), (loops.train_fp32, rate), (loops.train_fp32, 2 * rate)):
        model = seeded(lambda: recipes.net(data.train_x.shape[-1]), 0).to(device)
        start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            loop(model, torch.optim.SGD(model.parameters(), lr=lr), some)
        ends.append(nn.utils.parameters_to_vector(model.parameters()).detach() - start)
    slide, right, twice = ends
    return ((slide - right).norm() / right.norm()).item(), ((slide - twice).norm() / twice.norm()).item()
