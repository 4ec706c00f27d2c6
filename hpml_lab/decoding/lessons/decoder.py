"""A decoder-only transformer that keeps keys and values: a prompt is read once, then each token costs one token.

A token's keys and values depend only on what stands before it, so they never change once they are computed. The cache holds

    2 · L · H_kv · d · n · b bytes      keys and values of L layers, H_kv heads of d numbers of b bytes, for n tokens

Query heads share the heads of keys and values in groups: H_kv = H is multi-head attention, 1 < H_kv < H grouped-query, H_kv = 1
multi-query attention.
Sources: Shazeer 2019 (multi-query attention), Pope et al. 2022, section 2 (prefill and decode), Ainslie et al. 2023 (GQA).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError


@dataclass(frozen=True)
class DecoderSize:
    """A net's sizes: L layers, H query heads and H_kv heads of keys and values of d numbers, and the longest sequence."""

    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    vocabulary: int = 128
    length: int = 256

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise LabError(f"{name} is {value}.", "Use a whole number from 1 on.")
        if self.heads % self.kv_heads:
            raise LabError(
                f"{self.heads} query heads cannot share {self.kv_heads} heads of keys and values equally.",
                "Use a number of heads of keys and values that divides the number of query heads.",
            )

    @property
    def width(self) -> int:
        """H · d, the numbers that stand for a token between layers."""
        return self.heads * self.head_dim


class KVCache:
    """Room for the keys and values of `length` tokens of each sequence of a batch; the first `used` of them are there.

    keys, values  (L, B, H_kv, length, d)
    """

    def __init__(self, size: DecoderSize, batch: int, length: int, like: Tensor) -> None:
        shape = size.layers, batch, size.kv_heads, length, size.head_dim
        self.keys, self.values = like.new_zeros(shape), like.new_zeros(shape)
        self.used = 0

    @property
    def room(self) -> int:
        return self.keys.shape[3] - self.used

    def add(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store what one layer computed for new tokens, (B, H_kv, new, d); return what it has of all tokens so far."""
        end = self.used + keys.shape[2]
        self.keys[layer, :, :, self.used : end] = keys
        self.values[layer, :, :, self.used : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def keep(self, tokens: int) -> None:
        """Forget all but the first `tokens` tokens: what is added next takes the place of the others."""
        if not 0 <= tokens <= self.used:
            raise LabError(f"{tokens} tokens cannot be kept: the cache has {self.used}.", f"Keep 0 to {self.used} of them.")
        self.used = tokens


class Attention(nn.Module):
    """Causal attention of new tokens to all tokens so far: softmax(Q Kᵀ / √d) V.

    H / H_kv query heads share each head of keys and values.
    """

    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        self.size = size
        kv_width = size.kv_heads * size.head_dim
        self.query = nn.Linear(size.width, size.width, bias=False)
        self.key, self.value = (nn.Linear(size.width, kv_width, bias=False) for _ in range(2))
        self.out = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: Tensor, layer: int, cache: KVCache | None) -> Tensor:
        batch, new, _ = x.shape
        q, k, v = (
            net(x).view(batch, new, -1, self.size.head_dim).transpose(1, 2) for net in (self.query, self.key, self.value)
        )
        before = 0
        if cache is not None:
            before = cache.used
            k, v = cache.add(layer, k, v)
        mask = torch.ones(new, before + new, dtype=torch.bool, device=x.device).tril(before)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(batch, new, -1))


class DecoderBlock(nn.Module):
    """One layer: attention and a net of two products, each added to its input after a norm."""

    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size.width) for _ in range(2))
        self.attention = Attention(size)
        self.up = nn.Linear(size.width, 4 * size.width, bias=False)
        self.down = nn.Linear(4 * size.width, size.width, bias=False)

    def forward(self, x: Tensor, layer: int, cache: KVCache | None) -> Tensor:
        x = x + self.attention(self.norms[0](x), layer, cache)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Decoder(nn.Module):
    """A decoder-only transformer: for tokens (B, n) the scores (B, n, V) of what follows each."""

    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        self.size = size
        self.tokens, self.positions = nn.Embedding(size.vocabulary, size.width), nn.Embedding(size.length, size.width)
        self.blocks = nn.ModuleList(DecoderBlock(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.scores = nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, tokens: Tensor, cache: KVCache | None = None, last_only: bool = False) -> Tensor:
        """With a cache, `tokens` are only the new ones: it supplies the others, and keeps these.

        last_only  the scores (B, 1, V) of what follows the last token; the others are not computed
        """
        before, new = (cache.used if cache else 0), tokens.shape[1]
        if before + new > self.size.length:
            raise LabError(
                f"{before + new} tokens are more than the {self.size.length} that this net has positions for.",
                "Use a shorter prompt, decode fewer tokens, or make the net with a larger length.",
            )
        if cache is not None and new > cache.room:
            raise LabError(
                f"The cache has room for {cache.room} more tokens; {new} are to be added.",
                "Make it as long as prompt and answer together: KVCache(size, batch, length=prompt + new, …).",
            )
        x = self.tokens(tokens) + self.positions(torch.arange(before, before + new, device=tokens.device))
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, cache)
        if cache is not None:
            cache.used += new
        return self.scores(self.norm(x[:, -1:] if last_only else x))


@torch.no_grad()
def decode_again(net: Decoder, prompt: Tensor, new: int) -> Tensor:
    """Greedy decoding without a cache: (B, prompt + new) tokens; each step computes all tokens again."""
    tokens = prompt
    for _ in range(new):
        scores = net(tokens, last_only=True)
        tokens = torch.cat([tokens, scores[:, -1].argmax(-1, keepdim=True)], 1)
    return tokens


@torch.no_grad()
def decode(net: Decoder, prompt: Tensor, new: int) -> Tensor:
    """Greedy decoding with a cache: the prompt at once (prefill), then one token a step (decode)."""
    cache = KVCache(net.size, len(prompt), prompt.shape[1] + new, like=net.scores.weight)
    tokens = step = prompt
    for _ in range(new):
        scores = net(step, cache, last_only=True)
        step = scores[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, step], 1)
    return tokens
