"""The alpha-beta model: its formulas against a simulation, its limits, its fit, and the sliders that show it."""

import math

import numpy as np
import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.distributed.exercises import ranks_at_half
from hpml_lab.distributed.lessons.alpha_beta import (
    ALGORITHMS,
    LINKS,
    MIB,
    Interconnect,
    efficiency,
    fit_link,
    hierarchical_seconds,
    ring_seconds,
    strong_efficiency,
    transformer_seconds,
    tree_seconds,
    weak_efficiency,
)
from hpml_lab.distributed.tools.extrapolation import COUNTS, STRONG_KIND, WEAK_KIND, extrapolated, step_seconds
from hpml_lab.distributed.views.scaling_sliders import SIZES, scaling_sliders

LINK = Interconnect("test", 1e-3, 1e9)


def simulated_ring(ranks, nbytes, link):
    """Each rank has a clock. In each step it sends a part to its right neighbor and waits for the one from the left."""
    clocks = [0.0] * ranks
    for _ in range(2 * (ranks - 1)):
        sent = [clock + link.latency + nbytes / ranks / link.bandwidth for clock in clocks]
        clocks = [max(sent[rank], sent[rank - 1]) for rank in range(ranks)]
    return max(clocks)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 17])
def test_the_ring_costs_what_its_steps_cost(ranks):
    assert ring_seconds(ranks, 1e8, LINK) == pytest.approx(simulated_ring(ranks, 1e8, LINK))


def test_one_rank_communicates_nothing():
    for cost in ALGORITHMS.values():
        assert cost(1, 1e9, LINK) == 0


def test_the_tree_has_the_depth_of_a_tree_and_moves_the_bytes_twice():
    assert [tree_seconds(n, 0, LINK) / 2e-3 for n in (2, 3, 4, 5, 8, 8192)] == pytest.approx([1, 2, 2, 3, 3, 13])
    free = Interconnect("no latency", 0.0, 1e9)
    assert tree_seconds(1000, 1e9, free) == pytest.approx(2.0)
    assert ring_seconds(1000, 1e9, free) == pytest.approx(2.0 * 999 / 1000)


def test_the_hierarchy_is_a_ring_inside_and_an_all_reduce_of_one_eighth_between_the_nodes():
    inside = Interconnect("inside", 1e-6, 1e11)
    assert hierarchical_seconds(8, 8e9, LINK, inside) == ring_seconds(8, 8e9, inside)
    between = hierarchical_seconds(32, 8e9, LINK, inside) - ring_seconds(8, 8e9, inside)
    assert between == pytest.approx(tree_seconds(4, 1e9, LINK))
    with pytest.raises(LabError, match="multiple of 8"):
        hierarchical_seconds(12, 8e9, LINK)


def test_efficiency_is_the_share_of_work_and_overlap_hides_what_it_can():
    assert efficiency(1.0, 1.0) == 0.5
    assert efficiency(1.0, 0.5, overlap=0.6) == 1.0
    assert efficiency(1.0, 1.0, overlap=0.5) == pytest.approx(1 / 1.5)
    assert 4 * strong_efficiency(4, 8.0, 1e9, LINK) == pytest.approx(8.0 / (2.0 + ring_seconds(4, 1e9, LINK)))
    assert weak_efficiency(4, 2.0, 1e9, LINK) == strong_efficiency(4, 8.0, 1e9, LINK)


@pytest.mark.parametrize("ranks", [2, 4, 9])
def test_a_fit_finds_the_link_that_made_the_times(ranks):
    sizes = [MIB << power for power in range(5)]
    found = fit_link(ranks, sizes, [ring_seconds(ranks, size, LINK) for size in sizes])
    assert (found.latency, found.bandwidth) == (pytest.approx(1e-3), pytest.approx(1e9))


def test_small_messages_do_not_enter_the_fit():
    sizes = [4096, 65536, MIB, 4 * MIB, 16 * MIB]
    times = [1e-6, 1e-6, *(ring_seconds(2, size, LINK) for size in sizes[2:])]
    assert fit_link(2, sizes, times).bandwidth == pytest.approx(1e9)
    assert fit_link(2, sizes, times, smallest=0).bandwidth != pytest.approx(1e9, rel=0.2)


