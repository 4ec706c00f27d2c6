"""`handle-or-copy`: the message size from which a handle to shared memory is faster than a pickled copy."""

from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function

# (seconds of an empty pickled message and of an empty handle, copies of a pickled one, bytes/s of a copy, already shared?)
CASES = (
    (50e-6, 500e-6, 7, 5e9, False),
    (40e-6, 840e-6, 5, 10e9, True),
    (20e-6, 260e-6, 4, 2e9, False),
    (1e-4, 9e-4, 2, 8e9, True),
    (37e-6, 411e-6, 8, 7.3e9, False),  # no whole number of kB
)


def _right(pickled: float, handed: float, copies: int, rate: float, shared: bool) -> float:
    """n with pickled + copies · n / rate = handed + (0 or 1) · n / rate."""
    return (handed - pickled) * rate / (copies - (0 if shared else 1))


MISTAKES: dict[str, tuple[Callable, str]] = {
    "first-copy-forgotten": (
        lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate / copies,
        "A new tensor has to be moved into shared memory first: that is one copy for the handle as well.",
    ),
    "always-copied": (
        lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate / (copies - 1),
        "A tensor that is already in shared memory is not copied again.",
    ),
    "shared-upside-down": (
        lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate / (copies - (1 if shared else 0)),
        "`shared` is True if the tensor is already in shared memory; then it is not copied.",
    ),
    "a-copy-too-many": (
        lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate / (copies + (0 if shared else 1)),
        "The handle's copy is on the other side of the equation: it makes the difference in copies smaller, not larger.",
    ),
    "divided-by-the-rate": (
        lambda pickled, handed, copies, rate, shared: (handed - pickled) / rate / (copies - (0 if shared else 1)),
        "One byte takes 1 / rate seconds, so a time is rate times as many bytes.",
    ),
    "times-the-copies": (
        lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate * (copies - (0 if shared else 1)),
        "With more copies pickling is slower, so that handles win earlier: should your size grow with `copies`?",
    ),
    "in-kilobytes": (lambda *case: _right(*case) / 1e3, "That is in kB; bytes are asked for."),
    "in-kilobytes, of 1024": (lambda *case: _right(*case) / 1024, "That is in KiB; bytes are asked for."),
    "rounded": (lambda *case: round(_right(*case), -3), "Your answer is rounded to kB. Return the bytes as they are."),
    "in-bits": (lambda *case: _right(*case) * 8, "That is in bits; bytes are asked for."),
    "handle-costs-nothing": (
        lambda pickled, handed, copies, rate, shared: pickled * rate / (copies - (0 if shared else 1)),
        "A handle has a fixed cost, too: only the difference of the two has to be won back.",
    ),
    "one-copy-only": (
        lambda pickled, handed, copies, rate, shared: (handed - pickled) * rate,
        "A pickled message is copied several times on its way; each copy costs n / rate.",
    ),
    "pickling-costs-nothing": (
        lambda pickled, handed, copies, rate, shared: handed * rate / (copies - (0 if shared else 1)),
        "A small pickled message is not free either: only the difference of the fixed costs has to be won back.",
    ),
    "costs-add": (
        lambda pickled, handed, copies, rate, shared: (handed + pickled) * rate / (copies - (0 if shared else 1)),
        "At the size you look for, both take the same time. Write down both sides, then collect the fixed costs on one.",
    ),
    "upside-down": (
        lambda pickled, handed, copies, rate, shared: (copies - (0 if shared else 1)) / ((handed - pickled) * rate),
        "A faster memory makes copies cheaper, so that handles win later: should your size grow with the rate?",
    ),
    "seconds-for-bytes": (
        lambda pickled, handed, copies, rate, shared: (handed - pickled) / (copies - (0 if shared else 1)),
        "That is a time. How many bytes are copied in it?",
    ),
    "wrong-sign": (lambda *case: -_right(*case), "A size below zero: which of the two has the higher fixed cost?"),
}


@exercise("handle-or-copy", notebook="07_processes")
def judge_handle_or_copy(answer: Callable) -> None:
    """Three tensors, shared and not."""
    cases = {f"(pickled, handed, copies, rate, shared) = {case}": case for case in CASES}
    expect_function(answer, _right, cases, mistakes=MISTAKES, tolerance=1e-5)  # rounded to a byte is right, too
