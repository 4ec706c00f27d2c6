"""Answers to `ring-step`: one step of the ring all-reduce on all ranks."""

import numpy as np
import torch


def solution(chunks, step):
    ranks = len(chunks)
    adds = step < ranks - 1
    after = chunks.clone()
    for rank in range(ranks):
        number = (rank - step) % ranks
        right = (rank + 1) % ranks
        after[right, number] = chunks[right, number] + chunks[rank, number] if adds else chunks[rank, number]
    return after


def in_place(chunks, step):
    chunks[:] = solution(chunks, step)


def in_place_and_returned(chunks, step):
    chunks[:] = solution(chunks, step)
    return chunks


def all_sums(chunks, step):
    return chunks.sum(0).expand(len(chunks), -1)


def loses_what_it_sends(chunks, step):
    ranks = len(chunks)
    after = solution(chunks, step)
    for rank in range(ranks):
        after[rank, (rank - step) % ranks] = 0
    return after


def whole_rows(chunks, step):
    return chunks + chunks.roll(1, 0)


def halves(chunks, step):
    """The mean of what arrives and what is there."""
    after = solution(chunks, step)
    return torch.where(after == chunks, chunks, after / 2)


def always_integers(chunks, step):
    return solution(chunks.long(), step)


def gives_away_while_it_adds(chunks, step):
    return loses_what_it_sends(chunks, step) if step < len(chunks) - 1 else solution(chunks, step)


def from_the_start(chunks, step):
    for number in range(step + 1):
        chunks = solution(chunks, number)
    return chunks


def one_column_on(chunks, step):
    ranks, after = len(chunks), chunks.clone()
    for r in range(ranks):
        c, to = (r - step) % ranks, (r + 1) % ranks
        kept = chunks[to, (c + 1) % ranks] if step < ranks - 1 else 0
        after[to, (c + 1) % ranks] = kept + chunks[r, c]
    return after


def no_gather(chunks, step):
    return solution(chunks, step) if step < len(chunks) - 1 else chunks.clone()


WRONG = [
    (
        "not-received",
        lambda chunks, step: (
            torch.maximum(solution(chunks, step), chunks) if step < len(chunks) - 1 else solution(chunks, step)
        ),
    ),
    ("rounded", lambda chunks, step: solution(chunks.float(), step).to(chunks.dtype)),
    ("wrong-sum", lambda chunks, step: solution(chunks.half(), step).to(chunks.dtype)),
    ("wrong-sum", lambda chunks, step: solution(chunks, step).clamp(max=300)),
    ("inputs-changed", lambda chunks, step: (solution if step < len(chunks) - 1 else in_place_and_returned)(chunks, step)),
    ("returns-nothing", in_place),
    ("inputs-changed", in_place_and_returned),
    ("all-steps", all_sums),
    ("replaces-too-early", lambda chunks, step: solution(chunks, step if step < len(chunks) - 2 else step + len(chunks))),
    ("wrong-dtype", halves),
    ("moved-not-copied", loses_what_it_sends),
    ("another-chunk-changed", whole_rows),
    ("wrong-dtype", always_integers),
    ("nothing-moves", lambda chunks, step: chunks),
    ("returns-nothing", lambda chunks, step: None),
    ("wrong-shape", lambda chunks, step: solution(chunks, step)[0]),
    ("moved-not-copied", gives_away_while_it_adds),
    ("all-steps-so-far", from_the_start),
    ("chunk-renumbered", one_column_on),
    ("gather-missing", no_gather),
]


def by_numpy(chunks, step):
    chunks = np.array(chunks)
    ranks = len(chunks)
    rows = np.arange(ranks)
    right, columns = (rows + 1) % ranks, (rows - step) % ranks
    after = chunks.copy()
    after[right, columns] = chunks[rows, columns] + (chunks[right, columns] if step < ranks - 1 else 0)
    return after


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


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", lambda chunks, step: list(solution(chunks, step))),
    ("wrong-type", by_numpy),
]
