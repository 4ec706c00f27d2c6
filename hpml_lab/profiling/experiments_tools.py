"""The experiments of notebook 09 on profilers of Python: of functions, of lines, and of stacks."""

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.data import load
from hpml_lab.profiling import functions, random_walk, stacks
from hpml_lab.profiling.figures_tools import draw_cprofile_line_profiler, draw_flame_graph

NOTEBOOK = "09_profiling"


# ---- cprofile-line-profiler ---------------------------------------------------------------------------------------------

STEP, CUMSUM, STACK = "line of step, % of simulate", "line of cumsum, % of simulate", "line of vstack, % of simulate"
SLOWER = {
    "sampler, 100 a second": "sampled tight loop, times as long",
    "cProfile, every call": "tight loop under cProfile, times as long",
    "line_profiler, every line": "tight loop under line_profiler, times as long",
}


def _short(function: str) -> str:
    """cProfile's name of a function in C without the words around it: "<method 'sort' of 'list' objects>" is sort."""
    found = re.match(r"<built-in method (\S+)>|<method '(\S+)' of", function)
    return next(filter(None, found.groups())) if found else function


def _quietest(tables: list[list[dict[str, Any]]], names: tuple[str, ...], column: str) -> list[dict[str, Any]]:
    """Of each function or line the shortest time of several runs: a neighbour that has the core meanwhile only adds to it."""
    best: dict[Any, dict[str, Any]] = {}
    for row in (row for table in tables for row in table):
        key = tuple(row[name] for name in names)
        best[key] = min(best.get(key, row), row, key=lambda one: one[column])
    whole = sum(row[column] for row in best.values())
    return [{**row, "share %": 100 * row[column] / whole} for row in best.values()]


def _processor_seconds(work: Callable[[], object]) -> float:
    """The processor time of all threads of this process for one `work()`: what other programs do is not in it."""
    start = time.process_time()
    work()
    return time.process_time() - start


