"""Runs one function on N ranks: processes that share a process group, in which they call collectives such as all_reduce.

    def mean_of_ranks():
        value = torch.tensor(float(dist.get_rank()))
        dist.all_reduce(value)
        return value.item() / dist.get_world_size()

    launch(mean_of_ranks, ranks=2)        # [0.5, 0.5]: what each rank returned

Without a GPU a rank is a fork of this process, which starts in 0.1 s. Each rank uses one thread: a fork does not inherit the
threads of this process's parallel operations, and with more it would wait for them forever.

With a GPU, this process may hold CUDA and autograd's threads, which do not survive a fork; without one it holds the threads if
a model was exported before its first gradient. Then a rank is a fork of a server that has imported torch and done nothing else.
The first launch waits for the import; later ones are fast again.

Either way functions may be defined in a cell, and the ranks meet through a file, so that no port is taken.
"""

import contextlib
import importlib.util
import io
import multiprocessing
import os
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed.nn  # before there is a group: see `train.leave`
from torch import distributed as dist

from hpml_lab.core.system.children import has_autograd_threads, run_in_children, shield_children_from_sigint
from hpml_lab.core.system.errors import LabError, error_text
from hpml_lab.core.system.pickling import cannot_be_sent
from hpml_lab.core.system.rank_errors import (
    RankError,
    is_echo,
    note_crashes,
    note_failure,
    note_place,
    note_thread,
    raise_first_failure,
)
from hpml_lab.core.system.signatures import signature_of
from hpml_lab.core.system.workers import require_seconds

LEAVE_SECONDS = 5.0  # how long a rank that has finished waits for the others, whose last collective may still need it
ECHO_SECONDS = 0.3  # a rank that lost its connection reports so after this time: the end of the other rank comes first
METHODS = ("fork", "forkserver", "spawn")


def launch(
    function: Callable[..., Any],
    *arguments: Any,
    ranks: int = 2,
    device: torch.device | str = "cpu",
    method: str | None = None,
    deadline_seconds: float = 120.0,
) -> list[Any]:
    """What `function(*arguments)` returns on each of `ranks` ranks, by rank.

    device    "cpu" connects the ranks with gloo; "cuda" with NCCL, and rank r uses GPU r
    method    "fork", "forkserver" or "spawn"; None chooses as the module says
    Each rank has its own copy of the arguments. Results come back as copies, tensors on the CPU. The function finds itself in
    a process group, which launch leaves after it, unless the function has left it itself by destroy_process_group.

    Raises RankError for the first rank that fails: with the text and the line of its exception, with the signal that killed
    it, or with the line at which it was when `deadline_seconds`, counted from the call of the function, were over. All ranks
    have ended when launch returns or raises, also if it is interrupted.
    """
    method, device = method or _method(), str(device)
    deadline_seconds = require_seconds("deadline_seconds", deadline_seconds)
    _check(function, arguments, ranks, device, method)
    if method == "fork":
        with shield_children_from_sigint():  # an interrupt comes after the import: half of it would break torch for good
            # DDP and optimizers do at first use: once here, not in each rank, for seconds
            importlib.import_module("torch._dynamo")
    pickler = _pickler(method)
    call = (function, arguments) if method == "fork" else _call_by_value(function, arguments, pickler)
    around = None if method == "fork" else (dict(os.environ), os.getcwd())
    with tempfile.TemporaryDirectory(prefix="hpml-ranks-") as folder:
        calls = {
            str(rank): (_run_rank, folder, rank, ranks, device, deadline_seconds, pickler.__name__, call, around)
            for rank in range(ranks)
        }
        outcomes = list(run_in_children(calls, context=_context(method), deadline_seconds=deadline_seconds).values())
        raise_first_failure(outcomes, Path(folder), deadline_seconds)
    return [_result(rank, outcome.value) for rank, outcome in enumerate(outcomes)]


# ---- in this process -----------------------------------------------------------------------------------------------------


def _method() -> str:
    if sys.platform != "linux":
        return "spawn"
    return "forkserver" if torch.cuda.is_available() or has_autograd_threads() else "fork"


def _context(method: str) -> Any:
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(
            [__name__, "torch._dynamo"]
        )  # and with it torch; a server that already runs stays as it is
    return context


def _check(function: Callable[..., Any], arguments: tuple, ranks: int, device: str, method: str) -> None:
    if not callable(function):
        raise LabError(f"{function!r} cannot be called.", "Hand over the function itself, then its arguments.")
    if isinstance(ranks, bool) or not isinstance(ranks, Integral) or ranks < 1:
        raise LabError(f"ranks={ranks!r} is not a number of ranks.", "Use a whole number of at least 1.")
    if device not in ("cpu", "cuda"):
        raise LabError(f"{device!r} is not a device for ranks.", 'Use "cpu" (gloo) or "cuda" (NCCL).')
    if method not in METHODS:
        raise LabError(f"{method!r} is not a start method.", f"Use {', '.join(METHODS)}, or None.")
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing asks itself
        raise LabError(
            "Each spawned rank runs this script anew, and came to launch again.",
            'Put what only the first process shall do under `if __name__ == "__main__":`.',
        )
    if dist.is_initialized():
        raise LabError("This process is itself a rank of a process group.", "Launch ranks from a process that is none.")
    if device == "cuda":
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if ranks > gpus:
            raise LabError(f"NCCL needs a GPU for each of {ranks} ranks; torch sees {gpus} here.", 'Use device="cpu" (gloo).')
        if method == "fork":
            raise LabError("CUDA does not work in a fork of a process that may use it.", 'Use method="forkserver".')
    with contextlib.suppress(ValueError, TypeError):  # not all that can be called has a signature
        signature = signature_of(function)
        try:
            signature.bind(*arguments)
        except TypeError as error:
            name = getattr(function, "__qualname__", repr(function))
            raise LabError(
                f"{name}{signature} cannot be called with the arguments given ({error}).",
                "Give them after the function. A rank's number is not among them: dist.get_rank() knows it.",
            ) from None


