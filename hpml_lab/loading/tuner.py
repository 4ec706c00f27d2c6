"""Finds a DataLoader's settings for any data set by short trials: num_workers, prefetch_factor, pin_memory, persistent_workers.

A trial starts a loader, lets it settle, and times some batches together with the step that consumes them. What counts is an
epoch, the mean over all of them. A start-up brings the first batch; every other one comes at the steady rate.

    epoch = start-up / epochs + (batches − 1 / epochs) · steady    with persistent workers, which start once
    epoch = start-up + (batches − 1) · steady                      with workers that start in every epoch
"""

import html
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from hpml_lab.core.errors import LabError
from hpml_lab.core.timeline import CLOCK
from hpml_lab.core.workers import allow_oversubscription, sleep_until
from hpml_lab.loading.deadline import with_deadline

GAIN = 0.05  # a setting has to be so much better than a simpler one, or the simpler one stays
HIDDEN = 0.10  # a loop that takes so much longer than its steps alone has its loading hidden
TIMED = 6  # batches timed in a trial, at least
ROUNDS = 3  # trials of the best and of the default, in turns
OURS = ("num_workers", "prefetch_factor", "persistent_workers", "sampler", "batch_sampler")  # a trial has its own
WORKERS_ONLY = ("multiprocessing_context",)  # DataLoader refuses it without workers


@dataclass(frozen=True)
class Trial:
    """One setting, measured.

    start_up  seconds to the first batch
    steady    seconds a batch afterwards, step included
    """

    options: dict[str, Any]
    start_up: float
    steady: float

    @property
    def workers(self) -> int:
        return self.options["num_workers"]

    def epoch(self, batches: int, epochs: int) -> float:
        """Seconds of an epoch, the mean over `epochs`."""
        starts = 1 if self.options.get("persistent_workers") or epochs == 1 else epochs
        return self.start_up * starts / epochs + self.steady * (batches - starts / epochs)


@dataclass(frozen=True)
class Tuned:
    """What `tune` found: `DataLoader(dataset, batch_size, **tuned.options)`.

    trials   in the order in which they ran; the first is the default, without workers
    reason   why it stopped
    """

    options: dict[str, Any]
    trials: list[Trial]
    reason: str
    batches: int
    epochs: int

    @property
    def best(self) -> Trial:
        """The chosen setting, as it was measured: the median of its trials."""
        return _middle([one for one in self.trials if one.options == self.options])

    @property
    def speed_up(self) -> float:
        """Seconds of an epoch at the default over seconds at the chosen setting."""
        default = _middle([one for one in self.trials if one.options == self.trials[0].options])  # not those that pin, too
        return default.epoch(self.batches, self.epochs) / self.best.epoch(self.batches, self.epochs)

    def __repr__(self) -> str:
        return f"Tuned: {_named(self.options)}; {self.reason}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        # The text that a notebook stores is the same on every machine; what was measured stands in the table.
        display({"text/plain": "Tuned: the table of its trials", "text/html": self._html()}, raw=True)

    def _html(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(_named(one.options))}</td><td>{one.start_up:.3f}</td><td>{one.steady * 1e3:.2f}</td>"
            f"<td>{one.epoch(self.batches, self.epochs):.2f}</td></tr>"
            for one in self.trials
        )
        head = "<tr><th>setting</th><th>start-up, s</th><th>batch, ms</th><th>epoch, s</th></tr>"
        return (
            f"<p><b>{html.escape(_named(self.options))}</b>: {self.speed_up:.2f} times as fast as without workers. "
            f"{html.escape(self.reason)}</p><table>{head}{rows}</table>"
        )


