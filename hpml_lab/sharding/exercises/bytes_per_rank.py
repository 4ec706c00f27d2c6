"""bytes-per-rank: what one rank keeps at a stage of ZeRO, in mixed precision with Adam."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.same import numbers, same, shown

# parameters, ranks, stage; the numbers of parameters are multiples of the ranks
CASES = {
    f"{parameters:,} parameters, {ranks} rank{'s' * (ranks > 1)}, stage {stage}": (parameters, ranks, stage)
    for parameters, ranks in ((1_000_000, 4), (7_500_000_000, 60), (96, 3), (1_000, 1))
    for stage in (0, 1, 2, 3)
}
Kinds = tuple[float, ...]  # of parameters, gradients and optimizer state
Rule = Callable[[int, int, int], Kinds]
SIZES = (2, 2, 12)  # bytes per parameter on one rank alone
FROM = (3, 2, 1)  # the stage from which on each is partitioned


def share(n: float, ranks: float, stage: int, sizes: Kinds = SIZES, start: tuple[int, ...] = FROM) -> Kinds:
    return tuple(n * size / (ranks if stage >= first else 1) for size, first in zip(sizes, start, strict=True))


def right(n: int, ranks: int, stage: int) -> Kinds:
    return share(n, ranks, stage)


def _sizes(*sizes: float) -> Rule:
    return lambda n, ranks, stage: share(n, ranks, stage, sizes)


def _start(*start: int) -> Rule:
    return lambda n, ranks, stage: share(n, ranks, stage, start=start)


def _scaled(factor: float) -> Rule:
    return lambda n, ranks, stage: share(n * factor, ranks, stage)


def _one_kind(n: int, ranks: int, stage: int) -> Kinds:
    return tuple(n * size / (ranks if stage == own else 1) for size, own in zip(SIZES, FROM, strict=True))


def _whole_copy(n: int, ranks: int, stage: int) -> Kinds:
    p, g, moments = share(n, ranks, stage, (2, 2, 8))
    return p, g, moments + 4 * n


NEVER = 4  # a stage that does not exist
NO_COPY = (
    "You count 8 bytes of optimizer state for each parameter. It is three float32 numbers: two moments, and the copy of the "
    "parameters, which it updates."
)
ORDER = "First the optimizer's state, the largest part, is partitioned; then the gradients; and last the parameters."
UNIT = "Return bytes: the number of parameters times the bytes that each of them needs, in no other unit."
MISTAKES: dict[str, tuple[Rule, str]] = {
    "eight-bytes-of-state": (_sizes(2, 2, 8), NO_COPY),
    "moments-forgotten": (_sizes(2, 2, 4), "Adam keeps two float32 moments for each parameter, next to the float32 copy."),
    "one-moment": (_sizes(2, 2, 6), "Moments and copy are float32: 4 bytes each, three numbers for each parameter."),
    "float32-sizes": (
        _sizes(4, 4, 8),
        "These are the sizes of training in float32. Here parameters and gradients have 16 bits.",
    ),
    "all-in-float32": (_sizes(4, 4, 12), "Parameters and gradients are in 16 bits; only the optimizer works in float32."),
    "float32-gradients": (_sizes(2, 4, 12), "The gradients are in 16 bits here, as the parameters that they belong to."),
    "float32-parameters": (
        _sizes(4, 2, 12),
        "The parameters that compute are in 16 bits; their float32 copy is the optimizer's.",
    ),
    "copy-with-the-parameters": (
        _sizes(6, 2, 8),
        "The float32 copy belongs to the optimizer's state and is partitioned with it, from stage 1 on.",
    ),
    "copy-never-shared": (
        _whole_copy,
        "From stage 1 on a rank updates only its share, so it needs the copy of its share only.",
    ),
    "never-shared": (_start(NEVER, NEVER, NEVER), "This is stage 0 at every stage. What does each further stage share out?"),
    "everything-shared": (_start(0, 0, 0), "Only stage 3 shares out everything. Which part does each stage add?"),
    "all-or-nothing": (_start(1, 1, 1), "Stages 1 and 2 shard only a part: first the state, then also the gradients."),
    "one-kind-each": (_one_kind, "The stages build on each other: stage 2 shares out the state as well, stage 3 all three."),
    "stage-too-high": (_start(2, 1, 0), "Your stages are one too far: stage 0 shares out nothing, stage 1 the state alone."),
    "stage-too-low": (_start(4, 3, 2), "Your stages lag by one: stage 1 shares out the optimizer's state already."),
    "wrong-order, parameters first": (_start(1, 2, 3), ORDER),
    "wrong-order, gradients first": (_start(3, 1, 2), ORDER),
    "wrong-order, gradients last": (_start(2, 3, 1), ORDER),
    "wrong-order, parameters, state, gradients": (_start(1, 3, 2), ORDER),
    "wrong-order, gradients, parameters, state": (_start(2, 1, 3), ORDER),
    "parameters-never-shared": (
        _start(NEVER, 2, 1),
        "Stage 3 shares out the parameters as well: a layer gathers them from the other ranks when it computes.",
    ),
    "gradients-never-shared": (_start(3, NEVER, 1), "From stage 2 on a rank keeps only the gradients of its own share."),
    "state-never-shared": (
        _start(3, 2, NEVER),
        "Sharing out the optimizer's state is stage 1, and the later stages keep it so.",
    ),
    "stage-2-shares-all": (_start(2, 2, 1), "Stage 2 keeps the parameters whole on every rank; stage 3 shares them out."),
    "all-ranks-together": (
        lambda n, ranks, stage: share(n * ranks, ranks, stage),
        "This is what all ranks keep together. What does one rank keep?",
    ),
    "the-example": (
        lambda n, ranks, stage: share(1000, 4, stage),
        "These are the numbers of the example; other models and other ranks have others.",
    ),
    "bytes-per-parameter": (
        lambda n, ranks, stage: share(1, ranks, stage),
        "These are bytes per parameter. Multiply by the number of parameters.",
    ),
    "numbers-not-bytes": (_sizes(1, 1, 3), "You count numbers. A number in 16 bits has 2 bytes, one in float32 has 4."),
    "bits": (_scaled(8), "These are bits; a byte has 8 of them."),
    **{
        f"wrong-unit, {unit}": (_scaled(1 / size), UNIT)
        for unit, size in {"kB": 1e3, "KiB": 2**10, "MB": 1e6, "MiB": 2**20, "GB": 1e9, "GiB": 2**30}.items()
    },
    "saved-not-kept": (
        lambda n, ranks, stage: tuple(a - b for a, b in zip(share(n, ranks, 0), share(n, ranks, stage), strict=True)),
        "This is how many bytes the stage saves. Return how many a rank still keeps.",
    ),
    "one-rank-too-many": (lambda n, ranks, stage: share(n, ranks + 1, stage), "N ranks share: divide by N itself."),
    "wrong-order-of-the-answer": (
        lambda n, ranks, stage: share(n, ranks, stage)[::-1],
        "Return the bytes of the parameters first, then of the gradients, then of the optimizer's state.",
    ),
}


@exercise("bytes-per-rank", notebook="14_sharding")
def judge_bytes_per_rank(answer: Callable[[int, int, int], Any]) -> None:
    """2n, 2n and 12n bytes: divided by the ranks are the state from stage 1 on, the gradients from 2, the parameters at 3."""

    def three(n: int, ranks: int, stage: int) -> list[Any]:
        given = answer(n, ranks, stage)
        if given is None:
            raise Mistake("returns-nothing", "Your function returns None: return the three numbers of bytes.")
        given = list(given) if isinstance(given, Iterable) and not isinstance(given, str | Mapping) else []
        if len(given) != 3:
            raise Mistake("not-three-numbers", "Return three numbers: bytes of parameters, of gradients, of optimizer state.")
        if any(numbers(number) is None or numbers(number).ndim for number in given):
            raise Mistake("not-three-numbers", f"Return three numbers; yours are {shown(given)}.")
        return given

    try:
        expect_function(three, right, CASES, mistakes=MISTAKES)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            _explain(three)
        raise


def _explain(answer: Callable[[int, int, int], list[Any]]) -> None:
    """Raise the Mistake that says which of the three numbers is wrong, and what it should be."""
    for case, given in CASES.items():
        for kind, own, wanted in zip(
            ("parameters", "gradients", "optimizer state"), answer(*given), right(*given), strict=True
        ):
            if not same(own, wanted):
                hint = f"For {case}, the {kind} should have {wanted:,.10g} bytes; yours have {float(own):,.10g}."
                raise Mistake(f"wrong-{kind.replace(' ', '-')}", hint)
