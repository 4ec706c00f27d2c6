"""The decoder of this notebook on paged memory: each request reads keys and values from the blocks of its table.

All tokens of a step, of prompts and of running requests, stand in one row (T, width): a product reads its weights once for all
of them. Only attention is by request. It gathers the keys and values of its tokens so far, in the order of the table:

    place of token i = table[i div s] · s + i mod s          s tokens in a block
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from hpml_lab.decoding.lessons.batch_scheduler import StepPart
from hpml_lab.decoding.lessons.decoder import Decoder


class PagedDecoder:
    """Calls `net` for the parts of a step: the greedy token that follows each. `scores` are those of the last step, (R, V).

    keys, values  (L, blocks · size, H_kv, d), for all requests together
    """

    def __init__(self, net: Decoder, blocks: int, size: int) -> None:
        shape = net.size.layers, blocks * size, net.size.kv_heads, net.size.head_dim
        self.net, self.size = net, size
        self.keys, self.values = net.scores.weight.new_zeros(shape), net.scores.weight.new_zeros(shape)

    def places(self, table: Sequence[int], first: int, end: int) -> Tensor:
        """Where tokens first to end − 1 of a request are, (end − first,)."""
        index = torch.arange(first, end)
        return torch.tensor(table)[index // self.size] * self.size + index % self.size

    @torch.no_grad()
    def __call__(self, parts: Sequence[StepPart]) -> list[int]:
        net, rows = self.net, [end - first for _, first, end in parts]
        tokens = torch.tensor([token for request, first, end in parts for token in request.tokens[first:end]])
        positions = torch.cat([torch.arange(first, end) for _, first, end in parts])
        new = torch.cat([self.places(request.table, first, end) for request, first, end in parts])
        read = [self.places(request.table, 0, end) for request, _, end in parts]
        x = net.tokens(tokens) + net.positions(positions)
        for layer, block in enumerate(net.blocks):
            attention, h = block.attention, block.norms[0](x)
            q, k, v = (f(h).view(len(h), -1, net.size.head_dim) for f in (attention.query, attention.key, attention.value))
            self.keys[layer, new], self.values[layer, new] = k, v
            y = [self.attend(layer, query, there) for query, there in zip(q.split(rows), read, strict=True)]
            x = x + attention.out(torch.cat(y))
            x = x + block.down(F.gelu(block.up(block.norms[1](x))))
        last = torch.tensor(rows).cumsum(0) - 1  # of each part
        self.scores = net.scores(net.norm(x[last]))
        return self.scores.argmax(-1).tolist()

    def attend(self, layer: int, query: Tensor, read: Tensor) -> Tensor:
        """Causal attention of one request's new tokens, (new, H, d), to all of its tokens so far: (new, H · d)."""
        q, k, v = (x.transpose(0, 1)[None] for x in (query, self.keys[layer, read], self.values[layer, read]))
        new, all_ = len(query), len(read)
        mask = torch.ones(new, all_, dtype=torch.bool).tril(all_ - new)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1).reshape(new, -1)
