"""What a tool costs, by the rule for noise: how many times as long the same work takes with it, such as under a profiler."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpml_lab.core.noise import SpeedUp, speed_up_of


@dataclass(frozen=True)
class Overhead:
    """A speed-up read the other way round; `noise` is the band of the plain work timed against itself."""

    gain: SpeedUp

    @property
    def times(self) -> float:
        """How many times as long the work takes with the tool: the median over the turns."""
        return 1 / self.gain.ratio

    @property
    def low(self) -> float:
        return 1 / self.gain.high

    @property
    def high(self) -> float:
        return 1 / self.gain.low

    @property
    def interval(self) -> str:
        return f"{self.low:.3g} to {self.high:.3g}"

    def __str__(self) -> str:
        words = f"{self.times:.3g} times as long ({self.interval}; noise ±{100 * self.gain.noise:.3g} %)"
        return words if self.gain.verdict != "within noise" else f"{words}: within noise"


def overhead_of(plain: Sequence[float], watched: Sequence[float], again: Sequence[float]) -> Overhead:
    """The overhead in samples that were taken in turns: `plain`, `watched`, and `plain` once more (`again`, the placebo)."""
    return Overhead(speed_up_of(plain, watched, again))
