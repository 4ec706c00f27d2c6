"""bytes-per-rank: what one rank keeps at a stage of ZeRO, in mixed precision with Adam."""

from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same

# parameters, ranks, stage; the numbers of parameters are multiples of the ranks
CASES = {
    f"{parameters:,} parameters, {ranks} rank{'s' * (ranks > 1)}, stage {stage}": (parameters, ranks, stage)
    for parameters, ranks in ((1_000_000, 4), (7_500_000_000, 60), (96, 3), (1_000, 1))
    for stage in (0, 1, 2, 3)
}


def right(parameters: int, ranks: int, stage: int) -> tuple[float, ...]:
    sizes = 2, 2, 12
    start = 3, 2, 1
    return tuple(parameters * size / (ranks if stage >= first else 1) for size, first in zip(sizes, start, strict=True))


def copy_kept(parameters: int, ranks: int, stage: int) -> list[float]:
    """The float32 copy is whole on every rank."""
    weights, gradients, state = right(parameters, ranks, stage)
    return [weights, gradients, state * 2 / 3 + 4 * parameters]


RUBRIC = Rubric(
    right,
    """
2, 2, 12
    eight-bytes-of-state :: 2, 2, 8 :: The optimizer's state has more than 8 bytes for each parameter. It is three float32
        numbers: two moments, and the copy of the parameters, which it updates.
3, 2, 1
    never-shared :: 4, 4, 4 :: At stage 0 nothing is sharded. What does each further stage shard?
    everything-shared :: 0, 0, 0 :: Only stage 3 shards everything. Which part does each stage add?
    all-or-nothing :: 1, 1, 1 :: Stages 1 and 2 shard only a part: first the state, then also the gradients.
    wrong-order :: 1, 2, 3 :: $ORDER
    wrong-order :: 3, 1, 2 :: $ORDER
    wrong-order :: 2, 3, 1 :: $ORDER
    wrong-order :: 1, 3, 2 :: $ORDER
    wrong-order :: 2, 1, 3 :: $ORDER
    parameters-never-shared :: 4, 2, 1 :: Stage 3 shards the parameters as well: a layer gathers them from the other ranks
        when it computes.
    gradients-never-shared :: 3, 4, 1 :: From stage 2 on a rank keeps only the gradients of its own share.
    state-never-shared :: 3, 2, 4 :: Sharding the optimizer's state is stage 1, and the later stages keep it so.
    stage-2-shares-all :: 2, 2, 1 :: Stage 2 keeps the parameters whole on every rank; stage 3 shards them.
stage >= first
    one-kind-each :: stage == first :: The stages build on each other: stage 2 shards the state as well, stage 3 all three.
whole answer
    copy-never-shared :: copy_kept :: From stage 1 on a rank updates only its share, so it needs the copy of its share only.
    saved-not-kept :: lambda n, ranks, stage: [a - b for a, b in zip(right(n, ranks, 0), right(n, ranks, stage))] :: This is
        how many bytes the stage saves. Return how many a rank still keeps.
""",
    ORDER="First the optimizer's state, the largest part, is partitioned; then the gradients; and last the parameters.",
)


@exercise("bytes-per-rank", notebook="14_sharding", takes="parameters, ranks, stage", returns=(float, float, float))
def judge_bytes_per_rank(answer: Callable[[int, int, int], Any]) -> None:
    """2n, 2n and 12n bytes: divided by the ranks are the state from stage 1 on, the gradients from 2, the parameters at 3."""
    RUBRIC.expect(answer, CASES, but=("mixed",), explain=_explain)


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says which of the three numbers is wrong, and what it should be."""
    for case, _given, got, wanted in judged:
        for kind, own, right_one in zip(("parameters", "gradients", "optimizer state"), got, wanted, strict=True):
            if not same(own, right_one):
                hint = f"For {case}, the {kind} should have {right_one:,.10g} bytes; yours have {float(own):,.10g}."
                raise Mistake(f"wrong-{kind.replace(' ', '-')}", hint)
