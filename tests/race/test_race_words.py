"""Bags of words: the gradient is autograd's, the texts follow Zipf's law, a sparse gradient holds what the dense one does."""

import math

import pytest
import torch
from torch.nn import functional as F

from hpml_lab.core.experiment import Result
from hpml_lab.core.timing.clock import PLACEBO, Timing
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.race.experiments import sparse_data as sparse
from hpml_lab.race.experiments.sparse_data import sparse_steps
from hpml_lab.race.lessons import seed_by_seed
from hpml_lab.race.lessons.word_vectors import WordVectors, gradient_bytes, zipf_words
from hpml_lab.race.tools.bags_of_words import Learned, corpus, learn
from hpml_lab.race.tools.program import Setting

CPU = torch.device("cpu")
SETTINGS = [Setting("SGD", lr=1.0), Setting("Momentum", lr=0.3), Setting("Adam", lr=0.03), Setting("Adagrad", lr=0.3)]


@pytest.fixture(scope="module")
def made():
    return corpus(range(3), vocabulary=60, texts=400, held_out=300, power=0.5, length=8)


def test_words_follow_zipfs_law():
    words = zipf_words(1000, 4000, 50, seed=0)
    share = torch.bincount(words.flatten(), minlength=1000) / words.numel()
    harmonic = sum(1 / j for j in range(1, 1001))
    for rank in (1, 2, 10, 100):
        assert share[rank - 1].item() == pytest.approx(1 / rank / harmonic, rel=0.15)
    assert words.min() == 0 and words.max() < 1000


def test_the_rarest_word_is_drawn_too():
    words = zipf_words(2, 3000, 1, seed=0)
    assert words.double().mean().item() == pytest.approx(1 / 3, abs=0.03), "1/2 against 1"


def test_labels_are_the_sign_of_the_hidden_weights_and_rare_words_decide_where_the_frequent_ones_say_otherwise(made):
    checked = 0
    for r in range(3):
        for n in range(50):
            present = set(made.test.words[r, n].tolist())
            whole = sum(made.weights[r, j].item() for j in present)
            frequent = sum(made.weights[r, j].item() for j in present if j < 6)
            assert made.test.labels[r, n] == (whole > 0)
            assert made.test.by_rare[r, n] == ((whole > 0) != (frequent > 0))
            checked += int(made.test.by_rare[r, n])
    assert 10 < checked < 140


def test_seeds_have_their_own_corpora_and_the_same_seed_the_same(made):
    again = corpus([1], vocabulary=60, texts=400, held_out=300, power=0.5, length=8)
    assert torch.equal(again.train.words[0], made.train.words[1])
    assert not torch.equal(made.train.words[0], made.train.words[1])
    assert not torch.equal(made.valid.words, made.test.words)


def test_power_makes_rare_words_weigh_more():
    alike, rare = (corpus(range(8), 500, 10, 10, power).weights for power in (0.0, 0.5))
    assert alike[:, :50].std().item() == pytest.approx(alike[:, -50:].std().item(), rel=0.15)
    assert rare[:, -50:].std() > 2 * rare[:, :50].std()


def test_all_classifiers_learn_what_an_ordinary_loop_teaches_each(made):
    learned = learn(SETTINGS, made, epochs=2, batch=16)
    for k, setting in enumerate(SETTINGS):
        for r in range(3):
            theta = torch.zeros(60, requires_grad=True)
            optimizer = setting.build([theta])
            for _ in range(2):
                for start in range(0, 400, 16):
                    x = made.train.bags(slice(start, start + 16), 60)[r]
                    optimizer.zero_grad()
                    F.binary_cross_entropy_with_logits(x @ theta, made.train.labels[r, start : start + 16]).backward()
                    optimizer.step()
            assert theta.abs().max() > 0.1
            assert (learned.theta[k, r] - theta.detach()).abs().max() <= 2e-4  # float32, 50 steps
            bags = made.test.bags(slice(0, None), 60)[r]
            right = (bags @ learned.theta[k, r] > 0) == made.test.labels[r].bool()
            assert learned.test[k, r].item() == pytest.approx(right.double().mean().item(), abs=0.005)
            rare = made.test.by_rare[r]
            assert learned.test_rare[k, r].item() == pytest.approx(right[rare].double().mean().item(), abs=0.02)


