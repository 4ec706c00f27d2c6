"""Finds a DataLoader's settings for any data set by short trials: num_workers, prefetch_factor, pin_memory, persistent_workers.

A trial starts a loader, lets it settle, and times some batches together with the step that consumes them. What counts is an
epoch, the mean over all of them. A start-up brings the first batch; every other one comes at the steady rate.

    epoch = start-up / epochs + (batches − 1 / epochs) · steady    with persistent workers, which start once
    epoch = start-up + (batches − 1) · steady                      with workers that start in every epoch
"""

import html
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from hpml_lab.core.experiment import Row, Table, column
from hpml_lab.core.experiment.render import table_html, table_text
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError, error_text
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import require_seconds, sleep_until
from hpml_lab.core.timing.noise import times_faster
from hpml_lab.loading.tools.search import Search, in_turns, named
from hpml_lab.loading.tools.training_state import restored, trained_by
from hpml_lab.loading.tools.trials import LoaderTrial, Trials, median_trial

PERSISTENT_EFFECT = (
    "persistent_workers=True shuffles in another order from the second epoch on, at the same seed; "
    "a RandomSampler with a generator of its own keeps it."
)
CHOSEN = (
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "shuffle",
    "sampler",
    "batch_sampler",
)  # each trial has its own
KEPT = ("collate_fn", "drop_last", "worker_init_fn", "multiprocessing_context")  # of a DataLoader that is tuned


@dataclass(frozen=True)
class TrialRow(Row):
    """A trial as the table shows it."""

    setting: str = column("setting")
    start_up: float | None = column("start-up", "s")
    batch: float | None = column("batch", "ms")
    epoch: float | None = column("epoch", "s")


