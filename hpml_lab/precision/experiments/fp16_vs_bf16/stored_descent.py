"""A small gradient descent with weights stored in different formats, in which every lost update is counted.

The task is as simple as possible: each weight w moves to its own target t. The loss is ½(w - t)², so its gradient is w - t.
"""

from dataclasses import dataclass

import torch

from hpml_lab.precision.lessons.formats import BF16, FP16, FP32, Format, is_lost, round_stochastically


@dataclass(frozen=True)
class WeightStorage:
    """How weights are stored: in `form`, with or without an fp32 master copy, rounded to nearest or stochastically."""

    name: str
    form: Format
    master: bool = False
    stochastic: bool = False


STORAGES = (
    WeightStorage("fp32", FP32),
    WeightStorage("fp16", FP16),
    WeightStorage("fp16, fp32 master", FP16, master=True),
    WeightStorage("bf16", BF16),
    WeightStorage("bf16, fp32 master", BF16, master=True),
    WeightStorage("bf16, stochastic rounding", BF16, stochastic=True),
)


@dataclass
class Descent:
    """The outcome of one descent.

    losses     mean loss over the weights before each step
    lost       how many nonzero updates left the stored weight unchanged
    predicted  how many the rule predicts (spacing/2, ties to even); None with stochastic rounding
    stuck      how many weights the next update would leave unchanged
    distance   the largest |w - t| at the end
    allowed    the largest spacing of the final weights / (2·lr): no update can bring a weight closer to its target
    """

    storage: WeightStorage
    losses: list[float]
    lost: int
    predicted: int | None
    stuck: int
    distance: float
    allowed: float


def descend(storage: WeightStorage, weights: int, steps: int, lr: float, device: torch.device) -> Descent:
    """Move `weights` weights from 1 towards targets between 1 and 2 with `steps` steps of w ← w - lr·(w - t)."""
    generator = torch.Generator(device).manual_seed(0)
    target = 1 + torch.rand(weights, generator=torch.Generator().manual_seed(1)).to(device)
    form, kept_form = storage.form, FP32 if storage.master else storage.form
    kept = torch.ones(weights, device=device, dtype=kept_form.dtype)

    def in_network(kept: torch.Tensor) -> torch.Tensor:
        return kept.to(form.dtype)  # also with a master copy, the network sees only these

    def update_of(kept: torch.Tensor) -> torch.Tensor:
        gradient = (in_network(kept).float() - target).to(form.dtype)
        return -lr * gradient.to(kept.dtype)

    lost = torch.zeros((), dtype=torch.int64, device=device)
    predicted = torch.zeros_like(lost)
    losses = []
    for _ in range(steps):
        losses.append(((in_network(kept).float() - target) ** 2).mean() / 2)
        update = update_of(kept)
        moved = round_stochastically(kept.float() + update.float(), generator) if storage.stochastic else kept + update
        lost += ((moved == kept) & (update != 0)).sum()
        if not storage.stochastic:
            predicted += (is_lost(kept.double(), update.double(), kept_form) & (update != 0)).sum()
        kept = moved
    return Descent(
        storage=storage,
        losses=torch.stack(losses).tolist(),
        lost=int(lost),
        predicted=None if storage.stochastic else int(predicted),
        stuck=int((kept + update_of(kept) == kept).sum()),
        distance=(in_network(kept).double() - target.double()).abs().max().item(),
        allowed=max(kept_form.spacing(w) for w in (kept.min().item(), kept.max().item())) / (2 * lr),
    )
