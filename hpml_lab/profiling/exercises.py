"""The checks of notebook 09's exercises. No clock of the machine is asked: devices, loops and their times are planted."""

from collections.abc import Callable
from typing import Any

from hpml_lab.core.exercises import Mistake, exercise, expect, same
from hpml_lab.profiling.exercise_profiles import BOUNDS, CALLERS, PROFILES, planted_loop, to_mend_next
from hpml_lab.profiling.scripted_device import JITTER, OUTLIERS, ScriptedDevice

NOTEBOOK = "09_profiling"


# --- name-the-bottleneck: what is this loop waiting for? ---------------------------------------------------------------------

_WAIT = ("waiting-is-not-work", "How busy are the cores? A thread that waits takes time, but no processor.")
_IDLE = ("idle-gpu", "The GPU's kernels fill a small part of the ten seconds: it cannot be what all wait for.")
_INPUT = ("blames-the-input", "The loop hardly waits for its next batch. Which row is the largest?")
_LINE = ("blames-the-wait", "Python stands in loss.item(), but what does the GPU do meanwhile?")
_WHY = {
    **{("A", wrong): _LINE for wrong in ("CPU", "lock", "single thread", "transfer")},
    ("A", "GPU memory"): ("arithmetic-is-full", "Compare the two shares of the GPU's peak: arithmetic and memory."),
    ("B", "CPU"): _WAIT,
    **{(letter, "CPU"): _WAIT for letter in "CE"},
    ("C", "GPU compute"): ("copies-are-not-kernels", "Look at which rows make up the GPU's time: kernels or copies?"),
    ("C", "GPU memory"): ("copies-are-not-kernels", "Copies over the bus are no traffic of kernels in the GPU's own memory."),
    ("D", "CPU"): ("one-core-is-not-all", "Compare the busiest core with all eight: most of the processor is idle."),
    ("E", "single thread"): ("waiting-is-not-work", "No single core is busy. A thread that waits does not keep a core busy."),
    **{(letter, wrong): _IDLE for letter in "BDE" for wrong in ("GPU compute", "GPU memory")},
    **{(letter, "input"): _INPUT for letter in "ACDEF"},
    **{("F", wrong): _LINE for wrong in ("CPU", "lock", "single thread", "transfer")},
    ("F", "GPU compute"): ("memory-is-full", "Compare the two shares of the GPU's peak: arithmetic and memory."),
}


@exercise("name-the-bottleneck", notebook=NOTEBOOK)
def judge_name_the_bottleneck(answer: dict[str, str]) -> None:
    """The bound of each planted profile, by its name."""
    if not isinstance(answer, dict) or set(answer) != set(PROFILES):
        raise Mistake("not-all-named", f"Give a dict with one name for each of {', '.join(PROFILES)}.")
    for letter, (_, right) in PROFILES.items():
        given = answer[letter]
        if given == right:
            continue
        if given not in BOUNDS:
            raise Mistake("unknown-name", f"{given!r} for {letter} is none of the names: {', '.join(BOUNDS)}.")
        name, hint = _WHY.get(
            (letter, given), ("wrong-bound", f"{given!r} is not it. Which row would shrink the whole most if it went away?")
        )
        raise Mistake(name, f"Profile {letter}: {hint}")


# --- mend-the-timing: seconds a call, on planted devices ---------------------------------------------------------------------


def _close(got: Any, right: float) -> bool:
    return same(got, right, tolerance=0.06 * right)


def _timed(answer: Callable, device: ScriptedDevice) -> Any:
    got = answer(device.work, device)
    if got is None:
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if device.calls == 0:
        raise Mistake("never-called", "Your function never calls work(): what does it time?")
    if device.read == 0:
        raise Mistake("another-clock", "Your function never reads device.clock(): the planted devices have no other time.")
    return got


