"""Which loops of `loops.py` compute the same: AMP switched off, and the slide's second `optimizer.step()`; and which wait."""

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hpml_lab.data.dataset import DataSet
from hpml_lab.precision import loops
from hpml_lab.precision.loop_measurements import run_loop, seeded_net


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


def double_step_distances(data: DataSet, rate: float) -> tuple[float, float]:
    """Relative distances between weight changes after 5 steps of plain SGD: of the slide's loop from the correct one, and of
    the slide's loop from the correct one with twice the rate."""
    changes = []
    for loop, lr in ((loops.train_slide, rate), (loops.train_fp32, rate), (loops.train_fp32, 2 * rate)):
        model = seeded_net(data)
        start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        with reproducible_cudnn():
            loop(model, torch.optim.SGD(model.parameters(), lr=lr), five_batches(data))
        changes.append(nn.utils.parameters_to_vector(model.parameters()).detach() - start)
    slide, right, twice = changes
    return ((slide - right).norm() / right.norm()).item(), ((slide - twice).norm() / twice.norm()).item()


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
