"""The experiments of notebook 07: the lock of the interpreter, the ways to start a process, Process and Pool."""

import ast
import itertools
import multiprocessing

import psutil
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from hpml_lab.core import machine, style
from hpml_lab.core.children import run_in_child
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timeline import CLOCK, HATCHES, Span, gantt, rows
from hpml_lab.core.workers import child_pids
from hpml_lab.processes import daemon, held_lock, parallel, pool, start

NOTEBOOK = "07_processes"
NOTHING_LEFT = "no process is left behind"
DEADLINE = 60.0  # seconds; a child that is not done by then is ended
PANELS = (("loop", "threads"), ("loop", "processes"), ("sleep", "threads"), ("numpy", "threads"))


def draw_gil(result: Result):
    """Left: when each of two workers ran and when it stood in line. Right: how many times faster the same work is done by more
    threads and by more processes than by one thread; the dashed line is one time faster a worker.

    In a Python loop two threads take turns. Two processes, and threads that sleep or multiply matrices, wait only where the
    machine has no core free for them.
    """
    figure = style.new_figure(10, 6.5)
    left, right = figure.subfigures(1, 2, width_ratios=(1, 0.9))
    lanes = left.subplots(len(PANELS), 1, sharex=True)
    colours = {parallel.RUNS: style.BLUE, parallel.WAITS: style.ORANGE}
    _gantts(lanes, {panel["title"]: panel["rows"] for panel in result.arrays["timelines"]}, colours)
    for axes in lanes[:-1]:
        axes.set_xlabel("")
    left.legend(handles=_key(colours), loc="outside upper left", ncols=2)
    both = right.subplots(2, 1, sharex=True, sharey=True)
    workers = result.arrays["workers"]
    for axes, on in zip(both, ("threads", "processes"), strict=True):
        axes.plot(workers, workers, "--", color=style.GREY, label="ideal")
        for line, colour, marker in zip(result.arrays["speed-up"][on], style.CYCLE, style.MARKERS, strict=False):
            axes.plot(workers, line["times"], color=colour, marker=marker, label=line["kind"])
        axes.set(title=f"on {on}", ylabel="times faster", xticks=workers)
    both[1].set_xlabel(f"workers (this machine has {result.arrays['cores']} cores)")
    right.legend(*both[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


@experiment(
    "gil",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_gil,
    quick=dict(kinds=("loop", "sleep", "sha256", "numpy"), workers=(1, 2, 4), pieces=4, seconds=0.02, repeats=2),
    full=dict(kinds=tuple(parallel.KINDS), workers=(1, 2, 4, 8), pieces=8, seconds=0.05, repeats=3),
    lecture_says={
        "Python loop on 2 threads, times faster": "concurrency, not parallelism",
        "NumPy matmul on 2 threads, times faster": "not useful for parallelism",
        "thread that still works at exit, daemon": "waited for (reversed)",
    },
)
def gil(size: Size) -> Result:
    """Threads and processes: which work the interpreter's lock holds up."""
    before = child_pids()
    others = psutil.cpu_percent(0.1)
    ends = {kind: daemon.at_exit(kind) for kind in daemon.KINDS}
    parameters = dict(workers=size.workers, pieces=size.pieces, seconds=size.seconds, repeats=size.repeats)
    runs = parallel.measure(kinds=size.kinds, hows=("threads", "processes"), **parameters)["runs"]
    took = {(run["kind"], run["on"], run["workers"]): run["seconds"] for run in runs}
    faster = {(kind, on, n): took[kind, "threads", 1] / seconds for (kind, on, n), seconds in took.items()}
    table = [_gil_line(parallel.KINDS[kind], kind, on, took, faster, size.workers) for kind in size.kinds for on in _ON]

    done = {(run["kind"], run["on"], run["workers"]): sum(len(worker) for worker in run["traces"]) for run in runs}
    lines = {kind: ends[kind].stdout.split("\n")[:-1] for kind in ends}
    claims = [
        Claim(
            "every piece of work is done, however many threads or processes share it",
            set(done.values()) == {size.pieces} and len(done) == len(size.kinds) * len(_ON) * len(size.workers),
            f"{len(done)} runs of {size.pieces} pieces",
        ),
        Claim(
            "at exit Python waits for an ordinary thread",
            lines["plain"] == ["main done", "thread done", "thread tidied up"] and ends["plain"].exitcode == 0,
            ", ".join(lines["plain"]),
        ),
        Claim(
            "at exit a daemon thread is cut off: neither its last line nor its finally block runs",
            lines["daemon"] == ["main done"] and ends["daemon"].exitcode == 0,
            ", ".join(lines["daemon"]),
        ),
        Claim(
            "a daemon thread that the program joins comes to its end",
            lines["joined"] == ["thread done", "thread tidied up", "main done"],
            ", ".join(lines["joined"]),
        ),
        Claim(NOTHING_LEFT, child_pids() <= before),
        Claim("two threads do not speed up a Python loop", *_below(faster["loop", "threads", 2], 1.3), exact=False),
        Claim("two processes speed up a Python loop", *_above(faster["loop", "processes", 2], 1.5), exact=False),
        Claim("two threads speed up sleeping", *_above(faster["sleep", "threads", 2], 1.7), exact=False),
    ]
    releasing = [kind for kind in size.kinds if kind not in ("loop", "sleep")]
    claims += [
        Claim(f"two threads speed up {parallel.KINDS[kind]}", *_above(faster[kind, "threads", 2], 1.5), exact=False)
        for kind in releasing
    ]
    quantities = {
        "Python loop on 2 threads, times faster": faster["loop", "threads", 2],
        "Python loop on 2 processes, times faster": faster["loop", "processes", 2],
        "sleep on 2 threads, times faster": faster["sleep", "threads", 2],
        **{f"{parallel.KINDS[kind]} on 2 threads, times faster": faster[kind, "threads", 2] for kind in releasing},
        "thread that still works at exit, daemon": "cut off" if "thread done" not in lines["daemon"] else "waited for",
    }
    notes = []
    if others > 25:
        notes.append(f"Other work used {others:.0f} % of the processor just before: with free cores the speed-ups are higher.")
    free = parallel.free_threaded_python()
    if free is None:
        notes.append(
            "No free-threaded Python here (a build without the lock): install one, for example with `uv python install 3.14t`, "
            "so that python3.14t is on the PATH, then run `hpml-lab run gil` again."
        )
    else:
        other = parallel.measure(python=free, kinds=("loop",), hows=("threads",), **parameters)
        took = {("loop", run["on"], run["workers"]): run["seconds"] for run in other["runs"]}
        faster_there = {key: took["loop", "threads", 1] / seconds for key, seconds in took.items()}
        name = f"{parallel.KINDS['loop']}, free-threaded Python {other['python']}"
        table.append(_gil_line(name, "loop", "threads", took, faster_there, size.workers))
        there = faster_there["loop", "threads", 2]
        quantities["Python loop on 2 threads without the lock, times faster"] = there
        claims.append(Claim("without the lock two threads speed up a Python loop", *_above(there, 1.5), exact=False))
    arrays = {
        "timelines": [_panel(runs, kind, on) for kind, on in PANELS],
        "workers": list(size.workers),
        "cores": machine.cores(),
        "speed-up": {
            on: [{"kind": parallel.KINDS[kind], "times": [faster[kind, on, n] for n in size.workers]} for kind in size.kinds]
            for on in _ON
        },
    }
    return Result(table, claims, quantities, notes, arrays)


_ON = ("threads", "processes")


def _gil_line(name, kind, on, took, faster, workers):
    line = {"work": name, "on": on}
    line |= {f"{n} workers, ms" if n > 1 else "1 worker, ms": 1e3 * took[kind, on, n] for n in workers}
    return line | {f"{n}, times faster": faster[kind, on, n] for n in workers if n > 1}


def _panel(runs, kind, on):
    """The run on two workers as rows of a timeline."""
    run = next(run for run in runs if (run["kind"], run["on"], run["workers"]) == (kind, on, 2))
    one = on.removesuffix("es") if on == "processes" else on.removesuffix("s")
    spans = [
        Span(f"{one} {number}", what, begin, end)
        for number, worker in enumerate(run["traces"], 1)
        for piece in worker
        for what, begin, end in piece
    ]
    return {"title": f"{parallel.KINDS[kind]} on 2 {on}", "rows": rows(spans)}


def _above(value: float, limit: float) -> tuple[bool, str]:
    return value > limit, f"{value:.2f} times faster, more than {limit:g} counts"


def _below(value: float, limit: float) -> tuple[bool, str]:
    return value < limit, f"{value:.2f} times faster, less than {limit:g} counts"


def draw_start_methods(result: Result):
    """Top: the time from the call of start() to the worker's first line, by start method, on a logarithmic axis.

    Bottom: a process is started while another thread of the parent holds a lock. A forked child waits in vain, long after the
    thread has let go; with hooks around the fork, the parent waits for the lock before it forks, and the child gets it.
    """
    figure = style.new_figure(9, 7.5)
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1))
    axes = top.subplots()
    names = [row["start"] for row in result.rows]
    values = [row["to the first line, ms"] for row in result.rows]
    colours = [style.ORANGE if row["torch in the worker"] else style.BLUE for row in result.rows]
    hatches = ["///" if row["torch in the worker"] else None for row in result.rows]
    axes.barh(names, values, color=colours, hatch=hatches, edgecolor="white")
    for place, value in enumerate(values):
        axes.text(value * 1.1, place, f"{value:,.0f} ms" if value >= 100 else f"{value:.2g} ms", va="center")
    axes.set(xscale="log", xlabel="time to the worker's first line in ms (hatched: torch is in the worker)")
    axes.set_xlim(min(values) / 2, max(values) * 6)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
    colours = {
        held_lock.HOLDS: style.BLUE,
        held_lock.STARTS: style.GREEN,
        held_lock.WAITS: style.YELLOW,
        held_lock.NEVER: style.RED,
    }
    lanes = ("the parent", "its other thread", "the child")
    key = _key(colours)
    below = bottom.subplots(1, len(result.arrays["held"]), sharex=True, sharey=True)
    scale = _gantts(below, result.arrays["held"], colours, lanes)
    for axes, spans in zip(below, result.arrays["held"].values(), strict=True):
        for what, end, marker, _ in _MOMENTS:
            moments = [row for row in spans if row["what"] == what]
            places = [lanes.index(row["lane"]) for row in moments]
            axes.scatter([scale * row[end] for row in moments], places, marker=marker, s=70, color=style.INK, zorder=3)
    key += [Line2D([], [], marker=m, color=style.INK, linestyle="none", label=label) for _, _, m, label in _MOMENTS]
    bottom.legend(handles=key, loc="outside upper left", ncols=3)
    return figure


