"""Lets other processes of this user watch this one. Standard library only."""

import contextlib
import ctypes


def allow_tracing() -> None:
    """Let any process of this user watch this one: on many Linux systems only a parent may, and py-spy is not ours."""
    with contextlib.suppress(AttributeError, OSError):  # a system without prctl has no such rule
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, PR_SET_PTRACER_ANY