@exercise("mend-the-timing", notebook=NOTEBOOK)
def judge_mend_the_timing(answer: Callable) -> None:
    """Median seconds of one call on devices that each punish one mistake: 10 ms on all of them."""
    right = 0.010
    plain = ScriptedDevice((right,))
    got = _timed(answer, plain)
    if not _close(got, right):
        if same(got, right * 1e3, tolerance=0.6):
            raise Mistake("milliseconds", "Your answer is in milliseconds. Return seconds.")
        if plain.calls > 1 and any(_close(got, right * n) for n in (plain.calls, plain.calls - 1)):
            raise Mistake("total-not-per-call", "Your answer is the time of all calls together. Return the time of one.")
        expect(got, right, case="a device whose calls all take 10 ms", tolerance=0.06 * right)
    if plain.calls < 4:
        raise Mistake(
            "too-few-samples", f"You call work() {plain.calls} times. One to warm up and at least 3 to be timed are needed."
        )

    lazy = ScriptedDevice((right,), lazy=True)
    got = _timed(answer, lazy)
    if lazy.dropped and not _close(got, right):
        raise Mistake(
            "optimised-away",
            "On a device that works only when it must, your answer is too short: nobody held the result of work(), so the work"
            " was never done. Keep the result until you have synchronised.",
        )
    if not _close(got, right):
        raise Mistake(
            "no-synchronise",
            "On a device that works later, your clock stops when the call has returned, not when the work is done.",
        )

    queued = ScriptedDevice((right,), queued=True)
    if not _close(_timed(answer, queued), right):
        raise Mistake(
            "no-synchronise",
            "On a device that works later, your clock stops when the call has returned, not when the work is done.",
        )
    behind = ScriptedDevice((right,), queued=True, backlog=2.0)
    if not _close(_timed(answer, behind), right):
        raise Mistake(
            "starts-on-a-busy-device",
            "On a device that still had 2 s of others' work in its queue, you timed that too. Synchronise before you start.",
        )
    compiling = ScriptedDevice((right,), first=3.0)
    got = _timed(answer, compiling)
    if not _close(got, right):
        raise Mistake(
            "warm-up-counted",
            "On a device whose first call compiles for 3 s, your answer is too long. The first call is no sample.",
        )
    noisy = ScriptedDevice(OUTLIERS)
    got = _timed(answer, noisy)
    if not _close(got, right):
        raise Mistake(
            "mean-not-median",
            "Some calls were disturbed and took 30 times as long. The mean carries them; which figure does not?",
        )
    for uneven in (JITTER, (*JITTER[2:], *JITTER[:2])):  # three calls in a row may lack the shortest, or the longest
        got = _timed(answer, ScriptedDevice(uneven))
        if not _close(got, right):
            low, high = min(JITTER), max(JITTER)
            if _close(got, low):
                raise Mistake(
                    "minimum-not-median", "You return the shortest call. It says what is possible, not what is usual."
                )
            if _close(got, high):
                raise Mistake("maximum-not-median", "You return the longest call, which may be a disturbed one.")
            expect(got, right, case="calls of 10, 8, 10 and 12 ms in turns", tolerance=0.06 * right)


# --- copy-share: read a kernel table -----------------------------------------------------------------------------------------


def _row(kind: str, name: str, time: float, calls: int) -> dict[str, Any]:
    return {"type": kind, "name": name, "time": time, "calls": calls, "avg": time / calls}


