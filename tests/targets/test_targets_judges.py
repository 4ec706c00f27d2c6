"""The judges of the exercises on embeddings and bins: known mistakes are refused and named; the package agrees."""

import pytest
import torch

from hpml_lab.core.judge.exercises import check
from hpml_lab.targets.exercises import density_in_a_bin, embedding_backward, quantile_edges
from hpml_lab.targets.lessons.bins import cdf_edges, log_likelihood

JUDGES = {"embedding-backward": embedding_backward, "density-in-a-bin": density_in_a_bin}


@pytest.mark.parametrize("name", JUDGES)
def test_every_known_mistake_is_refused_and_by_itself_named(name):
    assert check(name, JUDGES[name].right)
    mistakes = JUDGES[name].MISTAKES
    pairs = [mistake for mistake in mistakes if ", and " in mistake and mistake != "mean-over-repeats, and nan"]
    skipped = set(pairs) - set(pairs[::40])  # there are hundreds
    for mistake, (answer, hint) in mistakes.items():
        if mistake in skipped:
            continue
        verdict = check(name, answer)
        assert verdict.state == "mistake", mistake
        # Of two mistakes together one may hide the other.
        assert mistake in pairs or verdict.mistake == mistake.split(",")[0], (mistake, verdict)
        assert len(hint) > 20


def test_the_gradient_is_autograds():
    table = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    ids, upstream = torch.randint(9, (4, 5)), torch.randn(4, 5, 3, dtype=torch.float64)
    for padding in (None, 0, 4):
        rows = torch.nn.functional.embedding(ids, table, padding_idx=padding)
        (wanted,) = torch.autograd.grad(rows, table, upstream)
        torch.testing.assert_close(embedding_backward.right(ids, upstream, 9, padding), wanted)


def test_edges_and_densities_are_those_of_the_package():
    made = torch.Generator().manual_seed(0)
    targets = torch.randn(300, generator=made, dtype=torch.float64).exp().mul(4).round()
    for bins in (1, 3, 10, 40):
        edges = quantile_edges.right(targets, bins)
        assert torch.equal(edges, cdf_edges(targets, bins))
        logits = torch.randn(300, len(edges) - 1, generator=made, dtype=torch.float64)
        found = density_in_a_bin.right(logits.softmax(1), targets, edges)
        torch.testing.assert_close(found, log_likelihood(logits, targets, edges))


def test_one_mistake_in_several_special_cases_is_named_after_what_explains_them():
    def large_penalty(probabilities, targets, edges):
        found = density_in_a_bin.right(probabilities, targets, edges)
        return found.clamp(min=-30)

    verdict = check("density-in-a-bin", large_penalty)
    assert verdict.mistake == "finite-log-of-0", "which explains the targets outside, too"
    assert "Only there" not in verdict.message

    def outside(probabilities, targets, edges):
        found = density_in_a_bin.right(probabilities, targets, edges)
        return torch.where((targets < edges[0]) | (targets > edges[-1]), -99.0, found)

    assert check("density-in-a-bin", outside).mistake == "outside-not-impossible"


def test_memory_of_numpy_is_seen_while_it_is_traced_elsewhere():
    import tracemalloc

    import numpy as np

    tracemalloc.start()
    try:
        assert embedding_backward._numpys_bytes(lambda: np.ones(10**6)) >= 8 * 10**6
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
    assert embedding_backward._numpys_bytes(lambda: np.ones(10**6)) >= 8 * 10**6 and not tracemalloc.is_tracing()
