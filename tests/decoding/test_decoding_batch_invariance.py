"""fixed_order.py and batch-invariance: sums whose order no shape changes, and what a batch does to a library's."""

import copy
import math
import random

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from hpml_lab.core.timing.counting import operators
from hpml_lab.decoding.experiments import batch_invariance as experiment_module
from hpml_lab.decoding.experiments.batch_invariance import (
    ALGORITHMS,
    FIXED,
    LIBRARY,
    PADDED,
    SINGLE,
    BatchBits,
    InvariantStep,
    NearTie,
    PartedTexts,
    bits_row,
    deterministic_algorithms,
    near_ties,
    parted_row,
)
from hpml_lab.decoding.experiments.cached_step import scores_behind
from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize, decode
from hpml_lab.decoding.lessons.fixed_order import (
    FixedOrder,
    fixed_attention,
    fixed_exp,
    fixed_gelu,
    fixed_layer_norm,
    fixed_linear,
    fixed_product,
    fixed_sum,
    sum_by_halves,
)

SIZE = DecoderSize(layers=2, heads=4, kv_heads=2, head_dim=5, vocabulary=13, length=40)  # 5 and 20 are no multiples of 16
# Operators that round each number by itself, or do not round at all.
ELEMENTWISE = {"mul", "add", "sub", "div", "sqrt", "round", "abs", "neg", "rsub", "reciprocal"}
NO_ROUNDING = {
    "clamp",
    "where",
    "masked_fill",
    "masked_fill_",
    "amax",
    "constant_pad_nd",
    "embedding",
    "ones_like",
    "zeros_like",
}
NO_ROUNDING |= {"arange", "ones", "zeros", "tril", "tril_", "clone", "lt", "bitwise_not", "logical_not", "_to_copy", "copy_"}
NO_ROUNDING |= {"__lshift__", "bitwise_left_shift", "full", "fill_", "repeat", "index", "cat", "repeat_interleave", "new_zeros"}


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Decoder(SIZE).eval().requires_grad_(False)


def by_halves(numbers):
    """The sum of 16 numbers in float32 as the lesson describes it, one addition at a time."""
    numbers = [np.float32(n) for n in numbers]
    while len(numbers) > 1:
        half = len(numbers) // 2
        numbers = [a + b for a, b in zip(numbers[:half], numbers[half:], strict=True)]
    return numbers[0]


# ---- sums ------------------------------------------------------------------------------------------------------------------


def test_a_block_is_added_by_halves_and_blocks_one_after_another():
    x = torch.randn(43, generator=torch.Generator().manual_seed(0)) * 10 ** torch.linspace(-4, 4, 43)
    numbers = [*x.tolist(), *[0.0] * 5]
    total = np.float32(0)
    for start in (0, 16, 32):
        total += by_halves(numbers[start : start + 16])
    assert fixed_sum(x).item() == total
    assert sum_by_halves(x[:16]).item() == by_halves(numbers[:16]) and sum_by_halves(x[:3]).item() == by_halves(
        [*numbers[:3], *[0.0] * 13]
    )
    assert fixed_sum(x.flip(0)).item() != total, "numbers of such sizes show another order"


def test_zeros_behind_the_end_change_nothing():
    x = torch.randn(5, 21)
    for more in (1, 11, 12, 40):
        assert torch.equal(fixed_sum(F.pad(x, (0, more))), fixed_sum(x))


@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-14), (torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_a_product_is_the_librarys_but_for_rounding_and_bitwise_the_same_in_every_batch(dtype, bound):
    generator = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(n, 70, generator=generator, dtype=torch.float64).to(dtype) for n in (9, 6))
    whole = fixed_product(x, weight)
    assert whole.dtype == dtype
    assert (whole.double() - x.double() @ weight.double().T).abs().max() < bound * 70
    for rows in range(1, 9):
        assert torch.equal(fixed_product(x[:rows], weight), whole[:rows])
    order = random.Random(0).sample(range(9), 9)
    assert torch.equal(fixed_product(x[order], weight), whole[order])
    assert torch.equal(fixed_product(x.T.contiguous().T, weight), whole), "the same numbers in another layout"
    assert torch.equal(fixed_product(x.view(3, 3, 70), weight), whole.view(3, 3, 6))
    assert torch.equal(fixed_linear(x, weight, weight[:, 0]), whole + weight[:, 0])


# ---- functions -------------------------------------------------------------------------------------------------------------


def test_the_exponential_is_within_a_few_roundings():
    x = -torch.logspace(-6, math.log10(86.9), 5000)
    exact = x.double().exp()
    assert ((fixed_exp(x).double() - exact) / exact).abs().max() < 3e-7
    assert fixed_exp(torch.tensor([0.0, -0.0])).tolist() == [1, 1]
    assert (fixed_exp(torch.tensor([-88.0, -1e30, -math.inf])) == fixed_exp(torch.tensor(-87.0))).all()
    assert 0 < fixed_exp(torch.tensor(-87.0)) < 2e-38


