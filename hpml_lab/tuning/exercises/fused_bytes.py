"""Bytes that a chain of pointwise operators moves, one kernel per operator and fused into one kernel."""

from collections.abc import Callable, Sequence
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric

Program = Sequence[tuple[tuple[str, ...], str]]  # operators as (names of the tensors read, name of the tensor written)

GELU: Program = [(("x",), "a"), (("x",), "b"), (("b",), "c"), (("c",), "d"), (("a", "d"), "y")]
SCALE: Program = [(("x", "s"), "a"), (("a", "b"), "y")]
SQUARE: Program = [(("x", "x"), "y")]
TWO_RESULTS: Program = [(("x", "w"), "a"), (("a",), "y"), (("a", "x"), "z")]
CUBIC: Program = [(("x1", "x2", "x1"), "cubic"), (("cubic", "x10"), "out")]
WIDE: Program = [(("x",), "a"), (("a", "s", "t"), "b"), (("b", "u", "v", "w"), "y")]
CASES = {
    "GELU and tensors of 4000 bytes": (GELU, 4000),
    "y = x·s + b and tensors of 1024 bytes": (SCALE, 1024),
    "y = x·x and tensors of 12 bytes": (SQUARE, 12),
    "a = x·w, y = exp(a), z = a·x and tensors of 256 bytes": (TWO_RESULTS, 256),
    "a = exp(x), b = a·s + t, y = b·u·v + w and tensors of 64 bytes": (WIDE, 64),
    "cubic = x1·x2·x1, out = cubic + x10 and tensors of 3000000001 bytes": (CUBIC, 3_000_000_001),
}


def fused_bytes(program: Program, nbytes: int) -> tuple[int, int]:
    written = {output for _, output in program}
    read = {name for names, _ in program for name in names}
    apart = sum(len(set(names)) + 1 for names, _ in program)
    fused = len(read - written) + len(written - read)
    return nbytes * apart, nbytes * fused


RUBRIC = Rubric(
    fused_bytes,
    """
sum(len(set(names)) + 1 for names, _ in program)
    reads-only :: sum(len(set(names)) for names, _ in program) :: Reads are not all: each operator also writes its output.
    writes-only :: len(program) :: These are the writes. Each operator also reads its inputs.
    read-twice :: sum(len(names) + 1 for names, _ in program) :: x·x reads x once: the second time it is in a register.
    one-read-each :: 2 * len(program) :: An operator with two inputs reads both.
    two-reads-each :: 3 * len(program) :: Not every operator reads two tensors: count the different ones of each.
    fused-first :: len(read ^ written) :: This is what the fused kernel moves. Kernels of their own move more.
    each-tensor-once :: len(read) + len(program) :: $SHARE
    each-tensor-once :: len(read | written) :: $SHARE
    writes-once :: sum(len(set(names)) for names, _ in program) + 1 :: $WRITE
    writes-once :: sum(len(set(names)) for names, _ in program) + len(written - read) :: $WRITE
len(read - written) + len(written - read)
    fused-reads-only :: len(read - written) :: What the fused kernel reads is not all: it also writes its result.
    fused-writes-only :: len(written - read) :: $READ
    fused-writes-only :: 1 :: $READ
    fused-moves-intermediates :: apart :: $REGISTERS
    fused-moves-intermediates :: len(read) + len(program) :: $REGISTERS
    fused-still-writes :: len(read - written) + len(program) :: $RESULT
    fused-still-writes :: len(read ^ written) + len(program) - 1 :: $RESULT
    first-input-only :: 2 :: $EVERY
    first-input-only :: 1 + len(written - read) :: $EVERY
    first-operator-only :: len(set(program[0][0])) + 1 :: $LATER
    first-operator-only :: len(set(program[0][0])) + len(written - read) :: $LATER
    one-output :: len(read - written) + 1 :: A program can have several results: the fused kernel writes every tensor that none
        of its operators reads.
    inputs-read-again :: sum(len(set(names) - written) for names, _ in program) + len(written - read) :: $AGAIN
    inputs-read-again :: sum(len(set(names) - written) for names, _ in program) + 1 :: $AGAIN
    saved-not-moved :: apart - len(read ^ written) :: This is how many bytes fusion saves. Return how many the fused kernel
        moves.
return nbytes * apart, nbytes * fused
    tensors-not-bytes :: return apart, fused :: The answer is in bytes, not in tensors: each has nbytes.
    bits :: return 8 * nbytes * apart, 8 * nbytes * fused :: You count bits. nbytes is in bytes already.
    hard-coded-size :: return 4000 * apart, 4000 * fused :: A tensor has nbytes bytes, not always 4000.
    swapped :: return nbytes * fused, nbytes * apart :: Return the bytes of one kernel per operator first, then those of the
        fused kernel.
""",
    SHARE="Kernels of their own share nothing: a tensor moves again for each operator that reads it.",
    WRITE="A kernel of its own writes its output to memory, also if it is an intermediate result.",
    READ="This is what the fused kernel writes. It also reads its inputs.",
    REGISTERS="A fused kernel keeps intermediate results in registers: they are neither written nor read.",
    RESULT="A fused kernel writes only what none of its own operators reads: the result.",
    EVERY="A fused kernel reads every input that none of its operators computes, not only the first.",
    LATER="Later operators have inputs from outside, too: the fused kernel reads those as well.",
    AGAIN="A fused kernel reads an input once, also if several operators need it: it stays in a register.",
)


@exercise("fused-bytes", notebook="11_tuning", takes="program, nbytes", returns=(float, float))
def judge_fused_bytes(answer: Callable[[Program, int], Any]) -> None:
    """Bytes that a chain of pointwise operators moves, one kernel per operator and fused into one kernel."""
    RUBRIC.expect(answer, CASES)