@experiment(
    "cprofile-line-profiler",
    lecture="L1 L3",
    notebook=NOTEBOOK,
    draw=draw_cprofile_line_profiler,
    quick=dict(steps=50, walkers=10_000, repeats=7, calls=200, power=1_000_000, count=100_000, samples=5),
    full=dict(steps=50, walkers=10_000, repeats=50, calls=2000, power=5_000_000, count=1_000_000, samples=7),
    lecture_says={STEP: "49.5", CUMSUM: "3.7", STACK: "46.7"},
)
def cprofile_line_profiler(size: Size) -> Result:
    """Which function, which line: cProfile and line_profiler on the lecture's random walk.

    A second program with a planted dear line shows that the first row of each table is the right one.
    """
    started = stacks.children()

    def walk() -> Any:
        return random_walk.simulate(size.steps, size.walkers)

    plain = walk()  # imports and memory: the first run is not like the others
    called = [functions.by_function(walk) for _ in range(size.repeats)]
    traced = [functions.by_line(walk, [random_walk.simulate]) for _ in range(size.repeats)]
    calls = _quietest([functions.function_rows(stats) for _, stats in called], ("function", "where"), "own ms")
    calls = sorted(calls, key=lambda row: -row["own ms"])
    lines = _quietest([functions.line_rows(one, random_walk.simulate) for _, one in traced], ("line",), "ms")

    def program() -> int:
        return random_walk.planted(size.calls, size.power)

    # Its own clock for the check that may not fail: a neighbour on the core counts for nothing.
    _, planted_stats = functions.by_function(program, time.process_time)
    _, planted_profiler = functions.by_line(program, [random_walk.planted, random_walk.dear])
    planted_calls = functions.function_rows(planted_stats)
    dear = sorted(functions.line_rows(planted_profiler, random_walk.dear), key=lambda row: -row["share %"])
    outer = functions.line_rows(planted_profiler, random_walk.planted)

    def tight() -> int:
        return random_walk.tally(size.count)

    profiled = (
        lambda: functions.by_sample(tight),
        lambda: functions.by_function(tight),
        lambda: functions.by_line(tight, [random_walk.tally, random_walk.cheap]),
    )
    turns = [[_processor_seconds(work) for work in (tight, *profiled)] for _ in range(size.samples)]
    alone, *costs = map(min, zip(*turns, strict=True))
    slower = {name: cost / alone for name, cost in zip(SLOWER, costs, strict=True)}
    idioms = functions.idioms()

    number = {name: [row["calls"] for row in calls if row["function"] == name] for name in ("simulate", "step", "histogram")}
    planted_number = {row["function"]: row["calls"] for row in planted_calls}
    hits = [row["hits"] for row in outer if "cheap(" in row["source"]]
    share = {name: sum(row["share %"] for row in lines if name in row["source"]) for name in ("step(", "cumsum", "vstack")}
    expected = {"simulate": [1], "step": [1], "histogram": [size.steps]}
    whole = [sum(row["share %"] for row in table) for table in (calls, planted_calls, lines, dear, outer)]
    claims = [
        Claim(
            "cProfile's first row is the planted function, although another is called far more often",
            planted_calls[0]["function"] == "dear" and planted_number["cheap"] > planted_number["dear"],
            f"{planted_calls[0]['function']} with {planted_calls[0]['share %']:.1f} %",
        ),
        Claim(
            "line_profiler's first row, sorted by share, is the planted line",
            dear[0]["source"].startswith("big = base**power"),
            f"{dear[0]['source']} with {dear[0]['share %']:.1f} %",
        ),
        Claim(
            "the shares of each table sum to 100 %",
            all(abs(one - 100) < 1e-6 for one in whole),
            f"{min(whole):.9g} to {max(whole):.9g} %",
        ),
        Claim(
            "calls and hits are counted, not estimated: every one of them is right",
            number == expected
            and planted_number["cheap"] == size.calls
            and planted_number["dear"] == 1
            and hits == [size.calls],
            f"histogram {number['histogram']}, cheap {planted_number['cheap']} calls and {hits} hits",
        ),
        Claim(
            "under both profilers the random walk gives the same array as without",
            all((counts == plain).all() for counts, _ in [*called, *traced]),
            f"{plain.sum()} walkers counted in {len(plain)} steps",
        ),
        Claim(
            "the imported @profile does nothing unless line_profiler is asked for; a bare @profile exists under kernprof only",
            [(row["from line_profiler import profile"], row["bare @profile"].split(":")[0]) for row in idioms]
            == [("off", "NameError"), ("on", "on"), ("on", "NameError")],
            "; ".join(f"{row['started as']}: {row['from line_profiler import profile']}" for row in idioms),
        ),
        Claim(stacks.NOTHING_LEFT, stacks.children() <= started, f"{len(stacks.children() - started)} processes"),
        Claim(
            "tracing every line makes a tight loop at least three times as long, a sampler at most 1.2 times",
            slower["line_profiler, every line"] >= 3 and slower["sampler, 100 a second"] <= 1.2,
            ", ".join(f"{name}: {times:.2f}" for name, times in slower.items()),
            exact=False,
        ),
    ]
    said = {"step(": 49.5, "cumsum": 3.7, "vstack": 46.7}
    rows = [
        {
            "profiler": "cProfile",
            "what": _short(row["function"]),
            "calls or hits": row["calls"],
            "ms": row["own ms"],
            "share %": row["share %"],
            "lecture, %": None,
        }
        for row in calls[:7]
    ] + [
        {
            "profiler": "line_profiler",
            "what": row["source"],
            "calls or hits": row["hits"],
            "ms": row["ms"],
            "share %": row["share %"],
            "lecture, %": next((figure for name, figure in said.items() if name in row["source"]), None),
        }
        for row in lines
    ]
    quantities = dict(zip((STEP, CUMSUM, STACK), share.values(), strict=True))
    quantities |= {SLOWER[name]: times for name, times in slower.items()}
    return Result(rows, claims, quantities, [], {"slower": slower, "idioms": idioms})


# ---- flame-graph --------------------------------------------------------------------------------------------------------

HOT = stacks.HOT


def written_stacks(number: int) -> list[tuple[str, int]]:
    """Stacks with samples that a sampler might have seen, recursion among them; the planted function holds most of them."""
    chance = random.Random(0)
    others = ("train_step;forward", "train_step;backward", "load;decode", "load;walk;walk;walk", "train_step;forward;walk")
    found = [(f"main;train;{chance.choice(others)}", chance.randint(1, 5)) for _ in range(number)]
    return [*found, (f"main;train;{HOT}", 5 * number)]


