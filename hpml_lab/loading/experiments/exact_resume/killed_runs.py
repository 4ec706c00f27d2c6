"""Six ways to resume a loader in mid-epoch, three of them wrong, in processes that are killed.

The training's weights are here the list of the samples that it has taken: what was taken after the last snapshot is gone with
the process, as the weights' last steps would be, and is done again.
"""

import importlib.util
import itertools
import math
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

from hpml_lab.core.system.children import ChildOutcome, has_autograd_threads, kill_group, run_in_child
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab.loading.lessons.resuming import ResumableSampler, batches_from, epoch_order, sample_generator
from hpml_lab.loading.lessons.sampling import BIG

SEED = 0
LESSON, STEPS, TORCHDATA = "the lesson's sampler", "the number of steps", "StatefulDataLoader"
REDRAWN, RESTARTED, HANDED_OUT = "order drawn again", "counter that begins at 0", "counted in the sampler"
RIGHT, WRONG = (LESSON, STEPS, TORCHDATA), (REDRAWN, RESTARTED, HANDED_OUT)
DEADLINE_SECONDS = 300.0


@dataclass(frozen=True)
class KillPlan:
    """An epoch of `batches` batches of `batch` samples; a process is killed after each of `kills` batches of its own.

    every  steps between snapshots
    """

    batches: int
    batch: int
    kills: tuple[int, ...]
    every: int

    @property
    def size(self) -> int:
        return self.batches * self.batch


class Taken(NamedTuple):
    """A sample that the training has taken: in which process, and two random numbers that came with it."""

    process: int
    index: int
    workers_number: int
    own_number: int


class RandomSamples(Dataset):
    """A sample is its index, a number of its worker's generator, and one that (seed, epoch, index) alone decide."""

    def __init__(self, size: int, epoch: int) -> None:
        self.size, self.epoch = size, epoch

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        own = sample_generator(SEED, self.epoch, index).integers(BIG)
        return index, int(torch.randint(BIG, ())), int(own)


# ---- the ways --------------------------------------------------------------------------------------------------------------


class StepSampler(ResumableSampler):
    """As train.py: the number of steps is all that is saved."""

    def __init__(self, size: int, seed: int, batch: int) -> None:
        super().__init__(size, seed)
        self.batch, self.step = batch, 0

    def __iter__(self) -> Iterator[int]:
        left = (self.epoch + 1) * (self.size // self.batch) - self.step
        batches = batches_from(self.step, self.size, self.batch, self.seed)
        return itertools.chain.from_iterable(itertools.islice(batches, left))

    def took(self, samples: int) -> None:
        self.step += 1

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]
        self.epoch = self.step // (self.size // self.batch)


class HandedOutSampler(ResumableSampler):
    """Wrong: it counts what the workers ask for."""

    def __iter__(self) -> Iterator[int]:
        for index in super().__iter__():
            self.position += 1
            yield index

    def took(self, samples: int) -> None:
        pass


class RestartedSampler(ResumableSampler):
    """Wrong: it skips what the state says, and counts from 0 again."""

    skipped = 0

    def __iter__(self) -> Iterator[int]:
        return iter(epoch_order(self.size, self.seed, self.epoch)[self.skipped :])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.skipped, self.position = self.position, 0


class RedrawnSampler(ResumableSampler):
    """Wrong: it draws the order from a generator whose state is saved as it is in mid-epoch."""

    def __init__(self, size: int, seed: int) -> None:
        super().__init__(size, seed)
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.size, generator=self.generator)[self.position :].tolist())

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.generator.set_state(state["generator"])


SAMPLERS = {LESSON: ResumableSampler, REDRAWN: RedrawnSampler, RESTARTED: RestartedSampler, HANDED_OUT: HandedOutSampler}


class SavedLoader:
    """A loader of one of the ways, which goes on where `state` says; `state()` is what a snapshot holds of it.

    torchdata's loader counts for itself, and asks its own sampler for its state. With `shuffle=True, generator=` the workers'
    seed would come from the order's generator, and without workers a resumed run would have another order in its next epoch.
    """

    def __init__(self, name: str, plan: KillPlan, workers: int, state: Any) -> None:
        self.plan, self.workers = plan, workers
        if name == TORCHDATA:
            from torchdata.stateful_dataloader import StatefulDataLoader
            from torchdata.stateful_dataloader.sampler import RandomSampler

            self.sampler = RandomSampler(range(plan.size), generator=torch.Generator().manual_seed(SEED))
            kept = self.kept = self._loader(StatefulDataLoader, 0)
            self.took = self.next_epoch = lambda *_: None
        else:
            kept = self.sampler = StepSampler(plan.size, SEED, plan.batch) if name == STEPS else SAMPLERS[name](plan.size, SEED)
            self.kept, self.took, self.next_epoch = None, kept.took, kept.next_epoch
        self.state = kept.state_dict
        if state is not None:
            kept.load_state_dict(state)

    def batches(self) -> Iterator[list[torch.Tensor]]:
        """What is left of the epoch; a generator, so that the loader is as alive as it is."""
        yield from self.kept or self._loader(DataLoader, self.sampler.epoch)

    def _loader(self, kind: type[DataLoader], epoch: int) -> DataLoader:
        forks = self.workers and sys.platform == "linux"  # this child has one thread; to import torch anew takes seconds
        context = multiprocessing.get_context("fork") if forks else None
        options = dict(sampler=self.sampler, num_workers=self.workers, multiprocessing_context=context)
        return kind(RandomSamples(self.plan.size, epoch), self.plan.batch, **options)


