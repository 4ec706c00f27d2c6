"""Which rank failed first, and why: one error out of what all of them left behind.

When a rank ends, the others lose their connections and fail as well. Their errors are echoes; the cause is the rank that was
killed, that raised something else, or that was elsewhere when the time was over.
"""

import os
import pickle
import re
import signal
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import NoReturn

from hpml_lab.core.system.children import ChildOutcome
from hpml_lab.core.system.errors import LabError

SAME_ORDER = "Every rank has to call the same collectives in the same order."
SAME_TENSORS = "All ranks have to hand over tensors of the same size and dtype; gloo aborts where they do not."
STOPPED = "The other ranks were stopped."
WAITED, RETURNED = "waited in", "had returned"


class RankError(LabError):
    """A rank that failed: its number, `how` ("raised", "died" or "hung"), and its `trace`back if it raised."""

    def __init__(self, problem: str, fix: str, rank: int = 0, how: str = "", trace: str = "") -> None:
        super().__init__(problem, fix)
        self.rank, self.how, self.trace = rank, how, trace

    def __reduce__(self) -> tuple:
        return type(self), (self.problem, self.fix, self.rank, self.how, self.trace)


def is_echo(text: str) -> bool:
    """True for the error of a rank whose partner has gone: the reason is the partner's."""
    return bool(re.search("closed by peer|reset by peer|broken pipe|remote error|remote process", text, re.IGNORECASE))


def note_failure(folder: Path, rank: int, error: Exception) -> None:
    """In the rank: keep the two sentences of a LabError, so that the parent can pass on the advice."""
    if isinstance(error, LabError):
        (folder / f"rank{rank}.advice").write_bytes(pickle.dumps((error.problem, error.fix)))


def note_place(folder: Path, rank: int, thread: int) -> None:
    """In the rank, from a thread of its own: keep where the thread `thread` is, innermost line first.

    faulthandler would also see a thread that never lets go of the interpreter, but it reads frames that other threads change:
    a rank that was importing crashed under it.
    """
    lines = traceback.format_stack(sys._current_frames()[thread])
    (folder / f"rank{rank}.trace").write_text("".join(reversed(lines)), encoding="utf-8")


def raise_first_failure(outcomes: list[ChildOutcome], folder: Path, deadline_seconds: float) -> None:
    """Raise RankError for the rank that is the cause; return if all ranks returned."""
    raised = [rank for rank, outcome in enumerate(outcomes) if outcome.how == "raised"]
    causes = [rank for rank in raised if not is_echo(outcomes[rank].error)]
    died = [rank for rank, outcome in enumerate(outcomes) if outcome.how == "died"]
    hung = [rank for rank, outcome in enumerate(outcomes) if outcome.how == "hung"]
    if causes:
        _raise_exception(causes[0], outcomes, folder)
    if died:
        _raise_death(died[0], outcomes)
    if hung:
        _raise_hang(hung, folder, deadline_seconds)
    if raised:
        _raise_exception(raised[0], outcomes, folder)


def _raise_death(rank: int, outcomes: list[ChildOutcome]) -> NoReturn:
    code = outcomes[rank].exitcode or 0
    names = {number: number.name for number in signal.Signals}  # not all of the real-time ones have a name
    killed = f"was killed by {names.get(-code, f'signal {-code}')}"
    end = killed if code < 0 else f"ended with exit code {code} and returned nothing"
    fix = SAME_TENSORS if -code == signal.SIGABRT else STOPPED
    raise RankError(f"Rank {rank} of {len(outcomes)} {end}.", fix, rank, "died")


def _raise_hang(hung: list[int], folder: Path, deadline_seconds: float) -> NoReturn:
    places = {rank: _place(folder / f"rank{rank}.trace") for rank in hung}
    alone = [rank for rank in hung if not places[rank].startswith((WAITED, RETURNED))]
    raise RankError(
        f"The ranks did not finish within {deadline_seconds:g} s. "
        + " ".join(f"Rank {rank} {place}." for rank, place in places.items()),
        "Find out why it takes so long, or give more deadline_seconds." if alone else SAME_ORDER,
        (alone or hung)[0],
        "hung",
    )


def _raise_exception(rank: int, outcomes: list[ChildOutcome], folder: Path) -> NoReturn:
    outcome, which = outcomes[rank], f"Rank {rank} of {len(outcomes)}"
    where = _own_frame(outcome.trace.splitlines()[::-1])
    at = f" at {where}" if where else ""
    returned = [other for other, found in enumerate(outcomes) if found.how == "returned"]
    advice = folder / f"rank{rank}.advice"
    if is_echo(outcome.error) and returned:
        problem, fix = f"{which} waited{at} for rank {returned[0]}, which had returned.", SAME_ORDER
    elif advice.exists():
        problem, fix = pickle.loads(advice.read_bytes())
        problem = f"{which} raised LabError{at}: {problem}"
    else:
        problem, fix = f"{which} raised {outcome.error}" + (f" ({where})." if where else "."), STOPPED
    raise RankError(problem, fix, rank, "raised", outcome.trace)


# ---- lines of a traceback ------------------------------------------------------------------------------------------------

_LIBRARIES = tuple({f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib")})
_OURS = tuple(str(Path(__file__).with_name(name)) for name in ("launcher.py", "children.py"))
_FRAME = re.compile(r'File "([^"]+)", line (\d+),? in (\S+)')


def _own_frame(lines: list[str]) -> str:
    """The innermost line of a traceback (innermost first) that is neither in a library nor in launch itself."""
    for file, number, _ in (found.groups() for line in lines if (found := _FRAME.search(line))):
        if not file.startswith((*_LIBRARIES, "<frozen")) and file not in _OURS:
            return f"line {number} of {'the cell' if f'{os.sep}ipykernel_' in file else file}"
    return ""


def _place(trace: Path) -> str:
    """Where a rank was when its time was nearly over, as note_place wrote it."""
    lines = trace.read_text(encoding="utf-8").splitlines() if trace.exists() else []
    frames = [found for line in lines if (found := _FRAME.search(line))]
    if any(found[1] in _OURS and found[3] == "_leave" for found in frames):
        return f"{RETURNED} and waited to leave the group"
    where = _own_frame(lines)
    if not where:
        return "had not started the function" if lines else "gave no sign of where it was"
    calls = [found[3] for found in frames if f"torch{os.sep}distributed" in found[1]]
    collective = next((name for name in reversed(calls) if name != "wrapper"), "")
    return f"{WAITED} {collective} at {where}" if collective else f"was at {where}"
