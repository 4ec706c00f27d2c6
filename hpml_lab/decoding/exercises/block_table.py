"""block-table: a request is admitted: which blocks it shares, which it takes, and what is left to compute."""

import copy
from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import plain, same, shown

NINE = [5, 3, 8, 1, 9, 2, 7, 4, 6]
ONE, TWO = tuple(NINE[:4]), tuple(NINE[:8])  # the prefixes that end with its full blocks of four
OLD = (1, 1, 1, 1)
# tokens, size, budget, cached, writing, references, free
CASES: dict[str, tuple[Any, ...]] = {
    "9 tokens and nothing cached": (NINE, 4, 99, {}, [], [0] * 5, [3, 1, 4, 0, 2]),
    "one token in blocks of 3": ([7], 3, 99, {}, [], [0, 1], [0]),
    "8 tokens that fill 2 blocks": (NINE[:8], 4, 99, {}, [], [0] * 4, [2, 0, 1, 3]),
    "as many free blocks as it needs": (NINE, 4, 99, {}, [], [0, 1, 0, 0], [3, 0, 2]),
    "a hit on another request's block": (NINE, 4, 99, {ONE: 2}, [], [0, 0, 1, 0, 0], [4, 0, 3, 1]),
    "two hits, on free blocks": ([*NINE, 0, 2], 4, 99, {ONE: 1, TWO: 4}, [], [0, 0, 1, 0, 0], [0, 4, 1, 3]),
    "8 tokens that are all in blocks": (NINE[:8], 4, 99, {ONE: 2, TWO: 0}, [], [1, 0, 2, 0], [3, 1]),
    "a hit that a step is still writing": (NINE, 4, 99, {ONE: 2, TWO: 3}, [3], [0, 0, 2, 1, 0], [1, 4, 0]),
    "the second block cached, the first not": (NINE, 4, 99, {TWO: 3}, [], [0, 0, 0, 1, 0], [2, 1, 4, 0]),
    "the same four tokens twice": ([*ONE, *ONE, 6], 4, 99, {ONE: 2}, [], [0, 0, 1, 0, 0], [4, 0, 3, 1]),
    "a budget of 3 and one hit": (NINE, 4, 3, {ONE: 2}, [], [0, 0, 1, 0, 0], [4, 0, 3, 1]),
    "a budget of 8 and two hits": (NINE, 4, 8, {ONE: 2, TWO: 0}, [], [1, 0, 1, 0], [3, 1]),
    "a free block with an old prefix": (NINE[:3], 4, 99, {OLD: 3, ONE: 1}, [], [0, 0, 0, 0], [3, 1, 0, 2]),
    "too few free blocks": (NINE, 4, 99, {ONE: 2, OLD: 3}, [], [0, 1, 1, 0], [3]),
    "a hit among too few free blocks": (NINE, 4, 99, {ONE: 0, OLD: 3}, [], [0, 1, 1, 0], [0, 3]),
}


