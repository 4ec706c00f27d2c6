"""Steps that run the script with one option after the other: what it learns, and how long its epochs take.

The script has to take the template's options, `--optimizer adam`, and to print its line for each epoch
(`lessons/lab_training.py`). What differs by no more than another seed changes is not claimed.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import torch

from hpml_lab.core.experiment import Row, Table, column
from hpml_lab.core.system import machine
from hpml_lab.core.timing.clock import PLACEBO, SAMPLES
from hpml_lab.core.timing.noise import speed_up_of
from hpml_lab.referee.script_turns import FEWEST
from hpml_lab.your_script.tools.lab_task import LATE, Findings, Lab, NotDone, NotHere, not_run
from hpml_lab.your_script.tools.script_runs import ScriptRun, run_script

OPTIMIZERS = ("sgd", "nesterov", "adagrad", "adadelta", "adam")
ONE_RATE = 0.01
BATCH = 64  # of one rank, and of all in strong scaling
SEEDS = ("101", "102", "103", "104")  # the placebo of what is learned: the same training with other random numbers
# A training with another seed differs from the mean of five by less than this many of their standard deviations, in 99 of 100
# cases: Student's t of four degrees of freedom, times √(1 + 1/5).
BEYOND = 4.604 * (1 + 1 / 5) ** 0.5


@dataclass
class TrainedRow(Row):
    """One way to train: seconds of an epoch, and what was learned at the end."""

    run: str = column("run")
    seconds: float = column("an epoch", "s")
    loss: float = column("loss at the end")
    accuracy: float | None = column("accuracy at the end")
    gain: float | None = column("accuracy − mean of the seeds", default=None)


@dataclass
class ScriptScaling(Row):
    """One number of ranks. `batch` counts the samples of all ranks."""

    kind: str = column("scaling")
    ranks: int = column("ranks")
    batch: int = column("batch")
    seconds: float = column("an epoch", "s")
    speed_up: float = column("samples per second over those of one rank")
    interval: str = column("interval", default="")
    noise: float | None = column("noise", "%", default=None)
    verdict: str = column("verdict", default="")


def _trained(lab: Lab, variants: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ScriptRun]]:
    """Each variant's run, as long as the step has time. Raises NotDone if the first one fails: so will the others."""
    end = time.monotonic() + lab.seconds
    for number, (name, options) in enumerate(variants.items()):
        if (found := lab.runs.get(tuple(options))) is None:
            if number and time.monotonic() > end:
                return
            found = run_script([*lab.script, *options], deadline_seconds=LATE * lab.seconds)
            if found.failed and (tried := " ".join(options)) not in found.failed:  # as of a parser that names no option
                found = replace(found, failed=f"with {tried}: {found.failed}")
            lab.runs[tuple(options)] = found
        if found.failed and not number:
            raise NotDone(found.failed)
        yield name, found


def time_parts(lab: Lab) -> Findings:
    """Seconds of each epoch: waiting for batches, training, and all."""
    [(_, run)] = _trained(lab, {"as it is": ()})
    load, train, total = (sum(getattr(row, name) for row in run.epochs) for name in ("load", "train", "total"))
    says = [f"{100 * load / total:.0f} % of the time it waits for batches, {100 * train / total:.0f} % it trains."]
    if run.epochs[0].total > 1.2 * run.epoch_seconds:
        says.append(f"The first epoch takes {run.epochs[0].total / run.epoch_seconds:.1f} times as long as the fastest other.")
    return Findings(says, [Table("Seconds of an epoch", run.epochs)])


def change_seeds(lab: Lab) -> Findings:
    """The same training with other random numbers: what differs by no more than these says nothing."""
    variants = {"as it is": (), **{f"seed {seed}": ("--seed", seed) for seed in SEEDS}}
    runs = dict(_trained(lab, variants))
    failed = [run.failed for run in runs.values() if run.failed]
    if failed:
        raise NotDone(failed[0])
    rows = [TrainedRow(name, run.epoch_seconds, run.last.loss, run.last.accuracy) for name, run in runs.items()]
    lab.note_seeds(row.accuracy for row in rows)
    says = not_run(lab, [name for name in variants if name not in runs])
    if (limit := noise_of(lab)) is None:
        few = len(lab.accuracies) <= len(SEEDS)
        why = "too few of them have an accuracy" if few else "each has the same accuracy. Does it use the option?"
        says.insert(0, f"The seeds tell no noise: {why if lab.accuracies else 'the script prints no accuracy'}.")
    else:
        found = f"{min(lab.accuracies):.3f} to {max(lab.accuracies):.3f}"
        says.insert(
            0, f"The seed alone: accuracy {found}. Below a difference of {limit:.3f} from their mean nothing is claimed."
        )
    return Findings(says, [Table("Other seeds", rows)])