GPU, API = "GPU activities", "API calls"
TABLES = {
    "one HtoD row of 2 s among 20 s of GPU activities": [
        _row(GPU, "gemm", 12.0, 600),
        _row(GPU, "relu", 4.5, 900),
        _row(GPU, "[CUDA memcpy HtoD]", 2.0, 400),
        _row(GPU, "[CUDA memcpy DtoH]", 1.0, 100),
        _row(GPU, "[CUDA memcpy DtoD]", 0.3, 30),
        _row(GPU, "[CUDA memset]", 0.2, 70),
    ],
    "the same with the host's API calls below": [
        _row(GPU, "gemm", 12.0, 600),
        _row(GPU, "relu", 6.0, 900),
        _row(GPU, "[CUDA memcpy HtoD]", 2.0, 400),
        _row(API, "cudaMemcpyAsync", 30.0, 500),
        _row(API, "cudaLaunchKernel", 10.0, 1500),
    ],
    "a log of two GPUs, each with its own HtoD row": [
        _row(GPU, "[CUDA memcpy HtoD]", 3.0, 300),
        _row(GPU, "gemm", 5.0, 200),
        _row(GPU, "[CUDA memcpy HtoD]", 2.0, 100),
    ],
    "a run without any copy": [_row(GPU, "gemm", 5.0, 200)],
}


def _hit(name: str, *words: str) -> bool:
    return any(word in name for word in words)


def _shares(rows: list[dict[str, Any]]) -> tuple[float, dict[str, tuple[float, str]]]:
    """The right share of a table, and what the known mistakes give."""
    gpu = [row for row in rows if row["type"] == GPU]
    whole = sum(row["time"] for row in gpu)

    def share(*words: str, of: str = "time", among: list[dict[str, Any]] = gpu) -> float:
        return sum(row[of] for row in among if _hit(row["name"], *words)) / sum(row[of] for row in among)

    right = share("HtoD")
    only = [row["time"] for row in gpu if "HtoD" in row["name"]]
    return right, {
        "percent-for-fraction": (100 * right, "That is the share in %. Return a fraction from 0 to 1."),
        "share-of-calls": (share("HtoD", of="calls"), "You added calls. A short copy and a long one are not alike: add times."),
        "both-directions": (
            share("HtoD", "DtoH"),
            "You count copies from the device to the host too: DtoH is the other direction.",
        ),
        "all-copies": (share("memcpy"), "You count every copy. Only host to device (HtoD) is asked for."),
        "all-copies-and-fills": (share("[CUDA"), "You count every row in brackets, memset too. Only HtoD is asked for."),
        "api-calls-counted": (
            share("HtoD", among=rows),
            "Your whole contains the host's API calls. They run beside the GPU: leave out rows of that type.",
        ),
        "api-copies-counted": (
            share("HtoD", "cudaMemcpy", among=rows),
            "cudaMemcpyAsync is the call on the host, which may wait for anything. Use the GPU's own rows only.",
        ),
        "share-of-the-others": (
            sum(only) / (whole - sum(only)) if whole > sum(only) else -1.0,
            "You divide by the time of all other rows. A share is of the whole, the copies included.",
        ),
        "one-row-only": ((only[0] if only else -1.0) / whole, "There is more than one such row: add them all."),
        "last-row-only": ((only[-1] if only else -1.0) / whole, "There is more than one such row: add them all."),
        "mean-time": (share("HtoD", of="avg"), "You used the mean time of one call. The share needs the time of all calls."),
        "time-not-share": (sum(only), "That is the time of the copies. Divide by the time of all GPU activities."),
    }


@exercise("copy-share", notebook=NOTEBOOK)
def judge_copy_share(answer: Callable) -> None:
    """The share of GPU time that host-to-device copies take, as a fraction."""
    for case, rows in TABLES.items():
        right, mistakes = _shares(rows)
        try:
            got = answer([dict(row) for row in rows])
        except (IndexError, StopIteration, KeyError, ValueError) as error:
            if right:
                raise
            raise Mistake("fails-without-copies", f"For {case} it raises {type(error).__name__}: the share is 0.") from error
        telling = {name: pair for name, pair in mistakes.items() if not same(pair[0], right)}
        expect(got, right, case=case, mistakes=telling)


# --- amdahl: what is a mended part worth? ------------------------------------------------------------------------------------

LOOPS = (
    ({"load": 6.0, "forward": 3.0, "backward": 5.0, "step": 2.0}, "load", 4.0),
    ({"load": 1.0, "forward": 30.0, "backward": 60.0, "step": 9.0}, "step", 10.0),
    ({"load": 9.0, "forward": 1.0}, "load", float("inf")),
)


