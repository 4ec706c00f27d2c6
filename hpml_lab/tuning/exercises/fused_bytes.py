"""Bytes that a chain of pointwise operators moves, one kernel per operator and fused into one kernel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hpml_lab.core.exercises import Mistake, exercise, expect_function

Program = Sequence[tuple[tuple[str, ...], str]]  # operators as (names of the tensors read, name of the tensor written)

GELU: Program = ((("x",), "a"), (("x",), "b"), (("b",), "c"), (("c",), "d"), (("a", "d"), "y"))
SCALE: Program = ((("x", "s"), "a"), (("a", "b"), "y"))
SQUARE: Program = ((("x", "x"), "y"),)
CASES = {
    "GELU and tensors of 4000 bytes": (GELU, 4000),
    "y = x·s + b and tensors of 4000 bytes": (SCALE, 4000),
    "y = x·x and tensors of 4000 bytes": (SQUARE, 4000),
}


@dataclass(frozen=True)
class Traffic:
    """Tensors that a program reads and writes.

    reads, writes    with one kernel per operator
    operands         reads, with a tensor that is read twice by an operator counted twice
    inputs, outputs  with one fused kernel
    """

    reads: int
    writes: int
    operands: int
    inputs: int
    outputs: int


def traffic(program: Program) -> Traffic:
    written = {output for _, output in program}
    read = {name for names, _ in program for name in names}
    return Traffic(
        reads=sum(len(set(names)) for names, _ in program),
        writes=len(program),
        operands=sum(len(names) for names, _ in program),
        inputs=len(read - written),
        outputs=len(written - read),
    )


def in_bytes(tensors: Callable[[Traffic], tuple[int, int]]) -> Callable[[Program, int], list[int]]:
    """The function of the exercise that counts tensors by a rule: one kernel per operator, and fused."""
    return lambda program, nbytes: [nbytes * count for count in tensors(traffic(program))]


right = in_bytes(lambda t: (t.reads + t.writes, t.inputs + t.outputs))
MISTAKES = {
    "reads-only": (in_bytes(lambda t: (t.reads, t.inputs)), "These are the reads. Each operator also writes its output."),
    "writes-only": (in_bytes(lambda t: (t.writes, t.outputs)), "These are the writes. Each operator also reads its inputs."),
    "tensors-not-bytes": (lambda program, nbytes: right(program, 1), "You count tensors. Each has nbytes bytes."),
    "swapped": (
        lambda program, nbytes: right(program, nbytes)[::-1],
        "Return the bytes of one kernel per operator first, then those of the fused kernel.",
    ),
    "fused-moves-intermediates": (
        in_bytes(lambda t: (t.reads + t.writes, t.reads + t.writes)),
        "A fused kernel keeps intermediate results in registers: they are neither written nor read.",
    ),
    "fused-still-writes": (
        in_bytes(lambda t: (t.reads + t.writes, t.inputs + t.writes)),
        "A fused kernel writes only what none of its own operators reads: the result.",
    ),
    "read-twice": (
        in_bytes(lambda t: (t.operands + t.writes, t.inputs + t.outputs)),
        "x·x reads x once: the second time it is in a register.",
    ),
    "one-read-each": (in_bytes(lambda t: (2 * t.writes, t.inputs + t.outputs)), "An operator with two inputs reads both."),
    "first-input-only": (
        in_bytes(lambda t: (t.reads + t.writes, 2)),
        "A fused kernel reads every input that none of its operators computes, not only the first.",
    ),
}


@exercise("fused-bytes", notebook="10_tuning")
def judge_fused_bytes(answer: Callable[[Program, int], Any]) -> None:
    """Bytes that a chain of pointwise operators moves, one kernel per operator and fused into one kernel."""

    def pair(program: Program, nbytes: int) -> list[Any]:
        given = answer(program, nbytes)
        if given is None:
            raise Mistake("returns-nothing", "Your function returns None: return the two numbers of bytes.")
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise Mistake("not-two-numbers", "Return two numbers: bytes with one kernel per operator, bytes when fused.")
        return list(given)

    expect_function(pair, right, CASES, mistakes=MISTAKES)