def test_times_seen_counts_texts_not_words(made):
    right = [sum(j in text for text in made.train.words[0].tolist()) for j in (0, 5, 59)]
    assert made.times_seen()[0, [0, 5, 59]].tolist() == right


def test_a_sparse_gradient_is_the_dense_one_in_less_memory():
    words, labels = zipf_words(5000, 16, 10, seed=1), torch.arange(16) % 2
    dense, sparse_one = (WordVectors(5000, 8, kind) for kind in (False, True))
    for vectors in (dense, sparse_one):
        vectors.backward(words, labels)
    assert sparse_one.weight.grad.is_sparse and not dense.weight.grad.is_sparse
    assert torch.allclose(sparse_one.weight.grad.to_dense(), dense.weight.grad, atol=1e-7)
    rows = words.unique().numel()
    assert gradient_bytes(dense.weight.grad) == 5000 * 8 * 4
    assert gradient_bytes(sparse_one.weight.grad) == rows * (8 + 8 * 4)


def sparse_adam_claims():
    result = Result()
    sparse_steps.judge_sparse_adam(result, CPU)
    return result.claims


def test_every_exact_claim_on_sparse_adam_holds_and_is_computed(monkeypatch):
    claims = sparse_adam_claims()
    assert len(claims) == 2 and all(claim.holds and claim.exact for claim in claims)

    class DenseSteps(torch.optim.Adam):  # dense Adam in SparseAdam's place
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad = p.grad.to_dense()
            super().step()

    monkeypatch.setattr(sparse_steps, "SparseAdam", DenseSteps)
    assert [claim.holds for claim in sparse_adam_claims()] == [False, True]
    monkeypatch.setattr(sparse_steps, "SparseAdam", lambda p, lr, eps: torch.optim.SGD(p, lr=lr))
    assert [claim.holds for claim in sparse_adam_claims()] == [True, False]


@pytest.mark.parametrize("count", range(5, 20))
def test_wins_needed_is_the_smallest_count_that_chance_reaches_in_at_most_one_race_of_twenty(count):
    def chance(k):
        return sum(math.comb(count, i) for i in range(k, count + 1)) / 2**count

    enough = seed_by_seed.wins_needed(count)
    assert chance(enough) <= 0.05 < chance(enough - 1)


def test_four_seeds_are_too_few_to_decide_anything():
    assert seed_by_seed.wins_needed(4) > 4


def test_being_ahead_counts_pairs_and_a_tie_is_no_win():
    assert seed_by_seed.ahead([2] * 8, [1] * 8)[0]
    assert seed_by_seed.ahead([2] * 7 + [0], [1] * 8)[0]
    assert not seed_by_seed.ahead([2] * 6 + [1, 1], [1] * 8)[0]
    assert not seed_by_seed.ahead([1] * 8, [2] * 8)[0]
    assert seed_by_seed.ahead([0.5] * 8, [0.25] * 8)[1].endswith("medians 50.00 and 25.00 %")


def made_score(name, valid, rare, test=None):
    test = test or rare
    lists = dict(valid=[valid], test=test, rare=rare, first=[value - 0.5 for value in test])
    return sparse.WordScore("x", name, 0.1, accuracy="", on_rare="", at_first_rate=0.0, at_edge=False, **lists)


def made_scores(adaptive, others, **changed):
    """Scores of all optimizers, (validation, rare words) each, for 8 seeds."""
    values = {name: adaptive for name in sparse.ADAPTIVE} | {name: others for name in sparse.OTHERS} | changed
    return {name: made_score(name, [valid] * 8, [rare] * 8) for name, (valid, rare) in values.items()}


def judged(scores):
    result = Result()
    sparse.judge_corpus(result, scores, "x")
    return [claim.holds for claim in result.claims]