# What is too short to be seen as a bar: (what, start or end of it, marker, label).
_MOMENTS = ((held_lock.STARTS, "start", ">", "start() is called"), (held_lock.WAITS, "end", "*", "the child gets the lock"))


def _gantts(panels, timelines: dict[str, list[dict]], colours: dict[str, str], lanes=()) -> float:
    """Draw {title: rows of spans} on panels that share one axis of time; returns its units in a second."""
    longest = max(row["end"] for spans in timelines.values() for row in spans)
    end = {"lane": "", "what": "the end of the longest", "start": longest, "end": longest}  # so that all take one unit
    for axes, (title, spans) in zip(panels, timelines.items(), strict=True):
        gantt(axes, [*spans, end], colours, lanes or sorted({row["lane"] for row in spans}))
        axes.set(title=title, axisbelow=True)
    left, right = panels[-1].get_xlim()
    panels[-1].set_xlim(left, 1.02 * right)
    return right / longest


def _key(colours: dict[str, str]) -> list[Patch]:
    """Entries of a legend for the colours of a timeline, also for what one panel of several does not show."""
    hatches = itertools.cycle(HATCHES)
    return [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=what)
        for (what, colour), hatch in zip(colours.items(), hatches, strict=False)
    ]


@experiment(
    "start-methods",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_start_methods,
    quick=dict(starts=5, preload=False, hold=0.1, patience=0.4),
    full=dict(starts=30, preload=True, hold=0.2, patience=1.0),
    lecture_says={
        "fork against a thread, times slower": "much slower",
        "spawn against fork, times slower": "slower",
        "forkserver against fork, times slower": "slower",
    },
    uses=("cuda",),
)
def start_methods(size: Size) -> Result:
    """What fork, forkserver and spawn cost, and the deadlock that comes from a fork."""
    before = child_pids()
    methods = start.methods()
    table = start.measure(methods=methods, samples=size.starts, preload=size.preload)
    held = {
        case: run_in_child(
            held_lock.start_while_held, case, size.hold, size.patience, method="spawn", deadline_seconds=DEADLINE
        )
        for case in held_lock.CASES
    }
    arguments = (CLOCK(), size.starts, size.patience, size.device.is_cuda)
    torch_child = run_in_child(start.with_torch, *arguments, method="spawn", deadline_seconds=3 * DEADLINE)
    loaded = torch_child.value or {"rows": [], "fork after OpenMP": {}, "fork after CUDA": ""}
    table = sorted(table + loaded["rows"], key=lambda row: row["to the first line, ms"])
    ready = {row["start"]: row["to the first line, ms"] for row in table}

    told = {case: outcome.value or {} for case, outcome in held.items()}
    lock = {case: _held(outcome) for case, outcome in held.items()}
    claims = [
        Claim(
            "the forked child never gets the lock that another thread held at the fork, though the parent does",
            told["fork"].get("asked") is True
            and told["fork"].get("child has it") is False
            and told["fork"].get("parent has it") is True,
            lock["fork"],
        ),
        Claim(
            "with hooks around the fork (os.register_at_fork) the forked child gets it",
            told["fork with hooks"].get("child has it") is True,
            lock["fork with hooks"],
        ),
        Claim("a spawned child gets it: its lock is its own", told["spawn"].get("child has it") is True, lock["spawn"]),
        Claim(NOTHING_LEFT, child_pids() <= before),
        Claim(
            "a thread starts faster than any process",
            ready["thread"] < min(ready[method] for method in methods),
            f"{ready['thread']:.2g} ms against {min(ready[method] for method in methods):.2g} ms",
            exact=False,
        ),
    ]
    quantities = {}
    notes = []
    if "fork" in methods:
        quantities["fork against a thread, times slower"] = ready["fork"] / ready["thread"]
        for method in ("forkserver", "spawn"):
            quantities[f"{method} against fork, times slower"] = ready[method] / ready["fork"]
            claims.append(
                Claim(
                    f"{method} is slower than fork",
                    ready[method] > ready["fork"],
                    f"{ready[method]:.3g} ms against {ready['fork']:.3g} ms",
                    exact=False,
                )
            )
        product = loaded["fork after OpenMP"]
        claims.append(
            Claim(
                "after torch has used two threads, a forked child hangs in its first large operation unless it sets one thread",
                product == {"all threads": "hangs", "one thread": "done"},
                ", ".join(f"{case}: {end}" for case, end in product.items()) or torch_child.error or torch_child.how,
                exact=False,
            )
        )
    else:
        notes.append("This system's own libraries do not survive a fork, so fork is not timed here: run it on Linux.")
    if "spawn, then import torch" in ready:
        quantities["spawn and import torch, ms"] = ready["spawn, then import torch"]
    else:
        notes.append(f"The child that imports torch did not get through ({torch_child.how}: {torch_child.error}).")
    if size.device.is_cuda and "fork" in methods:
        error = loaded["fork after CUDA"]
        claims.append(Claim("a child forked after CUDA was used cannot use CUDA", "CUDA" in error, error, exact=False))
    elif not size.device.is_cuda:
        notes.append(
            "No CUDA GPU here: that a child forked after CUDA was used cannot use it is not shown; run "
            "`hpml-lab run start-methods` on a machine with one."
        )
    arrays = {"held": {case: rows(value["spans"]) for case, value in told.items() if value}}
    return Result(table, claims, quantities, notes, arrays)