def noise_of(lab: Lab) -> float | None:
    """How far from the mean of the seeds another seed may be; None where that is not known."""
    if len(lab.accuracies) <= len(SEEDS) or (spread := stdev(lab.accuracies)) == 0:
        return None
    return BEYOND * spread


def _compare_trainings(lab: Lab, title: str, variants: Mapping[str, Sequence[str]]) -> Findings:
    """The script as it is and with each variant's options; what is claimed differs by more than other seeds do."""
    every = {"as it is": (), **variants}
    runs = dict(_trained(lab, every))
    done = {name: run for name, run in runs.items() if not run.failed}
    failed = {name: run.failed for name, run in runs.items() if run.failed}
    if failed and len(done) == 1:
        raise NotDone(next(iter(failed.values())))
    mean, limit = fmean(lab.accuracies) if lab.accuracies else None, noise_of(lab)
    rows = [
        TrainedRow(name, run.epoch_seconds, run.last.loss, run.last.accuracy, _difference(run.last.accuracy, mean))
        for name, run in done.items()
    ]
    if limit is None:
        says = ["No difference is claimed: how much the seed alone changes is not known (step `seeds`)."]
    else:
        beyond = [row for row in rows if row.run in variants and row.gain is not None and abs(row.gain) > limit]
        says = [f"{row.run}: {row.gain:+.3f}, more than another seed changes ({limit:.3f})." for row in beyond]
        says = says or [f"No difference is larger than what another seed changes ({limit:.3f})."]
    alike = [name for name, run in done.items() if name in variants and run.losses == done["as it is"].losses]
    says += [
        f"{name}: every loss is that of the script as it is: it trains so by itself, or ignores the option." for name in alike
    ]
    says += [f"{name}: {why}." for name, why in failed.items()]
    return Findings(says + not_run(lab, [name for name in every if name not in runs]), [Table(title, rows)])


def _difference(accuracy: float | None, mean: float | None) -> float | None:
    return None if accuracy is None or mean is None else accuracy - mean


def compare_optimizers(lab: Lab) -> Findings:
    """Five optimizers, all at one rate, and each at a rate of its own."""
    if "--lr" in lab.words:
        raise NotDone("the command gives --lr, which holds for every optimizer: leave it out")
    variants = {f"{name}, its own rate": ("--optimizer", name) for name in OPTIMIZERS}
    variants |= {f"{name}, {ONE_RATE:g}": ("--optimizer", name, "--lr", f"{ONE_RATE:g}") for name in OPTIMIZERS}
    return _compare_trainings(lab, "Five optimizers, each at its own learning rate and all at one", variants)


def compare_norms(lab: Lab) -> Findings:
    """Batch norm left out, dropout put in, and both."""
    without, dropout = ("--norm", "none"), ("--dropout", "0.3")
    variants = {"without batch norm": without, "with dropout": dropout, "without, with dropout": (*without, *dropout)}
    return _compare_trainings(lab, "Batch norm and dropout", variants)


def compare_schedules(lab: Lab) -> Findings:
    """A rate that falls, a batch that grows where the rate would fall, and a rate that rises and falls in each epoch."""
    variants = {name: ("--schedule", name) for name in ("falling", "growing", "cyclical")}
    return _compare_trainings(lab, "Learning rates over time", variants)


