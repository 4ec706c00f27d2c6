"""ring-step: one step of the ring all-reduce on all ranks."""

import functools
from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same

SIZES = (3, 2, 4, 5)


def right(chunks: torch.Tensor, step: int) -> torch.Tensor:
    ranks, after = len(chunks), chunks.clone()
    for rank in range(ranks):
        number, to = (rank - step) % ranks, (rank + 1) % ranks
        kept = after[to, number] if step < ranks - 1 else 0
        after[to, number] = kept + chunks[rank, number]
    return after


def several(chunks: torch.Tensor, steps: int) -> torch.Tensor:
    """The chunks after so many steps from step 0 on."""
    return functools.reduce(right, range(steps), chunks)


RUBRIC = Rubric(
    right,
    """
step < ranks - 1
    one-step-too-many :: step < ranks :: Reduce-scatter has N − 1 steps, number 0 to N − 2. You still add in step N − 1.
rank - step
    gather-starts-anew :: rank - (step if step < ranks - 1 else step - ranks + 1) :: In all-gather you count the steps from 0
        again, so rank r sends chunk r. It has the whole sum of chunk r + 1.
after[to, number]
    chunk-renumbered :: after[to, (number + 1) % ranks] :: A chunk keeps its number on the way: chunk c of rank r belongs to
        chunk c of rank r + 1, not to chunk c + 1.
kept + chunks[rank, number]
    moved-not-copied :: kept + chunks[rank, number]; after[rank, number] = 0 :: $MOVED
    moved-not-copied :: kept + chunks[rank, number]; after[rank, number] *= step >= ranks - 1 :: $MOVED
    gather-missing :: kept + chunks[rank, number] if step < ranks - 1 else after[to, number] :: Reduce-scatter is right. From
        step N − 1 on nothing moves in yours, but the sums are still on one rank each.
whole answer
    rows-and-columns :: lambda chunks, step: right(chunks.T, step).T :: Rows are ranks and columns are chunks: chunks[r, c] is
        chunk c of rank r. You have them the other way round.
    nothing-moves :: lambda chunks, step: chunks.clone() :: Nothing has moved: you return the chunks as they were.
    all-steps-so-far :: lambda chunks, step: several(chunks, step + 1) :: You take all steps from 0 on. The chunks that you
        are given have come as far as step `step`: take that one only.
    all-steps :: lambda chunks, step: several(chunks, 2 * len(chunks) - 2) :: You return the sums, the result of all steps of
        the ring. The exercise asks for one of them, number `step`.
""",
    MOVED="A sender keeps its chunk: after it was sent it is neither 0 nor lost.",
)


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says what is wrong with the first chunk that differs: one that is received, or another."""
    for _, (chunks, step), got, wanted in judged:
        ranks = len(chunks)
        if got.shape != wanted.shape:
            return
        if same(got, wanted):
            continue
        receives = {((rank + 1) % ranks, (rank - step) % ranks): rank for rank in range(ranks)}
        rank, chunk = next((r, c) for r in range(ranks) for c in range(ranks) if not same(got[r, c], wanted[r, c]))
        own, new = chunks[rank, chunk].item(), got[rank, chunk].item()
        if (rank, chunk) not in receives:
            own_chunk = next(c for r, c in receives if r == rank)
            raise Mistake(
                "another-chunk-changed",
                f"In step {step} on {ranks} ranks, rank {rank} receives chunk {own_chunk}, and its others stay as they were; "
                f"your chunk {chunk} of it goes from {own:,} to {new:,}.",
            )
        sent = chunks[receives[rank, chunk], chunk].item()
        where = f"In step {step} on {ranks} ranks, rank {receives[rank, chunk]} sends chunk {chunk} to rank {rank}"
        if new == own:
            raise Mistake("not-received", f"{where}, but there it does not arrive: it is {own:,} before and after.")
        if new == sent:
            raise Mistake("replaces-too-early", f"{where}, which adds it to its own: {own:,} + {sent:,}. You replace its own.")
        if new == own + sent:
            raise Mistake("adds-too-long", f"{where}, which replaces its own by it: the sum is complete. You add the two.")
        raise Mistake("wrong-sum", f"{where}: {sent:,} arrives where {own:,} is, and you make {new:,} of them.")
    raise Mistake(
        "rounded", "Your sums are right to some digits only: you compute them in another type. Keep that of `chunks`."
    )


@exercise("ring-step", notebook="13_distributed", takes="chunks, step", returns=like("chunks"))
def judge_ring_step(answer: Callable) -> None:
    """The step number 0 … 2N − 3 of the ring, for several N."""
    generator = torch.Generator().manual_seed(0)
    cases = {}
    for ranks in SIZES:
        largest = 10**8 if ranks == 5 else 999  # more digits than float32 has
        state = torch.randint(-largest, largest, (ranks, ranks), generator=generator)
        state = state.double() / 7 if ranks == 4 else state
        for step in range(2 * (ranks - 1)):
            cases[f"{ranks} ranks, step {step}, {state.tolist()}"] = state, step
            state = right(state, step)
    RUBRIC.expect(answer, cases, tolerance=1e-12, explain=_explain)
