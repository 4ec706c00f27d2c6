"""What decoding costs, by formula: FLOPs, bytes, and the batch from which it is no longer memory that limits it.

A product of n rows with a matrix of p numbers takes 2·n·p FLOPs and reads the matrix once. Prefill multiplies all tokens of a
prompt with each weight that it reads, decode one token of each sequence. So per step

    FLOPs      B · new · (2·P + 4·L·H·d·n̄)        P weights in products, n̄ tokens that a new one looks at, itself included
    bytes      b · P  +  B · 2·L·H_kv·d·n·b        each weight once, and the cache of each sequence
    intensity  FLOPs / bytes, FLOP/byte

The scores of a prompt's last token only are computed. Norms, softmax and biases are left out, as FlopCounterMode does.
"""

from hpml_lab.decoding.lessons.decoder import DecoderSize


def block_weights(size: DecoderSize) -> int:
    """Weights of all layers' products: 2·(H·d)² + 2·(H·d)·(H_kv·d) for attention and 8·(H·d)² for the two products behind it."""
    width, kv_width = size.width, size.kv_heads * size.head_dim
    return size.layers * (2 * width * width + 2 * width * kv_width + 8 * width * width)


def cache_bytes(size: DecoderSize, tokens: int, number_bytes: int, batch: int = 1) -> int:
    """2 · L · H_kv · d · n · b for each sequence of the batch."""
    return 2 * size.layers * size.kv_heads * size.head_dim * tokens * number_bytes * batch


def step_flops(size: DecoderSize, new: int, before: int, batch: int = 1) -> int:
    """FLOPs of one step with `new` tokens of each sequence behind `before` cached ones.

    Attention computes all new × (before + new) scores and masks the later half: 2·2·H·d for each.
    """
    products = 2 * new * block_weights(size) + 2 * size.width * size.vocabulary
    attention = 4 * size.layers * size.width * new * (before + new)
    return batch * (products + attention)


def step_bytes(size: DecoderSize, new: int, before: int, number_bytes: int, batch: int = 1) -> int:
    """Bytes that one step has to move: each weight of a product once, and the cache, read as far as it reaches.

    What stands between layers stays in a processor's own memory where products and norms are fused, and is left out.
    """
    weights = block_weights(size) + size.width * size.vocabulary
    return number_bytes * weights + cache_bytes(size, before + new, number_bytes, batch)


def step_intensity(size: DecoderSize, new: int, before: int, number_bytes: int, batch: int = 1) -> float:
    """FLOP/byte of one step."""
    return step_flops(size, new, before, batch) / step_bytes(size, new, before, number_bytes, batch)


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
