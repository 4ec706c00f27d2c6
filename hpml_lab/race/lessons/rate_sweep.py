"""Choosing each optimizer's learning rate on validation data: a sweep that grows until the best rate lies inside it.

A sweep that ends at its best rate has not found the best rate. So this one starts around the lecture's rate in half decades,
and as long as the best rate is the lowest or the highest, it tries two more at that end.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from hpml_lab.race.tools.program import Setting

# The rates of the lecture's PyTorch slides: SGD 0.1, momentum and Nesterov 0.1 with γ 0.9, Adagrad 0.01, Adadelta 1.0 with
# ρ 0.9, Adam 0.001. They give none for RMSprop, which takes torch's default.
LECTURE_LR = {"SGD": 0.1, "Momentum": 0.1, "Nesterov": 0.1, "Adagrad": 0.01, "Adadelta": 1.0, "Adam": 0.001, "RMSprop": 0.01}
START = range(-1, 4)  # half decades from the lecture's rate, which are too low more often than too high
MORE = 2  # rates that are added at an end
LIMIT = 10  # half decades from the lecture's rate at which a sweep gives up


@dataclass
class RateSweep:
    """What one optimizer reached on one net: {half decades from the lecture's rate: final validation loss by seed}."""

    optimizer: str
    found: dict[int, list[float]] = field(default_factory=dict)

    def lr(self, step: int) -> float:
        """The learning rate `step` half decades above the lecture's."""
        return float(f"{LECTURE_LR[self.optimizer] * 10 ** (step / 2):.3g}")

    @property
    def best(self) -> int:
        """The step with the lowest median validation loss; a rate at which a seed diverged comes last."""
        return min(self.found, key=lambda step: (max(self.found[step]) == math.inf, median(self.found[step]), step))

    @property
    def best_lr(self) -> float:
        return self.lr(self.best)

    def at_edge(self, lr: float) -> bool:
        """True if `lr` is the lowest or the highest rate of the sweep."""
        return lr in (self.lr(min(self.found)), self.lr(max(self.found)))

    def wanted(self) -> list[int]:
        """The steps to try next; none when the best rate lies inside, or at the limit."""
        if not self.found:
            return list(START)
        low, high = min(self.found), max(self.found)
        if self.best == low:
            return list(range(max(low - MORE, -LIMIT), low))
        if self.best == high:
            return list(range(high + 1, min(high + MORE, LIMIT) + 1))
        return []


Sweeps = dict[str, dict[str, RateSweep]]  # {net: {optimizer: its sweep}}


def choose_rates(nets: Iterable[str], train: Callable[[dict[str, list[Setting]]], dict[str, list[Any]]]) -> Sweeps:
    """Sweep the rates of all optimizers on all nets; `train` takes {net: settings}, gives {net: records with `.valid`}."""
    sweeps: Sweeps = {net: {name: RateSweep(name) for name in LECTURE_LR} for net in nets}
    while True:
        steps = [(net, sweep, step) for net, of_net in sweeps.items() for sweep in of_net.values() for step in sweep.wanted()]
        if not steps:
            return sweeps
        settings: dict[str, list[Setting]] = {net: [] for net in sweeps}
        for net, sweep, step in steps:
            settings[net].append(Setting(sweep.optimizer, lr=sweep.lr(step)))
        records = {net: iter(found) for net, found in train(settings).items()}
        for net, sweep, step in steps:
            sweep.found[step] = next(records[net]).valid