@dataclass(frozen=True)
class Tuned:
    """What `tune` found: `DataLoader(dataset, batch_size, **tuned.options)`. `print(tuned)` shows the gain and all trials.

    trials   in the order in which they ran, with those that did not fit; the first is the default, without workers
    reason   why it stopped
    not_used  what the loader that was tuned has of its own and the trials had not, in words; empty if nothing
    """

    options: dict[str, Any]
    trials: list[LoaderTrial]
    reason: str
    batches: int
    epochs: int
    batch_size: int = 1
    not_used: str = ""

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
        return Table("Trials, in the order in which they ran", [self._row(trial) for trial in self.trials])

    def _row(self, trial: LoaderTrial) -> TrialRow:
        setting = named(trial.options)
        if trial.failure:
            return TrialRow(f"{setting} did not fit", None, None, None)
        return TrialRow(setting, trial.start_up, trial.steady * 1e3, trial.epoch(self.batches, self.epochs))

    @property
    def failures(self) -> list[str]:
        """Why settings did not fit, one text each: in the table it would make all rows as wide."""
        return [*{f"{named(trial.options)} did not fit: {trial.failure}": None for trial in self.trials if trial.failure}]

    @property
    def effect(self) -> str:
        """What the chosen setting changes besides the time, and what the trials left out, in words; empty if nothing."""
        return " ".join(filter(None, [PERSISTENT_EFFECT * bool(self.options.get("persistent_workers")), self.not_used]))

    @property
    def gain(self) -> str:
        """How much faster an epoch is than without workers, in words; with the interval, if both settings took turns."""
        default = self.trials[0].options
        if self.options == default:
            return "the default"
        met = in_turns(self.trials, default, self.options, self.batches, self.epochs)
        return f"{met or times_faster(self.speed_up)} compared with no workers"

    def __repr__(self) -> str:
        return f"Tuned: {named(self.options)}; {self.reason}"

    def __str__(self) -> str:
        table = self.table
        lines = [f"{named(self.options)}: {self.gain}; {self.reason}.", self.effect, table.title]
        return "\n".join([*filter(None, lines), table_text(list(table.columns.values()), table.cells()), *self.failures])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        # The text that a notebook stores is the same on every machine; what was measured stands in the table.
        display({"text/plain": "Tuned: the table of its trials", "text/html": self._html()}, raw=True)

    def _html(self) -> str:
        table = self.table
        return (
            f"<p><b>{named(self.options)}</b>: {html.escape(f'{self.gain}; {self.reason}. {self.effect}')}</p>"
            f"{table_html(list(table.columns.values()), table.cells())}"
            + "".join(f"<p>{html.escape(failure)}</p>" for failure in self.failures)
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
    Trials run in the caller's thread, so that its `no_grad` and `autocast` hold. A setting whose workers fail, for want of
    memory, files or processes or because the data set fails in them, is a trial that did not fit; fewer are tried. Raises
    LabError for options that it chooses itself, for arguments of a wrong type, and for a data set that is empty, has no length,
    or without workers raises or does not answer within the deadline.
    """
    for name, value in {"step_seconds": step_seconds, "budget_seconds": budget_seconds}.items():
        endless = name == "step_seconds" and value == math.inf
        if not isinstance(value, Real) or isinstance(value, bool) or not value >= 0 or endless:
            raise LabError(f"{name}={value!r} is not valid.", "Give seconds, 0 or more.")
    deadline_seconds = require_seconds("deadline_seconds", deadline_seconds)
    own = _own_order(data) if isinstance(data, DataLoader) else ""
    if isinstance(data, DataLoader):
        data, batch_size, given = _taken_apart(data, batch_size, given)
    if not is_data(data):
        raise LabError(f"data: a {type(data).__name__} is not a data set.", "Give a Dataset or a DataLoader.")
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise LabError(
            "This data set has no length and no indices (IterableDataset).",
            "Its workers share the stream only if it splits itself; try num_workers by hand, with num_workers=1 first.",
        )
    if (length := _length(data)) == 0:
        raise LabError("This data set is empty.", "Give one with samples.")
    if batch_size is None:
        raise LabError("tune() needs a batch size.", "tune(dataset, batch_size), or tune(loader).")
    limit = max_workers if max_workers is not None else max(8, machine.cores())
    for name, value, least in (("batch_size", batch_size, 1), ("epochs", epochs, 1), ("max_workers", limit, 0)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise LabError(f"{name}={value!r} is not valid.", f"Give a whole number from {least} on.")
    batch_size, epochs, limit = int(batch_size), int(epochs), int(limit)  # NumPy's integers lack methods of Python's
    whole, rest = divmod(length, batch_size)
    if (batches := whole if given.get("drop_last") else whole + bool(rest)) == 0:
        raise LabError(f"drop_last drops the only batch: {length} samples, batch_size={batch_size}.", "Make it smaller.")
    if step is not None and not callable(step):
        raise LabError(f"step: {step!r} is not a function.", "Give one that takes a batch, or step_seconds.")
    if chosen := [name for name in CHOSEN if name in given]:
        raise LabError(f"{', '.join(chosen)}: the tuner chooses it for its trials.", "Leave it out.")
    consume = step or (lambda _: sleep_until(CLOCK() + step_seconds))
    run = Trials(data, batch_size, consume, deadline_seconds, given, CLOCK() + budget_seconds)
    search = Search(run, batches, epochs, limit)
    try:
        with restored(trained_by(step) if restore is None else restore):
            trials = list(progress(search.trials(), "tune: trials"))
    except LabError as error:
        by_key = isinstance(error.__cause__, KeyError) and not isinstance(data, Dataset)  # as of a dictionary of samples
        if by_key and isinstance(next(iter(error.__cause__.args), None), int):
            asked = f"The trials ask for whole numbers, data[0] to data[{length - 1}]. {own}".strip()
            raise LabError(f"{error.problem} {asked}", "Tune a view of the data set that has them.") from error.__cause__
        raise
    not_used = f"{own} Give it to the loader beside these options." if own else ""
    return Tuned(search.best[-1].options, trials, search.reason, search.batches, epochs, batch_size, not_used)


def is_data(value: Any) -> bool:
    """Whether a value can be tuned: a data set, a loader or a list of samples, but no text."""
    return not isinstance(value, str | bytes) and (hasattr(value, "__getitem__") or hasattr(value, "__iter__"))


def _own_order(loader: DataLoader) -> str:
    """A sentence about a sampler of the reader's own, whose order and choice no trial has; "" where there is none."""
    if loader.batch_size is None:
        name, given = "batch_sampler", loader.batch_sampler
    else:
        name, given = "sampler", loader.sampler
    if given is None or isinstance(given, RandomSampler | SequentialSampler):
        return ""
    return f"The trials drew batches at random: the loader's own {name} ({type(given).__name__}) was not used."


def _taken_apart(loader: DataLoader, batch_size: int | None, given: dict[str, Any]) -> tuple[Any, int, dict[str, Any]]:
    """The data set, batch size and options of a loader; what the caller gives besides goes before."""
    size = loader.batch_size if batch_size is None else batch_size
    if size is None and loader.batch_sampler is not None:
        with restored([]):  # a batch sampler of one's own: as large as its first batch, for which it may draw
            try:
                size = len(next(iter(loader.batch_sampler), []))
            except Exception as error:
                raise LabError(f"Its batch_sampler gives no list of indices ({_raised(error)}).", "Correct it.") from error
        if not size:
            raise LabError("Its batch_sampler gives no batch.", "Give it samples, or tune the data set with a batch size.")
    if size is None:
        raise LabError("This DataLoader makes no batches (batch_size=None).", "Give tune() the data set and a batch size.")
    kept = {name: getattr(loader, name) for name in KEPT if getattr(loader, name) is not None}
    return loader.dataset, size, {**kept, **given}


def _length(data: Any) -> int:
    try:
        return len(data)
    except Exception as error:  # a __len__ may raise anything, or be that of a stream
        raise LabError(
            f"The length of this data set cannot be had ({_raised(error)}).",
            "Give it a __len__ that returns its number of samples.",
        ) from error


def _raised(error: BaseException) -> str:
    return f"{type(error).__name__}: {error_text(error)}"
