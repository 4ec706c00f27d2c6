"""Models whose weights are nearly all in Linear layers: what dynamic quantization is made for."""

import torch
from torch import nn
from torch.nn import functional as F


def mlp(width: int, layers: int = 3) -> nn.Sequential:
    """Linear layers of width → width with ReLUs between them."""
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts[:-1]).eval()


class AttentionBlock(nn.Module):
    """One block of a Transformer, (N, T, width) -> (N, T, width), all of whose projections are ordinary Linear layers.

    In nn.TransformerEncoderLayer the attention's projections are none: dynamic quantization does not see them.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def transformer(width: int, blocks: int = 2, heads: int = 4) -> nn.Sequential:
    """Blocks of attention and MLP."""
    return nn.Sequential(*(AttentionBlock(width, heads) for _ in range(blocks))).eval()


def torch_encoder(width: int, blocks: int = 2, heads: int = 4) -> nn.TransformerEncoder:
    """The same sizes with torch's own layers."""
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False).eval()