def _held(outcome) -> str:
    """How a case of the held lock went, in words."""
    if outcome.how != "returned":
        return f"the child {outcome.how} {outcome.error}".strip()
    words = {True: "gets it", False: "does not"}
    return ", ".join(f"{who} {words[outcome.value[f'{who} has it']]}" for who in ("child", "parent"))


def draw_process_and_pool(result: Result):
    """Pool(5).map over three numbers with each start method: when each worker was ready, and who did which square.

    Each square waits a little, to be seen. Five workers are started for three numbers, so at least two have nothing to do.
    """
    timelines = result.arrays["timelines"]
    colours = {pool.STARTS: style.GREY, pool.SQUARES: style.BLUE}
    figure = style.new_figure(8, 1 + 1.7 * len(timelines))
    panels = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    _gantts(panels, timelines, colours)
    panels[-1].set_xlabel(f"{panels[-1].get_xlabel()} since Pool(5) was called")
    for axes in panels[:-1]:
        axes.set_xlabel("")
    figure.legend(handles=_key(colours), loc="outside upper left", ncols=2)
    return figure


@experiment(
    "process-and-pool",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_process_and_pool,
    quick=dict(workers=5, numbers=(1, 2, 3), seconds=0.1),
    full=dict(workers=5, numbers=(1, 2, 3), seconds=0.5),
    lecture_says={"Process(f, 'bob') prints": "hello bob", "Pool(5).map(f, [1, 2, 3]) gives": "[1, 4, 9]"},
)
def process_and_pool(size: Size) -> Result:
    """The lecture's Process and Pool with every start method, and the two functions called f."""
    before = child_pids()
    numbers, table, timelines = list(size.numbers), [], {}
    said, squared, cell = {}, {}, {}
    for method in start.methods():
        said[method] = pool.process_says(method, pool.work.greet, "bob")
        squared[method] = pool.squares(method, size.workers, numbers, seconds=size.seconds)
        timelines[method] = rows(squared[method].spans)
        busy = {span.lane for span in squared[method].spans if span.what == pool.SQUARES}
        table.append(
            {
                "what": "the lecture's Process and Pool",
                "start method": method,
                "Process prints": said[method].text.strip(),
                "exit code": said[method].exitcode,
                "Pool gives": str(squared[method].values),
                "workers with work": len(busy),
                "last word": "",
            }
        )
    for method in sorted(multiprocessing.get_all_start_methods()):
        cell[method] = pool.from_a_cell(method)
        *printed, code = cell[method].stdout.strip().splitlines()
        table.append(
            {
                "what": "a function typed into a cell",
                "start method": method,
                "Process prints": " ".join(printed),
                "exit code": int(code.removeprefix("exit code ")),
                "last word": _last_line(cell[method].stderr),
            }
        )
    slide = pool.slide()
    code, squares = slide.stdout.strip().splitlines()
    code = int(code.removeprefix("exit code of the process: "))
    table.append(
        {
            "what": "the slides in one file: two functions f",
            "start method": multiprocessing.get_start_method(),
            "Process prints": "",
            "exit code": code,
            "Pool gives": squares,
            "last word": _last_line(slide.stderr),
        }
    )
    claims = [
        Claim(
            "Process prints hello bob with every start method",
            all((one.text, one.exitcode) == ("hello bob\n", 0) for one in said.values()),
            ", ".join(said),
        ),
        Claim(
            "Pool.map gives the squares in order with every start method",
            all(one.values == [number * number for number in numbers] for one in squared.values()),
            ", ".join(squared),
        ),
        Claim(
            "three numbers give work to at most three of the five workers",
            all(
                len({span.lane for span in one.spans}) == size.workers
                and 1 <= len({span.lane for span in one.spans if span.what == pool.SQUARES}) <= len(numbers)
                for one in squared.values()
            ),
        ),
        Claim(
            "a function typed into a cell works with fork only",
            {method for method, one in cell.items() if one.stdout == "9\nexit code 0\n"} == {"fork"}
            and all("AttributeError" in one.stderr for method, one in cell.items() if method != "fork"),
        ),
        Claim(
            "with two functions called f the child ends with a TypeError and exit code 1, and the parent goes on",
            "TypeError" in slide.stderr and code == 1 and ast.literal_eval(squares) == [1, 4, 9] and slide.exitcode == 0,
        ),
        Claim(NOTHING_LEFT, child_pids() <= before),
    ]
    notes = []
    if "fork" not in squared:
        notes.append("This system's own libraries do not survive a fork of a process that uses them: run fork on Linux.")
    first = next(iter(squared))
    quantities = {
        "Process(f, 'bob') prints": said[first].text.strip(),
        "Pool(5).map(f, [1, 2, 3]) gives": str(squared[first].values),
        **{f"Pool(5) ready with {m}, ms": 1e3 * _last_ready(one) for m, one in squared.items()},
    }
    return Result(table, claims, quantities, notes, {"timelines": timelines})


def _last_ready(squared) -> float:
    """Seconds until the last worker of a pool was ready."""
    return max(span.seconds for span in squared.spans if span.what == pool.STARTS)


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""


# Last, so that its rows come after these, as in the notebook.
from hpml_lab.processes import experiments_sharing  # noqa: E402, F401
