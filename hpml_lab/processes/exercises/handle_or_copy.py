"""`handle-or-copy`: the message size from which a handle to shared memory is faster than a pickled copy."""

from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric

# (seconds of an empty pickled message and of an empty handle, copies of a pickled one, bytes/s of a copy, already shared?)
CASES = (
    (50e-6, 500e-6, 5, 4e9, False),
    (40e-6, 840e-6, 5, 10e9, True),
    (20e-6, 260e-6, 4, 2e9, False),
    (1e-4, 9e-4, 2, 8e9, True),
    (37e-6, 411e-6, 8, 7.3e9, False),  # no whole number of kB
)


def right(pickled: float, handed: float, copies: int, rate: float, shared: bool) -> float:
    """n with pickled + copies · n / rate = handed + (0 or 1) · n / rate."""
    size = (handed - pickled) * rate / (copies - (0 if shared else 1))
    return size


RUBRIC = Rubric(
    right,
    """
(0 if shared else 1)
    first-copy-forgotten :: 0 :: A new tensor has to be moved into shared memory first: that is one copy for the handle as well.
    always-copied :: 1 :: A tensor that is already in shared memory is not copied again.
    shared-upside-down :: (1 if shared else 0) :: `shared` is True if the tensor is already in shared memory; then it is not
        copied.
    a-copy-too-many :: (0 if shared else -1) :: The handle's copy is on the other side of the equation: it makes the difference
        in copies smaller, not larger.
(handed - pickled) * rate
    divided-by-the-rate :: (handed - pickled) / rate :: One byte takes 1 / rate seconds, so a time is rate times as many bytes.
    handle-costs-nothing :: pickled * rate :: A handle has a fixed cost, too: only the difference of the two has to be won back.
    pickling-costs-nothing :: handed * rate :: A small pickled message is not free either: only the difference of the fixed
        costs has to be won back.
    costs-add :: (handed + pickled) * rate :: At the size you look for, both take the same time. Write down both sides, then
        collect the fixed costs on one.
    seconds-for-bytes :: (handed - pickled) :: That is a time. How many bytes are copied in it?
    wrong-sign :: (pickled - handed) * rate :: A size below zero: which of the two has the higher fixed cost?
return size
    in-kilobytes :: return size / 1e3 :: The answer is in bytes, not in kB.
    in-kilobytes :: return size / 1024 :: That is in KiB; bytes are asked for.
    rounded :: return round(size, -3) :: Your answer is rounded to kB. Return the bytes as they are.
    in-bits :: return size * 8 :: That is in bits; bytes are asked for.
    times-the-copies :: return (handed - pickled) * rate * (copies - (0 if shared else 1)) :: With more copies pickling is
        slower, so that handles win earlier: should your size grow with `copies`?
    one-copy-only :: return (handed - pickled) * rate :: A pickled message is copied several times on its way; each copy costs
        n / rate.
    upside-down :: return 1 / size :: A faster memory makes copies cheaper, so that handles win later: should your size grow
        with the rate?
""",
)


@exercise("handle-or-copy", notebook="07_processes", takes="pickled, handed, copies, rate, shared", returns=float)
def judge_handle_or_copy(answer: Callable) -> None:
    """(handed − pickled) · rate / (copies − 1), or copies where it is shared already."""
    cases = {f"(pickled, handed, copies, rate, shared) = {case}": case for case in CASES}
    RUBRIC.expect(answer, cases, tolerance=1e-5, but=("pickled", "handed"))  # rounded to a byte is right, too
