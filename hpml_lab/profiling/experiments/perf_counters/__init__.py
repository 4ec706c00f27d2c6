"""What the system and the processor count while a native program runs: page faults, switches, cycles."""

import sys
import tempfile
from dataclasses import dataclass

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import speed_up_of
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import stacked_bars
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.errors import LabError
from hpml_lab.profiling.tools import perf
from hpml_lab.profiling.tools.perf import FunctionSamples, ProcessUsage
from hpml_lab.profiling.experiments.perf_counters.c_program import counted_program

# At full a turn takes fifteen seconds, and shuffling costs fifty times the time: five do.
QUICK = dict(pages=4000, naps=50, indices=2**21, in_python=2**15, turns=SAMPLES)
FULL = dict(pages=100_000, naps=500, indices=2**25, in_python=2**20, turns=5)
CYCLES = "instructions per cycle"
SHUFFLED_OVER_ORDERED = "processor time of the shuffled over the ordered program"


@dataclass
class ProgramRun(Row):
    """What the program did, and how often."""

    program: str = column("program")
    number: int = column("number")


@dataclass
class CountedRun(ProcessUsage, ProgramRun):
    """One run of the program, and what the system counted for it."""


@dataclass
class PerfRun(Row):
    """What perf counted for one run of the program; None for what it could not read."""

    program: str = column("program")
    task_clock_ms: float | None = column("task clock", "ms", default=None)
    context_switches: float | None = column("context switches", default=None)
    page_faults: float | None = column("page faults", default=None)
    cycles: float | None = column("cycles", default=None)
    instructions: float | None = column("instructions", default=None)
    cache_misses: float | None = column("cache misses", default=None)


PERF_FIELDS = {
    "task-clock": "task_clock_ms",
    "context-switches": "context_switches",
    "page-faults": "page_faults",
    "cycles": "cycles",
    "instructions": "instructions",
    "cache-misses": "cache_misses",
}


# ---- measuring -------------------------------------------------------------------------------------------------------