def _pickler(method: str) -> ModuleType:
    """A fork knows all classes of this process, also those of a cell; elsewhere they travel only if cloudpickle is there."""
    found = method != "fork" and importlib.util.find_spec("cloudpickle")
    return importlib.import_module("cloudpickle") if found else pickle


def _call_by_value(function: Callable[..., Any], arguments: tuple, pickler: ModuleType) -> bytes:
    try:
        return _packed((function, arguments), pickler)
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        raise cannot_be_sent(
            f"{name} or its arguments",
            error,
            "Hand over numbers, tensors and names, and open files or locks in the function."
            + (" A function of a cell needs the package cloudpickle." if pickler is pickle else ""),
        ) from error


def _packed(value: Any, pickler: ModuleType) -> bytes:
    """`value` as bytes, tensors by value: without this, multiprocessing would share their memory."""
    buffer = io.BytesIO()
    torch.save(value, buffer, pickle_module=pickler, pickle_protocol=pickle.HIGHEST_PROTOCOL)
    return buffer.getvalue()


def _unpacked(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)  # made by this program a moment ago


def _result(rank: int, data: bytes) -> Any:
    try:
        return _unpacked(data)
    except Exception as error:
        raise RankError(
            f"Rank {rank} returned what this process cannot read ({type(error).__name__}: {error_text(error)}).",
            "Return numbers, tensors, lists or dictionaries.",
            rank,
            "raised",
        ) from error


# ---- in a rank -----------------------------------------------------------------------------------------------------------


def _run_rank(
    folder: str,
    rank: int,
    ranks: int,
    device: str,
    deadline_seconds: float,
    pickler: str,
    call: tuple | bytes,
    around: tuple[dict[str, str], str] | None,
) -> bytes:
    """Join the group, call the function, leave the group.

    around  the environment and the folder of the process that launches, which a fork has and a fork server has from its start
    """
    if around is not None:
        os.environ.clear()
        os.environ.update(around[0])
        if around[1] not in sys.path:  # spawn puts the folder there in which multiprocessing was imported
            sys.path.insert(0, around[1])
    watch = threading.Timer(0.9 * deadline_seconds, note_thread, (Path(folder), rank, threading.get_ident()))
    watch.daemon = True
    watch.start()
    note_crashes(Path(folder), rank)
    try:
        store = _join(folder, rank, ranks, device, deadline_seconds)
        function, arguments = _unpacked(call) if isinstance(call, bytes) else call
        result = _packed_result(function(*arguments), importlib.import_module(pickler))
        _leave(store, Path(folder), rank, ranks)
    except Exception as error:
        note_failure(Path(folder), rank, error)
        if is_echo(error_text(error)):
            time.sleep(ECHO_SECONDS)
        raise
    finally:
        watch.cancel()
    return result


def _join(folder: str, rank: int, ranks: int, device: str, deadline_seconds: float) -> dist.Store:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    if sys.platform != "win32":  # the loopback works without a network, and whatever name this host has
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    options = {}
    if device == "cuda":
        torch.cuda.set_device(rank)
        options["device_id"] = torch.device("cuda", rank)
    store = dist.FileStore(os.fsencode(f"{folder}/store"), ranks)  # as bytes: a folder's name need not be UTF-8
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=ranks,
            # The group's own deadline comes after ours, which knows where each rank is.
            timeout=timedelta(seconds=2 * deadline_seconds + 60),
            **options,
        )
    except RuntimeError as error:
        if "gloo/transport" not in str(error):
            raise
        raise LabError(
            f"gloo cannot connect over {os.environ['GLOO_SOCKET_IFNAME']} ({str(error).split(' - ')[0][-200:]}).",
            "Is that network interface up (`ip link set lo up`), and are enough open files allowed (`ulimit -n 1024`)?",
        ) from error
    # A rank whose function leaves the group at once would close the connection that another is still making.
    store.set(f"joined/{rank}", "")
    store.wait([f"joined/{other}" for other in range(ranks)], timedelta(seconds=2 * deadline_seconds + 60))
    return store


def _packed_result(value: Any, pickler: ModuleType) -> bytes:
    try:
        return _packed(value, pickler)
    except Exception as error:
        raise LabError(
            f"Its result, a {type(value).__name__}, cannot be sent ({type(error).__name__}: {error_text(error)}).",
            "Return numbers, tensors, lists or dictionaries.",
        ) from error


def _leave(store: dist.Store, folder: Path, rank: int, ranks: int) -> None:
    store.set(f"left {rank}", "")
    try:
        store.wait([f"left {other}" for other in range(ranks)], timedelta(seconds=LEAVE_SECONDS))
    except RuntimeError:  # time is over: a rank is in a collective that this one did not call, or called with other tensors
        note_place(folder, rank, [])
    if dist.is_initialized():  # the function may have left the group itself
        dist.destroy_process_group()
