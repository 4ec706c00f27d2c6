"""Which rank failed first, and why: one error out of what all of them left behind.

When a rank ends, the others lose their connections and fail as well. Their errors are echoes; the cause is the rank that was
killed, that raised something else, or that was elsewhere when the time was over.
"""

import faulthandler
import os
import pickle
import re
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from torch import distributed as dist

import hpml_lab
from hpml_lab.core.system.children import ChildOutcome
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import signal_name

SAME_ORDER = "Every rank has to call the same collectives in the same order."
SAME_TENSORS = (
    "All ranks have to hand over tensors of the same size, dtype and layout to a collective; gloo aborts, or waits, where they "
    "do not."
)
STOPPED = "The other ranks were stopped."
JOINED = "launch joins the group before the function and leaves it afterwards: leave out init_process_group."
EXPLAINED = {  # part of an error's text: what to do
    "initialize the default process group twice": JOINED,
    "using env:// rendezvous": JOINED,
    "process group has not been initialized": "Is destroy_process_group called before? Let it come last, or leave it out.",
}


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


# ---- in a rank: what it leaves behind ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a rank was.

    frames      (file, line, function), innermost first; none if the function had returned
    collective  the collective in which it waited, if it did, and the `tensors` that it had handed over
    calls       how many collectives of the whole group it had called; None if nobody knows
    """

    frames: tuple[tuple[str, int, str], ...]
    collective: str = ""
    tensors: str = ""
    calls: int | None = None


def note_failure(folder: Path, rank: int, error: Exception) -> None:
    """Keep where `error` was raised, and the two sentences of a LabError, so that the parent can pass on the advice."""
    note_place(folder, rank, reversed(list(traceback.walk_tb(error.__traceback__))))
    if isinstance(error, LabError):
        (folder / f"rank{rank}.advice").write_bytes(pickle.dumps((error.problem, error.fix)))


def note_thread(folder: Path, rank: int, thread: int) -> None:
    """From a thread of its own: keep where the thread `thread` is.

    faulthandler would also see a thread that never lets go of the interpreter, but it reads frames that other threads change:
    a rank that was importing crashed under it.
    """
    note_place(folder, rank, traceback.walk_stack(sys._current_frames()[thread]))


def note_place(folder: Path, rank: int, stack: Iterable[tuple[FrameType, int]]) -> None:
    """Keep the lines of `stack`, innermost first, in place of what was kept before, also if the rank is killed meanwhile. As
    bytes, because the name of a file need not be UTF-8."""
    found = [(frame, (frame.f_code.co_filename, line, frame.f_code.co_name)) for frame, line in stack]
    inside = [frame for frame, place in found if _DISTRIBUTED in place[0] and place[2] != "wrapper"]
    group = inside[-1].f_locals.get("group") if inside else None
    place = Place(
        tuple(place for _, place in found),
        inside[-1].f_code.co_name if inside else "",
        _tensors(inside[-1]) if inside else "",
        _calls() if group in (None, dist.group.WORLD) else None,
    )
    new = folder / f"rank{rank}.{threading.get_ident()}"
    new.write_bytes(pickle.dumps(place))
    new.replace(folder / f"rank{rank}.place")


def note_crashes(folder: Path, rank: int) -> None:
    """Let Python write where it was when a fatal signal, such as SIGSEGV or gloo's SIGABRT, ends this process."""
    faulthandler.disable()  # enabled in the parent, its handlers may have been replaced since, and enabling would keep them
    faulthandler.enable((folder / f"rank{rank}.crash").open("w", encoding="ascii"))


def _calls() -> int | None:
    return dist.group.WORLD._get_sequence_number_for_group() if dist.is_initialized() else None


