"""The right answers of the exercises are those of autograd and of the package; memory of NumPy is seen."""

import torch

from hpml_lab.targets.exercises import density_in_a_bin, embedding_backward, quantile_edges
from hpml_lab.targets.lessons.bins import cdf_edges, log_likelihood


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
