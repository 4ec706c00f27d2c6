"""Finds a DataLoader's settings for any data set by short trials: num_workers, prefetch_factor, pin_memory, persistent_workers.

A trial starts a loader, lets it settle, and times some batches together with the step that consumes them. What counts is an
epoch, the mean over all of them. A start-up brings the first batch; every other one comes at the steady rate.

    epoch = start-up / epochs + (batches − 1 / epochs) · steady    with persistent workers, which start once
    epoch = start-up + (batches − 1) · steady                      with workers that start in every epoch
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from hpml_lab.core.experiment import Row, Table, column
from hpml_lab.core.experiment.render import table_html, table_text
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import sleep_until
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of, times_faster
from hpml_lab.loading.tools.training_state import restored, trained_by
from hpml_lab.loading.tools.trials import LoaderTrial, Trials, median_trial

GAIN = 0.05  # a setting has to be so much better than a simpler one, or the simpler one stays
HIDDEN = 0.10  # a loop that takes so much longer than its steps alone has its loading hidden
ROUNDS = 5  # trials of the best, of the setting that it replaced and of the default, in turns
CHOSEN = ("num_workers", "prefetch_factor", "persistent_workers", "sampler", "batch_sampler")  # each trial has its own
KEPT = ("collate_fn", "drop_last", "worker_init_fn", "multiprocessing_context")  # of a DataLoader that is tuned


@dataclass(frozen=True)
class TrialRow(Row):
    """A trial as the table shows it."""

    setting: str = column("setting")
    start_up: float = column("start-up", "s")
    batch: float = column("batch", "ms")
    epoch: float = column("epoch", "s")


@dataclass(frozen=True)
class Tuned:
    """What `tune` found: `DataLoader(dataset, batch_size, **tuned.options)`. `print(tuned)` shows the gain and all trials.

    trials   in the order in which they ran; the first is the default, without workers
    reason   why it stopped
    """

    options: dict[str, Any]
    trials: list[LoaderTrial]
    reason: str
    batches: int
    epochs: int
    batch_size: int = 1

    @property
    def best(self) -> LoaderTrial:
        """The chosen setting, as it was measured: the median of its trials."""
        return median_trial(self.trials, self.options)

    @property
    def speed_up(self) -> float:
        """Seconds of an epoch at the default over seconds at the chosen setting."""
        default = median_trial(self.trials, self.trials[0].options)  # not those that pin, too
        return default.epoch(self.batches, self.epochs) / self.best.epoch(self.batches, self.epochs)

    @property
    def table(self) -> Table:
        """All trials, one row each."""
        rows = [
            TrialRow(_named(trial.options), trial.start_up, trial.steady * 1e3, trial.epoch(self.batches, self.epochs))
            for trial in self.trials
        ]
        return Table("Trials, in the order in which they ran", rows)

    @property
    def gain(self) -> str:
        """How much faster an epoch is than without workers, in words; with the interval, if both settings took turns."""
        default = self.trials[0].options
        if self.options == default:
            return "the default"
        met = in_turns(self.trials, default, self.options, self.batches, self.epochs)
        return f"{met or times_faster(self.speed_up)} compared with no workers"

    def __repr__(self) -> str:
        return f"Tuned: {_named(self.options)}; {self.reason}"

    def __str__(self) -> str:
        table = self.table
        lines = [f"{_named(self.options)}: {self.gain}; {self.reason}.", table.title]
        return "\n".join([*lines, table_text(list(table.columns.values()), table.cells())])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        # The text that a notebook stores is the same on every machine; what was measured stands in the table.
        display({"text/plain": "Tuned: the table of its trials", "text/html": self._html()}, raw=True)

    def _html(self) -> str:
        table = self.table
        return (
            f"<p><b>{_named(self.options)}</b>: {self.gain}; {self.reason}.</p>"
            f"{table_html(list(table.columns.values()), table.cells())}"
        )


def tune(
    data: Dataset | DataLoader,
    batch_size: int | None = None,
    *,
    step: Callable[[Any], object] | None = None,
    restore: Iterable[Any] | None = None,
    step_seconds: float = 0.0,
    epochs: int = 10,
    max_workers: int | None = None,
    budget_seconds: float = 30.0,
    deadline_seconds: float = 20.0,
    **given: Any,
) -> Tuned:
    """Try settings of a DataLoader for a data set and choose the fastest one, the simplest of equals.

    data              a map-style data set; or a DataLoader, whose data set, batch size, collate_fn, drop_last, worker_init_fn
                      and multiprocessing_context are then used. Its sampler is not: trials draw at random
    step              what is done with a batch, run in the trials; or `step_seconds`, a wait that stands for an accelerator's
                      step. On a GPU, let it end as your loop's does, such as with loss.item()
    restore           the models and optimizers that the step trains. The trials do run the step, so these are copied before
                      and put back afterwards, bitwise, like the random states. By default all that the step refers to are
                      found: variables, attributes of its object, arguments of a partial
    epochs            of the training to come: many of them repay an expensive start
    max_workers       the most to try; by default 8 or the number of cores, whichever is more
    budget_seconds    after which no further trial begins
    deadline_seconds  within which each batch of a trial must come
    given             further options of the DataLoader, the same in all trials: collate_fn, drop_last, …
    Trials run in the caller's thread, so that its `no_grad` and `autocast` hold. Raises LabError for options that it chooses
    itself, for arguments of a wrong type, and for a data set that is empty, has no length, raises, or does not answer within
    the deadline.
    """
    if isinstance(data, DataLoader):
        data, batch_size, given = _taken_apart(data, batch_size, given)
    if not is_data(data):
        raise LabError(f"data: a {type(data).__name__} is not a data set.", "Give a Dataset or a DataLoader.")
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise LabError(
            "This data set has no length and no indices (IterableDataset).",
            "Its workers share the stream only if it splits itself; try num_workers by hand, with num_workers=1 first.",
        )
    if len(data) == 0:
        raise LabError("This data set is empty.", "Give one with samples.")
    if batch_size is None:
        raise LabError("tune() needs a batch size.", "tune(dataset, batch_size), or tune(loader).")
    limit = max_workers if max_workers is not None else max(8, machine.cores())
    for name, value, least in (("batch_size", batch_size, 1), ("epochs", epochs, 1), ("max_workers", limit, 0)):
        if not isinstance(value, Integral) or value < least:
            raise LabError(f"{name}={value!r} is not valid.", f"Give a whole number from {least} on.")
    batch_size, epochs, limit = int(batch_size), int(epochs), int(limit)  # NumPy's integers lack methods of Python's
    seconds = {"step_seconds": step_seconds, "budget_seconds": budget_seconds, "deadline_seconds": deadline_seconds}
    for name, value in seconds.items():
        if not isinstance(value, Real) or not value >= 0:
            raise LabError(f"{name}={value!r} is not valid.", "Give seconds, 0 or more.")
    if step is not None and not callable(step):
        raise LabError(f"step: {step!r} is not a function.", "Give one that takes a batch, or step_seconds.")
    if chosen := [name for name in CHOSEN if name in given]:
        raise LabError(f"{', '.join(chosen)}: the tuner chooses it for its trials.", "Leave it out.")
    consume = step or (lambda _: sleep_until(CLOCK() + step_seconds))
    run = Trials(data, batch_size, consume, deadline_seconds, given, CLOCK() + budget_seconds)
    search = _Search(run, -(-len(data) // batch_size), epochs, limit)
    with restored(trained_by(step) if restore is None else restore):
        trials = list(progress(search.trials(), "tune: trials"))
    return Tuned(search.best[-1].options, trials, search.reason, search.batches, epochs, batch_size)


def is_data(value: Any) -> bool:
    """Whether a value can be tuned: a data set, a loader or a list of samples, but no text."""
    return not isinstance(value, str | bytes) and (hasattr(value, "__getitem__") or hasattr(value, "__iter__"))


def _taken_apart(loader: DataLoader, batch_size: int | None, given: dict[str, Any]) -> tuple[Any, int, dict[str, Any]]:
    """The data set, batch size and options of a loader; what the caller gives besides goes before."""
    size = loader.batch_size if batch_size is None else batch_size
    if size is None and loader.batch_sampler is not None:
        with restored([]):  # a batch sampler of one's own: as large as its first batch, for which it may draw
            size = len(next(iter(loader.batch_sampler)))
    if size is None:
        raise LabError("This DataLoader makes no batches (batch_size=None).", "Give tune() the data set and a batch size.")
    kept = {name: getattr(loader, name) for name in KEPT if getattr(loader, name) is not None}
    return loader.dataset, size, {**kept, **given}


def in_turns(
    trials: list[LoaderTrial], base: dict[str, Any], options: dict[str, Any], batches: int, epochs: int
) -> SpeedUp | None:
    """The speed-up of an epoch with `options` over one with the options `base`, pair by pair.

    None for fewer than two pairs. The placebo is the base's next trial.
    """
    before, after = (
        [trial.epoch(batches, epochs) for trial in trials if trial.options == wanted] for wanted in (base, options)
    )
    pairs = min(len(before), len(after))
    if pairs < 2:
        return None
    before, after = before[-pairs:], after[-pairs:]
    return speed_up_of(before, after, [*before[1:], before[0]])


class _Search:
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
        better = _better(self._cost(trial), min(self._cost(other) for other in self._done[:-1]))
        if better:
            self.best.append(trial)
        return better

    def _plan(self) -> Iterator[LoaderTrial]:
        run = self.run
        self.best = [run.trial({"num_workers": 0})]
        yield self.best[0]
        alone, worse = run.step_seconds, 0  # alone: the steps by themselves
        for workers in _ladder(self.limit):
            if self.best[-1].steady <= alone * (1 + HIDDEN):
                self.reason = "the loading is hidden behind the steps"
                break
            if run.over:
                self.reason = "the budget is spent"
                break
            trial = run.trial(loader_options(workers, 2, self.epochs))
            yield trial
            worse = 0 if self._improves(trial) else worse + 1
            if worse == 2:
                self.reason = "more workers gain nothing"
                break
        self.reason = self.reason or f"{self.limit} workers were allowed"
        best = self.best[-1]
        if best.workers and best.steady > alone * (1 + HIDDEN) and not run.over:
            trial = run.trial(loader_options(best.workers, 4, self.epochs))  # uneven batches want more of them loaded ahead
            yield trial
            self._improves(trial)
        if torch.cuda.is_available() and not run.over:
            trial = run.trial({**self.best[-1].options, "pin_memory": True})
            yield trial
            self._improves(trial)
        # The best was chosen for being the best of several: chance helped it. So it meets what it replaced again, in turns.
        while len(self.best) > 1:
            simpler = self.best[:1] + self.best[1:-1][-1:]  # the default, and the last that was best before
            for _ in range(ROUNDS - 1):
                if run.over:
                    break
                for trial in (*simpler, self.best[-1]):
                    yield run.trial(trial.options)
            objections = [objection for trial in simpler if (objection := self._objection(trial))]
            if not objections:
                break
            self.reason = f"{self.reason}; {objections[-1]}"
            self.best.pop()

    def _objection(self, simpler: LoaderTrial) -> str:
        """Why the best is not to be preferred to a simpler setting that took turns with it; empty if it is."""
        best = self.best[-1].options
        met = in_turns(self._done, simpler.options, best, self.batches, self.epochs)
        cost, before = (self._cost(median_trial(self._done, options)) for options in (best, simpler.options))
        name = "the default" if simpler is self.best[0] else _named(simpler.options)
        if not _better(cost, before):
            return f"in turns with {_named(best)}, {name} was as fast"
        return f"in turns with {name}, the gain of {_named(best)} was within the noise" if met and not met.faster else ""


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


def _named(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())
