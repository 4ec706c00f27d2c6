"""A killed rank, and a run on 4, then 2, then 1 rank: both end bitwise identical to an undisturbed run."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from matplotlib.ticker import MaxNLocator
from torch import nn

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import measure
from hpml_lab.core.show import style
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.programs import run_python
from hpml_lab.sharding.experiments.elastic.on_ranks import (
    AT_REPLACE,
    AT_STEP,
    HALF_WRITTEN,
    Fault,
    average_by_rank,
    train,
    train_sharded,
)
from hpml_lab.sharding.lessons.training_run import PARTS, TrainingRun
from hpml_lab.sharding.lessons.recovery import Snapshots, average_in_order, best_interval, launch_elastic

QUICK = dict(steps=30, every=5, width=32, torchrun=False)
FULL = dict(steps=120, every=20, width=256, torchrun=True)
TORCHRUN_SECONDS = 500.0  # a deadline for a hang: three generations of processes import torch
WORDS = dict(zip(PARTS, ("weights", "optimizer", "schedule", "generator", "epoch", "place in the epoch"), strict=True))
# Unexpected interruptions while Llama 3 405B was trained, arXiv:2407.21783, section 3.3.4.
FAILURES, RANKS, DAYS = 419, 16_384, 54


@dataclass
class ElasticRun(Row):
    """One run to the last step, with the ranks that were killed on the way."""

    run: str = column("run")
    ranks: str = column("ranks")
    killed: str = column("killed")
    goes_on: str = column("goes on after step")
    repeated: int = column("steps repeated")
    damaged: str = column("snapshot passed over")
    sha: str = column("sha256 of the weights, first digits")
    same: bool = column("bitwise identical to the undisturbed run")


@dataclass
class ForgottenPart(Row):
    """A run that goes on from a snapshot without one of its parts."""

    part: str = column("the snapshot has no")
    distance: float = column("distance of the final weights", "relative")
    same: bool = column("bitwise identical to the undisturbed run")


@dataclass
class ShardedResume(Row):
    """A sharded run of 2 ranks, resumed from torch.distributed.checkpoint in the middle."""

    ranks: int = column("ranks that go on")
    read: bool = column("weights and moments read, bitwise those that 2 ranks wrote")
    same: bool = column("end bitwise identical to the undisturbed run")
    distance: float = column("distance of the final weights", "relative")


@dataclass
class RunAttempt:
    """From the start of the ranks to their end: their number, the steps, and which rank was killed."""

    ranks: int
    start: int
    end: int
    killed: int | None


def draw(result: Result):
    """Left: training on 4, then 2, then 1 rank. A row is a rank, a bar the steps that it did; a cross is the rank that was
    killed, hatched steps were lost with it and are done again, and dotted lines are the snapshots from which the next ranks go
    on. Right: the distance of the weights from those of the undisturbed run, for snapshots that lack one part."""
    figure = style.new_figure(10, 3.8)
    bars, distances = figure.subplots(1, 2)
    attempts = [RunAttempt(**row) for row in result.arrays["attempts"]]
    for number, (attempt, color) in enumerate(zip(attempts, style.CYCLE, strict=False)):
        kept = attempts[number + 1].start if number + 1 < len(attempts) else attempt.end
        bar = dict(height=0.22, edgecolor=color)
        for rank in range(attempt.ranks):
            label = f"{attempt.ranks} rank{'s' * (attempt.ranks > 1)}" if rank == 0 else None
            y = rank + 0.24 * (number - 1)
            bars.barh(y, kept - attempt.start, left=attempt.start, color=color, label=label, **bar)
            bars.barh(y, attempt.end - kept, left=kept, color="none", hatch="////", **bar)
        if attempt.killed is not None:
            bars.plot(attempt.end, attempt.killed + 0.24 * (number - 1), "X", color=style.INK, markersize=11)
            bars.axvline(kept, color=style.GREY, linestyle=":", linewidth=1.2)
    bars.plot([], [], "X", color=style.INK, label="killed")
    bars.barh(0, 0, color="none", edgecolor=style.GREY, hatch="////", label="lost, done again")
    ranks = max(attempt.ranks for attempt in attempts)
    bars.set(xlabel="step", ylabel="rank", yticks=range(ranks), ylim=(ranks - 0.4, -0.5))
    bars.grid(axis="y", visible=False)
    bars.set_axisbelow(True)
    bars.legend(fontsize=8, loc="lower right")
    first = result.arrays["snapshot"]
    for (part, curve), line, color in zip(result.arrays["distances"].items(), style.LINES, style.CYCLE, strict=False):
        points = [(first + 1 + i, distance) for i, distance in enumerate(curve) if distance > 0]
        distances.plot(*zip(*points, strict=True), linestyle=line, color=color, label=WORDS[part])
    distances.set(yscale="log", xlabel="step", ylabel="relative distance of the weights")
    distances.xaxis.set_major_locator(MaxNLocator(integer=True))
    distances.legend(title="the snapshot has no", fontsize=8, title_fontsize=8)
    return figure


# ---- runs ----------------------------------------------------------------------------------------------------------------


def run(
    name: str, ranks: Sequence[int], faults: Sequence[Fault], params: Params, average: Callable = average_in_order
) -> tuple[ElasticRun, list[RunAttempt], bool]:
    """A run with faults: its row (not yet compared), its attempts, and whether all ranks ended with the same weights."""
    with tempfile.TemporaryDirectory() as folder:
        options = (folder, params.steps, params.every, list(faults), average, params.width)
        found, failures = launch_elastic(train, *options, ranks=ranks)  # one rank too: like the others it has one thread
    planned = [0, *(_resumed(fault, params.every) for fault in faults)]
    starts = [*planned[:-1], found[0]["start"]]  # the ranks that were killed returned nothing
    ends = [*(fault.step for fault in faults), params.steps]
    killed = [*(fault.rank for fault in faults), None]
    attempts = [RunAttempt(*values) for values in zip(ranks, starts, ends, killed, strict=True)]
    row = ElasticRun(
        run=name,
        ranks=" → ".join(map(str, ranks)),
        killed="; ".join(f"rank {fault.rank} {_when(fault)}" for fault in faults) or "–",
        goes_on=" and ".join(map(str, starts[1:])) or "–",
        repeated=sum(end - start for end, start in zip(ends, starts[1:], strict=False)),
        damaged=", ".join(found[0]["damaged"]) or "–",
        sha=found[0]["sha"][:16],
        same=False,
    )
    as_planned = starts == planned and [error.rank for error in failures] == [fault.rank for fault in faults]
    return row, attempts, as_planned and len({rank["sha"] for rank in found}) == 1


def _resumed(fault: Fault, every: int) -> int:
    """The step of the snapshot that is left after a fault."""
    return (fault.step - (fault.how != AT_STEP)) // every * every


def _when(fault: Fault) -> str:
    return f"after step {fault.step}" if fault.how == AT_STEP else f"in the snapshot of step {fault.step}"


def weights(net: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().double() for parameter in net.parameters()])


def distances_without(params: Params) -> dict[str, list[float]]:
    """{part: the distance from the undisturbed run after each step}, for a snapshot without that part; "nothing" has all."""
    undisturbed, path = TrainingRun(params.width), []
    with tempfile.TemporaryDirectory() as folder:
        while undisturbed.steps < params.steps:
            undisturbed.step()
            path.append(weights(undisturbed.net))
            if undisturbed.steps == _middle(params):
                Snapshots(folder).save(undisturbed.steps, undisturbed.state())
        saved = Snapshots(folder).newest().state
    found = {}
    for part in ("nothing", *PARTS):
        again = TrainingRun(params.width)
        again.load({name: value for name, value in saved.items() if name != part})
        found[part] = []
        for right in path[_middle(params) :]:
            again.step()
            found[part].append(float((weights(again.net) - right).norm() / right.norm()))
    return found


def _middle(params: Params) -> int:
    """The step of the snapshot that forgets: in the middle of an epoch, so that the place in it matters."""
    return 2 * params.every


def under_torchrun(params: Params, fault: Fault) -> dict:
    """The same run as two ranks of torchrun, which starts all of them again when one is killed.

    By default all attempts share one store, and a new rank may find the address of a dead one there (pytorch issue 135712).
    """
    with tempfile.TemporaryDirectory() as folder:
        options = dict(folder=folder, steps=params.steps, every=params.every, faults=[asdict(fault)], width=params.width)
        ranks = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2", "--max-restarts", "2"]
        module = ["--monitor-interval", "0.2", "-m", "hpml_lab.sharding.experiments.elastic.on_ranks", json.dumps(options)]
        finished = run_python(
            ["-m", "torch.distributed.run", *ranks, *module],
            deadline_seconds=TORCHRUN_SECONDS,
            environment={"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        )
    lines = [line for line in finished.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"sha": "", "start": -1, "restarts": 0, "error": finished.stderr[-500:]}


def sharded_resumes(steps: int) -> list[ShardedResume]:
    """One run of 2 ranks to the end, which saves in the middle; then 2, 4 and 1 ranks go on from there."""
    import torch.distributed.checkpoint.state_dict  # noqa: F401  once, before ranks are forked

    rows, half = [], steps // 2
    with tempfile.TemporaryDirectory() as folder:
        [(written, sha, weights), _] = launch(train_sharded, folder, range(steps), half, ranks=2)
        for ranks in (2, 4, 1):
            read, end, found = launch(train_sharded, folder, range(half, steps), ranks=ranks)[0]
            off = torch.tensor(found) - torch.tensor(weights)
            rows.append(ShardedResume(ranks, read == written, end == sha, (off.norm() / torch.tensor(weights).norm()).item()))
    return rows


def snapshot_seconds(params: Params) -> tuple[float, int]:
    """The time of one snapshot, to the disk, and its bytes."""
    state = TrainingRun(params.width)
    state.step()
    with tempfile.TemporaryDirectory() as folder:
        snapshots = Snapshots(folder)
        timing = measure(lambda: snapshots.save(1, state.state()), samples=5)
        return timing.seconds, snapshots.newest().path.stat().st_size


# ---- the experiment ------------------------------------------------------------------------------------------------------


@experiment("elastic", lecture="own", notebook="14_sharding", draw=draw, quick=QUICK, full=FULL, same_picture=True)
def elastic(params: Params) -> Result:
    """A rank is killed, and training continues from its snapshot, bitwise identical to an undisturbed run."""
    every = params.every
    mid = 2 * every + every // 2 + 1  # between two snapshots
    plans = {
        "undisturbed": ([1], []),
        "undisturbed, 2 ranks": ([2], []),
        "a rank is killed": ([2, 2], [Fault(1, mid)]),
        "fewer and fewer ranks": ([4, 2, 1], [Fault(3, mid), Fault(0, 4 * every, AT_REPLACE)]),
        "a snapshot is cut off": ([2, 2], [Fault(0, 3 * every, HALF_WRITTEN)]),
    }
    found = {name: run(name, ranks, faults, params) for name, (ranks, faults) in plans.items()}
    found["sums by rank"] = run("sums by rank", [2], [], params, average_by_rank)
    rows = {name: row for name, (row, _, _) in found.items()}
    whole = rows["undisturbed"].sha
    for row in rows.values():
        row.same = row.sha == whole
    distances = distances_without(params)
    forgotten = [ForgottenPart(WORDS.get(part, part), curve[-1], max(curve) == 0) for part, curve in distances.items()]
    seconds, size = snapshot_seconds(params)
    resumed = sharded_resumes(params.every)
    between_failures = DAYS * 24 * 3600 / FAILURES

    result = Result([Table("Runs", list(rows.values())), Table("Snapshots that forget one part", forgotten)])
    result.tables.append(Table("A sharded run, saved by 2 ranks with torch.distributed.checkpoint", resumed))
    result.arrays["attempts"] = [asdict(attempt) for attempt in found["fewer and fewer ranks"][1]]
    result.arrays.update(distances={part: curve for part, curve in distances.items() if part != "nothing"})
    result.arrays["snapshot"] = _middle(params)
    result.key_figure("sha256 of the undisturbed run", whole[:12])
    result.key_figure("sha256 with a rank killed", rows["a rank is killed"].sha[:12])
    result.key_figure("sha256 on 4, 2 and 1 ranks", rows["fewer and fewer ranks"].sha[:12])
    result.key_figure("steps repeated after the kill", rows["a rank is killed"].repeated)
    result.key_figure("a snapshot takes", seconds * 1e3, unit="ms")
    result.key_figure("bytes of a snapshot", size)
    result.key_figure(f"time between two failures of {RANKS:,} GPUs", between_failures / 3600, unit="h")
    result.key_figure("work between two snapshots of 60 s there", best_interval(60, between_failures) / 60, unit="min")

    result.claim(
        "A rank is killed by SIGKILL between two snapshots: the final weights are bitwise those of the undisturbed run; with "
        "virtual shards also where 4, then 2, then 1 rank go on",
        rows["a rank is killed"].same and rows["undisturbed, 2 ranks"].same and rows["fewer and fewer ranks"].same,
    )
    result.claim(
        "A sharded run of 2 ranks, saved with torch.distributed.checkpoint: 2, 4 and 1 ranks read bitwise the weights and "
        "moments that were written, and 2 ranks end bitwise identical to the undisturbed run",
        all(row.read for row in resumed) and resumed[0].same,
        f"on 4 and 1 ranks the end is {max(row.distance for row in resumed):.1g} away: sums in another order",
    )
    cut = rows["a snapshot is cut off"]
    result.claim(
        "A rank that is killed while it writes leaves the snapshot before untouched; half a snapshot under its final name is "
        "noticed; either way training goes on from the one before, to bitwise identical weights",
        result.arrays["attempts"][-1]["start"] == 3 * every
        and rows["fewer and fewer ranks"].damaged == "–"
        and cut.same
        and cut.damaged.startswith(f"step{3 * every:06d}-"),
    )
    complete, *lacking = forgotten
    result.claim(
        "Weights alone are not enough: without the optimizer's moments, the schedule, the generator, the epoch or the place in "
        "it, the run ends elsewhere; with all of them each step is the same",
        complete.same and not any(row.same for row in lacking),
    )
    result.measured(
        "Where each rank first adds its own shards, 2 ranks end with other bits than 1: the order of the sum has changed",
        not rows["sums by rank"].same,
        f"{rows['sums by rank'].sha[:12]} compared with {whole[:12]}",
        depends_on="the values that are added",
    )
    result.check(
        "The ranks of each run agree on every bit, and failed as planned", all(sound for _, _, sound in found.values())
    )
    if params.torchrun:
        fault = plans["a rank is killed"][1][0]
        under = under_torchrun(params, fault)
        result.measured(
            "torchrun restarts all ranks when one is killed, and they end bitwise identical",
            under["sha"].startswith(whole) and under["restarts"] == 1 and under["start"] == _resumed(fault, every),
            under.get("error") or f"{under['sha'][:12]}, from step {under['start']}, {under['restarts']} restart",
        )
    else:
        result.notes.append("`full` also lets torchrun restart the ranks, which takes longer: each imports torch again.")
    return result
