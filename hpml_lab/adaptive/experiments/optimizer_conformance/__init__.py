"""The classes of hpml_lab.optim compared with torch.optim's plain loop, on PyTorch's own inputs and on many others."""

from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

import torch

from hpml_lab import optim
from hpml_lab.adaptive.experiments.optimizer_conformance.comparison import Agreement, compare_with_torch, same_errors
from hpml_lab.adaptive.experiments.optimizer_conformance.torch_inputs import CLASSES, own_inputs, suite_inputs
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show.progress import progress

QUICK = dict(steps=25, draws=3, long_steps=150)
FULL = dict(steps=25, draws=60, long_steps=1000)


@dataclass(kw_only=True)
class ClassConformance(Row):
    """How many inputs of each kind gave one class bitwise the same results as torch.optim's.

    `suite` are PyTorch's inputs in float32 and float64 by the for-loop, `own` those of torch_inputs.py, `lists` both again with
    foreach=True.
    """

    name: str = column("class")
    suite: str = column("PyTorch's inputs, bitwise identical", default="")
    own: str = column("own inputs, bitwise identical", default="")
    lists: str | None = column("as lists (foreach), bitwise identical", default=None)
    spacings: float = column("largest difference", "spacings")
    errors: str = column("faulty inputs refused with torch's error", default="")
    suite_inputs: int
    suite_identical: int
    own_inputs: int
    own_identical: int
    list_inputs: int
    list_identical: int
    overwritten: int  # gradients that a step changed
    faulty_inputs: int
    same_errors: int

    def __post_init__(self) -> None:
        self.suite = f"{self.suite_identical} of {self.suite_inputs}"
        self.own = f"{self.own_identical} of {self.own_inputs}"
        self.lists = f"{self.list_identical} of {self.list_inputs}" if self.list_inputs else None
        self.errors = f"{self.same_errors} of {self.faulty_inputs}"

    @property
    def runs(self) -> int:
        return self.suite_inputs + self.own_inputs + self.list_inputs

    @property
    def identical(self) -> int:
        return self.suite_identical + self.own_identical + self.list_identical


def conformance(
    device: torch.device | str = "cpu",
    steps: int = 25,
    draws: int = 8,
    long_steps: int = 1000,
    classes: Iterable[str] = CLASSES,
    package: ModuleType = optim,
) -> list[ClassConformance]:
    """Compare each class with torch.optim's.

    device      where the parameters are; PyTorch's inputs are always those of its CPU list
    steps       steps with each input except the long ones
    draws       random option sets for each class
    long_steps  steps of the two long runs of each class
    classes     names in `torch.optim` and in `package`
    package     the module of classes that is compared
    """
    rows = []
    for name in classes:
        suite, own, lists = [], [], []
        for runs, inputs in ((suite, suite_inputs(name, steps)), (own, own_inputs(name, draws, steps, long_steps))):
            for entry in inputs:
                foreach = (False, True) if entry.accepts_lists else (False,)
                plain, *with_lists = compare_with_torch(entry, device, foreach, package)
                runs.append(plain)
                lists += with_lists
        same, faulty = same_errors(name, package)
        rows.append(
            ClassConformance(
                name=name,
                spacings=max(run.spacings for run in (*suite, *own, *lists)),
                overwritten=sum(run.overwritten for run in (*suite, *own, *lists)),
                suite_inputs=len(suite),
                suite_identical=_identical(suite),
                own_inputs=len(own),
                own_identical=_identical(own),
                list_inputs=len(lists),
                list_identical=_identical(lists),
                faulty_inputs=faulty,
                same_errors=same,
            )
        )
    return rows


def _identical(runs: list[Agreement]) -> int:
    return sum(run.identical for run in runs)


@experiment("optimizer-conformance", lecture="own", notebook="05_adaptive", quick=QUICK, full=FULL, uses=("cuda",))
def optimizer_conformance(params: Params) -> Result:
    """Every class compared with torch.optim's plain loop, in spacings of floating-point numbers."""
    rows: list[ClassConformance] = []
    for name in progress(CLASSES, "classes compared with torch.optim"):
        rows += conformance(params.device.torch, params.steps, params.draws, params.long_steps, [name])
    runs, identical = sum(row.runs for row in rows), sum(row.identical for row in rows)
    refused, faulty = sum(row.same_errors for row in rows), sum(row.faulty_inputs for row in rows)
    worst = max(row.spacings for row in rows)

    result = Result([Table("Inputs that gave the results of torch.optim", rows)])
    result.key_figure("runs compared", runs)
    result.key_figure("largest difference", worst, "spacings")
    result.key_figure("faulty inputs refused", refused)
    result.claim(
        "Every class gives the results of torch.optim's plain loop, singly and as lists, with every input of PyTorch's suite "
        "and with others: bitwise identical on a CPU, within 4 spacings on a GPU",
        worst <= 4 if params.device.is_cuda else identical == runs,
        f"{identical} of {runs} runs identical, largest difference {worst:g} spacings",
    )
    result.claim("No gradient is overwritten", sum(row.overwritten for row in rows) == 0, f"{runs} runs")
    result.claim(
        "Every input that PyTorch's suite expects to be refused is refused with torch's own error or warning",
        refused == faulty > 100,
        f"{refused} of {faulty}",
    )
    return result