def resume_ways() -> list[str]:
    """The ways that this environment has."""
    return [name for name in (*RIGHT, *WRONG) if name != TORCHDATA or importlib.util.find_spec("torchdata")]


# ---- a process ---------------------------------------------------------------------------------------------------------------


@dataclass
class ResumedRun:
    """An epoch of one way to its end, the indices of the next epoch, and what its last snapshot holds of the data."""

    taken: list[Taken]
    following: list[int]
    state_bytes: int


def one_process(path: str, plan: KillPlan, workers: int, number: int, names: Collection[str]) -> dict[str, ResumedRun]:
    """Process `number` of the runs of some ways: from the snapshot at `path`, if there is one, to its kill or to the end.

    The ways take turns, batch by batch; each has random numbers of its own, as if it were alone.
    """
    saved = pickle.loads(Path(path).read_bytes()) if Path(path).exists() else {}  # made by this program a moment ago
    torch.manual_seed(SEED)  # as a script does at its start
    random = dict.fromkeys(names, torch.get_rng_state())
    warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata calls it; this process ends with the function
    with allow_oversubscription():
        ways = {name: SavedLoader(name, plan, workers, saved[name][0] if saved else None) for name in names}
        taken = {name: saved[name][1] if saved else [] for name in names}
        batches = {name: way.batches() for name, way in ways.items()}

        def take(name: str) -> bool:
            torch.set_rng_state(random[name])
            if (batch := next(batches[name], None)) is None:
                return False
            random[name] = torch.get_rng_state()
            taken[name] += [Taken(number, *values) for values in zip(*(part.tolist() for part in batch), strict=True)]
            ways[name].took(len(batch[0]))
            return True

        if number < len(plan.kills):
            for _ in range(plan.kills[number]):
                for name in names:
                    take(name)
                if max(map(len, taken.values())) // plan.batch % plan.every == 0:
                    snapshot = {name: (way.state(), taken[name]) for name, way in ways.items()}
                    atomic_write(Path(path), pickle.dumps(snapshot))
            # In the middle of the epoch, with all loaders at work. Workers that are left look for their parent every 5 s, and
            # until then hold the pipe by which its end is noticed. Windows has but one way to end a process.
            kill_group(os.getpid())
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        found = {}
        for name, way in ways.items():
            while take(name):
                pass
            way.next_epoch()
            following = [index for batch in way.batches() for index in batch[0].tolist()] if name in RIGHT else []
            found[name] = ResumedRun(taken[name], following, len(pickle.dumps(saved[name][0])) if saved else 0)
    return found


def killed_run(
    folder: Path, plan: KillPlan, workers: int, names: Collection[str]
) -> tuple[dict[str, ResumedRun], list[int | None]]:
    """An epoch in as many processes as there are kills and one more; the exit codes of those that were killed."""
    method = "fork" if sys.platform == "linux" and not has_autograd_threads() else None
    codes: list[int | None] = []
    for number in range(len(plan.kills) + 1):
        arguments = str(folder / f"{workers}-workers"), plan, workers, number, names
        outcome = run_in_child(one_process, *arguments, method=method, deadline_seconds=DEADLINE_SECONDS)
        if outcome.how == "died" and number < len(plan.kills):
            codes.append(outcome.exitcode)
        else:
            found = value_of(outcome, f"process {number}")
    return found, codes


def all_runs(
    plan: KillPlan, workers_tried: Iterable[int], names: Collection[str]
) -> tuple[dict[tuple[str, int], ResumedRun], dict[tuple[str, int], ResumedRun], list[int | None]]:
    """Every way with each number of workers, killed and never stopped; and the exit codes of the processes that were killed.

    All processes are children of one that has imported torch and has no threads, so that they can be forked: a fresh one would
    first import torch for seconds.
    """
    with tempfile.TemporaryDirectory(prefix="hpml-resume-") as folder:
        outcome = run_in_child(_all_runs, Path(folder), plan, workers_tried, names, deadline_seconds=math.inf)
    return value_of(outcome, "the process of all runs")


def _all_runs(folder: Path, plan: KillPlan, workers_tried: Iterable[int], names: Collection[str]) -> tuple:
    if TORCHDATA in names:
        importlib.import_module("torchdata.stateful_dataloader")  # once, for all processes
    never, runs, whole, codes = replace(plan, kills=()), {}, {}, []
    for workers in workers_tried:
        # torchdata's loader has another order with workers than without; that of the others is known without them.
        some = [name for name in names if not workers or name == TORCHDATA]
        found, _ = killed_run(folder / "never", never, workers, some)
        whole |= {(name, workers): found[name] if name in found else whole[name, 0] for name in names}
        found, ended = killed_run(folder, plan, workers, names)
        runs |= {(name, workers): run for name, run in found.items()}
        codes += ended
    return runs, whole, codes


def value_of(outcome: ChildOutcome, process: str) -> Any:
    """What a process returned. Raises RuntimeError if it did not."""
    if outcome.how != "returned":
        raise RuntimeError(f"{process} {outcome.how}, {outcome.exitcode}: {outcome.error}\n{outcome.trace}")
    return outcome.value
