"""The experiment of notebook 09 on what the system and the processor count while a native program runs."""

import sys
from pathlib import Path
from typing import Any

from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.profiling import counters, stacks
from hpml_lab.profiling.figures_tools import draw_perf_counters

CYCLES = "instructions per cycle"
NOT_SUPPORTED = "3.5,msec,task-clock,1,100.00,,\n<not supported>,,cycles,0,100.00,,\n0,,page-faults,1,100.00,,\n"


@experiment(
    "perf-counters",
    lecture="L1",
    notebook="09_profiling",
    draw=draw_perf_counters,
    quick=dict(pages=4000, naps=50, places=2**21, in_python=2**15),
    full=dict(pages=100_000, naps=500, places=2**25, in_python=2**20),
    lecture_says={CYCLES: "0.65"},
    uses=("perf",),
)
def perf_counters(size: Size) -> Result:
    """What the machine counts while a native program runs: page faults, switches, cycles.

    The lecture ran `perf stat` on a conjugate-gradient benchmark; here a small C program touches, sleeps and walks.
    """
    started, notes, rows = stacks.children(), [], []
    hottest: list[dict[str, Any]] = []
    with stacks.temporary() as folder:
        command, language = counters.program(folder)
        if language != "C":
            notes.append("No C compiler here (`apt install gcc`): the four programs ran in Python, on a smaller array.")
        places = size.places if language == "C" else size.in_python
        works = {"touch": size.pages, "sleep": size.naps, "ordered": places, "shuffled": places}
        printed, perf = {}, {}
        for what, number in works.items():
            printed[what], counted = counters.usage([*command, what, str(number)])
            rows.append({"program": what, "number": number, **counted})
        try:
            for what, number in works.items():
                perf[what] = counters.perf_stat([*command, what, str(number)], folder)
            hottest = counters.perf_functions([*command, "shuffled", str(places)], folder)
        except LabError as error:
            notes.append(f"{error} Page faults and switches are the system's own (getrusage).")
    by_name = {row["program"]: row for row in rows}
    for what, found in perf.items():
        by_name[what] |= {f"perf {one['event']}": one["value"] for one in found}
    unread = sorted({one["event"] for found in perf.values() for one in found if one["value"] is None})
    if unread:
        notes.append(
            f"perf is here, but this machine does not let it read {', '.join(unread)}: a virtual machine often hides them."
        )
    cpu = {what: row["user s"] + row["system s"] for what, row in by_name.items()}
    slower = by_name["shuffled"]["user s"] / max(by_name["ordered"]["user s"], 1e-6)
    right = str(3 * places * (places - 1) // 2)
    parsed = {row["event"]: row["value"] for row in counters.perf_rows(NOT_SUPPORTED)}
    # macOS counts all switches of a process in one figure.
    waits = by_name["sleep"]["voluntary switches"]
    waits += by_name["sleep"]["involuntary switches"] if sys.platform == "darwin" else 0
    left = [*(stacks.children() - started), *([folder] if Path(folder).exists() else [])]
    claims = [
        Claim(
            "a program that touches N new pages has at least N minor page faults",
            by_name["touch"]["minor faults"] >= size.pages,
            f"{by_name['touch']['minor faults']} faults for {size.pages} pages",
        ),
        Claim(
            "a program that sleeps k times gives up its core at least k times",
            waits >= size.naps,
            f"{waits} voluntary switches for {size.naps} naps",
        ),
        Claim(
            "both walks visit every place once a round: their sums are equal, and the right one",
            printed["ordered"] == printed["shuffled"] == right,
            f"{printed['ordered']} and {printed['shuffled']}",
        ),
        Claim(
            "a counter that perf cannot read stays empty: it is not read as a zero",
            parsed == {"task-clock": 3.5, "cycles": None, "page-faults": 0.0},
            f"{parsed}",
        ),
        Claim(stacks.NOTHING_LEFT, not left, f"{len(left)} left"),
        Claim(
            "the sleeping program uses less than a fifth of its time on the processor",
            cpu["sleep"] < by_name["sleep"]["elapsed s"] / 5,
            f"{1e3 * cpu['sleep']:.1f} of {1e3 * by_name['sleep']['elapsed s']:.1f} ms",
            exact=False,
        ),
        Claim("the shuffled walk takes longer than the ordered one", slower > 1, f"{slower:.1f} times", exact=False),
    ]
    quantities: dict[str, Any] = {"user time of the shuffled over the ordered program, times": slower}
    if perf:
        counted = by_name["touch"]
        claims.append(
            Claim(
                "perf and getrusage count the same page faults, within 5 %",
                abs(counted["perf page-faults"] / counted["minor faults"] - 1) < 0.05,
                f"{counted['perf page-faults']:.0f} and {counted['minor faults']}",
                exact=False,
            )
        )
        for name, counted in ((CYCLES, by_name["ordered"]), (f"{CYCLES}, shuffled", by_name["shuffled"])):
            if counted["perf cycles"] and counted["perf instructions"]:  # perf may fail to count either in one run only
                quantities[name] = counted["perf instructions"] / counted["perf cycles"]
    if hottest:
        quantities["function with the most samples in the shuffled program"] = hottest[0]["function"]
    return Result(rows, claims, quantities, notes, {"language": language, "hottest": hottest})
