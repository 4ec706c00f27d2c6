"""Attention: the online softmax against the composed form, what each keeps, and lengths that do not fit."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from hpml_lab.core.timing.clock import Ceiling
from hpml_lab.tuning.exercises import attention_backward
from hpml_lab.tuning.experiments import attention_kernels
from hpml_lab.tuning.experiments.attention_kernels import (
    COMPOSED,
    ONLINE,
    AttentionRun,
    kept_bytes,
    largest_difference,
    step_of,
)
from hpml_lab.tuning.lessons.attention import composed_attention, one_pass, online_attention

SMALL = attention_kernels.QUICK | dict(lengths=(32, 64), gpu_lengths=(32, 64), shown=64, block=16, width=8, samples=5)
ATTENTION = replace(attention_kernels.attention_kernels, quick=SMALL)
FLASH = "SDPA, flash"


@pytest.fixture
def known_ceiling(monkeypatch, known_times):
    """100 GB/s and 200 GFLOP/s; the composed form takes 4 ms, all others 1 ms."""
    known_times(attention_kernels, lambda name, _: 4e-3 if name == COMPOSED else 1e-3)
    monkeypatch.setattr(attention_kernels, "ceiling", lambda *_: Ceiling(100.0, 200.0, 1))


def tensors(*shape):
    return torch.randn(4, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()


@pytest.mark.parametrize("block", [1, 3, 8, 100])
def test_the_online_softmax_is_the_composed_form_whatever_the_block(block):
    given = tensors(2, 3, 13, 5)
    truth = step_of(composed_attention, given)()
    assert largest_difference(step_of(lambda q, k, v: online_attention(q, k, v, block), given)(), truth) < 1e-12
    assert largest_difference(step_of(F.scaled_dot_product_attention, given)(), truth) < 1e-12


def test_scores_of_a_thousand_and_fewer_queries_than_keys():
    q, k, v, _ = tensors(1, 9, 4)
    q = 1000 * q[:, :3]
    output, logarithm = one_pass(q, k, v, 2)
    torch.testing.assert_close(output, composed_attention(q, k, v))
    torch.testing.assert_close(logarithm, torch.logsumexp(q @ k.mT / 2, -1, keepdim=True))


def test_the_backward_passes_of_blocks_of_keys_add_up_to_autograds():
    q, k, v, upstream = tensors(2, 9, 4)
    output, logarithm = one_pass(q, k, v, 5)
    blocks = zip(k.split(4, -2), v.split(4, -2), strict=True)
    parts = [attention_backward.right(q, keys, values, output, logarithm, upstream) for keys, values in blocks]
    dq, dk, dv = zip(*parts, strict=True)
    _, *truth = step_of(composed_attention, (q, k, v, upstream))()
    assert largest_difference((sum(dq), torch.cat(dk, -2), torch.cat(dv, -2)), truth) < 1e-13


def test_what_is_kept_is_n_times_n_or_n_times_d():
    given = tensors(2, 32, 4)
    assert kept_bytes(composed_attention, given) == 8 * 2 * 32 * 32
    assert kept_bytes(lambda q, k, v: online_attention(q, k, v, 8), given) == 8 * 2 * 32 * (4 + 1)
    assert kept_bytes(lambda q, k, v: one_pass(q, k, v, 8)[0], given) > 8 * 2 * 32 * 32


def test_a_wrong_online_softmax_is_noticed(monkeypatch, known_ceiling):
    wrong = lambda q, k, v, block: online_attention(q, k, v, block) * (1 + 1e-9)  # noqa: E731
    monkeypatch.setattr(attention_kernels, "online_attention", wrong)
    [claim] = [claim for claim in ATTENTION("quick", device="cpu").claims if "1e-12" in claim.text]
    assert not claim.holds and claim.measured == "1e-09"


def test_attention_kernels(sound, known_ceiling):
    result = ATTENTION("quick", device="cpu")
    sound(result)
    rows = {(row.implementation, row.length): row for row in result.rows(AttentionRun)}
    assert result.here("kept at 64 tokens, composed over SDPA") == pytest.approx(64 / (8 + 1))
    assert rows[COMPOSED, 64].largest_mb == pytest.approx(4 * 2 * 64 * 64 / 1e6)
    assert rows[ONLINE, 64].largest_mb == pytest.approx(4 * 2 * 64 * 16 / 1e6)
    assert any("memory-efficient, SDPA, cuDNN" in note for note in result.notes)
    for row in rows.values():
        assert row.rate_share == pytest.approx(12 * 2 * 8 * row.length**2 / row.time_ms / 200e6)
        assert row.gain == (None if row.implementation == COMPOSED else pytest.approx(4))
    assert str(result.here("SDPA's fastest kernel over composed")).startswith("4× faster")


def test_a_length_that_does_not_fit_is_not_run_and_says_so(monkeypatch, known_ceiling, sound):
    monkeypatch.setattr(attention_kernels, "free_memory", lambda _: 3e5)
    result = replace(ATTENTION, quick=SMALL | dict(lengths=(32, 64, 128)))("quick", device="cpu")
    sound(result)
    refused = [(row.implementation, row.length) for row in result.rows(AttentionRun) if row.time_ms is None]
    assert (COMPOSED, 128) in refused and (FLASH, 128) not in refused
    assert any("composed: 128 tokens would need" in note for note in result.notes)


@pytest.mark.cuda
def test_on_a_gpu_the_exact_claims_hold():
    result = ATTENTION("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