def test_gelu_and_norm_are_the_librarys_but_for_rounding():
    x = torch.linspace(-12, 12, 4001)
    assert (fixed_gelu(x) - F.gelu(x)).abs().max() < 2e-6
    x = 3 + 2 * torch.randn(7, 37, generator=torch.Generator().manual_seed(2))
    weight, bias = torch.linspace(-1, 1, 37), torch.linspace(0, 5, 37)
    assert (fixed_layer_norm(x, (37,), weight, bias) - F.layer_norm(x, (37,), weight, bias)).abs().max() < 1e-5


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (4, 2), (6, 1)])
def test_attention_is_the_librarys_but_for_rounding(heads, kv_heads):
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(2, heads, 5, 7, generator=generator)
    k, v = torch.randn(2, 2, kv_heads, 21, 7, generator=generator)
    mask = torch.ones(5, 21, dtype=torch.bool).tril(16)
    found, wanted = (f(q, k, v, attn_mask=mask, enable_gqa=True) for f in (fixed_attention, F.scaled_dot_product_attention))
    assert (found - wanted).abs().max() < 1e-5
    one = fixed_attention(q[:1, :, 2:3], k[:1, :, :19], v[:1, :, :19], attn_mask=mask[2:3, :19], enable_gqa=True)
    assert torch.equal(one, found[:1, :, 2:3]), "a query alone, without the keys behind it"


# ---- a decoder -------------------------------------------------------------------------------------------------------------


def test_a_decoder_in_a_fixed_order_runs_nothing_that_sums_in_an_order_of_its_own(net):
    tokens = torch.arange(10).view(2, 5)
    with FixedOrder():
        seen = {operator.name for operator in operators(lambda: net(tokens))}
    assert seen <= ELEMENTWISE | NO_ROUNDING, seen - ELEMENTWISE - NO_ROUNDING
    assert {"mm", "native_layer_norm"} & {operator.name for operator in operators(lambda: net(tokens))}, (
        "and outside of it does"
    )


def test_scores_in_a_fixed_order_depend_on_no_other_row_and_on_no_pass(net):
    tokens = torch.randint(13, (6, 18), generator=torch.Generator().manual_seed(4))
    with FixedOrder():
        whole = net(tokens)
        for rows in (1, 2, 5):
            assert torch.equal(net(tokens[:rows]), whole[:rows])
        assert torch.equal(net(tokens[[3, 0]]), whole[[3, 0]])
        for at_once in (0, 1, 7, 17):
            assert torch.equal(scores_behind(net, tokens[:2], at_once), whole[:2])
        together = decode(net, tokens[:3], 15)
        assert torch.equal(torch.cat([decode(net, tokens[i : i + 1], 15) for i in range(3)]), together)
    assert (whole - net(tokens)).abs().max() < 1e-4 and torch.equal(net(tokens), net(tokens))


# ---- the experiment --------------------------------------------------------------------------------------------------------


def test_a_row_of_bits_says_which_batches_change_it():
    row = bits_row("a", "b", "c", lambda rows: torch.tensor([1.0, 2.0, 4.0, -8.0 - (rows in (5, 9)), 0.0]))
    assert (row.changed, row.first, row.largest) == (2, 5, 1 / 8)
    assert row.shares == [0.2 if rows in (5, 9) else 0 for rows in range(1, 17)]
    assert bits_row("a", "b", "c", lambda rows: torch.ones(3)).first is None


def test_parted_texts_are_counted_with_the_first_token_that_differs(net, monkeypatch):
    prompts = torch.zeros(4, 3, dtype=torch.int64)

    def decoded(net, prompts, new):
        tokens = torch.cat([prompts, torch.ones(len(prompts), new, dtype=torch.int64)], 1)
        if len(prompts) > 1:
            tokens[1, 3 + 4 :] = tokens[3, 3 + 2] = 2
        return tokens

    monkeypatch.setattr(experiment_module, "decode", decoded)
    row = parted_row(net, prompts, 6, "float32", LIBRARY)
    assert (row.parted, row.first, row.tokens) == (2, 3, 6) and row.lead > 0


def test_deterministic_algorithms_are_set_back():
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with pytest.raises(KeyError), deterministic_algorithms():
        assert torch.are_deterministic_algorithms_enabled()
        raise KeyError
    assert (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()) == before


def test_the_experiment_is_sound(sound, ran):
    result = ran("batch-invariance")
    sound(result)
    rows = result.rows(BatchBits)
    assert len(rows) == 8 and all(row.changed == 0 for row in rows if row.order == FIXED)
    assert all(len(row.shares) == 16 and row.shares[0] == 0 for row in rows)
    assert [row.way for row in result.rows(InvariantStep)] == [LIBRARY, ALGORITHMS, PADDED, SINGLE, FIXED]
    assert [row.parted for row in result.rows(PartedTexts) if row.order == FIXED] == [0]


def test_a_near_tie_is_decided_by_the_batch_where_its_scores_are_and_only_there(net, monkeypatch):
    prompts = torch.arange(48).reshape(16, 3) % net.size.vocabulary
    with FixedOrder():
        assert near_ties(net, prompts, FIXED) == NearTie(FIXED, 17, 0)
    exact, linear = copy.deepcopy(net).double(), F.linear
    assert near_ties(exact, prompts, LIBRARY).decided <= 1, "float64 tells all but exact ties apart"

    def by_batch(x, weight, bias=None):
        """In batches of five, 2.5e-7 of the best score more for all other tokens."""
        scores = linear(x, weight, bias)
        best = scores.amax(-1, keepdim=True)
        return scores + 2.5e-7 * best.abs() * (scores < best) if (len(x), len(weight)) == (5, 13) else scores

    monkeypatch.setattr(F, "linear", by_batch)
    assert near_ties(exact, prompts, LIBRARY).decided in (4, 5), "leads of 1e-7 and 2e-7, of one token and of the other, and 0"
