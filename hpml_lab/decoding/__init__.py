"""Decoding: a language model's tokens one by one, for one reader and for many (notebook 22).

Experiments, in the order of the notebook:
    kv_cache              decoding with and without a cache: the same tokens, its bytes, and both phases under the roofline
    continuous_batching   many requests in shared blocks, scheduled step by step
    speculative_decoding  a small net proposes, the large one checks: its own tokens in fewer passes
    batch_invariance      one row alone and in a batch: not bitwise identical, unless the order of the sums is fixed
For the notebook:
    DecoderSize, Decoder  a small decoder-only transformer
    decode                greedy decoding with a cache
    python_text, as_text, trained_decoder  Python's own documentation as tokens and back, and a net that has read it
    cache_sliders         the cache's bytes and a GPU's use, with sliders over net, tokens and sequences
    paging_stepper        requests and their blocks, step by step
    speculation_sliders   when speculation pays, with sliders over draft, acceptance and proposals
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.decoding.experiments.kv_cache import kv_cache as kv_cache
    from hpml_lab.decoding.experiments.continuous_batching import continuous_batching as continuous_batching
    from hpml_lab.decoding.experiments.speculative_decoding import speculative_decoding as speculative_decoding
    from hpml_lab.decoding.experiments.batch_invariance import batch_invariance as batch_invariance
    from hpml_lab.decoding.lessons.decoder import DecoderSize as DecoderSize, Decoder as Decoder, decode as decode
    from hpml_lab.decoding.lessons.python_text import python_text as python_text, as_text as as_text
    from hpml_lab.decoding.lessons.python_text import trained_decoder as trained_decoder
    from hpml_lab.decoding.views.cache_sliders import cache_sliders as cache_sliders
    from hpml_lab.decoding.views.paging_stepper import paging_stepper as paging_stepper
    from hpml_lab.decoding.views.speculation_sliders import speculation_sliders as speculation_sliders
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
