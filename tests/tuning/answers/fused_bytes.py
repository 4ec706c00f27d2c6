"""Answers to `fused-bytes`: each operator reads its inputs and writes its output; fused, only what comes in and goes out."""

from edited_source import wrong_answers


def solution(program, nbytes):
    written = {out for _, out in program}
    read = {name for names, _ in program for name in names}
    one_by_one = sum(len(set(names)) + 1 for names, _ in program)
    return nbytes * one_by_one, nbytes * (len(read - written) + len(written - read))


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


OPERATOR, APART, INPUTS, OUTPUTS = "len(set(names)) + 1", "nbytes * one_by_one", "len(read - written)", "len(written - read)"
FUSED = f"nbytes * ({INPUTS} + {OUTPUTS})"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("reads-only", (OPERATOR, "len(set(names))"), (f" + {OUTPUTS}", "")),
            ("writes-only", (OPERATOR, "1"), (FUSED, "nbytes")),
            ("writes-only", (APART, "nbytes * len(program)"), (FUSED, "nbytes")),
            *(("wrong-value", (OPERATOR, f"min({most}, len(set(names))) + 1")) for most in (2, 3)),
            ("wrong-value", (FUSED, f"{APART} // len(program)")),
            *(("wrong-value", (INPUTS, f"min({most}, {INPUTS})")) for most in (2, 3, 4)),
        ],
    ),
    ("another-unit", lambda program, nbytes: tuple(moved / 1000 for moved in solution(program, nbytes))),
    ("wrong-value", neighbors_only),
    ("wrong-value", in_float32),
    ("wrong-value", characters_for_names),
    ("argument-ignored", lambda program, nbytes: (44000, 8000)),
]


def with_numpy(program, nbytes):
    import numpy as np

    return np.array(solution(program, nbytes))


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


ALSO_RIGHT = [
    with_numpy,
    by_simulation,
    lambda program, nbytes: (
        nbytes * sum(len({*names, out}) for names, out in program),
        nbytes * len({name for names, _ in program for name in names} ^ {out for _, out in program}),
    ),
]
