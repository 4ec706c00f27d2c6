"""What anomaly mode reports about losses that contain a NaN or an infinity."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.core.system.attempt import attempt
from hpml_lab.core.system.warned import collect_warnings


def hidden_root(x: torch.Tensor) -> torch.Tensor:
    """√x, whose derivative at 0 is infinite: the function that anomaly mode must name."""
    return torch.sqrt(x)


FAULTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {  # each at x = 0
    "NaN in a gradient": lambda x: hidden_root(x) * 0,  # 0 · ∞
    "infinity in a gradient": hidden_root,
    "NaN in the loss, gradient finite": lambda x: torch.log(x - 1),  # log(-1) is NaN, its derivative -1
    "nothing wrong": lambda x: hidden_root(x + 1),
}


@dataclass
class AnomalyReport(Row):
    """What anomaly mode reports about the backward pass of one loss."""

    fault: str = column("fault")
    loss: float = column("loss")
    gradient: float = column("gradient")
    reported: str | None = column("anomaly mode reports")
    names_forward_line: bool = column("names the forward function")
    off_afterwards: bool = column("off afterwards")


def anomaly_report(fault: str, device: torch.device) -> AnomalyReport:
    """Run one of FAULTS forward and backward, without anomaly mode and with it."""
    function = FAULTS[fault]
    x = torch.zeros(1, device=device, requires_grad=True)
    loss = function(x).sum()
    loss.backward()

    def in_anomaly_mode() -> None:
        with torch.autograd.detect_anomaly():
            function(torch.zeros(1, device=device, requires_grad=True)).sum().backward()

    with collect_warnings() as caught:  # the traceback of the forward pass comes as a warning
        outcome = attempt(in_anomaly_mode)
    return AnomalyReport(
        fault=fault,
        loss=loss.item(),
        gradient=x.grad.item(),
        reported=None if outcome == "works" else outcome,
        names_forward_line=any("hidden_root" in str(warning.message) for warning in caught),
        off_afterwards=not torch.is_anomaly_enabled(),
    )
