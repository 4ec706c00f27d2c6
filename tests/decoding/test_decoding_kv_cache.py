"""kv-cache: the decoder, what its cache holds, and what a step costs, against numbers known from elsewhere."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import Ceiling
from hpml_lab.decoding.experiments.kv_cache import prices
from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize, KVCache, decode, decode_again
from hpml_lab.decoding.lessons.decoding_cost import (
    LARGE,
    MACHINES,
    DecodingMachine,
    batch_at_ridge,
    block_weights,
    cache_bytes,
    decode_rate,
    price_of_tokens,
    step_bytes,
    step_flops,
    step_intensity,
)
from hpml_lab.decoding.lessons.python_text import as_text, python_text, trained_decoder
from hpml_lab.decoding.views.cache_sliders import SHARING, cache_sliders, with_sharing

SMALL = DecoderSize(layers=2, heads=4, kv_heads=2, head_dim=4, vocabulary=11, length=24)


def net_of(size: DecoderSize = SMALL, dtype: torch.dtype = torch.float64) -> Decoder:
    torch.manual_seed(0)
    return Decoder(size).to(dtype).eval()


def tokens_of(*shape: int, size: DecoderSize = SMALL) -> torch.Tensor:
    return torch.randint(size.vocabulary, shape, generator=torch.Generator().manual_seed(1))


# ---- the decoder -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("parts", [(9,), (1,) * 9, (4, 5), (2, 3, 1, 3)])
def test_tokens_in_any_parts_have_the_scores_of_all_at_once(kv_heads, parts):
    size = replace(SMALL, kv_heads=kv_heads)
    net, tokens = net_of(size), tokens_of(3, 9)
    cache = KVCache(size, 3, 9, like=net.scores.weight)
    with torch.no_grad():
        found = torch.cat([net(part, cache) for part in tokens.split(parts, 1)], 1)
        assert (found - net(tokens)).abs().max() < 1e-12
    assert cache.used == 9 and cache.room == 0


def test_attention_is_the_formula_head_by_head():
    net, size = net_of(), SMALL
    attention, x = net.blocks[0].attention, torch.randn(1, 5, size.width, dtype=torch.float64)
    with torch.no_grad():
        q, k, v = attention.query(x)[0], attention.key(x)[0], attention.value(x)[0]
        heads = []
        for head in range(size.heads):
            shared = head * size.kv_heads // size.heads
            own = [slice(each * size.head_dim, (each + 1) * size.head_dim) for each in (head, shared)]
            scores = q[:, own[0]] @ k[:, own[1]].T / size.head_dim**0.5
            scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
            heads.append(scores.softmax(-1) @ v[:, own[1]])
        assert torch.allclose(attention(x, 0, None)[0], attention.out(torch.cat(heads, 1)), rtol=0, atol=1e-12)


def test_a_later_token_changes_nothing_before_it():
    net, tokens = net_of(), tokens_of(1, 8)
    other = tokens.clone()
    other[0, 6] = (other[0, 6] + 1) % SMALL.vocabulary
    with torch.no_grad():
        before, after = net(tokens), net(other)
    assert (before - after)[0, :6].abs().max() < 1e-12 < (before - after)[0, 6:].abs().max()


@pytest.mark.parametrize("batch", [1, 3])
def test_both_ways_decode_the_same_tokens(batch):
    net, prompt = net_of(), tokens_of(batch, 4)
    found = decode(net, prompt, 12)
    assert found.shape == (batch, 16) and torch.equal(found[:, :4], prompt)
    assert torch.equal(found, decode_again(net, prompt, 12))
    assert torch.equal(decode(net, prompt, 0), prompt)


def test_a_cache_of_another_type_holds_its_own_numbers():
    net = net_of(dtype=torch.bfloat16)
    cache = KVCache(SMALL, 2, 8, like=net.scores.weight)
    net(tokens_of(2, 3), cache)
    assert cache.keys.dtype == torch.bfloat16 and cache.keys[:, :, :, :3].abs().min() > 0 == cache.keys[:, :, :, 3:].abs().max()


def test_what_does_not_fit_says_so_and_changes_nothing():
    net = net_of()
    cache = KVCache(SMALL, 1, 6, like=net.scores.weight)
    net(tokens_of(1, 4), cache)
    with pytest.raises(LabError, match=r"room for 2 more tokens; 3 are to be added.*prompt \+ new"):
        net(tokens_of(1, 3), cache)
    assert cache.used == 4
    with pytest.raises(LabError, match="25 tokens are more than the 24"):
        net(tokens_of(1, 25))
    with pytest.raises(LabError, match="25 tokens are more than the 24"):
        decode(net, tokens_of(1, 20), 6)
    with pytest.raises(LabError, match="4 query heads cannot share 3"):
        DecoderSize(heads=4, kv_heads=3)
    with pytest.raises(LabError, match="layers is 0"):
        DecoderSize(layers=0)


# ---- the cost ----------------------------------------------------------------------------------------------------------


def test_the_cache_of_known_nets():
    """Llama 2 7B takes half a MB a token in 16 bits, Llama 3 8B, with 8 of 32 heads, a quarter of it; 70B 320 kB."""
    seven = DecoderSize(layers=32, heads=32, kv_heads=32, head_dim=128, vocabulary=32_000, length=4096)
    assert cache_bytes(seven, 1, 2) == 512 * 1024 and cache_bytes(seven, 4096, 2) == 2 * 2**30
    assert cache_bytes(LARGE, 1, 2) == 128 * 1024
    assert cache_bytes(replace(LARGE, layers=80, heads=64), 1, 2) == 320 * 1024


def test_weights_are_those_of_the_net():
    net = Decoder(SMALL)
    products = [module.weight.numel() for module in net.modules() if isinstance(module, torch.nn.Linear)]
    assert block_weights(SMALL) + SMALL.width * SMALL.vocabulary == sum(products)
    assert step_bytes(SMALL, 1, 0, 4, batch=0) == 4 * sum(products)


def test_a_step_of_one_token_computes_two_flops_a_weight_and_four_a_number_of_the_cache():
    flops = step_flops(SMALL, 1, 9, batch=3)
    assert flops == 3 * (2 * step_bytes(SMALL, 1, 0, 1, batch=0) + 4 * 2 * 16 * 10)
    assert step_intensity(SMALL, 1, 0, 2, batch=1) == pytest.approx(1, rel=0.1)  # FLOP/byte in 16 bits, whatever the net
    assert step_intensity(LARGE, 1, 0, 2, batch=1) == pytest.approx(1, rel=1e-3)
    assert step_intensity(LARGE, 2048, 0, 2) > 1000


def test_the_batch_at_the_ridge_is_the_first_that_reaches_it():
    for ridge in (0.5, 1, 5, 20, 100):
        for before in (0, 10, 500):
            found = batch_at_ridge(LARGE, before, 2, ridge)
            if found is None:
                assert step_intensity(LARGE, 1, before, 2, 10**9) <= ridge
            else:
                assert step_intensity(LARGE, 1, before, 2, found) >= ridge
                assert found == 1 or step_intensity(LARGE, 1, before, 2, found - 1) < ridge
    assert batch_at_ridge(LARGE, 2048, 2, MACHINES["H100"].ridge) is None


def test_rates_and_prices():
    """At batch 1 an H100 reads 12.3 GB of weights and 0.27 GB of cache for a token: 266 tokens a second at 3,350 GB/s."""
    machine = MACHINES["H100"]
    rate = decode_rate(LARGE, 2048, 2, 1, machine)
    assert rate == pytest.approx(3350 / (2 * 6.1625 + 0.2686), rel=1e-3)
    assert price_of_tokens(rate, 3.6) == pytest.approx(1e3 / rate)
    assert decode_rate(SMALL, 0, 2, 4, DecodingMachine(1e30, 1e6, 1e9, 1.0)) == pytest.approx(4e6 / step_flops(SMALL, 1, 0, 4))


def test_the_sliders_show_the_formula():
    sliders = cache_sliders()
    assert [value for [value] in sliders.values(sliders.panels[0])] == pytest.approx(
        [cache_bytes(with_sharing(way, LARGE), 2048, 2, 32) / 1e9 for way in range(len(SHARING))]
    )
    h100, t4 = sliders.values(sliders.panels[1])
    assert h100 == sorted(h100) and all(a < b for a, b in zip(h100, t4, strict=True)) and t4[-1] < 25


# ---- the text ----------------------------------------------------------------------------------------------------------


def test_the_text_is_read_and_written_back():
    text = python_text()
    assert text.dtype == torch.int64 and len(text) > 100_000 and 0 <= text.min() and text.max() < 128
    assert as_text(text[:0]) == "" and len(as_text(text)) == len(text) and "statement" in as_text(text)


def test_a_trained_decoder_is_kept_and_leaves_the_random_numbers_alone():
    size = DecoderSize(layers=1, heads=2, kv_heads=1, head_dim=8, length=32)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    net = trained_decoder(size, 40)
    assert torch.equal(torch.rand(2), expected) and trained_decoder(size, 40) is net and not net.training
    text = python_text()[: 32 * 200].view(-1, 32)
    with torch.no_grad():
        loss = F.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    assert loss < 3.6 and not any(each.requires_grad for each in net.parameters())  # of 128 equal ones 4.85


# ---- the experiment ----------------------------------------------------------------------------------------------------


def test_the_experiment(sound, ran):
    result = ran("kv-cache")
    sound(result)
    rows = {row.dtype: row for row in result.tables[0].rows}
    assert list(rows) == ["float64", "float32", "bfloat16"] and rows["float64"].difference < 1e-10 < rows["bfloat16"].difference
    caches = result.tables[1].rows
    assert [row.counted_bytes for row in caches] == [2 * 2 * kv_heads * 16 * 256 * 4 for kv_heads in (4, 2, 1)]
    assert sum(claim.exact for claim in result.claims) == 3


def test_no_rate_is_given_where_weights_and_caches_do_not_fit():
    h100, t4, here = prices(Ceiling(100.0, 1000.0, 1))
    assert h100.together and t4.alone and (t4.together, t4.together_price) == (None, None), "12 GB and 17 GB, in 16 GB"
    assert here.together and here.together_price is None