def test_the_claim_on_sparse_data_can_fail():
    wins = made_scores((0.8, 0.7), (0.7, 0.6))
    assert judged(wins) == [True]
    assert judged(made_scores((0.8, 0.7), (0.7, 0.9))) == [False]
    for worse in ("test", "rare"):
        scores = {name: made_score(name, row.valid[0], row.rare, row.test) for name, row in wins.items()}
        for name in sparse.ADAPTIVE:
            setattr(scores[name], worse, [0.5] * 8)
        assert judged(scores) == [False]
    result = Result()
    sparse.judge_tuning(result, wins, "x")
    assert not result.claims[0].holds


def test_the_best_rate_is_chosen_on_validation_texts_and_reported_on_test_texts():
    count = len(sparse.SETTINGS)
    names = [setting.optimizer for setting in sparse.SETTINGS]
    values = torch.arange(2.0 * count, dtype=torch.float64).view(count, 2) / 1000
    test, rare = values + 0.1, values + 0.2
    valid = torch.full((count, 2), 0.5, dtype=torch.float64)
    chosen = {"SGD": 2, "Adam": 5, "Adagrad": 1}
    for name, best in chosen.items():
        valid[names.index(name) + best] = 0.9
    scores = sparse.word_scores("x", Learned(torch.zeros(0), valid, test, rare))
    for name, best in chosen.items():
        first, score = names.index(name), scores[name]
        k = first + best
        assert score.lr == sparse.RATES[name][best] and score.at_edge == (best == 5)
        assert score.test == test[k].tolist() and score.rare == rare[k].tolist()
        assert score.first == test[first].tolist() and score.valid[best] == [0.9, 0.9]


def test_the_lead_is_on_the_texts_that_rare_words_decide_in_points():
    scores = made_scores((0.6, 0.1), (0.6, 0.1))
    scores["Adam"] = made_score("Adam", [0.8] * 3, [0.75] * 3, test=[0.99] * 3)
    scores["Momentum"] = made_score("Momentum", [0.7] * 3, [0.5] * 3, test=[0.6] * 3)
    assert sparse.leaders(scores) == ("Adam", "Momentum") and sparse.lead_on_rare(scores) == pytest.approx(25)


def test_the_costs_of_a_step_name_dense_and_sparse_as_they_are(monkeypatch):
    seconds = {"Adam": 0.008, "SparseAdam": 0.002}
    ran = []

    def on_known_times(works, samples, placebo):
        assert placebo == "Adam"
        for name, work in works.items():
            ran.append(type(work.__defaults__[1]).__name__)
            assert ran[-1] == name
            work()
        return {name: Timing((seconds[name],) * samples, 1) for name in works} | {PLACEBO: Timing((0.008,) * samples, 1)}

    monkeypatch.setattr(sparse_steps, "interleaved", on_known_times)
    rows, gain = sparse_steps.step_costs((50, 400), 4, 6, 10, CPU, 5)
    for row in rows:
        touched = len(set(zipf_words(row.vocabulary, 6, 10, 0).flatten().tolist()))
        assert row.rows == touched < 60
        assert row.dense_bytes == row.vocabulary * 4 * 4
        assert row.sparse_bytes == touched * (8 + 4 * 4)
        assert (row.adam_us, row.sparse_adam_us) == pytest.approx((8000, 2000))
        assert (row.gain, row.interval, row.verdict) == (pytest.approx(4), "4 to 4", "faster")
    assert ran == ["Adam", "SparseAdam"] * 2 and gain.ratio == pytest.approx(4)


@pytest.mark.parametrize(("gain", "holds"), [(SpeedUp(4.0, 3.0, 5.0, 0.1), True), (SpeedUp(1.05, 1.01, 1.1, 0.1), False)])
def test_a_faster_sparse_step_is_claimed_outside_the_noise_alone(gain, holds):
    costs = [sparse_steps.SparseStepCost(n, 10, 1, 1, float(n), 1.0, 1.0, "", "") for n in (100, 1000)]
    result = Result()
    sparse.judge_growth(result, costs, gain)
    assert result.claims[0].holds == holds and str(gain) in result.claims[0].measured
    assert "vocabulary ×10: Adam ×10, SparseAdam ×1" in result.claims[0].measured
