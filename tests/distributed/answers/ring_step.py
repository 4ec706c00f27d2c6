"""Answers to `ring-step`: one step of the ring all-reduce on all ranks."""

import torch
from edited_source import wrong_answers


def solution(chunks, step):
    ranks = len(chunks)
    adds = step < ranks - 1
    after = chunks.clone()
    for rank in range(ranks):
        number = (rank - step) % ranks
        right = (rank + 1) % ranks
        after[right, number] = chunks[right, number] + chunks[rank, number] if adds else chunks[rank, number]
    return after


WRONG = [
    *wrong_answers(
        solution, [("adds-too-long", ("step < ranks - 1", "True")), ("wrong-sum", ("+ chunks[rank", "+ 2 * chunks[rank"))]
    ),
    (
        "not-received",
        lambda chunks, step: (
            torch.maximum(solution(chunks, step), chunks) if step < len(chunks) - 1 else solution(chunks, step)
        ),
    ),
    ("another-chunk-changed", lambda chunks, step: solution(chunks.float(), step).to(chunks.dtype)),
    ("rounded", lambda chunks, step: solution(chunks.float() if chunks.dtype.is_floating_point else chunks, step).to(chunks)),
    ("wrong-shape", lambda chunks, step: solution(chunks, step)[0]),
    ("replaces-too-early", lambda chunks, step: solution(chunks, step if step < len(chunks) - 2 else step + len(chunks))),
]


def from_the_receiver(chunks, step):
    ranks, after = len(chunks), chunks.clone()
    for rank in range(ranks):
        number = (rank - 1 - step) % ranks
        kept = after[rank, number] if step < ranks - 1 else 0
        after[rank, number] = kept + chunks[rank - 1, number]
    return after


def by_mask(chunks, step):
    ranks = len(chunks)
    row, column = torch.meshgrid(torch.arange(ranks), torch.arange(ranks), indexing="ij")
    sent = torch.where((column - row + step) % ranks == 0, chunks, torch.zeros_like(chunks)).roll(1, 0)
    here = (column - row + 1 + step) % ranks == 0
    return torch.where(here, sent + (chunks if step < ranks - 1 else 0), chunks)


def by_products(chunks, step):
    ranks = len(chunks)
    mask = torch.eye(ranks, dtype=chunks.dtype).roll(-step, 1)
    arrived = (chunks * mask).roll(1, 0)
    return arrived + chunks * (1 if step < ranks - 1 else 1 - mask.roll(1, 0))


ALSO_RIGHT = [from_the_receiver, by_mask, by_products]
