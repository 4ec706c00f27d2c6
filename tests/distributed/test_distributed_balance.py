"""Sentences for several ranks: orders, costs, randomness; and the experiments load-balance, dp-vs-ddp and sync-batch-norm."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab import distributed
from hpml_lab.core.experiment import Result
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.show import style
from hpml_lab.core.timing.timeline import gantt
from hpml_lab.distributed.experiments.dp_vs_ddp import COLORS, _show_waiting, measure_lock, stage_rows
from hpml_lab.distributed.experiments.dp_vs_ddp.on_ranks import LARGE, SMALL, flat_gradient, make_batch, make_net
from hpml_lab.distributed.experiments.load_balance import fastest_round, late_row
from hpml_lab.distributed.experiments.load_balance.on_ranks import SentenceClassifier, padded_batch
from hpml_lab.distributed.lessons import sentence_batches
from hpml_lab.distributed.lessons.data_parallel import STAGES, ThreadedDataParallel

LENGTHS = sentence_batches.sentence_lengths(1000)


@pytest.mark.parametrize("order", sentence_batches.ORDERS)
@pytest.mark.parametrize("ranks, batch", [(1, 4), (2, 16), (3, 7)])
def test_an_epoch_deals_each_sentence_at_most_once_to_equal_batches(order, ranks, batch):
    for plan in itertools.islice(sentence_batches.epochs(order, LENGTHS, ranks, batch, pool=4), 3):
        found = torch.tensor(plan)
        assert found.shape == (1000 // (ranks * batch), ranks, batch)
        assert len(found.unique()) == found.numel()


@pytest.mark.parametrize("order", sentence_batches.ORDERS)
def test_a_seed_gives_one_order_and_epochs_differ_unless_sorted(order):
    first, again, other = (
        list(itertools.islice(sentence_batches.epochs(order, LENGTHS, 2, 8, pool=4, seed=seed), 2)) for seed in (0, 0, 1)
    )
    assert first == again
    assert (first[0] == first[1]) == (first == other) == (order == sentence_batches.SORTED)


def test_a_rank_keeps_its_share_only_where_each_has_buckets_of_its_own():
    def shares(order):
        plans = itertools.islice(sentence_batches.epochs(order, LENGTHS[:960], 2, 16, pool=4), 2)
        return [[{i for step in plan for i in step[rank]} for rank in range(2)] for plan in plans]

    first, second = shares(sentence_batches.OWN)
    assert first == second
    first, second = shares(sentence_batches.TOGETHER)
    assert first != second


def test_the_cost_of_a_plan_is_counted_word_by_word():
    cost = sentence_batches.plan_cost([[[0, 1], [2, 3]], [[4, 5], [6, 7]]], [1, 4, 2, 2, 3, 3, 3, 1])
    assert (cost.useful, cost.padding, cost.waiting) == (19, 3 + 0 + 0 + 2, 4)
    assert cost.total == 2 * 2 * (4 + 3) and cost.speed == 19 / 28 and cost.busy == pytest.approx(24 / 28)


def test_the_expected_longest_is_that_of_all_tuples():
    lengths = [1, 1, 5, 9]
    for draws in (1, 2, 3):
        right = sum(map(max, itertools.product(lengths, repeat=draws))) / 4**draws
        assert sentence_batches.expected_longest(lengths, draws) == pytest.approx(right)


def test_the_statistics_of_randomness_tell_what_they_are_for():
    equal = [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]  # all lengths of a step are equal: the design effect is the batch
    assert sentence_batches.design_effect(equal, [3, 3, 3, 3, 8, 8, 8, 8]) == pytest.approx(4)
    assert sentence_batches.design_effect(equal, [3, 8, 3, 8, 3, 8, 3, 8]) == 0
    forward, backward = [[[0]], [[1]], [[2]]], [[[2]], [[1]], [[0]]]
    assert sentence_batches.position_correlation([forward, forward]) == pytest.approx(1)
    assert sentence_batches.position_correlation([forward, backward]) == pytest.approx(-1)


def test_a_sentence_is_the_same_in_every_batch():
    words, sizes, _ = padded_batch([3, 7], [5] * 3 + [2] + [5] * 4)
    assert words.shape == (2, 5) and sizes.tolist() == [2, 5] and not words[0, 2:].any() and words[0, :2].all()
    alone, _, _ = padded_batch([7], [5] * 8, longest=9)
    assert torch.equal(alone[0, :5], words[1]) and alone.shape == (1, 9)


def test_padding_does_not_change_a_sentences_outputs():
    torch.manual_seed(0)
    net = SentenceClassifier(8).double()
    short, long = (net(*padded_batch(range(8), LENGTHS, longest)[:2]) for longest in (0, 2 * max(LENGTHS)))
    assert torch.allclose(short, long, rtol=1e-12, atol=0)


def test_waits_are_counted_from_the_last_arrival():
    punctual, late = [(0.0, 1.0, 3.5), (4.0, 5.0, 7.5)], [(0.0, 3.0, 3.25), (4.0, 7.0, 7.25)]
    row = late_row(2.0, [punctual, late])
    assert (row.wait_ms, row.formula_ms, row.own_wait_ms) == (2500, 2000, 250)


def test_the_timeline_shows_the_round_that_was_disturbed_least():
    disturbed, quiet = [(0.0, 1.0, 1.5), (1.5, 2.0, 9.0)], [(9.0, 9.5, 10.0), (10.0, 10.5, 11.0)]
    by_rank = [{"runs": {"random": [disturbed, quiet]}}, {"runs": {"random": [disturbed, quiet]}}]
    assert fastest_round(by_rank, "random") == [quiet, quiet]


@pytest.mark.parametrize("samples, replicas", [(12, 3), (7, 3), (2, 3), (4, 1)])
def test_the_stand_in_for_data_parallel_has_the_gradient_of_the_whole_batch(samples, replicas):
    net, whole = make_net(2, 8).double(), make_net(2, 8).double()
    x, y = make_batch(samples, 8)
    x = x.double()
    dp = ThreadedDataParallel(net, replicas)
    for _ in range(2):  # the second adds to the first, and the replicas start anew
        dp.spans = []
        loss = dp.step(x, y, F.cross_entropy)
        F.cross_entropy(whole(x), y).backward()
    torch.testing.assert_close(flat_gradient(net), flat_gradient(whole), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(loss, F.cross_entropy(whole(x), y).detach())
    others = min(samples, replicas) - 1
    assert dp.copied["replicate"] == dp.copied["reduce"] == others * flat_gradient(net).nbytes
    timeline = [{"lane": s.lane, "what": s.what, "start": s.start, "end": s.end} for s in dp.spans]
    rows = stage_rows("net", [timeline], {"forward": [1.0, 3.0, 2.0]})
    assert [row.stage for row in rows] == list(STAGES)
    assert [row.at_once for row in rows] == [2.0 if stage == "forward" else None for stage in STAGES]
    assert set(dp.cpu) == {"forward", "backward"} and min(dp.cpu.values()) > 0


def test_frozen_unused_and_unfrozen_parameters_and_the_mode_of_the_module_reach_every_replica():
    torch.manual_seed(0)
    net = nn.ModuleDict(
        {"first": nn.Linear(4, 6), "norm": nn.BatchNorm1d(6), "unused": nn.Linear(2, 2), "last": nn.Linear(6, 3)}
    )
    net = Chain(net).double().eval()
    net.layers["first"].requires_grad_(False)
    whole, (x, y) = copy.deepcopy(net), (torch.randn(8, 4, dtype=torch.float64), torch.arange(8) % 3)
    dp = ThreadedDataParallel(net.train(), 3)
    net.eval()
    for step in range(2):
        for each in (net, whole):
            each.layers["norm"].running_mean.fill_(0.5 + step)
            each.layers["first"].requires_grad_(step == 1)
        dp.step(x, y, F.cross_entropy)
        F.cross_entropy(whole(x), y).backward()
    for (name, own), right in zip(net.named_parameters(), whole.parameters(), strict=True):
        assert (own.grad is None) == (right.grad is None) == ("unused" in name)
        if own.grad is not None:
            torch.testing.assert_close(own.grad, right.grad)


class Chain(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        for name, layer in self.layers.items():
            x = x if name == "unused" else layer(x)
        return x


@pytest.mark.parametrize("small, holds", [(1.0, True), (1.6, False)])
def test_the_locks_share_is_claimed_only_where_the_intervals_are_apart(small, holds):
    result = Result()
    measure_lock(result, {SMALL: [small - 0.1, small, small + 0.1] * 3, LARGE: [1.6, 1.7, 1.8] * 3})
    assert [claim.holds for claim in result.claims] == [holds]
    assert result.here(f"{SMALL}: threads that compute at once in the forward pass").startswith(f"{small:.2f} (")


@pytest.mark.parametrize("at_once, height", [(1.0, 0.35), (2.0, 0.7), (2.4, 0.7)])
def test_a_threads_bar_is_as_high_as_the_share_of_its_time_in_which_it_computes(at_once, height):
    lanes = ["main thread", "thread 0", "thread 1"]
    spans = [{"lane": lane, "what": "forward", "start": 0.0, "end": 1.0} for lane in lanes]
    axes = style.new_figure(4, 2).subplots()
    gantt(axes, spans, COLORS, lanes)
    main, *threads = axes.containers[0]
    _show_waiting(axes, spans, lanes, {"forward": at_once})
    assert main.get_height() == pytest.approx(0.7)
    assert [bar.get_height() for bar in threads] == pytest.approx([height, height])
    assert [bar.get_y() + bar.get_height() for bar in threads] == pytest.approx([1.35, 2.35]), "it stands on its lane's floor"


@pytest.mark.parametrize("name", ["dp_vs_ddp", "load_balance", "sync_batch_norm"])
def test_an_experiment_holds_its_exact_claims_draws_and_can_be_saved(name, ran, sound, tmp_path):
    result = ran(name.replace("_", "-"))
    sound(result)
    assert sum(claim.exact for claim in result.claims) >= 1
    again = load_result(result.save(tmp_path))
    assert again.tables == result.tables
    assert len(result.claims) == 6
    if name == "dp_vs_ddp":
        for spans in result.arrays["timelines"].values():
            of = {row["what"]: row for row in spans if row["lane"] == "rank 1"}
            assert list(of) == ["forward", "backward", "all-reduce"]
            assert of["backward"]["end"] == of["all-reduce"]["start"] < of["all-reduce"]["end"]
    if name == "load_balance":
        assert distributed.balance_and_randomness(again).figure.axes
