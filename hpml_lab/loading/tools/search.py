"""The order in which the tuner tries a DataLoader's settings, and when one is better than a simpler one."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.loading.tools.trials import LoaderTrial, Trials, median_trial

GAIN = 0.05  # a setting has to be so much better than a simpler one, or the simpler one stays
HIDDEN = 0.10  # a loop that takes so much longer than its steps alone has its loading hidden
HIDDEN_NOW = "the loading is hidden behind the steps"
NEXT_TO_NOTHING = f"loading makes the steps less than {HIDDEN:.0%} longer"  # in turn with them, so nothing is hidden
ROUNDS = 5  # trials of the best, of the setting that it replaced and of the default, in turns


def in_turns(
    trials: list[LoaderTrial], base: dict[str, Any], options: dict[str, Any], batches: int, epochs: int
) -> SpeedUp | None:
    """The speed-up of an epoch with `options` over one with the options `base`, pair by pair.

    None for fewer than two pairs. The placebo is the base's next trial.
    """
    before, after = (
        [trial.epoch(batches, epochs) for trial in trials if trial.options == wanted and not trial.failure]
        for wanted in (base, options)
    )
    pairs = min(len(before), len(after))
    if pairs < 2:
        return None
    before, after = before[-pairs:], after[-pairs:]
    return speed_up_of(before, after)


class Search:
    """The order of the trials, from simple settings to others, and which setting is best so far.

    best  the trials that won so far, each simpler than the next: the default first, the best last
    """

    def __init__(self, run: Trials, batches: int, epochs: int, limit: int) -> None:
        self.run, self.batches, self.epochs, self.limit = run, batches, epochs, limit
        self.best: list[LoaderTrial] = []
        self.reason = ""
        self._done: list[LoaderTrial] = []

    def trials(self) -> Iterator[LoaderTrial]:
        """Run the trials one by one; afterwards `best` and `reason` are settled."""
        for trial in self._plan():
            self._done.append(trial)
            yield trial

    def _cost(self, trial: LoaderTrial) -> float:
        return trial.epoch(self.batches, self.epochs)

    def _improves(self, trial: LoaderTrial) -> bool:
        """Whether a new trial, the last that was done, is better than all before, which are simpler."""
        if trial.failure:
            return False
        better = _better(self._cost(trial), min(self._cost(other) for other in self._done[:-1] if not other.failure))
        if better:
            self.best.append(trial)
        return better

    def _plan(self) -> Iterator[LoaderTrial]:
        run = self.run
        self.best = [run.trial({"num_workers": 0})]
        yield self.best[0]
        alone, worse = run.step_seconds, 0  # alone: the steps by themselves
        rungs, fitted, failure = deque(_ladder(self.limit)), 0, ""
        while rungs:
            workers = rungs.popleft()
            if self.best[-1].steady <= alone * (1 + HIDDEN):
                self.reason = HIDDEN_NOW if self.best[-1].workers else NEXT_TO_NOTHING
                break
            if run.over:
                self.reason = "the budget is spent"
                break
            trial = self._try(loader_options(workers, 2, self.epochs))
            yield trial
            if trial.failure:
                failure = f"num_workers={workers} did not fit: {trial.failure.removesuffix('.')}"
                rungs = deque([between] if (between := (fitted + workers) // 2) > fitted else [])
                continue
            fitted = workers
            worse = 0 if self._improves(trial) else worse + 1
            if worse == 2:
                self.reason = "more workers gain nothing"
                break
        self.reason = self.reason or failure or f"{self.limit} workers were allowed"
        best = self.best[-1]
        if best.workers and best.steady > alone * (1 + HIDDEN) and not run.over:
            trial = self._try(loader_options(best.workers, 4, self.epochs))  # uneven batches want more of them loaded ahead
            yield trial
            self._improves(trial)
        if torch.cuda.is_available() and not run.over:
            trial = self._try({**self.best[-1].options, "pin_memory": True})
            yield trial
            self._improves(trial)
        # The best was chosen for being the best of several: chance helped it. So it meets what it replaced again, in turns.
        while len(self.best) > 1:
            simpler = self.best[:1] + self.best[1:-1][-1:]  # the default, and the last that was best before
            for _ in range(ROUNDS - 1):
                if run.over:
                    break
                for trial in (*simpler, self.best[-1]):
                    yield self._try(trial.options)
            objections = [objection for trial in simpler if (objection := self._objection(trial))]
            if not objections:
                break
            self.reason = f"{self.reason}; {objections[-1]}"
            self.best.pop()

    def _try(self, options: dict[str, Any]) -> LoaderTrial:
        """A trial; one that failed if the default, whose failure is the data set's, worked."""
        try:
            return self.run.trial(options)
        except LabError as error:
            if options == self.best[0].options:
                raise
            return LoaderTrial(options, failure=error.problem)

    def _objection(self, simpler: LoaderTrial) -> str:
        """Why the best is not to be preferred to a simpler setting that took turns with it; empty if it is."""
        best = self.best[-1].options
        if failed := [trial.failure for trial in self._done if trial.options == best and trial.failure]:
            return f"in turns {named(best)} did not fit: {failed[-1].removesuffix('.')}"
        met = in_turns(self._done, simpler.options, best, self.batches, self.epochs)
        cost, before = (self._cost(median_trial(self._done, options)) for options in (best, simpler.options))
        name = "the default" if simpler is self.best[0] else named(simpler.options)
        if not _better(cost, before):
            return f"in turns with {named(best)}, {name} was as fast"
        return f"in turns with {name}, the gain of {named(best)} was within the noise" if met and not met.faster else ""


def _better(cost: float, simpler: float) -> bool:
    """Whether a setting costs so much less than a simpler one that it is worth it."""
    return cost < (1 - GAIN) * simpler


def _ladder(limit: int) -> list[int]:
    """1, 2, 4, 8, … and the limit itself."""
    powers = [1 << i for i in range(limit.bit_length()) if 1 << i < limit]
    return [*powers, limit] if limit else []


def loader_options(workers: int, prefetch: int, epochs: int) -> dict[str, Any]:
    """A DataLoader's options with workers, which stay from epoch to epoch if there is more than one."""
    return {"num_workers": workers, "prefetch_factor": prefetch, "persistent_workers": epochs > 1}


def named(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())
