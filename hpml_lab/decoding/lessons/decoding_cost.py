"""What decoding costs, by formula: FLOPs, bytes, and the batch from which it is no longer memory that limits it.

A product of n rows with a matrix of p numbers takes 2·n·p FLOPs and reads the matrix once. Prefill multiplies all tokens of a
prompt with each weight that it reads, decode one token of each sequence. So per step

    FLOPs      B · new · (2·P + 4·L·H·d·n̄)        P weights in products, n̄ tokens that a new one looks at, itself included
    bytes      b · P  +  B · 2·L·H_kv·d·n·b        each weight once, and the cache of each sequence
    intensity  FLOPs / bytes, FLOP/byte

The scores of a prompt's last token only are computed. Norms, softmax and biases are left out, as FlopCounterMode does.
"""

from dataclasses import dataclass

from hpml_lab.decoding.lessons.decoder import DecoderSize


@dataclass(frozen=True)
class DecodingMachine:
    """What decoding needs to know of a machine: bytes and FLOPs a second, bytes of memory, and what an hour costs."""

    bytes_per_s: float
    flops_per_s: float
    memory_bytes: float
    per_hour: float

    @property
    def ridge(self) -> float:
        """FLOP/byte from which on computing is the limit."""
        return self.flops_per_s / self.bytes_per_s


# NVIDIA's data sheets (16-bit products without sparsity), and what an hour was rented for in 2025, in dollars
MACHINES = {"H100": DecodingMachine(3350e9, 989e12, 80e9, 3.0), "T4": DecodingMachine(320e9, 65e12, 16e9, 0.35)}

# A net of 6 billion weights whose heads, layers and vocabulary are those of Llama 3 8B
LARGE = DecoderSize(layers=32, heads=32, kv_heads=8, head_dim=128, vocabulary=128_256, length=8192)


def block_weights(size: DecoderSize) -> int:
    """Weights of all layers' products: 2·(H·d)² + 2·(H·d)·(H_kv·d) for attention, 8·(H·d)² behind it."""
    width, kv_width = size.heads * size.head_dim, size.kv_heads * size.head_dim
    return size.layers * (2 * width * width + 2 * width * kv_width + 8 * width * width)


def cache_bytes(size: DecoderSize, tokens: int, number_bytes: int, batch: int = 1) -> int:
    """2 · L · H_kv · d · n · b for each sequence of the batch."""
    return 2 * size.layers * size.kv_heads * size.head_dim * tokens * number_bytes * batch


def step_flops(size: DecoderSize, tokens: int, before: int, batch: int = 1) -> int:
    """FLOPs of one step with `tokens` new tokens of each sequence behind `before` cached ones.

    Attention computes all tokens × (before + tokens) scores and masks the later half: 2·2·H·d for each.
    """
    width = size.heads * size.head_dim
    products = 2 * tokens * block_weights(size) + 2 * width * size.vocabulary
    attention = 4 * size.layers * width * tokens * (before + tokens)
    return batch * (products + attention)


def step_bytes(size: DecoderSize, tokens: int, before: int, number_bytes: int, batch: int = 1) -> int:
    """Bytes that one step has to move: each weight of a product once, and the cache, read as far as it reaches.

    What stands between layers stays in a processor's own memory where products and norms are fused, and is left out.
    """
    weights = block_weights(size) + size.heads * size.head_dim * size.vocabulary
    return number_bytes * weights + cache_bytes(size, before + tokens, number_bytes, batch)


def step_intensity(size: DecoderSize, tokens: int, before: int, number_bytes: int, batch: int = 1) -> float:
    """FLOP/byte of one step."""
    return step_flops(size, tokens, before, batch) / step_bytes(size, tokens, before, number_bytes, batch)


def batch_at_ridge(size: DecoderSize, before: int, number_bytes: int, ridge: float) -> int | None:
    """The smallest batch whose decoding step reaches the intensity `ridge` in FLOP/byte, at which computing limits a machine.

    None where no batch does: a sequence brings its own cache, whose intensity does not grow with the batch.
    """
    flops = step_flops(size, 1, before)
    weights = step_bytes(size, 1, before, number_bytes, batch=0)
    own = cache_bytes(size, before + 1, number_bytes)
    if flops <= ridge * own:
        return None
    # B·flops ≥ ridge·(weights + B·own)
    return max(1, -int(-ridge * weights // (flops - ridge * own)))


def decode_rate(size: DecoderSize, before: int, number_bytes: int, batch: int, machine: DecodingMachine) -> float:
    """Tokens a second of all sequences together that a machine cannot exceed: B / max(FLOPs / peak, bytes / bandwidth)."""
    computing = step_flops(size, 1, before, batch) / machine.flops_per_s
    moving = step_bytes(size, 1, before, number_bytes, batch) / machine.bytes_per_s
    return batch / max(computing, moving)


def price_of_tokens(rate: float, per_hour: float, tokens: float = 1e6) -> float:
    """What so many tokens cost at `rate` tokens a second on a machine of `per_hour`, in the same money."""
    return tokens / rate / 3600 * per_hour
