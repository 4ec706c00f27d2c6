"""speculative.py, speculation_cost.py, python_text.py and speculative-decoding: the target's own tokens and distribution."""

import itertools
from fractions import Fraction

import pytest
import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.decoding.experiments.speculative_decoding import (
    GREEDY,
    SAMPLED,
    SpeculatedTexts,
    SpeculationTime,
    counted_row,
    pairs_of,
)
from hpml_lab.decoding.experiments.speculative_decoding.outcomes import (
    SPECIAL,
    after_one_proposal,
    counted_tokens_a_pass,
    outcomes,
    own_texts,
    small_pair,
    speculated_texts,
)
from hpml_lab.decoding.lessons import speculative
from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize, KVCache, decode
from hpml_lab.decoding.lessons.python_text import as_text, python_text, trained_decoder
from hpml_lab.decoding.lessons.speculation_cost import speculation_gain, tokens_a_pass
from hpml_lab.decoding.lessons.speculative import Speculation, acceptance, best_token_only, residual, speculate, verify
from hpml_lab.decoding.views.speculation_sliders import speculation_sliders

SIZE = DecoderSize(layers=2, heads=2, kv_heads=1, head_dim=4, vocabulary=11, length=40)


def random_net(seed, size=SIZE):
    torch.manual_seed(seed)
    return Decoder(size).double().eval().requires_grad_(False)


# ---- the text and its nets -------------------------------------------------------------------------------------------------


def test_the_text_is_ascii_with_one_space_between_words():
    tokens = python_text()
    assert tokens.dtype == torch.int64 and tokens.ndim == 1 and len(tokens) > 100_000
    assert tokens.min() == 32 and tokens.max() < 128 and not ((tokens[1:] == 32) & (tokens[:-1] == 32)).any()
    assert as_text(tokens[:2000]).encode() == bytes(tokens[:2000].tolist()) and "statement" in as_text(tokens)


def test_a_trained_decoder_is_kept_predicts_better_and_leaves_the_random_state_alone():
    size = DecoderSize(layers=1, heads=2, kv_heads=1, length=32)
    state = torch.get_rng_state()
    net = trained_decoder(size, 12)
    assert torch.equal(torch.get_rng_state(), state) and trained_decoder(size, 12) is net
    assert not net.training and not any(p.requires_grad for p in net.parameters())
    torch.manual_seed(0)
    untrained, window = Decoder(size), python_text()[5000:5033][None]

    def loss(of):
        return torch.nn.functional.cross_entropy(of(window[:, :-1])[0], window[0, 1:]).item()

    assert loss(net) < loss(untrained) - 0.5
    with pytest.raises(LabError, match="A vocabulary of 100 tokens is too small for ASCII. Use 128"):
        trained_decoder(DecoderSize(vocabulary=100), 1)


def test_a_cache_forgets_what_is_behind_the_tokens_that_it_keeps():
    net, tokens = random_net(0), torch.arange(9)[None]
    cache = KVCache(SIZE, 1, 9, like=net.scores.weight)
    net(tokens[:, :7], cache)
    cache.keep(4)
    assert (cache.used, cache.room) == (4, 5)
    assert torch.allclose(net(tokens[:, 4:], cache), net(tokens)[:, 4:], atol=1e-12)
    for wrong in (-1, 10):
        with pytest.raises(LabError, match=f"{wrong} tokens cannot be kept: the cache has 9. Keep 0 to 9 of them"):
            cache.keep(wrong)


# ---- accept or reject ------------------------------------------------------------------------------------------------------


def test_acceptance_and_residual_by_hand():
    p, q = torch.tensor([0.1, 0.6, 0.3, 0.0]), torch.tensor([0.4, 0.3, 0.0, 0.3])
    assert torch.allclose(acceptance(p, q), torch.tensor([0.25, 1, 1, 0]))
    assert torch.allclose(residual(p, q), torch.tensor([0, 0.5, 0.5, 0]))
    assert torch.equal(residual(p, p), p) and torch.equal(acceptance(p, p), torch.ones(4))


def exact_distribution(p, q):
    """What one proposal ends in, in fractions: the rule of the papers written out a second time."""
    left = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
    found = [Fraction(0)] * len(p)
    for token, (a, b) in enumerate(zip(p, q, strict=True)):
        if b:
            accept = min(Fraction(1), a / b)
            found[token] += b * accept
            for other, share in enumerate(left):
                if accept < 1:
                    found[other] += b * (1 - accept) * share / sum(left)
    return found