def under_perf(
    command: list[str], works: dict[str, int], folder: str, notes: list[str]
) -> tuple[dict[str, PerfRun], list[FunctionSamples]]:
    """Each work under `perf stat`, and the functions of the shuffled walk under `perf record`; a note where perf may not."""
    runs, unread = {}, set()
    try:
        for what, number in works.items():
            rows = perf.perf_stat([*command, what, str(number)], folder)
            runs[what] = PerfRun(what, **{PERF_FIELDS[row.event]: row.value for row in rows if row.event in PERF_FIELDS})
            unread |= {row.event for row in rows if row.value is None}
        hottest = perf.perf_functions([*command, "shuffled", str(works["shuffled"])], folder)
    except LabError as error:
        notes.append(f"{error} Page faults and switches are the system's own (getrusage).")
        hottest = []
    if unread:
        notes.append(
            f"perf is here, but this machine does not let it read {', '.join(sorted(unread))}: a virtual machine often hides"
            " them."
        )
    return runs, hottest


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Page faults and context switches of each program, on a logarithmic axis: touching pages makes faults, sleeping makes
    voluntary switches."""
    rows = result.rows(CountedRun)
    figure = style.new_figure(8, 3.4)
    axes = figure.subplots()
    kinds = {
        "minor faults": ("minor_faults", style.GREEN, None),
        "voluntary switches": ("voluntary_switches", style.PURPLE, "///"),
        "involuntary switches": ("involuntary_switches", style.SKY, "xxx"),
    }
    for offset, (label, (name, color, hatch)) in enumerate(kinds.items()):
        positions = [index + 0.27 * (offset - 1) for index in range(len(rows))]
        counted = [max(getattr(row, name) - 0.5, 0) for row in rows]  # a logarithmic axis has no zero: it starts at 0.5
        axes.barh(positions, counted, 0.25, left=0.5, color=color, hatch=hatch, edgecolor="white", label=label)
    axes.set_yticks(range(len(rows)), [row.program for row in rows])
    axes.set_xscale("log")
    axes.set(xlabel="number", xlim=(0.5, None))
    axes.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    axes.grid(axis="y", visible=False)
    return figure


@picture
def where_the_time_went(result: Result):
    """The elapsed time of each program, split into its own code (user), the system's work for it, and the rest, in which it
    waited or another program had its core."""
    rows = result.rows(CountedRun)
    figure = style.new_figure(8, 3)
    axes = figure.subplots()
    parts = {
        "user": [1e3 * row.user_seconds for row in rows],
        "system": [1e3 * row.system_seconds for row in rows],
        "not on a core": [max(0.0, 1e3 * (row.elapsed_seconds - row.user_seconds - row.system_seconds)) for row in rows],
    }
    stacked_bars(axes, [row.program for row in rows], parts, colors=(style.BLUE, style.ORANGE, style.GREY))
    axes.set(xlabel="time in ms")
    axes.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("perf-counters", lecture="L1", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL, uses=("perf",))
def perf_counters(params: Params) -> Result:
    """What the machine counts while a native program runs: page faults, switches, cycles.

    The lecture ran `perf stat` on a conjugate-gradient benchmark; here a small C program touches, sleeps and walks.
    """
    notes, printed, runs = [], {}, {}
    with tempfile.TemporaryDirectory(prefix="hpml-counters-") as folder:
        command, language = counted_program(folder)
        if language != "C":
            notes.append("No C compiler here (`apt install gcc`): the four programs ran in Python, on a smaller array.")
        indices = params.indices if language == "C" else params.in_python
        works = {"touch": params.pages, "sleep": params.naps, "ordered": indices, "shuffled": indices}
        for what, number in works.items():
            printed[what], usage = perf.process_usage([*command, what, str(number)])
            runs[what] = CountedRun(**vars(usage), program=what, number=number)
        walks = [
            [
                perf.process_usage([*command, what, str(indices)])[1].processor_seconds
                for what in ("ordered", "shuffled", "ordered")
            ]
            for _ in range(params.turns)
        ]
        by_perf, hottest = under_perf(command, works, folder, notes)

    result = Result([Table("What the system counted", list(runs.values()))], notes=notes)
    result.tables += [Table("What perf counted", list(by_perf.values())), Table("Functions of the shuffled walk", hottest[:8])]
    result.arrays["language"] = language
    result.key_figure(CYCLES, instructions_per_cycle(by_perf.get("ordered")), lecture=0.65)
    if (shuffled_cycles := instructions_per_cycle(by_perf.get("shuffled"))) is not None:
        result.key_figure(f"{CYCLES}, shuffled", shuffled_cycles)
    shuffled = speed_up_of(*([max(turn[k], 1e-3) for turn in walks] for k in range(3)))  # some systems count in coarse ticks
    result.key_figure(SHUFFLED_OVER_ORDERED, shuffled.slowdown.ratio, unit="times")
    result.key_figure("function with the most samples in the shuffled program", hottest[0].function if hottest else None)

    result.claim(
        "A program that touches N new pages has at least N minor page faults",
        runs["touch"].minor_faults >= params.pages,
        f"{runs['touch'].minor_faults} faults for {params.pages} pages",
    )
    # macOS counts all switches of a process in one figure.
    waits = runs["sleep"].voluntary_switches + (runs["sleep"].involuntary_switches if sys.platform == "darwin" else 0)
    result.claim(
        "A program that sleeps k times gives up its core at least k times",
        waits >= params.naps,
        f"{waits} voluntary switches for {params.naps} naps",
    )
    processor, elapsed = runs["sleep"].processor_seconds, runs["sleep"].elapsed_seconds
    result.measured(
        "The sleeping program uses less than a fifth of its time on the processor",
        processor < elapsed / 5,
        f"{1e3 * processor:.1f} of {1e3 * elapsed:.1f} ms",
    )
    result.measured(
        "The shuffled walk takes longer than the ordered one, beyond what the ordered one differs from itself",
        shuffled.slower,
        shuffled.slowdown_text,
    )
    if by_perf and by_perf["touch"].page_faults is not None:
        faults, counted = by_perf["touch"].page_faults, runs["touch"].minor_faults
        result.measured(
            "perf and getrusage count the same page faults, within 5 %",
            abs(faults / counted - 1) < 0.05,
            f"{faults:.0f} and {counted}",
        )
    right = str(3 * indices * (indices - 1) // 2)
    result.check(
        "Both walks visit every index once a round: their sums are equal, and the right one",
        printed["ordered"] == printed["shuffled"] == right,
        f"{printed['ordered']} and {printed['shuffled']}",
    )
    return result


def instructions_per_cycle(run: PerfRun | None) -> float | None:
    """None where perf did not count both."""
    return run.instructions / run.cycles if run and run.cycles and run.instructions else None