def compare_devices(lab: Lab) -> Findings:
    """The same epochs on a GPU and on the CPU."""
    if not torch.cuda.is_available():
        raise NotHere("torch sees no GPU here. Notebook 01, `cpu-vs-gpu`, shows the recorded run of one")
    runs = dict(_trained(lab, {name: ("--device", name) for name in ("cuda", "cpu")}))
    if failed := next((run.failed for run in runs.values() if run.failed), ""):
        raise NotDone(failed)
    if len(runs) < 2:
        raise NotDone(f"the GPU alone took {lab.seconds:.0f} s: give --seconds, or a shorter training")
    rows = [TrainedRow(name, run.epoch_seconds, run.last.loss, run.last.accuracy) for name, run in runs.items()]
    return Findings(
        [f"An epoch on the CPU takes {rows[1].seconds / rows[0].seconds:.3g} times as long."], [Table("GPU and CPU", rows)]
    )


def scale_ranks(lab: Lab) -> Findings:
    """Strong scaling: the same batch on more ranks. Weak scaling: a batch that grows with the ranks."""
    gpus = 0 if "cpu" in lab.words else torch.cuda.device_count()
    counts = [ranks for ranks in (1, 2, 4, 8) if ranks <= (gpus or max(2, machine.cores()))]
    if len(counts) == 1:
        raise NotHere("there is one GPU, and each rank needs its own: --device cpu behind the script lets them share the cores")
    variants = {f"strong, {ranks} ranks": ("strong", ranks, BATCH) for ranks in counts}
    variants |= {f"weak, {ranks} ranks": ("weak", ranks, BATCH * ranks) for ranks in counts[1:]}
    seconds, failed = _epochs_in_rounds(lab, {name: (ranks, batch) for name, (_, ranks, batch) in variants.items()})
    base, *others = variants
    if failed and not any(seconds[name] for name in others):
        raise NotDone("; ".join(f"{name}: {why}" for name, why in failed.items()))
    rows, says = [ScriptScaling(*variants[base], min(seconds[base]), 1.0)], []
    for name in [name for name in others if seconds[name]]:
        row = ScriptScaling(*variants[name], min(seconds[name]), min(seconds[base]) / min(seconds[name]))
        found = f"{row.speed_up:.2f}×, without noise that it could be compared with"
        several = [seconds[base], seconds[name], seconds[PLACEBO]]
        if (epochs := min(map(len, several))) >= FEWEST:
            gain = speed_up_of(*(each[:epochs] for each in several))
            row.speed_up, row.interval, row.noise, row.verdict = gain.ratio, gain.interval, 100 * gain.noise, gain.verdict
            found = str(gain)
        rows.append(row)
        says.append(f"{name}, samples per second: {found}.")
    if not all(row.interval for row in rows[1:]):
        says.append(f"Noise is known from {FEWEST} epochs of each on, without the first of a run: --again with more --seconds.")
    says += [f"{name}: {why}." for name, why in failed.items()]
    if not gpus:
        says.append(f"Ranks share {machine.cores()} cores, and one rank has them all: a speed-up of 1 is what to expect.")
    late = [name for name in variants if not seconds[name] and name not in failed]
    return Findings(says + not_run(lab, late), [Table("Ranks", rows)])


def _epochs_in_rounds(lab: Lab, variants: Mapping[str, tuple[int, int]]) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of epochs, and why others failed, by variant: (ranks, batch). In rounds, as long as the step has time.

    The first variant ends each round, too, as PLACEBO. Raises NotDone if it fails at once, or if ranks do not share their work.
    """
    end = time.monotonic() + lab.seconds
    base = next(iter(variants))
    left = {**variants, PLACEBO: variants[base]}
    seconds: dict[str, list[float]] = {name: [] for name in left}
    failed: dict[str, str] = {}
    while left.keys() > {base, PLACEBO} and min(len(seconds[name]) for name in left) < SAMPLES:
        for name, (ranks, batch) in list(left.items()):
            if seconds[base] and time.monotonic() > end:
                return seconds, failed
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
            threads = {"OMP_NUM_THREADS": str(max(1, machine.cores() // ranks))}
            command = [*launcher, *lab.script, "--batch", str(batch)]
            run = run_script(command, deadline_seconds=LATE * lab.seconds, environment=threads)
            if run.failed and not seconds[base]:
                raise NotDone(run.failed)
            if run.failed:
                failed[name] = run.failed
                del left[name]
            elif ranks > 1 and len({row.epoch for row in run.epochs}) < len(run.epochs):
                raise NotDone("each rank prints every epoch, as if it were alone: the script shares no work with other ranks")
            else:
                seconds[name] += run.warm_seconds
    return seconds, failed
