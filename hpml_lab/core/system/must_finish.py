"""Where an error out of nowhere, a limit's or a deadline's, waits a moment: raised there, it would leave more than an error."""

from types import FrameType


def must_finish(frame: FrameType | None) -> bool:
    """Whether `frame` is called by the logging module, or by what starts a process in this one.

    Raised between a lock of logging's and its `finally`, or in what logging does before and after a fork, an error keeps that
    lock: from then on every thread that logs or forks waits for ever. Raised behind a fork, it leaves a process that nobody
    knows. Both last for microseconds; who asks again later and still gets True raises all the same.
    """
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module == "logging" or module.startswith("multiprocessing.popen_") and name == "_launch":
            return True
        if module == "multiprocessing.process" and name == "_bootstrap":
            return False  # it is the process that was started
        frame = frame.f_back
    return False
