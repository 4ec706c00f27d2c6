"""Where the ranks of an experiment run: one GPU for each if there are several, otherwise processes on the CPU."""

from dataclasses import dataclass

import torch

from hpml_lab.core.system.device import Device
from hpml_lab.core.system.machine import cores


@dataclass(frozen=True)
class Placement:
    """How many ranks, on "cuda" or "cpu", and what a reader should know about it."""

    ranks: int
    device: str
    note: str = ""


def placement(ranks: int, device: Device, all_gpus: bool, power_of_two: bool = False) -> Placement:
    """A rank per GPU where there are at least two GPUs and `device` is one; else `ranks` on the CPU.

    all_gpus      use every GPU, also where there are more of them than `ranks`
    power_of_two  leave GPUs out if need be, where batches and layers have to divide by the ranks
    """
    gpus = torch.cuda.device_count() if device.is_cuda else 0
    if gpus >= 2:
        ranks = gpus if all_gpus else min(ranks, gpus)
        return Placement(1 << ranks.bit_length() - 1 if power_of_two else ranks, "cuda")
    found = "one GPU, and NCCL takes one rank per GPU" if gpus else "no GPU in use"
    return Placement(ranks, "cpu", f"There is {found}: the {ranks} ranks are processes on the CPU, connected by gloo.")


def crowded(ranks: int) -> list[str]:
    """A note if ranks on the CPU have to share cores: their times then measure the sharing as well."""
    if ranks <= cores():
        return []
    return [f"{ranks} ranks share {cores()} core{'s' * (cores() > 1)}, so no time here says what {ranks} processors would do."]


def device_of_rank(device: str, rank: int) -> torch.device:
    """The device of a rank on "cuda" or "cpu"."""
    return torch.device("cuda", rank) if device == "cuda" else torch.device("cpu")


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done its work, so that a clock can be read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
