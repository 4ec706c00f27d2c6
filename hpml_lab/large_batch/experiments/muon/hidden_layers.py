"""Hidden layers by Muon and the rest by AdamW, against AdamW for all, on the same images with the same rates to choose from.

A fifth of the training images is held out: each optimizer's rate is the one with the least loss there, median over the seeds.
Only then are the test images looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

import torch

from hpml_lab.core.experiment import Params, Row, column
from hpml_lab.core.show.progress import progress
from hpml_lab.core.timing.noise import interval
from hpml_lab.large_batch.experiments.accuracy_gains import median_range
from hpml_lab.large_batch.experiments.batched_trainings import BatchedTrainings, ImageRows
from hpml_lab.large_batch.lessons.rate_scaling import warmed_up
from hpml_lab.optim import AdamW, Muon

ADAMW, MUON = "AdamW", "Muon"


class HiddenByMuon:
    """Muon for the weights between the first layer and the last, AdamW for the rest, stepped together.

    It has what BatchedTrainings uses of an optimizer: `param_groups` and `step`. Muon's update is scaled to the
    root mean square that AdamW's has in the long run ("match_rms_adamw", Liu et al. 2025), so that one rate serves both.
    """

    def __init__(
        self,
        params: list[torch.Tensor],
        muon: Callable[..., torch.optim.Optimizer] = Muon,
        adamw: Callable[..., torch.optim.Optimizer] = AdamW,
    ) -> None:
        hidden = params[2:-2:2]  # W₁, b₁, W₂, b₂, …
        rest = [*params[:2], *params[3:-2:2], *params[-2:]]
        self.optimizers = [muon(hidden, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"), adamw(rest, weight_decay=0.0)]
        self.param_groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


MAKERS = {ADAMW: partial(AdamW, weight_decay=0.0), MUON: HiddenByMuon}


@dataclass
class HiddenLayerTraining(Row):
    """One optimizer at one rate and batch size, over all seeds."""

    batch: int = column("batch")
    steps: int = column("steps")
    optimizer: str = column("hidden layers by")
    rate: float = column("peak rate")
    validation: float = column("validation loss, median")
    loss: str = column("test loss, median (range)")
    accuracy: str = column("test accuracy, median (range)", "%")
    by_seed: list[float] = field(default_factory=list)  # test losses
    right_by_seed: list[float] = field(default_factory=list)  # test accuracies


@dataclass(frozen=True)
class LossRatio:
    """A ratio of test losses, seed by seed: the trainings of a seed share their start and their samples.

    by_seed  how many times as large AdamW's loss is as Muon's
    """

    by_seed: list[float]

    @property
    def interval(self) -> tuple[float, float]:
        """It holds the true median with 90 % confidence, where there are at least five seeds."""
        return interval(self.by_seed)

    @property
    def certain(self) -> bool:
        """Whether the whole interval is above 1."""
        return self.interval[0] > 1

    def __truediv__(self, other: "LossRatio") -> "LossRatio":
        return LossRatio([a / b for a, b in zip(self.by_seed, other.by_seed, strict=True)])

    def __str__(self) -> str:
        low, high = self.interval
        return f"{median(self.by_seed):.2f} ({low:.2f} to {high:.2f})"


def held_out(data: ImageRows) -> tuple[ImageRows, ImageRows]:
    """The images with four fifths of the training images; and the same with the last fifth in place of the test images."""
    cut = len(data.x) * 4 // 5
    kept = replace(data, x=data.x[:cut], y=data.y[:cut])
    return kept, replace(kept, test_x=data.x[cut:], test_y=data.y[cut:])


def train_hidden_layers(data: ImageRows, params: Params) -> list[HiddenLayerTraining]:
    """Both optimizers at each batch and rate; all batches see the same number of images, and the rate falls to 0."""
    train, validation = held_out(data)
    plan = [(batch, name, rate) for batch in params.batches for name in MAKERS for rate in params.rates]
    rows = []
    for batch, name, rate in progress(plan, "trainings, all seeds at once"):
        steps = params.seen // batch
        trainings = BatchedTrainings(train, range(params.seeds), batch, MAKERS[name])
        trainings.run(steps, warmed_up(rate, 0, steps, decay=True))
        losses, right = trainings.test_losses(), trainings.accuracy()
        chosen_by = median(trainings.test_losses(validation))
        spread = f"{median(losses):.3f} ({min(losses):.3f}–{max(losses):.3f})"
        rows.append(HiddenLayerTraining(batch, steps, name, rate, chosen_by, spread, median_range(right), losses, right))
    return rows


def chosen(rows: list[HiddenLayerTraining], batch: int, name: str) -> HiddenLayerTraining:
    """The training with the least validation loss."""
    return min((row for row in rows if (row.batch, row.optimizer) == (batch, name)), key=lambda row: row.validation)


def loss_ratio(rows: list[HiddenLayerTraining], batch: int) -> LossRatio:
    """How many times as large AdamW's test loss is, each optimizer at its chosen rate."""
    adamw, muon = (LossRatio(chosen(rows, batch, name).by_seed) for name in (ADAMW, MUON))
    return adamw / muon