def test_what_a_proposal_ends_in_has_exactly_the_distribution_p():
    shares = [[Fraction(n, sum(row)) for n in row] for row in itertools.product(range(4), repeat=3) if sum(row)]
    for p, q in itertools.product(shares, repeat=2):
        assert exact_distribution(p, q) == p
        a, b = (torch.tensor(list(map(float, each)), dtype=torch.float64) for each in (p, q))
        assert (after_one_proposal(a, b) - a).abs().max() <= 1e-14


def test_nearly_equal_distributions_are_no_special_case():
    generator = torch.Generator().manual_seed(0)
    for distance in (1e-16, 1e-12, 1e-6, 1e-2):
        p = torch.randn(50, generator=generator, dtype=torch.float64).softmax(0)
        q = (p * (1 + distance * torch.randn(50, generator=generator, dtype=torch.float64))).clamp(min=0)
        q /= q.sum()
        assert (after_one_proposal(p, q) - p).abs().max() <= 1e-14


@pytest.mark.parametrize("pair", SPECIAL.values(), ids=SPECIAL)
def test_verify_has_the_distribution_of_each_special_pair(pair):
    p, q = (torch.tensor(each, dtype=torch.float64) for each in pair)
    found = torch.zeros_like(p)
    for token, probability in outcomes(lambda draw: verify(p.expand(2, -1), [q], [draw(q)], draw)[0]):
        found[token] += probability
    assert torch.allclose(found, p, rtol=0, atol=1e-15)


def test_verify_stops_at_the_first_rejection_and_adds_a_token_behind_all_accepted_ones():
    p, q = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.0, 0.0, 1.0]]), [torch.tensor([0.25, 0.25, 0.5])] * 2
    answers = iter([1, 0, 1])  # the first is accepted, the second rejected, and token 1 drawn in its place
    assert verify(p, q, [2, 2], lambda probabilities: next(answers)) == [2, 1]
    assert verify(p, q, [0, 1], speculative.most_probable) == [0, 1, 2]
    assert verify(p[:1], [], [], speculative.most_probable) == [0]


def test_outcomes_are_all_ways_with_their_probabilities():
    coin, never = torch.tensor([0.25, 0.75]), torch.tensor([0.0, 1.0])
    found = dict(outcomes(lambda draw: (draw(coin), draw(never), draw(coin))))
    assert found == {(0, 1, 0): 1 / 16, (0, 1, 1): 3 / 16, (1, 1, 0): 3 / 16, (1, 1, 1): 9 / 16}


# ---- whole texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [1, 5])
@pytest.mark.parametrize("k", [0, 1, 2, 3, 7, 30])
def test_greedy_texts_are_the_targets_own(k, prompt):
    target, draft = random_net(0), random_net(1, DecoderSize(1, 1, 1, 4, 11, 40))
    tokens = torch.arange(prompt)[None]
    found = speculate(target, draft, tokens, 20, k)
    assert torch.equal(found.tokens, decode(target, tokens, 20))
    assert sum(found.accepted) + len(found.accepted) == 20
    assert all(0 <= taken <= proposed <= k for taken, proposed in zip(found.accepted, found.proposed, strict=True))
    assert k > 0 or len(found.accepted) == 20


