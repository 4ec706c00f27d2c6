"""Answers to `fused-bytes`: each operator reads its inputs and writes its output; fused, only what comes in and goes out."""


def solution(program, nbytes):
    written = {out for _, out in program}
    read = {name for names, _ in program for name in names}
    one_by_one = sum(len(set(names)) + 1 for names, _ in program)
    return nbytes * one_by_one, nbytes * (len(read - written) + len(written - read))


def reads(program, nbytes):
    written = {out for _, out in program}
    read = {name for names, _ in program for name in names}
    return nbytes * sum(len(set(names)) for names, _ in program), nbytes * len(read - written)


def writes(program, nbytes):
    return nbytes * len(program), nbytes


def tensors(program, nbytes):
    return solution(program, 1)


def swapped(program, nbytes):
    return solution(program, nbytes)[::-1]


def no_saving(program, nbytes):
    return solution(program, nbytes)[0], solution(program, nbytes)[0]


def still_writes(program, nbytes):
    return solution(program, nbytes)[0], solution(program, nbytes)[1] + nbytes * (len(program) - 1)


def twice(program, nbytes):
    return nbytes * sum(len(names) + 1 for names, _ in program), solution(program, nbytes)[1]


def one_read_each(program, nbytes):
    return nbytes * 2 * len(program), solution(program, nbytes)[1]


def one_in_one_out(program, nbytes):
    return solution(program, nbytes)[0], 2 * nbytes


WRONG = [
    ("reads-only", reads),
    ("writes-only", writes),
    ("tensors-not-bytes", tensors),
    ("swapped", swapped),
    ("fused-moves-intermediates", no_saving),
    ("fused-still-writes", still_writes),
    ("read-twice", twice),
    ("one-read-each", one_read_each),
    ("first-input-only", one_in_one_out),
    ("not-two-numbers", lambda program, nbytes: nbytes),
    ("wrong-value", lambda program, nbytes: (0, 0)),
    ("returns-nothing", lambda program, nbytes: None),
]
