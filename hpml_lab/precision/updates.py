"""One small descent with weights kept in different formats, every lost update counted.

The task is as plain as can be: each weight w walks to its own target t, f(w) = ½(w - t)², so its gradient is w - t.
"""

from dataclasses import dataclass, field

import torch

from hpml_lab.precision.formats import BF16, FP16, FP32, Format, is_lost, round_stochastically


@dataclass(frozen=True)
class Way:
    """How weights are kept: in `form`, with an fp32 master beside it or not, rounded to the nearest or at random."""

    name: str
    form: Format
    master: bool = False
    stochastic: bool = False


WAYS = (
    Way("fp32", FP32),
    Way("fp16", FP16),
    Way("fp16, fp32 master", FP16, master=True),
    Way("bf16", BF16),
    Way("bf16, fp32 master", BF16, master=True),
    Way("bf16, rounded at random", BF16, stochastic=True),
)


@dataclass
class Descent:
    """What one descent left behind.

    losses     mean of f over the weights before each step
    lost       how many updates other than zero left the weight that keeps the progress as it was
    predicted  how many the rule foretold (spacing/2, ties to even); None where rounding is random
    stuck      how many weights the next update would leave in place
    distance   the largest |w - t| at the end
    allowed    the largest spacing of the final weights / (2·lr): nearer to its target no weight can be made to walk
    """

    way: Way
    losses: list[float] = field(default_factory=list)
    lost: int = 0
    predicted: int | None = 0
    stuck: int = 0
    distance: float = 0.0
    allowed: float = 0.0


def train(way: Way, weights: int, steps: int, lr: float, device: torch.device) -> Descent:
    """Walk `weights` weights from 1 towards targets between 1 and 2 for `steps` steps of w ← w - lr·(w - t)."""
    generator = torch.Generator(device).manual_seed(0)
    target = 1 + torch.rand(weights, generator=torch.Generator().manual_seed(1)).to(device)
    kept = torch.ones(weights, device=device, dtype=torch.float32 if way.master else way.form.dtype)
    keeper = FP32 if way.master else way.form
    out = Descent(way, predicted=None if way.stochastic else 0)

    def update_of(kept: torch.Tensor) -> torch.Tensor:
        gradient = (kept.to(way.form.dtype).float() - target).to(way.form.dtype)  # the net sees the short weights only
        return -lr * gradient.to(kept.dtype)

    lost = torch.zeros((), dtype=torch.int64, device=device)
    predicted = torch.zeros_like(lost)
    losses = []
    for _ in range(steps):
        losses.append(((kept.to(way.form.dtype).float() - target) ** 2).mean() / 2)
        update = update_of(kept)
        moved = round_stochastically(kept.float() + update.float(), generator) if way.stochastic else kept + update
        lost += ((moved == kept) & (update != 0)).sum()
        if not way.stochastic:
            predicted += (is_lost(kept.double(), update.double(), keeper) & (update != 0)).sum()
        kept = moved
    out.losses = torch.stack(losses).tolist()
    out.lost = int(lost)
    out.predicted = None if way.stochastic else int(predicted)
    out.stuck = int((kept + update_of(kept) == kept).sum())
    out.distance = (kept.to(way.form.dtype).double() - target.double()).abs().max().item()
    out.allowed = max(keeper.spacing(w) for w in (kept.min().item(), kept.max().item())) / (2 * lr)
    return out
