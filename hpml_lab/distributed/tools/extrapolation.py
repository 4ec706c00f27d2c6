"""The training of a transformer on 1 to 8,192 GPUs by the alpha-beta model, with published constants.

Weak scaling gives each rank as many tokens as before, strong scaling divides the tokens of one batch among the ranks. All ranks
then sum their gradients. Nothing overlaps, so real trainings do better.
"""

from dataclasses import dataclass

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.show import style
from hpml_lab.distributed.lessons.alpha_beta import ALGORITHMS, Interconnect, efficiency, transformer_seconds

COUNTS = tuple(2**power for power in range(14))  # of ranks
TOKENS, BATCH_TOKENS = 8192, 2**22  # of each rank in weak scaling; of all ranks in strong scaling
GRADIENT_BYTES = 2  # per parameter
WEAK_KIND, STRONG_KIND = "weak: 8,192 tokens per rank", "strong: 4 million tokens for all"


@dataclass
class ExtrapolatedRow(Row):
    """Efficiency with published constants, by the algorithm of the all-reduce."""

    ranks: int = column("ranks")
    algorithm: str = column("all-reduce")
    all_reduce_ms: float = column("all-reduce", "ms")
    weak: float = column("weak scaling: efficiency", "%")
    strong: float = column("strong scaling: efficiency", "%")


def compute_seconds(parameters: float, ranks: int, weak: bool) -> float:
    """Seconds of compute on each rank, in weak or in strong scaling."""
    return transformer_seconds(parameters, TOKENS if weak else BATCH_TOKENS / ranks)


def step_seconds(parameters: float, link: Interconnect, ranks: int, kind: str) -> tuple[float, dict[str, float]]:
    """Seconds of compute on each rank, and {all-reduce: its seconds}."""
    costs = {name: cost(ranks, GRADIENT_BYTES * parameters, link) for name, cost in ALGORITHMS.items()}
    return compute_seconds(parameters, ranks, kind == WEAK_KIND), costs


def extrapolated(parameters: float, link: Interconnect) -> list[ExtrapolatedRow]:
    """A row for each algorithm and number of ranks."""
    found = []
    for algorithm in ALGORITHMS:
        for ranks in COUNTS:
            (weak, costs), (strong, _) = (step_seconds(parameters, link, ranks, kind) for kind in (WEAK_KIND, STRONG_KIND))
            cost = costs[algorithm]
            percent = 100 * efficiency(weak, cost), 100 * efficiency(strong, cost)
            found.append(ExtrapolatedRow(ranks, algorithm, 1e3 * cost, *percent))
    return found


def draw_extrapolated(axes, rows: list[ExtrapolatedRow]) -> None:
    """Efficiency by the number of ranks; weak scaling is solid, strong scaling dashed, and one half dotted."""
    dashes = {"weak": "-", "strong": (0, (3, 1))}
    for algorithm, color, marker in zip(ALGORITHMS, style.CYCLE, style.MARKERS, strict=False):
        line = [row for row in rows if row.algorithm == algorithm]
        for kind, dash in dashes.items():
            label = algorithm if kind == "weak" else None
            x, y = [row.ranks for row in line], [getattr(row, kind) for row in line]
            axes.plot(x, y, linestyle=dash, color=color, marker=marker, ms=4, label=label)
    for kind, dash in dashes.items():
        axes.plot([], [], linestyle=dash, color=style.INK, label=f"{kind} scaling")
    axes.axhline(50, color=style.GREY, lw=1.5, ls=":")
    axes.annotate("half", (1, 50), (2, -11), textcoords="offset points", fontsize=8, color=style.INK)
    axes.set(ylabel="efficiency in %", ylim=(0, 103))
    label_ranks(axes)


def label_ranks(axes) -> None:
    """A logarithmic axis of ranks."""
    axes.set_xscale("log")
    axes.set_xticks([1, 8, 64, 512, 8192], ["1", "8", "64", "512", "8,192"])
    axes.minorticks_off()