def test_a_burst_that_passes_for_free_leaves_the_bandwidth_right_and_no_negative_latency():
    sizes = [MIB, 4 * MIB]
    found = fit_link(2, sizes, [(size - 262144) / 1e9 for size in sizes])
    assert found.latency == 0 and found.bandwidth == pytest.approx(1e9)


def test_noise_that_turns_the_line_around_gives_a_link_between_the_two_measured_ones():
    found = fit_link(2, [MIB, 4 * MIB], [2.0, 1.0])
    assert found.latency == 0 and MIB / 2 < found.bandwidth < 4 * MIB


@pytest.mark.parametrize(
    "ranks, sizes, times, words",
    [(1, [MIB, 2 * MIB], [1, 2], "One rank"), (2, [MIB, MIB], [1, 1], "two sizes"), (2, [1024, 4 * MIB], [1, 2], "two sizes")],
)
def test_times_that_say_nothing_about_a_link_are_refused(ranks, sizes, times, words):
    with pytest.raises(LabError, match=words):
        fit_link(ranks, sizes, times)


def test_every_published_constant_has_its_source_and_is_in_order_of_speed():
    assert all(len(link.source) > 40 for link in LINKS.values())
    bandwidths = [link.bandwidth for link in LINKS.values()]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert all(name == link.name and 1e-6 < link.latency < 1e-3 for name, link in LINKS.items())


def test_the_exercise_has_one_answer_because_efficiency_only_falls():
    for case in ranks_at_half.CASES.values():
        compute, nbytes, latency, bandwidth = case
        link = Interconnect("case", latency, bandwidth)
        values = [strong_efficiency(n, compute, nbytes, link) for n in range(1, 700)]
        assert all(np.diff(values) < 0)
        answer = ranks_at_half.ranks_at_half(*case)
        assert strong_efficiency(answer, compute, nbytes, link) < 0.5
        assert answer == 2 or strong_efficiency(answer - 1, compute, nbytes, link) >= 0.5
    tie = ranks_at_half.CASES["9 s, 0.5 GB, 250 ms, 1 GB/s"]
    assert strong_efficiency(4, *tie[:2], Interconnect("tie", *tie[2:])) == 0.5 and ranks_at_half.ranks_at_half(*tie) == 5


def test_the_sliders_show_the_model():
    figure = scaling_sliders()
    bars, curves = figure.panels
    chosen = {"parameters": "405 billion", "link": "NVLink 4", "ranks": "64", "scaling": STRONG_KIND}
    for name, words in chosen.items():
        assert figure.values(bars, **{name: words}) != figure.values(bars), "each control changes the picture"
    compute, costs = step_seconds(405e9, LINKS["NVLink 4"], 64, STRONG_KIND)
    rows = figure.values(bars, **chosen)
    assert [row[1:] for row in rows] == [[compute, cost] for cost in costs.values()]
    assert [row[0] for row in rows] == [100 * efficiency(compute, cost) for cost in costs.values()]
    assert [line[COUNTS.index(64)] for line in figure.values(curves, **chosen)] == [row[0] for row in rows]


def test_the_sliders_numbers_are_those_of_the_formulas():
    compute, costs = step_seconds(SIZES["8 billion"], LINKS["InfiniBand NDR"], 64, WEAK_KIND)
    assert compute == pytest.approx(6 * 8e9 * 8192 / 400e12)
    assert costs["ring"] == pytest.approx(2 * 63 * (14e-6 + 16e9 / (64 * 47e9)))
    assert step_seconds(8e9, LINKS["InfiniBand NDR"], 64, STRONG_KIND)[0] == pytest.approx(6 * 8e9 * 2**22 / 64 / 400e12)
    assert math.isclose(costs["tree"], 2 * 6 * 14e-6 + 2 * 16e9 / 47e9)


def test_the_extrapolation_is_that_of_the_formulas():
    link = LINKS["InfiniBand HDR"]
    rows = {(row.algorithm, row.ranks): row for row in extrapolated(1e9, link)}
    assert len(rows) == 3 * 14
    compute = transformer_seconds(1e9, 2**22)
    for (algorithm, ranks), row in rows.items():
        assert row.strong == pytest.approx(100 * strong_efficiency(ranks, compute, 2e9, link, algorithm))
        assert row.weak == pytest.approx(100 * weak_efficiency(ranks, transformer_seconds(1e9, 8192), 2e9, link, algorithm))
        assert row.all_reduce_ms == pytest.approx(1e3 * ALGORITHMS[algorithm](ranks, 2e9, link))
