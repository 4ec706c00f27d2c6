"""One trial of a DataLoader's settings: some batches, timed together with the step that consumes them."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

from torch.utils.data import DataLoader

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab.loading.tools.deadline import with_deadline

TIMED = 6  # batches timed in a trial, at least
WORKERS_ONLY = ("multiprocessing_context",)  # DataLoader refuses it without workers


@dataclass(frozen=True)
class LoaderTrial:
    """One setting, measured.

    start_up  seconds to the first batch
    steady    seconds for each batch afterwards, step included
    failure   why it did not fit, such as workers that find no memory; empty if it did. Then nothing was measured
    """

    options: dict[str, Any]
    start_up: float = float("inf")
    steady: float = float("inf")
    failure: str = ""

    @property
    def workers(self) -> int:
        return self.options["num_workers"]

    def epoch(self, batches: int, epochs: int) -> float:
        """Seconds of an epoch, the mean over `epochs`."""
        starts = 1 if self.options.get("persistent_workers") or epochs == 1 else epochs
        return self.start_up * starts / epochs + self.steady * (batches - starts / epochs)


def median_trial(trials: Iterable[LoaderTrial], options: dict[str, Any]) -> LoaderTrial:
    """The trials with these options that fitted, as one: medians."""
    same = [trial for trial in trials if trial.options == options and not trial.failure]
    return LoaderTrial(options, median(trial.start_up for trial in same), median(trial.steady for trial in same))


def shuffled(length: int) -> Iterator[int]:
    """0 to length − 1 in random order, again and again, but the memory and time are those of what is drawn."""
    draw = random.Random(0)
    while True:
        moved: dict[int, int] = {}  # Fisher and Yates's shuffle of a list that holds its own indices, but for these
        for last in range(length - 1, -1, -1):
            index = draw.randint(0, last)
            yield moved.get(index, index)
            moved[index] = moved.pop(last, last)


class Trials:
    """Runs trials, each on samples that the ones before have not read, as long as there are such: a cache would flatter it."""

    def __init__(
        self, dataset: Any, batch_size: int, step: Callable, deadline_seconds: float, given: dict[str, Any], end: float
    ) -> None:
        self.dataset, self.batch_size, self.step = dataset, batch_size, step
        self.deadline_seconds, self.given, self.end = deadline_seconds, given, end
        self.length, self._order = len(dataset), shuffled(len(dataset))
        self.steps: list[float] = []

    @property
    def over(self) -> bool:
        return CLOCK() > self.end

    @property
    def step_seconds(self) -> float:
        """The median time of a step by itself."""
        return median(self.steps)

    def trial(self, options: dict[str, Any]) -> LoaderTrial:
        workers = options["num_workers"]
        settle = max(1, workers)  # the first batches of all workers come together
        ahead = workers * options.get("prefetch_factor", 0)
        wanted = min(settle + max(TIMED, 2 * workers), max(2, self.length // self.batch_size))
        settle = min(settle, wanted - 1)
        samples = list(islice(self._order, (wanted + ahead) * self.batch_size))
        given = {name: value for name, value in self.given.items() if workers or name not in WORKERS_ONLY}
        try:
            if not workers and given.get("timeout", 0) > 0:  # DataLoader wants 0 without workers; with_deadline has its own
                del given["timeout"]
            with allow_oversubscription():
                loader = DataLoader(self.dataset, self.batch_size, sampler=samples, **{**given, **options})
        except (TypeError, ValueError) as error:
            raise LabError(f"DataLoader does not take these options ({error}).", "Correct what is given besides.") from error
        return self._timed(loader, options, wanted, settle)

    def _timed(self, loader: DataLoader, options: dict[str, Any], wanted: int, settle: int) -> LoaderTrial:
        moments = [CLOCK()]
        with with_deadline(loader, self.deadline_seconds) as batches:
            for batch in batches:
                moments.append(CLOCK())
                self.step(batch)
                self.steps.append(CLOCK() - moments[-1])
                if len(moments) > wanted:
                    break
        if len(moments) < 2:
            raise LabError("The loader gives no batch.", "Look at collate_fn and at the options that are given.")
        if len(moments) < settle + 2:
            return LoaderTrial(options, moments[1] - moments[0], self.steps[-1])  # a single batch: nothing is steady
        return LoaderTrial(options, moments[1] - moments[0], (moments[-1] - moments[settle]) / (len(moments) - 1 - settle))
