"""Answers to `block-table`: the blocks of a request that is admitted, and what its next step computes."""

import numpy as np
from edited_source import wrong_answers


def solution(tokens, size, budget, cached, writing, references, free):
    hits = []
    while (len(hits) + 1) * size < len(tokens):
        block = cached.get(tuple(tokens[: (len(hits) + 1) * size]))
        if block is None or block in writing:
            break
        hits.append(block)
    first = size * len(hits)
    end = min(first + budget, len(tokens))
    others = [block for block in free if block not in hits]
    needed = (end + size - 1) // size - len(hits)
    if needed > len(others):
        return None
    taken = others[:needed]
    for block in hits:
        if block in free:
            free.remove(block)
        references[block] += 1
    for block in taken:
        free.remove(block)
        references[block] = 1
    for prefix, block in list(cached.items()):
        if block in taken:
            del cached[prefix]
    return hits + taken, first, end


# ---- unusual, and right -------------------------------------------------------------------------------------------------


def with_numpy(*given):
    found = solution(*given)
    return found and [np.array(found[0]), np.int64(found[1]), np.int64(found[2])]


def given_back(tokens, size, budget, cached, writing, references, free):
    """Takes the hits first, and gives them back where there is no room."""
    before = list(references), list(free)
    table, first = [], 0
    for block in (cached.get(tuple(tokens[:last])) for last in range(size, len(tokens), size)):
        if block is None or block in writing:
            break
        references[block] += 1
        if block in free:
            free.remove(block)
        table.append(block)
        first += size
    end = min(len(tokens), first + budget)
    while len(table) * size < end:
        if not free:
            references[:], free[:] = before
            return None
        table.append(free.pop(0))
        references[table[-1]] = 1
    for block in table[first // size :]:
        for prefix in [prefix for prefix in cached if cached[prefix] == block]:
            cached.pop(prefix)
    return table, first, end


ALSO_RIGHT = [with_numpy, given_back]

WRONG = [
    *wrong_answers(
        solution,
        [
            ("reference-not-raised", ("references[block] += 1", "references[block] = references[block] or 1")),
            ("hit-still-free", ("if block in free:", "if not free:")),
            ("hits-misjudged", ("hits.append(block)", "hits.append(block)\n        break")),
            ("wrong-value", ("others[:needed]", "others[::-1][:needed]")),
            ("room-misjudged", ("needed > len(others)", "needed > len(others) + 1 or not tokens[1:]")),
            ("changed-though-refused", ("        return None", "        free.clear()\n        return None")),
            ("wrong-type", ("return hits + taken, first, end", "return hits + taken")),
        ],
    )
]
