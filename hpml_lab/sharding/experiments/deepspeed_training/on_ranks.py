"""Training runs under DeepSpeed, all in one launch, and the plain loop to compare them with.

The loop is that of train.py, and the network too. The pixels are 0 to 16, as in the file: their gradients are large.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed as dist
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from hpml_lab.core.system.placement import device_of_rank
from hpml_lab.sharding.experiments.quiet_deepspeed import load_deepspeed
from hpml_lab.sharding.lessons.train import all_weights, batches, deepspeed_engine, make_data, make_model, train_step
from hpml_lab.sharding.tools.deepspeed_config import Hyperparameters

LARGE = 10_000_000  # elements: far more than these networks have


@dataclass(frozen=True)
class Trained:
    """One run: the weights before the first step and after each, in one vector, and the rate of each step.

    scales, skipped  DeepSpeed's loss scale in each step, and whether it skipped the step
    """

    weights: list[torch.Tensor]
    rates: list[float | None]
    scales: list[float] = field(default_factory=list)
    skipped: list[bool] = field(default_factory=list)

    @property
    def moved(self) -> torch.Tensor:
        return self.weights[-1] - self.weights[0]

    def distances(self, other: "Trained", way: float) -> list[float]:
        """How far apart the weights are after each step, as a fraction of `way`."""
        return [((a - b).norm() / way).item() for a, b in zip(self.weights[1:], other.weights[1:], strict=True)]


def pixels_and_labels() -> tuple[torch.Tensor, torch.Tensor]:
    pixels, labels = make_data()[0].tensors
    return pixels * 16, labels


def flat(weights: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.detach().flatten().float() for value in weights.values()])


def whole_batch(step: int, batch: int, samples: int) -> torch.Tensor:
    """The samples of a step, those of all ranks."""
    epoch, position = divmod(step, samples // batch)
    return torch.randperm(samples, generator=torch.Generator().manual_seed(epoch))[position * batch : (position + 1) * batch]


def plain_run(rates: Sequence[float | None], asked: Hyperparameters) -> Trained:
    """One process on whole batches with torch.optim.Adam, as one would write it; None instead of a rate skips the step."""
    model, (x, y) = make_model(), pixels_and_labels()
    optimizer = torch.optim.Adam(
        model.parameters(), betas=asked.betas, eps=asked.eps, weight_decay=asked.weight_decay, foreach=False
    )
    weights = [flat(dict(model.named_parameters()))]
    for step, rate in enumerate(rates):
        if rate is not None:
            chosen = whole_batch(step, asked.batch, len(x))
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            F.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        weights.append(flat(dict(model.named_parameters())))
    return Trained(weights, list(rates))


def first_gradient(batch: int) -> torch.Tensor:
    """The gradient of the first whole batch, in one process."""
    model, (x, y) = make_model(), pixels_and_labels()
    chosen = whole_batch(0, batch, len(x))
    F.cross_entropy(model(x[chosen]), y[chosen]).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


# ---- on each rank -------------------------------------------------------------------------------------------------------


def deepspeed_runs(
    folder: str, device_type: str, configs: dict[str, tuple[dict[str, Any], int]], default: dict[str, Any]
) -> tuple[dict[str, Trained], list[int]]:
    """Train with each of `configs`, {name: (JSON, steps)}; and the bytes of the large buffers asked for with `default`."""
    device = device_of_rank(device_type, dist.get_rank())
    deepspeed = load_deepspeed(device, folder)
    if device.type == "cpu":  # it refuses float16 where the processor has no instructions for it; torch computes it anyway
        deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    runs = {name: _trained(config, steps, device) for name, (config, steps) in configs.items()}
    with LargeBuffers() as asked:
        deepspeed_engine(default)
    found = runs if dist.get_rank() == 0 else {name: Trained(run.weights[-1:], []) for name, run in runs.items()}
    return found, asked.bytes


def _trained(config: dict[str, Any], steps: int, device: torch.device) -> Trained:
    x, y = pixels_and_labels()
    engine, parts = deepspeed_engine(config), config.get("gradient_accumulation_steps", 1)
    x = x.to(next(engine.module.parameters()).dtype)
    run = Trained([flat(all_weights(engine))], [])
    for chosen in batches(len(x), config["train_batch_size"], 0, steps):
        skipped_before = engine.skipped_steps
        run.rates.append(engine.optimizer.param_groups[0]["lr"])
        run.scales.append(float(getattr(engine.optimizer, "loss_scale", 1.0)))
        train_step(engine, x[chosen].to(device), y[chosen].to(device), parts)
        run.weights.append(flat(all_weights(engine)))
        run.skipped.append(engine.skipped_steps > skipped_before)
    return run


class LargeBuffers(TorchDispatchMode):
    """Notes in `bytes` how large each buffer is that torch.empty is asked for, and hands out one number in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is torch.ops.aten.empty.memory_format and torch.Size(args[0]).numel() >= LARGE:
            one = func([1], **(kwargs or {}))
            self.bytes.append(torch.Size(args[0]).numel() * one.itemsize)
            return one.expand(args[0])
        return func(*args, **(kwargs or {}))