def _tensors(frame: FrameType) -> str:
    """The tensors among the arguments of a function that is called: "float32 (2, 3)"."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return ", ".join(text for name in names if (text := _described(frame.f_locals.get(name))))


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        layout = "" if value.layout is torch.strided else f" {str(value.layout).removeprefix('torch.')}"
        where = "" if value.device.type == "cpu" else f" on {value.device}"
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}{layout}{where}"
    if isinstance(value, list | tuple) and any(isinstance(item, torch.Tensor) for item in value):
        return f"[{', '.join(map(_described, value))}]"
    return ""


# ---- in the parent -------------------------------------------------------------------------------------------------------


def raise_first_failure(outcomes: list[ChildOutcome], folder: Path, deadline_seconds: float) -> None:
    """Raise RankError for the rank that is the cause; return if all ranks returned."""
    raised = [rank for rank, outcome in enumerate(outcomes) if outcome.how == "raised"]
    causes = [rank for rank in raised if not is_echo(outcomes[rank].error)]
    died = [rank for rank, outcome in enumerate(outcomes) if outcome.how == "died"]
    hung = [rank for rank, outcome in enumerate(outcomes) if outcome.how == "hung"]
    if causes:
        _raise_exception(causes[0], outcomes, folder)
    if died:
        _raise_death(died[0], outcomes, folder)
    if hung:
        _raise_hang(hung, folder, deadline_seconds)
    if raised:
        _raise_exception(raised[0], outcomes, folder)


def _raise_death(rank: int, outcomes: list[ChildOutcome], folder: Path) -> NoReturn:
    code = outcomes[rank].exitcode or 0
    end = f"was killed by {signal_name(code)}" if code < 0 else f"ended with exit code {code} and returned nothing"
    crash = folder / f"rank{rank}.crash"
    # faulthandler writes ASCII alone, but for the names of libraries among the frames of C, which Python 3.14 adds.
    escaped = crash.read_text(encoding="utf-8", errors="replace") if code < 0 and crash.exists() else ""
    trace = _ESCAPE.sub(lambda found: chr(int(found[0][2:], 16)), escaped)
    # gloo aborts from a thread that Python does not know: it has frames of C alone.
    by_itself = trace.partition("Current thread's C stack trace")[0].partition("Current thread ")[2]
    frames = _frames(by_itself) or _frames(trace)
    gloo = -code == signal.SIGABRT and (not by_itself or _DISTRIBUTED in frames[0][0])
    where = f" at {own}" if (own := _own_line(frames)) else ""
    raise RankError(f"Rank {rank} of {len(outcomes)} {end}{where}.", SAME_TENSORS if gloo else STOPPED, rank, "died", trace)


def _raise_hang(hung: list[int], folder: Path, deadline_seconds: float) -> NoReturn:
    places = {rank: _place(folder, rank) for rank in hung}
    fewest = min((place.calls for place in places.values() if place and place.calls is not None), default=0)
    alone = [  # neither in a collective, nor waiting for the end of one that others have not called
        rank
        for rank, place in places.items()
        if not place or not (place.collective or _has_returned(place) or (place.calls or 0) > fewest)
    ]
    raise RankError(
        f"The ranks did not finish within {deadline_seconds:g} s. "
        + " ".join(f"Rank {rank} {_said(place)}." for rank, place in places.items()),
        "Find out why it takes so long, or give more deadline_seconds." if alone else _advice(list(places.values())),
        (alone or hung)[0],
        "hung",
    )


def _raise_exception(rank: int, outcomes: list[ChildOutcome], folder: Path) -> NoReturn:
    outcome, which = outcomes[rank], f"Rank {rank} of {len(outcomes)}"
    where = _own_line(_frames(outcome.trace)[::-1])
    at = f" at {where}" if where else ""
    returned = [other for other, found in enumerate(outcomes) if found.how == "returned"]
    advice = folder / f"rank{rank}.advice"
    if is_echo(outcome.error) and returned:
        problem = f"{which} waited{at} for rank {returned[0]}, which had returned."
        fix = _advice([_place(folder, rank), _place(folder, returned[0])])
    elif advice.exists():
        problem, fix = pickle.loads(advice.read_bytes())
        problem = f"{which} raised LabError{at}: {problem}"
    else:
        problem = f"{which} raised {outcome.error}" + (f" ({where})." if where else ".")
        fix = next((fix for text, fix in EXPLAINED.items() if text in outcome.error), STOPPED)
    raise RankError(problem, fix, rank, "raised", outcome.trace)


def _advice(places: list[Place | None]) -> str:
    """Ranks that called one collective with other tensors, or equally many collectives, did not call others."""
    known = [place for place in places if place]
    waiting = [place for place in known if place.collective]
    one = len({place.collective for place in waiting}) == 1
    other_tensors = len({place.tensors for place in waiting}) > 1
    calls = {place.calls for place in known}
    as_many = len(known) > len(waiting) and len(calls) == 1 and None not in calls  # it is None in a group of some ranks
    return SAME_TENSORS if one and (other_tensors or as_many) else SAME_ORDER


# ---- lines of a traceback ------------------------------------------------------------------------------------------------

_LIBRARIES = tuple({f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib")})
_LAUNCH = tuple(str(Path(__file__).with_name(name)) for name in ("launcher.py", "children.py"))
_OURS = tuple(f"{folder}{os.sep}" for folder in hpml_lab.__path__)
_DISTRIBUTED = f"torch{os.sep}distributed"
_ESCAPE = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")
_FRAME = re.compile(r'File "([^"]+)", line (\d+),? in (\S+)')


def _frames(trace: str) -> list[tuple[str, int, str]]:
    """(file, line, function) of each line of a traceback, in its order."""
    return [(file, int(line), name) for file, line, name in _FRAME.findall(trace)]


def _own_line(frames: Iterable[tuple[str, int, str]]) -> str:
    """The innermost of `frames`, which are innermost first, that is the reader's: in no library, and not in this package.

    For a function of this package, such as a lesson's, it is the innermost that is not in launch itself.
    """
    own = [
        frame
        for frame in frames
        if not (frame[0].startswith((*_LIBRARIES, "<frozen")) or "-packages/" in frame[0]) and frame[0] not in _LAUNCH
    ]
    for file, line, _ in [*(frame for frame in own if not frame[0].startswith(_OURS)), *own]:
        return f"line {line} of {'the cell' if f'{os.sep}ipykernel_' in file else file}"
    return ""


def _place(folder: Path, rank: int) -> Place | None:
    """Where a rank was, as note_place wrote it."""
    path = folder / f"rank{rank}.place"
    return pickle.loads(path.read_bytes()) if path.exists() else None


def _has_returned(place: Place) -> bool:
    return not place.frames or any(file in _LAUNCH and name == "_leave" for file, _, name in place.frames)


def _said(place: Place | None) -> str:
    if place is None:
        return "gave no sign of where it was"
    if _has_returned(place):
        return "had returned and waited to leave the group"
    where = _own_line(place.frames)
    if not where:
        return "had not started the function"
    handed = f" of {place.tensors}" if place.tensors else ""
    return f"waited in {place.collective}{handed} at {where}" if place.collective else f"was at {where}"
