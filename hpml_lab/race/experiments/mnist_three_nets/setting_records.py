"""What the curves of the race say: one record for each setting, over all of its seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from hpml_lab.core.experiment import Result
from hpml_lab.race.lessons.seed_by_seed import median_and_range
from hpml_lab.race.tools.program import CLASSES, Setting

PLATEAU = math.log(CLASSES) - 0.05  # a net that gives each class the probability 1/10 has the loss ln 10 = 2.303


@dataclass
class Record:
    """One setting on one net, seed by seed.

    loss, accuracy  training loss and test accuracy at each point of the curve, by seed
    end             final training loss by seed, inf if it diverged
    valid           final loss on all validation images by seed, inf if it diverged
    final           accuracy on all test images by seed
    exit            iteration from which the loss stays below the plateau, by seed; inf if it never does
    """

    optimizer: str
    lr: float
    loss: list[list[float]]
    accuracy: list[list[float]]
    end: list[float]
    valid: list[float]
    final: list[float]
    exit: list[float]

    @property
    def diverged(self) -> int:
        """How many seeds diverged."""
        return sum(map(math.isinf, self.end))


Group = dict[str, Record]  # {optimizer: record}


def diverged(curve: Sequence[float]) -> bool:
    """True for a loss curve that ends with no number, or above where it started."""
    return not math.isfinite(curve[-1]) or curve[-1] > curve[0]


def _unless(bad: Sequence[bool], values: Sequence[float]) -> list[float]:
    """`values`, with inf for those of diverged trainings."""
    return [math.inf if lost or not math.isfinite(value) else value for lost, value in zip(bad, values, strict=True)]


def leaves_plateau(curve: Sequence[float], points: Sequence[int]) -> float:
    """The first of `points` from which on the loss stays below ln 10 - 0.05; inf if it does not."""
    above = [index for index, loss in enumerate(curve) if not loss < PLATEAU]  # `not <` holds for nan too
    last = above[-1] if above else -1
    return math.inf if last == len(curve) - 1 else float(points[last + 1])


def records_of(settings: Sequence[Setting], curves: dict[str, Any], points: Sequence[int]) -> list[Record]:
    """The record of each setting, from the curves that `training.train` returns."""
    loss, accuracy = torch.tensor(curves["loss"]), torch.tensor(curves["accuracy"])  # (points, K, R)
    records = []
    for k, setting in enumerate(settings):
        by_seed = loss[:, k].T.tolist()
        bad = [diverged(curve) for curve in by_seed]
        records.append(
            Record(
                optimizer=setting.optimizer,
                lr=setting.lr,
                loss=by_seed,
                accuracy=accuracy[:, k].T.tolist(),
                end=_unless(bad, [curve[-1] for curve in by_seed]),
                valid=_unless(bad, curves["valid_loss"][k]),
                final=curves["final_accuracy"][k],
                exit=[leaves_plateau(curve, points) for curve in by_seed],
            )
        )
    return records


def at_rates(records: Sequence[Record], rates: Mapping[str, float]) -> Group:
    """Each optimizer's record at its rate of `rates`."""
    return {record.optimizer: record for record in records if record.lr == rates[record.optimizer]}


def ranking(group: Group) -> str:
    """The optimizers by the median over the seeds of the final training loss, the lowest first."""
    return ", ".join(sorted(group, key=lambda name: median(group[name].end)))


def against_best_other(name: str, others: Sequence[str], group: Group) -> str:
    """The final losses of an optimizer and of the best of `others`, in words."""
    rival = min((other for other in others if other != name), key=lambda other: median(group[other].end))
    return f"{name} {median_and_range(group[name].end)}, best other of the study {rival} {median_and_range(group[rival].end)}"


@dataclass(frozen=True)
class Standing:
    """How one optimizer ended on one net of a race.

    losses, exits  final training loss, and iteration from which the loss stays below the plateau, by seed
    accuracy       median accuracy on all test images, in percent
    """

    lr: float
    losses: list[float]
    exits: list[float]
    accuracy: float

    @property
    def loss(self) -> float:
        return median(self.losses)


def standings(result: Result, net: str, rates: str = "best") -> dict[str, Standing]:
    """How each optimizer of a race's result ended on a net, at the "best" or at the "lecture" rates."""
    found, points = result.arrays["nets"][net][rates], result.arrays["points"]
    accuracy = {(row.optimizer, row.lr): float(row.accuracy.split(" ")[0]) for row in result.rows() if row.net == net}
    return {
        name: Standing(
            lr=record["lr"],
            losses=[curve[-1] for curve in record["loss"]],
            exits=[leaves_plateau(curve, points) for curve in record["loss"]],
            accuracy=accuracy[name, record["lr"]],
        )
        for name, record in found.items()
    }