def tune(
    dataset: Dataset,
    batch_size: int,
    *,
    step: Callable[[Any], object] | None = None,
    step_seconds: float = 0.0,
    epochs: int = 10,
    max_workers: int | None = None,
    budget: float = 30.0,
    deadline: float = 20.0,
    **given: Any,
) -> Tuned:
    """Try settings of a DataLoader for `dataset` and choose the fastest one, the simplest of equals.

    step          what is done with a batch, run in the trials; or `step_seconds`, a wait that stands for an accelerator's step
    epochs        of the training to come: many of them repay a dear start
    max_workers   the most to try; by default 8 or the number of cores, whichever is more
    budget        seconds after which no further trial begins
    deadline      seconds within which each batch of a trial must come
    given         further options of the DataLoader, the same in all trials: collate_fn, drop_last, multiprocessing_context, …
    Raises LabError for options that it chooses itself, and for a data set that is empty, has no length, raises, or does not
    answer within the deadline.
    """
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise LabError(
            "This data set has no length and no indices (IterableDataset).",
            "Its workers share the stream only if it splits itself; try num_workers by hand, with num_workers=1 first.",
        )
    if len(dataset) == 0:
        raise LabError("This data set is empty.", "Give one with samples.")
    if batch_size < 1 or epochs < 1:
        raise LabError(f"batch_size={batch_size}, epochs={epochs}: there is nothing to load.", "Each is 1 or more.")
    if ours := [name for name in OURS if name in given]:
        raise LabError(f"{', '.join(ours)}: the tuner chooses it for its trials.", "Leave it out.")
    asked = step or (lambda _: sleep_until(CLOCK() + step_seconds))
    limit = max_workers if max_workers is not None else max(8, os.cpu_count() or 1)
    batches = -(-len(dataset) // batch_size)
    run = _Trials(dataset, batch_size, asked, deadline, given, CLOCK() + budget)

    def cost(trial: Trial) -> float:
        return trial.epoch(batches, epochs)

    found = [run.trial({"num_workers": 0})]
    alone = run.step_seconds  # the steps by themselves
    best, reason, worse = found[0], "", 0
    for workers in _ladder(limit):
        if best.steady <= alone * (1 + HIDDEN):
            reason = "the loading is hidden behind the steps"
            break
        if run.over:
            reason = "the budget is spent"
            break
        found.append(run.trial(_options(workers, 2, epochs)))
        if cost(found[-1]) < (1 - GAIN) * cost(best):
            best, worse = found[-1], 0
        else:
            worse += 1
            if worse == 2:
                reason = "more workers gain nothing"
                break
    reason = reason or f"{limit} workers were allowed"
    if best.workers and best.steady > alone * (1 + HIDDEN) and not run.over:
        found.append(run.trial(_options(best.workers, 4, epochs)))  # batches of uneven cost want more of them laid ready
        if cost(found[-1]) < (1 - GAIN) * cost(best):
            best = found[-1]
    if torch.cuda.is_available() and not run.over:
        found.append(run.trial({**best.options, "pin_memory": True}))
        if cost(found[-1]) < (1 - GAIN) * cost(best):
            best = found[-1]
    # The best was chosen for being the best of several: chance helped it. So it meets the default again, in turns.
    simple = found[0]
    for _ in range(ROUNDS - 1):
        if best is simple or run.over:
            break
        found += [run.trial(simple.options), run.trial(best.options)]
    again = {id(one): _middle([other for other in found if other.options == one.options]) for one in (simple, best)}
    if best is not simple and cost(again[id(best)]) >= (1 - GAIN) * cost(again[id(simple)]):
        best, reason = simple, f"{reason}; in turns with it, the default was as fast"
    return Tuned(best.options, found, reason, batches, epochs)


def _ladder(limit: int) -> list[int]:
    """1, 2, 4, 8, … and the limit itself."""
    powers = [1 << i for i in range(limit.bit_length()) if 1 << i < limit]
    return [*powers, limit] if limit else []


def _options(workers: int, prefetch: int, epochs: int) -> dict[str, Any]:
    return {"num_workers": workers, "prefetch_factor": prefetch, "persistent_workers": epochs > 1}


def _named(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _middle(trials: list[Trial]) -> Trial:
    """The same setting's trials as one: medians."""
    return Trial(trials[0].options, median(one.start_up for one in trials), median(one.steady for one in trials))


class _Trials:
    """Runs trials, each on samples that the ones before have not read, as long as there are such: a cache would flatter it."""

    def __init__(
        self, dataset: Any, batch_size: int, step: Callable, deadline: float, given: dict[str, Any], end: float
    ) -> None:
        self.dataset, self.batch_size, self.step = dataset, batch_size, step
        self.deadline, self.given, self.end = deadline, given, end
        self.order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0)).tolist()
        self.at = 0
        self.steps: list[float] = []

    @property
    def over(self) -> bool:
        return CLOCK() > self.end

    @property
    def step_seconds(self) -> float:
        """The median time of a step by itself."""
        return median(self.steps)

    def trial(self, options: dict[str, Any]) -> Trial:
        workers = options["num_workers"]
        settle = max(1, workers)  # the first batches of all workers come at once
        ahead = workers * options.get("prefetch_factor", 0)
        wanted = min(settle + max(TIMED, 2 * workers), max(2, len(self.order) // self.batch_size))
        settle = min(settle, wanted - 1)
        samples = self._samples((wanted + ahead) * self.batch_size)
        given = {name: value for name, value in self.given.items() if workers or name not in WORKERS_ONLY}
        with allow_oversubscription():
            loader = DataLoader(Subset(self.dataset, samples), self.batch_size, **{**given, **options})
        if workers:
            return self._timed(loader, options, wanted, settle)
        # Without workers nothing but another thread can keep the deadline.
        done: list[Any] = []
        thread = threading.Thread(target=self._note, args=(done, loader, options, wanted, settle), daemon=True)
        thread.start()
        thread.join(self.deadline * wanted)
        if not done:
            raise LabError(
                f"The data set gave no {wanted} batches within {self.deadline * wanted:g} s.",
                "Look for a lock or a network read without a timeout in it, or raise the deadline.",
            )
        if isinstance(done[0], BaseException):
            raise done[0]
        return done[0]

    def _samples(self, number: int) -> list[int]:
        taken = [self.order[(self.at + i) % len(self.order)] for i in range(number)]
        self.at = (self.at + number) % len(self.order)
        return taken

    def _note(self, done: list[Any], *arguments: Any) -> None:
        try:
            done.append(self._timed(*arguments))
        except BaseException as error:  # the caller raises it
            done.append(error)

    def _timed(self, loader: DataLoader, options: dict[str, Any], wanted: int, settle: int) -> Trial:
        marks = [CLOCK()]
        with with_deadline(loader, self.deadline) as batches:
            for batch in batches:
                marks.append(CLOCK())
                self.step(batch)
                self.steps.append(CLOCK() - marks[-1])
                if len(marks) > wanted:
                    break
        if len(marks) < settle + 2:
            return Trial(options, marks[1] - marks[0], self.steps[-1])  # a single batch: nothing is steady
        return Trial(options, marks[1] - marks[0], (marks[-1] - marks[settle]) / (len(marks) - 1 - settle))
