"""What the lectures' ways to write mixed precision do today."""

from dataclasses import dataclass

import torch
from torch import nn

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.warned import collect_warnings


@dataclass
class OldSpelling(Row):
    """A line of the lectures, what it does today, and what to write instead."""

    lecture: str = column("lecture")
    today: str = column("today")
    instead: str = column("instead")


def then_and_now() -> list[OldSpelling]:
    """Run the lines of the lectures."""
    rows = []
    for line, work, today in (
        ("torch.cuda.amp.GradScaler()", lambda: torch.cuda.amp.GradScaler(), 'torch.amp.GradScaler("cuda")'),
        ("torch.cuda.amp.autocast()", lambda: torch.cuda.amp.autocast(), 'torch.autocast("cuda")'),
        ('amp.initialize(…, opt_level="O2")', _apex, "torch.autocast and torch.amp.GradScaler"),
    ):
        with collect_warnings() as caught:
            try:
                work()
                warned = [f"{w.category.__name__}: {w.message}" for w in caught if w.category is FutureWarning]
                outcome = warned[0] if warned else "works"
            except Exception as error:  # Apex is not installed, or too old or too new
                outcome = f"{type(error).__name__}: {error}"
        rows.append(OldSpelling(line, outcome.splitlines()[0].split(". ")[0], today))
    return rows


def _apex() -> None:
    from apex import amp

    model = nn.Linear(2, 2)
    amp.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), opt_level="O2")