@pytest.mark.parametrize("k", [1, 3, 4])
def test_a_net_accepts_all_its_own_proposals(k):
    """Behind a pass whose proposals are all accepted the draft has two tokens to read, not one: a known mistake."""
    net, prompt = random_net(0), torch.tensor([[3, 1, 4]])
    for options in ({}, dict(distribution=lambda scores: scores.softmax(-1), draw=lambda p: int(p.argmax()))):
        found = speculate(net, net, prompt, 20, k, **options)
        assert found.accepted == found.proposed and len(found.accepted) == -(-20 // (k + 1))


def test_sampled_texts_have_the_targets_probabilities_over_all_ways():
    target, draft = small_pair()
    prompt = torch.tensor([[1]])
    own = own_texts(target, prompt, 3)
    assert len(own) == 27 and abs(sum(own.values()) - 1) < 1e-12
    for k in (0, 1, 2, 3):
        found = speculated_texts(target, draft, prompt, 3, k)
        assert max(abs(found.get(text, 0) - own[text]) for text in own) < 1e-12


@pytest.mark.parametrize("name, wrong", [("residual", lambda p, q: p), ("acceptance", lambda p, q: (q / p).clamp(max=1))])
def test_another_rule_has_other_probabilities(monkeypatch, name, wrong):
    target, draft = small_pair()
    prompt = torch.tensor([[0, 2]])
    own = own_texts(target, prompt, 2)
    monkeypatch.setattr(speculative, name, wrong)
    found = speculated_texts(target, draft, prompt, 2, 1)
    assert max(abs(found.get(text, 0) - own[text]) for text in own) > 1e-3


def test_bad_input_is_refused():
    net = random_net(0)
    with pytest.raises(LabError, match="2 prompts cannot be speculated together"):
        speculate(net, net, torch.zeros(2, 3, dtype=torch.int64), 4, 2)
    with pytest.raises(LabError, match="The target knows 11 tokens, the draft 12. Use two nets with the same vocabulary"):
        speculate(net, random_net(0, DecoderSize(1, 1, 1, 4, 12, 40)), torch.zeros(1, 3, dtype=torch.int64), 4, 2)
    with pytest.raises(LabError, match="41 tokens are more than the 40"):
        speculate(net, net, torch.zeros(1, 39, dtype=torch.int64), 3, 2)


# ---- what it costs ---------------------------------------------------------------------------------------------------------


def test_tokens_a_pass_and_the_gain_by_hand():
    assert tokens_a_pass(0.8, 4) == pytest.approx(1 + 0.8 + 0.64 + 0.512 + 0.4096)
    assert (tokens_a_pass(1, 5), tokens_a_pass(0, 5), tokens_a_pass(0.3, 0)) == (6, 1, 1)
    assert speculation_gain(0.8, 5, 0) == pytest.approx(3.68928)  # Leviathan et al. 2023, table 1: 3.69
    assert speculation_gain(0.6, 2, 0) == pytest.approx(1.96) and speculation_gain(0.5, 3, 1) == pytest.approx(1.875 / 4)
    for a, k in itertools.product((0.25, 0.5, 0.9), (1, 3)):
        assert counted_tokens_a_pass(a, k) == pytest.approx(tokens_a_pass(a, k), rel=1e-12)


def test_a_row_counts_proposals_up_to_the_first_rejection():
    tokens = torch.zeros(1, 1)
    row = counted_row(GREEDY, 3, [Speculation(tokens, [3, 3, 1], [3, 1, 1]), Speculation(tokens, [3, 0], [0, 0])])
    assert (row.passes, row.tokens) == (5, 10 / 5) and row.accepted == pytest.approx(100 * 5 / 7)
    a = 5 / 7
    assert row.formula == pytest.approx((3 * tokens_a_pass(a, 3) + tokens_a_pass(a, 1) + 1) / 5)


def test_pairs_are_distributions():
    target, draft = small_pair()
    prompt = torch.tensor([[0, 2, 1, 1]])
    pairs = pairs_of(target, draft, [prompt])
    assert len(pairs) == 3 * 4 + len(SPECIAL) and all(
        torch.allclose(each.sum(), torch.ones(()).double()) for pair in pairs for each in pair
    )
    assert torch.equal(best_token_only(torch.tensor([[1.0, 3.0, 2.0]])), torch.tensor([[0.0, 1.0, 0.0]]))


def test_the_experiment_is_sound(sound, ran):
    result = ran("speculative-decoding")
    sound(result)
    rows = {(row.way, row.k): row for row in result.rows(SpeculatedTexts)}
    assert {way for way, _ in rows} == {GREEDY, SAMPLED} and len(rows) == 8
    for (_, k), row in rows.items():
        assert 1 <= row.tokens <= k + 1 and 3 * 48 / (k + 1) <= row.passes <= 3 * 48
    assert [row.k for row in result.rows(SpeculationTime)] == [1, 2, 4, 8] and result.arrays["c"] > 0


def test_the_slider_shows_the_formula():
    figure = speculation_sliders("80 %", "0.10")
    [panel] = figure.panels
    values = figure.values(panel)
    assert values[4][0] == pytest.approx(3.68928 / 1.5) and len(values) == 12
    best = max(range(12), key=lambda number: figure.values(panel, accepted="50 %")[number][0])
    assert best == 1  # k = 2: 1.75 / 1.2 = 1.46; k = 3: 1.875 / 1.3 = 1.44
    assert "1 to 12 proposals" in repr(figure)
