"""ring-step: one step of the ring all-reduce on all ranks."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.same import numbers, same, shown

SIZES = (3, 2, 4, 5)


def by_rule(
    chunk: Callable[[int, int, int], int],
    adds: Callable[[int, int], bool] = lambda step, ranks: step < ranks - 1,
    senders: Callable[[int], list[int]] = lambda ranks: list(range(ranks)),
    direction: int = 1,
) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """A step by which rank r sends chunk(r, step, N) to its neighbor."""

    def step_once(chunks: torch.Tensor, step: int) -> torch.Tensor:
        ranks = len(chunks)
        after = chunks.clone()
        for rank in senders(ranks):
            number, target = chunk(rank, step, ranks) % ranks, (rank + direction) % ranks
            sent = chunks[rank, number]
            after[target, number] = after[target, number] + sent if adds(step, ranks) else sent
        return after

    return step_once


def right_chunk(rank: int, step: int, ranks: int) -> int:
    return rank - step


right = by_rule(right_chunk)
MOVED = "A sender keeps its chunk; yours is 0 or lost after it was sent."
AVERAGED = "You divide by the number of ranks. A ring leaves the sum: if you want the mean, divide afterwards."
MISTAKES = {
    "always-adds": (
        by_rule(right_chunk, adds=lambda step, ranks: True),
        "After N − 1 steps the sums are complete. In all-gather the receiver replaces its chunk; you add there too.",
    ),
    "never-adds": (
        by_rule(right_chunk, adds=lambda step, ranks: False),
        "In reduce-scatter the receiver adds what arrives to its own chunk; you replace it, and its own gradient is lost.",
    ),
    "phases-exchanged": (
        by_rule(right_chunk, adds=lambda step, ranks: step >= ranks - 1),
        "First the chunks are added up (reduce-scatter), then the sums are passed on (all-gather). You have it the other way "
        "round.",
    ),
    "one-step-too-many": (
        by_rule(right_chunk, adds=lambda step, ranks: step < ranks),
        "Reduce-scatter has N − 1 steps, number 0 to N − 2. You still add in step N − 1.",
    ),
    "sends-left": (by_rule(right_chunk, direction=-1), "Rank r sends to rank r + 1; yours sends to rank r − 1."),
    "ring-not-closed": (
        by_rule(right_chunk, senders=lambda ranks: list(range(ranks - 1))),
        "The last rank sends as well: to rank 0. Ranks are counted modulo N.",
    ),
    "only-one-rank": (by_rule(right_chunk, senders=lambda ranks: [0]), "In a step every rank sends, not only rank 0."),
    "same-chunk-every-step": (
        by_rule(lambda rank, step, ranks: rank),
        "Your ranks send the same chunk in each step. A rank passes on what it has just received: the step's number counts.",
    ),
    "counts-upward": (
        by_rule(lambda rank, step, ranks: rank + step),
        "With each step the chunk's number goes down, not up: rank r passes on what rank r − 1 sent it one step before.",
    ),
    "gather-starts-anew": (
        by_rule(lambda rank, step, ranks: rank - (step if step < ranks - 1 else step - (ranks - 1))),
        "In all-gather you count the steps from 0 again, so rank r sends chunk r. It has the whole sum of chunk r + 1.",
    ),
    "gather-off-by-one": (
        by_rule(lambda rank, step, ranks: rank - step if step < ranks - 1 else rank + 1 - step),
        "Reduce-scatter is right. In all-gather a rank first sends the chunk whose sum it completed in the step before.",
    ),
    "one-chunk-for-all": (
        by_rule(lambda rank, step, ranks: step),
        "All your ranks send the same chunk. Each sends a different one, so that the work is spread evenly.",
    ),
    "off-by-one": (
        by_rule(lambda rank, step, ranks: right_chunk(rank, step, ranks) - 1),
        "Your chunks' numbers are one too small: in step 0 rank r sends chunk r.",
    ),
    "off-by-one, up": (
        by_rule(lambda rank, step, ranks: right_chunk(rank, step, ranks) + 1),
        "Your chunks' numbers are one too large: in step 0 rank r sends chunk r.",
    ),
    "rows-and-columns": (
        lambda chunks, step: right(chunks.T, step).T,
        "Rows are ranks and columns are chunks: chunks[r, c] is chunk c of rank r. You have them the other way round.",
    ),
    "nothing-moves": (lambda chunks, step: chunks.clone(), "Nothing has moved: you return the chunks as they were."),
    "moved-not-copied": (lambda chunks, step: _moved(chunks, step), MOVED),
    "moved-not-copied, while it adds": (
        lambda chunks, step: (_moved if step < len(chunks) - 1 else right)(chunks, step),
        MOVED,
    ),
    "gather-missing": (
        lambda chunks, step: right(chunks, step) if step < len(chunks) - 1 else chunks.clone(),
        "Reduce-scatter is right. From step N − 1 on nothing moves in yours, but the sums are still on one rank each.",
    ),
    "averaged": (lambda chunks, step: _averaged(chunks, step, len(chunks) - 1), AVERAGED),
    "averaged, in the last addition": (lambda chunks, step: _averaged(chunks, step, len(chunks) - 2), AVERAGED),
    "chunk-renumbered": (
        lambda chunks, step: _renumbered(chunks, step),
        "A chunk keeps its number on the way: chunk c of rank r belongs to chunk c of rank r + 1, not to chunk c + 1.",
    ),
    "all-steps-so-far": (
        lambda chunks, step: functools.reduce(right, range(step + 1), chunks),
        "You take all steps from 0 on. The chunks that you are given have come as far as step `step`: take that one only.",
    ),
    "all-steps": (
        lambda chunks, step: functools.reduce(right, range(2 * len(chunks) - 2), chunks),
        "You return the sums, the result of all steps of the ring. The exercise asks for one of them, number `step`.",
    ),
}


def _moved(chunks: torch.Tensor, step: int) -> torch.Tensor:
    after = right(chunks, step)
    for rank in range(len(chunks)):
        after[rank, (rank - step) % len(chunks)] = 0
    return after


def _averaged(chunks: torch.Tensor, step: int, at: int) -> torch.Tensor:
    """What arrives in step `at` is divided by the number of ranks; from step N − 1 on, in each step."""
    ranks, after = len(chunks), right(chunks, step).double()
    for rank in range(ranks if step == at or step >= at == ranks - 1 else 0):
        after[(rank + 1) % ranks, (rank - step) % ranks] /= ranks
    return after


def _renumbered(chunks: torch.Tensor, step: int) -> torch.Tensor:
    """What arrives is stored one column further on."""
    ranks, after = len(chunks), chunks.clone()
    for rank in range(ranks):
        to = (rank + 1) % ranks, (rank - step + 1) % ranks
        after[to] = chunks[rank, (rank - step) % ranks] + (chunks[to] if step < ranks - 1 else 0)
    return after


def _explain(answer: Callable, cases: dict[str, tuple[torch.Tensor, int]]) -> None:
    """Raise the Mistake that says what is wrong with the first chunk that differs: one that is received, or another."""
    for chunks, step in cases.values():
        got, wanted, ranks = answer(chunks, step), right(chunks, step), len(chunks)
        if numbers(got) is None or same(got, wanted):
            continue
        receives = {((rank + 1) % ranks, (rank - step) % ranks): rank for rank in range(ranks)}
        rank, chunk = next((r, c) for r in range(ranks) for c in range(ranks) if not same(got[r, c], wanted[r, c]))
        own, new = chunks[rank, chunk].item(), got[rank, chunk].item()
        if (rank, chunk) not in receives:
            own_chunk = next(c for r, c in receives if r == rank)
            raise Mistake(
                "another-chunk-changed",
                f"In step {step} on {ranks} ranks, rank {rank} receives chunk {own_chunk}, and its others stay as they were; "
                f"your chunk {chunk} of it goes from {own:g} to {new:g}.",
            )
        sent = chunks[receives[rank, chunk], chunk].item()
        where = f"In step {step} on {ranks} ranks, rank {receives[rank, chunk]} sends chunk {chunk} to rank {rank}"
        if new == own:
            raise Mistake("not-received", f"{where}, but there it does not arrive: it is {own:g} before and after.")
        if new == sent:
            raise Mistake("replaces-too-early", f"{where}, which adds it to its own: {own:g} + {sent:g}. You replace its own.")
        if new == own + sent:
            raise Mistake("adds-too-long", f"{where}, which replaces its own by it: the sum is complete. You add the two.")
        raise Mistake("wrong-sum", f"{where}: {sent:g} arrives where {own:g} is, and you make {new:g} of them.")


def _numbers(got: Any) -> Any:
    """A tensor for whatever holds the numbers, also for a list of tensors; anything else as it is."""
    if isinstance(got, list | tuple) and got and all(numbers(row) is not None for row in got):
        got = [numbers(row).tolist() for row in got]
    return got if numbers(got) is None else numbers(got)


@exercise("ring-step", notebook="13_distributed")
def judge_ring_step(answer: Callable) -> None:
    """The step number 0 … 2N − 3 of the ring, for several N; and 2(N−1) of them in a row give every rank the sum."""
    generator = torch.Generator().manual_seed(0)
    cases = {}
    for ranks in SIZES:
        state = torch.randint(-999, 1000, (ranks, ranks), generator=generator)
        for step in range(2 * (ranks - 1)):
            cases[f"{ranks} ranks, step {step}, {state.tolist()}"] = state, step
            state = right(state, step)

    def once(chunks: torch.Tensor, step: int) -> torch.Tensor:
        given = chunks.clone()
        got = answer(given, step)
        if got is None and same(given, right(chunks, step)):
            raise Mistake("changes-in-place", "You changed the chunks that were given and returned nothing: return new ones.")
        return _numbers(got)

    try:
        expect_function(once, right, cases, mistakes=MISTAKES)
    except Mistake as mistake:
        if mistake.name == "wrong-value":
            _explain(once, cases)
        raise
    for chunks, step in cases.values():
        given = chunks.clone()
        answer(given, step)
        if not torch.equal(given, chunks):
            raise Mistake("inputs-changed", "The result is right, but you changed the chunks that were given: work on a copy.")
    state = torch.rand(4, 4, generator=generator, dtype=torch.float64)
    wanted = state.sum(0).expand(4, 4)
    for step in range(6):
        state = _numbers(answer(state, step))
    if not same(state, wanted):
        hint = f"After six steps on four ranks with fractions, rank 0 holds {shown(state[0])} instead of {shown(wanted[0])}."
        raise Mistake("not-the-sum", hint)
    if not torch.allclose(state.double(), wanted, rtol=1e-12, atol=0):
        hint = (
            "The sums of float64 chunks are right to some digits only: you compute them in another type. Keep that of `chunks`."
        )
        raise Mistake("rounded", hint)
