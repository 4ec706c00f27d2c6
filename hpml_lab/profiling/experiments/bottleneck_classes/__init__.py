"""A classifier that names the bound of a loop, judged on loops whose bound is known."""

import itertools
import warnings
from collections import Counter
from dataclasses import dataclass

import torch
from matplotlib.patches import Rectangle

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.profiling.lessons.bottleneck import BOUNDS, CANNOT_TELL, Diagnosis, classify, decide
from hpml_lab.profiling.experiments.bottleneck_classes.known_gpu_loops import WRITTEN, on_gpu
from hpml_lab.profiling.experiments.bottleneck_classes.known_loops import ON_HOST

QUICK = dict(seconds=0.2)
FULL = dict(seconds=1.5)
LOOPS, RIGHT, WRONG = "measured loops", "measured loops named correctly", "measured loops given a wrong bound"


@dataclass
class LoopDiagnosis(Row):
    """One loop whose bound is known, and what the classifier says of it."""

    loop: str = column("loop")
    known: str = column("known bound")
    named: str = column("named")
    reason: str = column("because")
    cores_wanted: float = column("cores wanted")
    busiest: float = column("busiest thread")
    input_wait: float = column("waits for input")
    lock_wait: float = column("threads at a lock")
    unknown_wait: float = column("waits elsewhere")


@dataclass
class MeasuredLoop(LoopDiagnosis):
    """A loop that ran on this machine."""


@dataclass
class WrittenLoop(LoopDiagnosis):
    """A GPU's time line that was written down by hand."""

    kernels: float = column("kernels", default=0.0)
    copies: float = column("copies", default=0.0)


def as_row(kind: type[LoopDiagnosis], name: str, known: str, diagnosis: Diagnosis) -> LoopDiagnosis:
    seen = diagnosis.evidence
    own = {"loop": name, "known": known, "named": diagnosis.bound, "reason": diagnosis.reason}
    return kind(**own, **{name: getattr(seen, name) for name in kind.__dataclass_fields__ if name not in own})


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """A confusion table of loops whose bound is known: one row for the known bound, one column for the bound that the
    classifier named, and in each cell the number of loops.

    What lies on the diagonal is right (blue), and red is a wrong name. The last row holds loops of which nothing can be
    said, the last column answers that say so.
    """
    names = [*BOUNDS, CANNOT_TELL]
    seen = Counter((row.known, row.named) for row in result.rows(LoopDiagnosis))
    counts = [[seen[known, named] for named in names] for known in names]
    figure = style.new_figure(7, 5)
    axes = figure.subplots()
    axes.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5), aspect="equal")
    for i, j in itertools.product(range(len(names)), repeat=2):
        if counts[i][j]:
            color = style.BLUE if i == j else style.GREY if j == len(names) - 1 else style.RED
            axes.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, color=color))
            axes.text(j, i, str(counts[i][j]), ha="center", va="center", color="white", weight="bold")
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False)
    axes.set(xlabel="named by the classifier", ylabel="known bound")
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


def judge_loops(result: Result, measured: list[LoopDiagnosis]) -> None:
    """What the classifier makes of loops that ran here. On a busy or slow host it may fail to tell; it must not be wrong."""
    right = [row for row in measured if row.named == row.known]
    wrong = [row for row in measured if row.named not in (row.known, CANNOT_TELL)]
    missed = sorted({row.known for row in measured} - {row.known for row in right})
    result.key_figure(LOOPS, len(measured))
    result.key_figure(RIGHT, len(right))
    result.key_figure(WRONG, len(wrong))
    result.measured(
        "Of each kind of bound that is measured here, the classifier names at least one loop correctly",
        not missed,
        f"{len(right)} of {len(measured)} loops; kinds without one: {', '.join(missed) or 'none'}",
    )
    result.measured(
        "No loop is given a wrong bound: where the classifier is not right, it says that it cannot tell",
        not wrong,
        "; ".join(f"{row.loop}: {row.named}" for row in wrong) or "none",
    )


@experiment(
    "bottleneck-classes", lecture="L1", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL, uses=("cuda",)
)  # fmt: skip
def bottleneck_classes(params: Params) -> Result:
    """Bottlenecks: a classifier that names the bound of a loop, judged on loops whose bound is known."""
    device, cpu = params.device.torch, torch.device("cpu")
    loops = [(loop, cpu) for loop in ON_HOST]
    if device.type == "cuda":
        loops += [(loop, device) for loop in on_gpu(device)]
    measured = []
    with warnings.catch_warnings():
        # On purpose: more workers than this machine may have cores.
        warnings.filterwarnings("ignore", message=".*suggested max number of worker")
        for known, where in loops:
            loop = known.loop(params.seconds)
            measured.append(as_row(MeasuredLoop, known.name, known.truth, classify(loop, where)))
    written = [as_row(WrittenLoop, known.name, known.truth, decide(known.evidence)) for known in WRITTEN]

    result = Result([
        Table("Loops measured here", measured),
        Table("Time lines of a GPU, written down by hand", written),
    ])  # fmt: skip
    result.claim(
        "On evidence that is written down the decision is right every time", all(row.known == row.named for row in written)
    )
    judge_loops(result, measured)
    if device.type != "cuda":
        result.notes.append(
            "Loops bound by a GPU are time lines written down by hand here. "
            + NO_CUDA.format(what="none is measured", slug="bottleneck-classes")
        )
    return result
