"""Where an error out of nowhere, a limit's or a deadline's, waits a moment: raised there, it would leave more than an error."""

from types import FrameType

MODULES = ("logging", "hpml_lab.loading.tools.alarm")
OF_WITH = ("__enter__", "__exit__")  # in Python's own code, as of threading.Condition, which each queue has


def must_finish(frame: FrameType | None) -> bool:
    """Whether `frame` enters or leaves a `with`, or is called by the logging module, by an alarm, or by a process's start.

    Raised between a lock and its `finally`, or in what logging does before and after a fork, an error keeps that lock: from
    then on every thread that logs, forks or asks that queue waits for ever. Raised while an alarm starts or ends, it leaves
    one that nobody ends; behind a fork, a process that nobody knows. All last for microseconds; who asks again later and still
    gets True raises all the same.
    """
    if frame is not None and frame.f_code.co_name in OF_WITH:
        return True
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module in MODULES or module.startswith("multiprocessing.popen_") and name == "_launch":
            return True
        if module == "multiprocessing.process" and name == "_bootstrap":
            return False  # it is the process that was started
        frame = frame.f_back
    return False
