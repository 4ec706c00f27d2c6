"""Paged memory for the cache: blocks of one size, a table of blocks for each request, and full blocks that requests share.

A cache in one piece has to be as long as the answer may become. In blocks of s tokens a request with n tokens holds ⌈n / s⌉ of
them, wherever they lie: token i is at place i mod s of block table[i div s].
What a block holds depends on its own tokens and on all before them. So requests that begin with the same tokens can share the
full blocks of this prefix. A written block is found by all tokens up to its last (engines chain hashes of blocks instead).
Sources: Kwon et al. 2023 (PagedAttention, vLLM); nano-vllm's block_manager.py and its issues 144, 163, 208 and 211.
"""

from collections.abc import Sequence

from hpml_lab.core.system.errors import LabError


class BlockManager:
    """`blocks` blocks for `size` tokens each; a table is a list of block numbers.

    references  for each block the number of tables that it is in
    free        the blocks in no table; the one that was freed first is in front, and is overwritten next
    block_of    {tokens from the first to a block's last: the block} of full blocks that are written, free ones among them
    """

    def __init__(self, blocks: int, size: int, prefix_cache: bool = True) -> None:
        if blocks < 1 or size < 1:
            raise LabError(f"{blocks} blocks for {size} tokens hold nothing.", "Use whole numbers from 1 on.")
        self.size, self.prefix_cache, self.references = size, prefix_cache, [0] * blocks
        self.free = dict.fromkeys(range(blocks))  # a dictionary keeps the order, and lets go of any block at once
        self.block_of: dict[tuple[int, ...], int] = {}
        self.prefix_of: dict[int, tuple[int, ...]] = {}  # the reverse

    def hits(self, tokens: Sequence[int]) -> list[int]:
        """The blocks that hold the beginning of these tokens already; the last token is left to compute, for its scores."""
        found: list[int] = []
        for end in range(self.size, len(tokens), self.size):
            if (block := self.block_of.get(tuple(tokens[:end]))) is None:
                break
            found.append(block)
        return found

    def extend(self, table: list[int], tokens: int, hits: Sequence[int] = ()) -> bool:
        """Give a table room for so many tokens: first the hits, then free blocks. False, and no change, if too few are free."""
        missing = -(-tokens // self.size) - len(table) - len(hits)
        if missing > len(self.free) - sum(block in self.free for block in hits):  # a hit may be a free block, too
            return False
        for block in hits:
            self.free.pop(block, None)
        for _ in range(missing):
            del self.free[block := next(iter(self.free))]
            self.block_of.pop(self.prefix_of.pop(block, None), None)  # what it held is overwritten: nobody may find it
            hits = [*hits, block]
        for block in hits:
            self.references[block] += 1
            table.append(block)
        return True

    def publish(self, table: Sequence[int], tokens: Sequence[int], first: int, end: int) -> None:
        """After a step that wrote tokens[first:end]: the blocks that it filled are found from now on."""
        for index in range(first // self.size, end // self.size):
            prefix = tuple(tokens[: (index + 1) * self.size])
            if self.prefix_cache and prefix not in self.block_of:  # another request may have computed the same meanwhile
                self.block_of[prefix], self.prefix_of[table[index]] = table[index], prefix

    def release(self, table: list[int]) -> None:
        """Empty a table. Its last blocks are freed first: the beginning of a text is what others may share."""
        for block in reversed(table):
            self.references[block] -= 1
            if not self.references[block]:
                self.free[block] = None
        table.clear()