@exercise("predict-the-gain", notebook=NOTEBOOK)
def judge_predict_the_gain(answer: Callable) -> None:
    """Amdahl's law from a profile of seconds a part."""
    for profile, part, times in LOOPS:
        whole, own = sum(profile.values()), profile[part]
        share, new = own / whole, whole - own + own / times
        right = whole / new
        mistakes = {
            "factor-of-the-part": (times, "Only this part becomes that much faster. The rest stays as it is: add it."),
            "fraction-inverted": (
                1 / (share + (1 - share) / times),
                "You made the rest faster and left the part as it was: the shares are swapped.",
            ),
            "part-gone": (whole / (whole - own), "You took the part away altogether. It still takes 1/times of its time."),
            "rest-ignored": (
                whole / (own / times) if own / times else -1.0,
                "The other parts take as long as before: add them.",
            ),
            "upside-down": (new / whole, "You return new time / old time. Speed-up is old / new."),
            "new-time": (new, "That is the new time in seconds. Speed-up is old time / new time."),
            "gain-not-speed-up": (1 - new / whole, "That is the share of the time that is saved. Speed-up is old / new."),
            "shares-times-factors": (1 - share + share * times, "Times add, not speeds: divide the part's time by its factor."),
            "equal-parts": (
                1 / (1 - 1 / len(profile) + 1 / len(profile) / times),
                "You gave each part the same share. Take its seconds over the sum of all.",
            ),
        }
        telling = {name: pair for name, pair in mistakes.items() if not same(pair[0], right)}
        case = f"{profile}, {part} {times:g} times as fast"
        expect(answer(dict(profile), part, times), right, case=case, mistakes=telling)


# --- next-step: what to mend next --------------------------------------------------------------------------------------------


@exercise("next-step", notebook=NOTEBOOK)
def judge_next_step(answer: Callable) -> None:
    """The name of the part to mend next, on seeded planted loops."""
    for seed in range(12):
        rows, mended = planted_loop(seed)
        right = to_mend_next(rows, mended)
        got = answer([dict(row) for row in rows], set(mended))
        if got == right:
            continue
        left = [row for row in rows if row["part"] not in mended]
        by = {row["part"]: row for row in rows}
        story = f"Loop {seed}, mended so far: {', '.join(sorted(mended)) or 'nothing'}. "
        if got is None:
            raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
        if isinstance(got, dict):
            raise Mistake("row-not-name", f"{story}Return the name of the part, not its row.")
        if isinstance(got, (int, float)):
            raise Mistake("time-not-name", f"{story}Return the name of the part, not a number.")
        if not isinstance(got, str) or got not in by:
            raise Mistake("unknown-part", f"{story}{got!r} is no part of the profile.")
        if got in mended:
            raise Mistake("already-mended", f"{story}You choose {got!r} again. It was mended already: go on with the rest.")
        if (
            got in CALLERS
            or got == max((row for row in left if row["part"] not in CALLERS), key=lambda row: row["total"])["part"]
        ):
            raise Mistake("cumulative-time", f"{story}{got!r} has the most total time, but that is the time of what it calls.")
        if got in (max(rows, key=lambda row: row["calls"])["part"], max(left, key=lambda row: row["calls"])["part"]):
            raise Mistake("most-calls", f"{story}{got!r} is called most, but costs {by[got]['self']:.2f} s in all.")
        if got == min(left, key=lambda row: row["self"])["part"]:
            raise Mistake("smallest", f"{story}{got!r} has the least self time: there is nothing to gain.")
        if got == left[0]["part"]:
            raise Mistake("first-row", f"{story}You took the first row; the rows are in no order.")
        raise Mistake("not-the-largest", f"{story}{got!r} takes {by[got]['self']:.2f} s; another part takes more.")
