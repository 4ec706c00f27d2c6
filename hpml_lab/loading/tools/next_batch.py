"""A batch is loaded, and a StopIteration of its data set is an error: to a loop it would be the end of the epoch.

`next` reports the end by StopIteration, and a data set that reads from an iterator of its own may let one out by mistake. Who
loops over the loader, such as a generator in it, cannot tell them apart. So torch's own functions through which the errors of
a data set come, in this process and from a worker, are replaced while batches are being loaded.
"""

import contextlib
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import get_worker_info
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

from hpml_lab.core.system.errors import LabError, error_text

RAISED = re.compile(r"Caught (\w+) in DataLoader worker process (\d+)\.")
STOP_FIX = (
    "An iterator in the data set, its transform, collate_fn or sampler had no more items. Give the data set the length that "
    "it has, or catch StopIteration there."
)


class StoppedError(RuntimeError):
    """A StopIteration that left a data set or its collate_fn."""


class UnsentError(RuntimeError):
    """Stands for an error of a worker that cannot be sent: the loop would wait for it, or meet the end of the worker alone."""


class _Torch:
    """torch's functions, and how many threads load a batch now."""

    fetch, reraise, next_of_stream = _MapDatasetFetcher.fetch, ExceptionWrapper.reraise, _IterableDatasetFetcher.fetch
    lock, loading = threading.Lock(), 0


def _fetch(fetcher: Any, indices: Any) -> Any:
    return _sendable(stop_is_an_error, _Torch.fetch, fetcher, indices)


def _next_of_stream(fetcher: Any, indices: Any) -> Any:
    """The end of the data set's iterator is an end; a StopIteration of its collate_fn is none."""
    collate = fetcher.collate_fn
    fetcher.collate_fn = partial(stop_is_an_error, collate)
    try:
        return _sendable(_Torch.next_of_stream, fetcher, indices)
    finally:
        fetcher.collate_fn = collate


def _sendable(load: Callable[..., Any], *arguments: Any) -> Any:
    """`load(*arguments)`; a worker's error that torch cannot send becomes an UnsentError."""
    try:
        return load(*arguments)
    except BaseException as error:
        if get_worker_info() is None or _can_be_sent(error):
            raise
        raise UnsentError(f"{type(error).__name__}: {error_text(error)}".removesuffix(": ")) from error


def _can_be_sent(error: BaseException) -> bool:
    """torch sends an Exception's type and text, so the type is to be no local class. Others end the worker, as these two do."""
    with contextlib.suppress(Exception):
        return bool(pickle.dumps(type(error))) and isinstance(error, Exception | KeyboardInterrupt | SystemExit)
    return False


def _reraise(wrapped: ExceptionWrapper) -> None:
    try:
        _Torch.reraise(wrapped)
    except Exception as error:
        named = isinstance(error, wrapped.exc_type) or RAISED.search(error_text(error))
        if named and not isinstance(error, StopIteration):
            raise error.with_traceback(None) from None  # torch's frame has it: in such a circle, batches would stay mapped
    # It is a StopIteration, or torch could not make one of its type, such as an ExceptionGroup, and raised why.
    raise RuntimeError(f"Caught {wrapped.exc_type.__name__} {wrapped.where}.\nOriginal {wrapped.exc_msg}")


def stop_is_an_error(load: Callable[..., Any], *arguments: Any) -> Any:
    """`load(*arguments)`; a StopIteration that leaves it becomes a StoppedError."""
    try:
        return load(*arguments)
    except StopIteration as error:
        raise StoppedError("StopIteration") from error


@contextlib.contextmanager
def faults_are_errors() -> Iterator[None]:
    """In the block, what a data set raises comes out of its loader, be it a StopIteration or an ExceptionGroup.

    Workers that are forked in the block do the same for as long as they run.
    """
    with _Torch.lock:
        _Torch.loading += 1
        _MapDatasetFetcher.fetch, ExceptionWrapper.reraise, _IterableDatasetFetcher.fetch = _fetch, _reraise, _next_of_stream
    try:
        yield
    finally:
        with _Torch.lock:
            _Torch.loading -= 1
            if not _Torch.loading:
                _MapDatasetFetcher.fetch, ExceptionWrapper.reraise = _Torch.fetch, _Torch.reraise
                _IterableDatasetFetcher.fetch = _Torch.next_of_stream


def load_batch(number: int, load: Callable[..., Any], *arguments: Any) -> Any:
    """`load(*arguments)`, which loads batch `number`. A StopIteration from it, such as a data set's, is a LabError.

    The next batch of an iterator is load_batch(number, next, iterator, END): its own end gives END. load_batch(0, iter, loader)
    makes the iterator, and its workers.
    """
    try:
        with faults_are_errors():
            return load(*arguments)
    except (StopIteration, RuntimeError) as error:
        if is_stop(error):
            raise stop_error("The data set", number) from error
        raise


def is_stop(error: BaseException) -> bool:
    """Whether an error is a StopIteration of a data set: itself, from a worker, or from a generator, which changes its type."""
    text = error_text(error)
    raised = RAISED.search(text)
    from_worker = raised is not None and raised[1] in ("StopIteration", "StoppedError")
    from_generator = isinstance(error, RuntimeError) and text.rstrip().endswith("generator raised StopIteration")
    return isinstance(error, StopIteration | StoppedError) or from_worker or from_generator


def stop_error(who: str, number: int) -> LabError:
    """What is said of a StopIteration that came while batch `number` was loaded."""
    return LabError(f"{who} raised StopIteration at batch {number}.", STOP_FIX)
