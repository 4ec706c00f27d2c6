"""Bytes that a chain of pointwise operators moves, one kernel per operator and fused into one kernel."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.same import same

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


@dataclass(frozen=True)
class Traffic:
    """Tensors that a program reads and writes.

    reads, writes    with one kernel per operator
    operands         reads, with a tensor that is read twice by an operator counted twice
    names            different tensors that are read
    inputs, outputs  with one fused kernel
    input_reads      reads of inputs, with one kernel per operator
    input_operands   the same, with a tensor that is read twice by an operator counted twice
    first            reads of the first operator
    """

    reads: int
    writes: int
    operands: int
    names: int
    inputs: int
    outputs: int
    input_reads: int
    input_operands: int
    first: int


def traffic(program: Program) -> Traffic:
    written = {output for _, output in program}
    read = {name for names, _ in program for name in names}
    return Traffic(
        reads=sum(len(set(names)) for names, _ in program),
        writes=len(program),
        operands=sum(len(names) for names, _ in program),
        names=len(read),
        inputs=len(read - written),
        outputs=len(written - read),
        input_reads=sum(len(set(names) - written) for names, _ in program),
        input_operands=sum(name not in written for names, _ in program for name in names),
        first=len(set(program[0][0])),
    )


def right(program: Program, nbytes: int) -> list[int]:
    t = traffic(program)
    return [nbytes * (t.reads + t.writes), nbytes * (t.inputs + t.outputs)]


WHOLE: dict[str, tuple[Callable[[Program, int], list[int]], str]] = {
    "tensors-not-bytes": (lambda program, nbytes: right(program, 1), "You count tensors. Each has nbytes bytes."),
    "bits": (lambda program, nbytes: right(program, 8 * nbytes), "You count bits. nbytes is in bytes already."),
    "hard-coded-size": (lambda program, nbytes: right(program, 4000), "A tensor has nbytes bytes, not always 4000."),
    "swapped": (
        lambda program, nbytes: right(program, nbytes)[::-1],
        "Return the bytes of one kernel per operator first, then those of the fused kernel.",
    ),
}
# What a mistake counts for one of the two numbers, in tensors. The first number is looked at first.
Rule = Callable[[Traffic], int]
APART: dict[str, tuple[tuple[Rule, ...], str]] = {
    "reads-only": ((lambda t: t.reads, lambda t: t.operands), "These are the reads. Each operator also writes its output."),
    "writes-only": ((lambda t: t.writes,), "These are the writes. Each operator also reads its inputs."),
    "read-twice": ((lambda t: t.operands + t.writes,), "x·x reads x once: the second time it is in a register."),
    "one-read-each": ((lambda t: 2 * t.writes,), "An operator with two inputs reads both."),
    "two-reads-each": ((lambda t: 3 * t.writes,), "Not every operator reads two tensors: count the different ones of each."),
    "fused-first": ((lambda t: t.inputs + t.outputs,), "This is what the fused kernel moves. Kernels of their own move more."),
    "each-tensor-once": (
        (lambda t: t.names + t.writes, lambda t: t.inputs + t.writes),
        "Kernels of their own share nothing: a tensor moves again for each operator that reads it.",
    ),
    "writes-once": (
        (lambda t: t.reads + 1, lambda t: t.reads + t.outputs),
        "A kernel of its own writes its output to memory, also if it is an intermediate result.",
    ),
}
FUSED: dict[str, tuple[tuple[Rule, ...], str]] = {
    "fused-reads-only": ((lambda t: t.inputs,), "This is what the fused kernel reads. It also writes its result."),
    "fused-writes-only": (
        (lambda t: t.outputs, lambda t: 1),
        "This is what the fused kernel writes. It also reads its inputs.",
    ),
    "fused-moves-intermediates": (
        (lambda t: t.reads + t.writes, lambda t: t.operands + t.writes, lambda t: t.names + t.writes),
        "A fused kernel keeps intermediate results in registers: they are neither written nor read.",
    ),
    "fused-still-writes": (
        (lambda t: t.inputs + t.writes, lambda t: t.inputs + t.outputs + t.writes - 1),
        "A fused kernel writes only what none of its own operators reads: the result.",
    ),
    "first-input-only": (
        (lambda t: 2, lambda t: 1 + t.outputs),
        "A fused kernel reads every input that none of its operators computes, not only the first.",
    ),
    "first-operator-only": (
        (lambda t: t.first + 1, lambda t: t.first + t.outputs),
        "Later operators have inputs from outside, too: the fused kernel reads those as well.",
    ),
    "one-output": (
        (lambda t: t.inputs + 1,),
        "A program can have several results: the fused kernel writes every tensor that none of its operators reads.",
    ),
    "inputs-read-again": (
        (lambda t: t.input_reads + t.outputs, lambda t: t.input_operands + t.outputs, lambda t: t.input_reads + 1),
        "A fused kernel reads an input once, also if several operators need it: it stays in a register.",
    ),
    "saved-not-moved": (
        (lambda t: t.reads + t.writes - t.inputs - t.outputs,),
        "This is how many bytes fusion saves. Return how many the fused kernel moves.",
    ),
}


@exercise("fused-bytes", notebook="11_tuning")
def judge_fused_bytes(answer: Callable[[Program, int], Any]) -> None:
    """Bytes that a chain of pointwise operators moves, one kernel per operator and fused into one kernel."""
    pairs: list[tuple[Program, int, list[Any]]] = []

    def pair(program: Program, nbytes: int) -> list[Any]:
        copied, given = list(program), answer(program, nbytes)
        if given is None:
            raise Mistake("returns-nothing", "Your function returns None: return the two numbers of bytes.")
        given = list(given) if isinstance(given, Iterable) and not isinstance(given, str | Mapping) else []
        if len(given) != 2:
            raise Mistake("not-two-numbers", "Return two numbers: bytes with one kernel per operator, bytes when fused.")
        pairs.append((copied, nbytes, given))
        return given

    try:
        expect_function(pair, right, CASES, mistakes=WHOLE)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            explain(pairs)
        raise


def explain(pairs: list[tuple[Program, int, list[Any]]]) -> None:
    """Raise the Mistake of the first of the two numbers that is wrong, if it is a known one."""
    for index, mistakes in enumerate((APART, FUSED)):
        if all(same(pair[index], right(*case)[index]) for *case, pair in pairs):
            continue
        for name, (rules, hint) in mistakes.items():
            for tensors in rules:
                if all(same(pair[index], nbytes * tensors(traffic(program))) for program, nbytes, pair in pairs):
                    raise Mistake(name, hint)
        return