def right(tokens, size, budget, cached, writing, references, free):
    table = []
    for last in range(size, len(tokens), size):
        block = cached.get(tuple(tokens[:last]))
        if block is None or block in writing:
            break
        table.append(block)
    first = len(table) * size
    end = min(len(tokens), first + budget)
    new = -(-end // size) - len(table)
    usable = [block for block in free if block not in table]
    if new > len(usable):
        return None
    for block in table:
        references[block] += 1
    for block in usable[:new]:
        references[block] = 1
        for prefix in [prefix for prefix, held in cached.items() if held == block]:
            del cached[prefix]
    free[:] = usable[new:]
    return table + usable[:new], first, end


def state_after(answer: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """What an answer returns, and what it made of the arguments that it may change."""

    def called(*given: Any) -> dict[str, Any]:
        given = copy.deepcopy(given)
        found = answer(*given)
        if found is not None and not (isinstance(found, tuple | list) and len(found) == 3 and hasattr(found[0], "__len__")):
            raise Mistake("wrong-type", f"Return (table, first, end), or None where there is no room; yours is {shown(found)}.")
        table, first, end = found or (None, None, None)
        result = {"table": table if table is None else list(map(plain, table)), "first": plain(first), "end": plain(end)}
        return result | {"references": given[5], "free": given[6], "cached": given[3]}

    return called


RUBRIC = Rubric(
    right,
    """
range(size, len(tokens), size)
    nothing-left-to-compute :: range(size, len(tokens) + 1, size) :: A step has scores only for tokens that it computes. Where
        blocks hold every token, what does your step compute? (nano-vllm had this bug: issue 144.)
tuple(tokens[:last])
    own-tokens-only :: tuple(tokens[last - size:last]) :: What a block holds depends on all tokens before it, not only on
        its own: a block is found by the whole prefix.
block is None or block in writing
    still-being-written :: block is None :: A block that a step is still writing holds nothing yet that can be read, though its
        prefix is known already. (nano-vllm: issue 208.)
break
    hit-behind-a-gap :: continue :: Block i of a table holds tokens i·size and on. Behind the first block that is missing,
        everything is computed anew.
min(len(tokens), first + budget)
    stale-count :: first + min(len(tokens), budget) :: $STALE
    past-the-end :: first + budget :: The budget is the most that a step computes. Fewer tokens may be left.
    budget-ignored :: len(tokens) :: A step computes at most `budget` tokens; a longer prompt goes on in the next.
    hits-use-the-budget :: min(len(tokens), max(first, budget)) :: The budget counts what is computed. Tokens that are found
        cost nothing.
-(-end // size)
    one-block-short :: end // size :: The last block need not be full. Without it an index is past the table's end.
    one-block-too-many :: end // size + 1 :: 8 tokens fill two blocks of 4, and need no third.
    blocks-for-later :: -(-len(tokens) // size) :: Tokens beyond this step's end need no block yet.
[block for block in free if block not in table]
    given-twice :: list(free) :: A block that is found may be one of the free ones. Then it is free no longer.
new > len(usable)
    free-hits-not-counted :: new > len(free) :: A hit on a free block takes it from the free ones: count what is left for the
        others. (ROCm's ATOM had this bug: pull request 902.)
references[block] += 1
    reference-not-raised :: pass :: $SHARED
    reference-not-raised :: references[block] = 1 :: $SHARED
    reference-not-raised :: references[block] = max(1, references[block]) :: $SHARED
references[block] = 1
    new-block-unreferenced :: pass :: A block that is in one table has one reference, a new one, too.
del cached[prefix]
    overwritten-but-found :: pass :: A free block that is taken will hold other tokens. Who finds it by its old prefix reads the
        wrong ones. (nano-vllm: issue 163.)
free[:] = usable[new:]
    entered-too-early :: free[:] = usable[new:]; cached.update({tuple(tokens[:n]): (table + usable)[n // size - 1] for n in
        range(size, end + 1, size)}) :: A new block holds nothing yet. Who finds it by its prefix before the step is done reads
        what was there before.
    not-in-place :: free = usable[new:] :: The caller's list stays as it was: change `free` itself, do not give the name to
        another list.
    still-free :: free[:] = usable :: What is in a table is not free.
    hit-still-free :: free[:] = [block for block in free if block not in usable[:new]] :: A free block that was found is in a
        table now: the next request must not get it to write on.
""",
    wrap=state_after,
    STALE="How many tokens are left is known once the hits are. A count from before, as after a preemption, leads past the "
    "last token. (nano-vllm: pull requests 211 and 233.)",
    SHARED="A shared block is in one more table now. When the other request is done, what says that it is still needed?",
)


@exercise(
    "block-table",
    notebook="22_decoding",
    takes="tokens, size, budget, cached, writing, references, free",
    returns=object,
    changes="cached, references, free",
)
def judge_block_table(answer: Callable[..., Any]) -> None:
    """Share the full, written blocks of the prefix, but never all tokens; then take the first free blocks, up to the end."""
    RUBRIC.expect(answer, CASES, but=("mixed",), explain=_explain)


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says what is wrong with the first case that is: room, a change in spite of None, or hits."""
    for case, given, got, wanted in judged:
        if same(got, wanted):
            continue
        if got["table"] is None and wanted["table"] is None:
            raise Mistake("changed-though-refused", f"For {case} None is right. Then nothing changes, but yours has changed.")
        if got["table"] is None or wanted["table"] is None:
            room = "no room" if wanted["table"] is None else "room"
            raise Mistake("room-misjudged", f"For {case} there is {room}: {len(given[6])} blocks are free.")
        if got["first"] != wanted["first"]:
            found = f"{wanted['first']} tokens need not be computed; yours begins at {got['first']}"
            raise Mistake("hits-misjudged", f"For {case} {found}.")
        return
