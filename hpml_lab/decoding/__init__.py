"""Decoding: a language model's tokens one by one, for one reader and for many (notebook 22).

Experiments, in the order of the notebook:
    kv_cache              decoding with and without a cache: the same tokens, its bytes, and both phases under the roofline
For the notebook:
    DecoderSize, Decoder, KVCache  a small decoder-only transformer, and room for its keys and values
    decode, decode_again  greedy decoding with the cache, and without
    python_text, as_text, trained_decoder  Python's own documentation as tokens and back, and a net that has read it
    cache_sliders         the cache's bytes and a GPU's use, with sliders over net, tokens and sequences
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.decoding.experiments.kv_cache import kv_cache as kv_cache
    from hpml_lab.decoding.lessons.decoder import DecoderSize as DecoderSize, Decoder as Decoder, KVCache as KVCache
    from hpml_lab.decoding.lessons.decoder import decode as decode, decode_again as decode_again
    from hpml_lab.decoding.lessons.python_text import python_text as python_text, as_text as as_text
    from hpml_lab.decoding.lessons.python_text import trained_decoder as trained_decoder
    from hpml_lab.decoding.views.cache_sliders import cache_sliders as cache_sliders
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
