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


def counts(program):
    """Tensors: read and written by single kernels, and the names that come in and go out."""
    written = {out for _, out in program}
    read = {name for names, _ in program for name in names}
    return sum(len(set(names)) for names, _ in program), len(program), read - written, written - read


def always_4000(program, nbytes):
    return solution(program, 4000)


def one_output(program, nbytes):
    return solution(program, nbytes)[0], nbytes * (len(counts(program)[2]) + 1)


def each_tensor_once(program, nbytes):
    names = {name for names, out in program for name in (*names, out)}
    return nbytes * len(names), solution(program, nbytes)[1]


def read_once_in_all(program, nbytes):
    read = {name for names, _ in program for name in names}
    return nbytes * (len(read) + len(program)), solution(program, nbytes)[1]


def inputs_again(program, nbytes):
    _, _, inputs, outputs = counts(program)
    again = sum(name in inputs for names, _ in program for name in set(names))
    return solution(program, nbytes)[0], nbytes * (again + len(outputs))


def saved_bytes(program, nbytes):
    apart, fused = solution(program, nbytes)
    return apart, apart - fused


def inputs_only_fused(program, nbytes):
    return solution(program, nbytes)[0], nbytes * len(counts(program)[2])


def outputs_only_fused(program, nbytes):
    return solution(program, nbytes)[0], nbytes * len(counts(program)[3])


def writes_once(program, nbytes):
    return nbytes * (counts(program)[0] + 1), solution(program, nbytes)[1]


def kilobytes(program, nbytes):
    return tuple(moved / 1000 for moved in solution(program, nbytes))


def operators_counted(program, nbytes):
    return nbytes * len(program), nbytes


def last_output_in_out(program, nbytes):
    return solution(program, nbytes)[0], nbytes * (len(set(program[0][0])) + 1)


def with_numpy(program, nbytes):
    import numpy as np

    return np.array(solution(program, nbytes))


def with_torch(program, nbytes):
    import torch

    return tuple(torch.tensor(solution(program, nbytes)))


def with_a_named_tuple(program, nbytes):
    from collections import namedtuple

    return namedtuple("Moved", "apart fused")(*solution(program, nbytes))


def by_simulation(program, nbytes):
    apart = fused = 0
    registers, needed = set(), [name for names, _ in program for name in names]
    for names, out in program:
        apart += sum(nbytes for _ in dict.fromkeys(names)) + nbytes
        for name in names:
            if name not in registers:
                fused += nbytes
                registers.add(name)
        registers.add(out)
        fused += 0 if out in needed else nbytes
    return [float(apart), float(fused)]


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
    ("hard-coded-size", always_4000),
    ("one-output", one_output),
    ("each-tensor-once", each_tensor_once),
    ("each-tensor-once", read_once_in_all),
    ("inputs-read-again", inputs_again),
    ("saved-not-moved", saved_bytes),
    ("fused-reads-only", inputs_only_fused),
    ("fused-writes-only", outputs_only_fused),
    ("writes-once", writes_once),
    ("wrong-value", kilobytes),
    ("writes-only", operators_counted),
    ("first-operator-only", last_output_in_out),
    ("bits", lambda program, nbytes: solution(program, 8 * nbytes)),
    ("two-reads-each", lambda program, nbytes: (3 * nbytes * len(program), solution(program, nbytes)[1])),
    ("fused-first", lambda program, nbytes: (solution(program, nbytes)[1],) * 2),
    ("wrong-value", lambda program, nbytes: (solution(program, nbytes)[0], solution(program, nbytes)[0] // len(program))),
    ("wrong-value", lambda program, nbytes: (44000, 8000)),
    ("not-two-numbers", lambda program, nbytes: "both"),
    ("not-two-numbers", lambda program, nbytes: {"apart": 1, "fused": 2}),
]
ALSO_RIGHT = [
    with_numpy,
    with_torch,
    with_a_named_tuple,
    by_simulation,
    lambda program, nbytes: (moved for moved in solution(program, nbytes)),
]


def neighbors_only(program, nbytes):
    """Finds a tensor that is read twice only where its names stand next to each other."""
    once = sum(len(names) + 1 - (len(names) > 1 and names[0] == names[1]) for names, _ in program)
    return nbytes * once, solution(program, nbytes)[1]


def in_float32(program, nbytes):
    import numpy as np

    return [int(np.float32(tensors) * np.float32(nbytes)) for tensors in solution(program, 1)]


def characters_for_names(program, nbytes):
    written, read = {out for _, out in program}, set("".join(name for names, _ in program for name in names))
    return solution(program, nbytes)[0], nbytes * len(read ^ written)


def takes_out(program, nbytes):
    moved = solution(program, nbytes)
    while program:
        program.pop()
    return moved


WRONG += [
    ("wrong-value", neighbors_only),
    ("wrong-value", in_float32),
    ("wrong-value", characters_for_names),
    ("inputs-changed", takes_out),
]
ALSO_RIGHT += [
    lambda program, nbytes: (
        nbytes * sum(len({*names, out}) for names, out in program),
        nbytes * len({name for names, _ in program for name in names} ^ {out for _, out in program}),
    )
]


def fused_inputs_up_to(most):
    def moved(program, nbytes):
        written, read = {out for _, out in program}, {name for names, _ in program for name in names}
        return solution(program, nbytes)[0], nbytes * (min(most, len(read - written)) + len(written - read))

    return moved


def operands_up_to(most):
    return lambda program, nbytes: (
        nbytes * sum(min(most, len(set(names))) + 1 for names, _ in program),
        solution(program, nbytes)[1],
    )


WRONG += [("wrong-value", fused_inputs_up_to(most)) for most in (2, 3, 4)]
WRONG += [("wrong-value", operands_up_to(most)) for most in (2, 3)]


def inputs_again_and_one_output(program, nbytes):
    written = {out for _, out in program}
    return solution(program, nbytes)[0], nbytes * (sum(len(set(names) - written) for names, _ in program) + 1)


WRONG += [("inputs-read-again", inputs_again_and_one_output)]