@experiment(
    "flame-graph",
    lecture="L1 L3",
    notebook=NOTEBOOK,
    draw=draw_flame_graph,
    quick=dict(seconds=0.6, rate=200, stacks=60, deadline=60.0),
    full=dict(seconds=10.0, rate=100, stacks=600, deadline=120.0),
    uses=("py-spy",),
)
def flame_graph(size: Size) -> Result:
    """Flame graph: where a running training program spends its time, seen from outside."""
    written = written_stacks(size.stacks)
    text = "".join(f"{stack} {samples}\n" for stack, samples in written)
    root = stacks.tree(text)
    own, total = Counter(), Counter()
    for stack, samples in written:
        frames = stack.split(";")
        own[frames[-1]] += samples
        total.update({frame: samples for frame in set(frames)})
    table = stacks.shares(root)
    merged = Counter()
    for stack, samples in written:
        merged[stack] += samples
    source, shown, seen, notes = "stacks that this run wrote", text, None, []
    started = stacks.children()
    with stacks.temporary() as folder:
        try:
            if stacks.py_spy() is None:
                raise LabError("py-spy is not installed here.", "pip install py-spy")
            with stacks.training(load("digits"), size.deadline) as pid:
                shown = stacks.record(pid, Path(folder) / "stacks.txt", size.seconds, size.rate).read_text()
                seen = stacks.speedscope(stacks.record(pid, Path(folder) / "scope.json", size.seconds, size.rate))
            source = "py-spy on a training program"
        except LabError as error:
            notes.append(f"{error} Until then the picture shows stacks that this run wrote itself.")
    left = [*(stacks.children() - started), *([folder] if Path(folder).exists() else [])]
    claims = [
        Claim(
            "the tree holds every sample: each box is as wide as its own samples and its children together",
            root.total == sum(samples for _, samples in written)
            and all(node.total == node.own + sum(one.total for one in node.children.values()) for node in root.walk()),
            f"{root.total} samples in {sum(1 for _ in root.walk())} boxes",
        ),
        Claim(
            "written as folded text again, the tree says what it was read from",
            stacks.folded(root) == "\n".join(sorted(f"{stack} {samples}" for stack, samples in merged.items())) + "\n",
            f"{len(merged)} different stacks",
        ),
        Claim(
            "each function's self and total samples are those counted stack by stack, recursion once; the planted one is first",
            table[0]["frame"] == HOT
            and all(row["self samples"] == own[row["frame"]] and row["total samples"] == total[row["frame"]] for row in table)
            and len(table) == len(total),
            f"{table[0]['frame']} with {table[0]['self %']:.1f} %",
        ),
        Claim(stacks.NOTHING_LEFT, not left, f"{len(left)} left"),
    ]
    quantities: dict[str, Any] = {}
    if seen is not None:
        table = stacks.shares(stacks.tree(shown))
        hot = next((row["self %"] for row in table if stacks.function_of(row["frame"]) == HOT), 0.0)
        imports = sum(row["self %"] for row in table if "importlib" in row["frame"])
        quantities = {"self share of the planted function, %": hot, "share of samples in imports, %": imports}
        claims += [
            Claim(
                "in the running program the planted function has the largest self share",
                stacks.function_of(table[0]["frame"]) == HOT,
                f"{table[0]['frame']} with {table[0]['self %']:.0f} %",
                exact=False,
            ),
            Claim(
                "the speedscope file names the planted function, and its weights sum to the time covered, one period a sample",
                HOT in seen["frames"]
                and abs(seen["weights"] - seen["end"]) < 1e-6
                and abs(seen["weights"] - seen["samples"] / size.rate) < 1e-6,
                f"{seen['samples']} samples, {seen['weights']:.2f} {seen['unit']}",
                exact=False,
            ),
            Claim("no sample fell into an import: the program was warm", imports == 0, f"{imports:.0f} %", exact=False),
        ]
    rows = [{"seen by": source, **row} for row in table[:10]]
    return Result(rows, claims, quantities, notes, {"folded": shown, "source": source})
