"""Which processes this one has started and not seen the end of."""

import contextlib

# multiprocessing starts each of these once, when it first needs it, and they end with the process that started them.
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def processes() -> set[int]:
    """Ids of this process's descendants, but for multiprocessing's own two helpers."""
    import psutil  # here, because children that start anew do not need it

    me = psutil.Process()
    found = set()
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            helper = child.ppid() == me.pid and any(name in " ".join(child.cmdline()) for name in HELPERS)
            if not helper:  # a fork server's workers look like it, but they are its children, not ours
                found.add(child.pid)
    return found
