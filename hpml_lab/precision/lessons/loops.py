"""The lecture's two training loops in today's API, fp32 and mixed precision, and the loop as it is printed on the slide."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import nn

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def train_fp32(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches) -> list[torch.Tensor]:
    """One step per batch in float32. Returns the losses."""
    losses = []
    for data, label in batches:
        optimizer.zero_grad()
        prediction = model(data)
        loss = F.cross_entropy(prediction, label)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_amp(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    device: torch.device | str,
    dtype: torch.dtype,
    scaler: torch.amp.GradScaler,
    on: bool = True,
) -> list[torch.Tensor]:
    """One step per batch with mixed precision. Returns the losses. `on=False` and a disabled scaler give the float32 loop."""
    losses = []
    for data, label in batches:
        optimizer.zero_grad()
        with torch.autocast(torch.device(device).type, dtype=dtype, enabled=on):
            prediction = model(data)
            loss = F.cross_entropy(prediction, label)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return losses


def train_slide(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches) -> list[torch.Tensor]:
    """The left column of the lecture's slide as printed, which calls `optimizer.step()` twice."""
    losses = []
    for data, label in batches:
        optimizer.zero_grad()
        prediction = model(data)
        loss = F.cross_entropy(prediction, label)
        loss.backward()
        optimizer.step()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def scaler_for(device: torch.device | str, dtype: torch.dtype) -> torch.amp.GradScaler:
    """A gradient scaler, enabled for fp16. bf16 has the range of float32 and needs none, so its scaler changes nothing."""
    return torch.amp.GradScaler(torch.device(device).type, enabled=dtype == torch.float16)
