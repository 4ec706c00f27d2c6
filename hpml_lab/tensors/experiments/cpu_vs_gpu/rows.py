"""The rows of `cpu-vs-gpu`."""

from dataclasses import dataclass

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.timing.clock import Timing


@dataclass
class Measured(Row):
    """One piece of work, timed on one device."""

    device: str = column("device")
    microseconds: float = column("median", "µs")
    spread: float = column("spread", "µs")


@dataclass
class Copy(Measured):
    """A copy whose source and target together fill the working set."""

    bytes: int = column("working set", "bytes")
    rate: float = column("bandwidth", "GB/s")


@dataclass
class Product(Measured):
    """A product of two n × n matrices."""

    n: int = column("n")
    rate: float = column("rate", "GFLOP/s")
    intensity: float = column("intensity", "FLOP/byte")


@dataclass
class Roofline(Measured):
    """A kernel under the roofline."""

    kernel: str = column("kernel")
    rate: float = column("rate", "GFLOP/s")
    bandwidth: float = column("bandwidth", "GB/s")
    intensity: float = column("intensity", "FLOP/byte")
    share: float = column("rate / roofline")


@dataclass
class Images(Measured):
    """The small CNN at one batch size."""

    work: str = column("work")
    batch: int = column("batch size")
    rate: float = column("rate", "images/s")


@dataclass
class Transfer(Measured):
    """A copy between host and GPU, or between two GPUs."""

    way: str = column("way")
    rate: float = column("bandwidth", "GB/s")


def times_of(timing: Timing) -> tuple[float, float]:
    """Median and spread in microseconds."""
    return timing.seconds * 1e6, timing.spread * 1e6
