"""The batched trainings, the variants of LARS, LAMB and NovoGrad, and the experiment that compares them."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from hpml_lab.core.experiment import Params, Result
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.system.errors import LabError
from hpml_lab.data import DataSet, load
from hpml_lab.large_batch.experiments.batched_trainings import BatchedTrainings, ImageRows, images, ordinary_net
from hpml_lab.large_batch.experiments.lars_lamb_novograd import (
    FIRST_SEED,
    SMALL,
    LargeBatchRun,
    LayerRatio,
    StateSize,
    judge,
    variant_paths,
)
from hpml_lab.large_batch.experiments.lars_lamb_novograd.variant_paths import TINY, distance, judge_formulas, path
from hpml_lab.large_batch.lessons.rate_scaling import warmed_up
from hpml_lab.large_batch.lessons.variants import VARIANTS, PaperLARS, lamb, lars
from hpml_lab.optim import LAMB, LARS, SGD, Adam, matrices_and_rest


@pytest.fixture(scope="module")
def data():
    """200 small images in float64, so that rounding leaves no doubt."""
    made = torch.Generator().manual_seed(0)
    x, test_x = torch.randn(200, 12, dtype=torch.float64, generator=made), torch.randn(50, 12, generator=made).double()
    return ImageRows("random", x, torch.randint(10, (200,), generator=made), test_x, torch.randint(10, (50,), generator=made))


RULES = {
    "SGD": partial(SGD, momentum=0.9),
    "LARS": lambda params: LARS(matrices_and_rest(params), momentum=0.9, trust_coeff=0.1, weight_decay=0.01),
    "LAMB with a common norm": partial(LAMB, max_grad_norm=0.1),
    "torch.optim.Adam": partial(torch.optim.Adam, weight_decay=0.01),
}


@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
def test_each_seed_trains_as_an_ordinary_loop_would_train_it_alone(data, make):
    seeds, rate = (3, 0, 11), warmed_up(0.05, 4, 20, decay=True)
    trainings = BatchedTrainings(data, seeds, 32, make, hidden=(9, 7)).run(13, rate).run(7, rate)
    assert trainings.losses.shape == (20, 3)
    for s, seed in enumerate(seeds):
        net = ordinary_net(12, (9, 7), seed).double()
        optimizer, losses = make(list(net.parameters())), []
        for t in range(20):
            epoch, index = divmod(t, 200 // 32)
            chosen = trainings.order(seed, epoch)[32 * index : 32 * (index + 1)]
            for group in optimizer.param_groups:
                group["lr"] = rate(t)
            loss = F.cross_entropy(net(data.x[chosen]), data.y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.testing.assert_close(trainings.losses[:, s], torch.stack(losses), rtol=1e-12, atol=1e-12)
        for batched, own in zip(trainings.parameters, net.parameters(), strict=True):
            torch.testing.assert_close(batched[s], own.detach(), rtol=1e-11, atol=1e-12)
        share = (net(data.test_x).argmax(1) == data.test_y).double().mean().item()
        assert trainings.accuracy()[s] == pytest.approx(share)


def test_a_seed_does_not_depend_on_the_others_and_the_random_state_stays(data):
    before = torch.get_rng_state()
    alone = BatchedTrainings(data, [5], 50, RULES["LARS"]).run(8)
    among = BatchedTrainings(data, [1, 5, 2], 50, RULES["LARS"]).run(8)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(alone.losses[:, 0], among.losses[:, 1], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(among.losses[:, 0], among.losses[:, 1])


def test_options_are_set_for_every_seed_and_steps_can_be_watched(data):
    seen = []
    trainings = BatchedTrainings(data, range(2), 100, partial(SGD, momentum=0.9))
    assert trainings.losses.shape == (0, 2)
    trainings.set(momentum=0.5)
    trainings.run(3, rate=lambda t: 0.1 * t, after_step=seen.append)
    groups = [group for optimizer in trainings.optimizers for group in optimizer.param_groups]
    assert seen == [0, 1, 2] and {(group["lr"], group["momentum"]) for group in groups} == {(0.2, 0.5)}


def test_a_batch_larger_than_the_data_is_refused(data):
    with pytest.raises(LabError, match="a batch of 201 needs at least 201 images; there are 200"):
        BatchedTrainings(data, [0], 201, SGD)


def test_the_rate_climbs_and_then_stays_or_falls():
    rate = warmed_up(2.0, 4, 10)
    assert [rate(t) for t in range(6)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    assert [warmed_up(2.0, 4, 8, decay=True)(t) for t in (3, 4, 5, 7)] == [2.0, 2.0, 1.5, 0.5]
    assert warmed_up(1.0, 0, 4)(0) == 1.0


def test_images_are_normalized_and_digits_stand_in_for_mnist(without_mnist):
    found = images(16_384)
    assert found.notes == ["scikit-learn's digits stand in for MNIST. Fetch it."]
    assert found.name == "digits" and found.x.shape == (1300, 64) and found.test_x.shape == (497, 64)
    assert abs(found.x.mean()) < 1e-5 and abs(found.x.std() - 1) < 1e-5


def test_images_larger_than_the_side_are_means_of_their_pixels_and_a_note_says_so(monkeypatch):
    made = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    data = DataSet("mnist", made[:4], torch.arange(4), made[4:], torch.arange(2))
    monkeypatch.setattr(f"{BatchedTrainings.__module__}.mnist_or_digits", lambda device: (data, []))
    found, whole = images(4, side=14), images(4)
    assert found.x.shape == (4, 196) and whole.x.shape == (4, 784) and not whole.notes
    corners = [(row, column) for row in range(0, 28, 2) for column in range(0, 28, 2)]
    means = torch.stack([made[:4, 0, row : row + 2, column : column + 2].mean((1, 2)) for row, column in corners], 1)
    assert torch.allclose(found.x, (means - means.mean()) / means.std(), atol=1e-5)
    assert found.notes == ["quick: images of 14 × 14 pixels, each the mean of 2 × 2. full: all pixels."]


# ---- the variants ----------------------------------------------------------------------------------------------------


def test_each_variant_leads_elsewhere():
    for variant in VARIANTS:
        found = distance(path(variant.base, falls=True), path(variant.make, falls=True))
        assert found == 0 if variant.make is variant.base else found > 1e-3, variant
    ends = [path(variant.make, falls=True)[-1] for variant in VARIANTS]
    assert all((a - b).abs().max() > 1e-6 for i, a in enumerate(ends) for b in ends[:i]), "no two variants are the same"


def test_the_rate_inside_or_outside_the_velocity_is_the_same_while_it_is_constant():
    plain, paper = partial(lars, eps=0.0), partial(PaperLARS, **lars.keywords)
    constant, falling = (distance(path(plain, falls), path(paper, falls)) for falls in (False, True))
    assert constant < TINY and falling > 1e-2


def test_without_decay_the_libraries_lars_is_sgd_and_their_lamb_is_adam():
    sgd = path(partial(SGD, lr=0.01, momentum=0.9))
    assert torch.equal(sgd, path(partial(LARS, lr=0.01, momentum=0.9, always_adapt=False)))
    adam = path(partial(Adam, lr=0.01, eps=1e-6))
    assert distance(adam, path(partial(LAMB, lr=0.01, weight_decay=0.0, always_adapt=False))) < TINY


def test_a_step_of_lamb_is_a_share_of_the_norm_unless_the_decay_is_outside():
    start = torch.cat([p.flatten() for p in variant_paths.gradients_and_start()[1]])
    sizes = [torch.Size(shape).numel() for shape in variant_paths.SHAPES]

    def shares(make):
        points = path(make)
        moved = (points - torch.cat([start[None], points[:-1]])).split(sizes, dim=1)
        before = torch.cat([start[None], points[:-1]]).split(sizes, dim=1)
        return torch.stack([a.norm(dim=1) / b.norm(dim=1) for a, b in zip(moved, before, strict=True)])

    assert ((shares(lamb) / 0.01 - 1).abs() < TINY).all()
    assert ((shares(partial(lamb, weight_decay=1.0, decoupled_weight_decay=True)) / 0.01 - 1).abs() > 1e-3).any()


def test_nvlamb_ignores_the_size_of_each_steps_gradient_and_a_limit_does_not():
    def changed(make):
        return distance(path(make), path(make, scale=lambda t, i: 1.0 + t))

    assert changed(partial(lamb, pre_normalize=True)) < TINY
    assert changed(partial(lamb, max_grad_norm=1e3)) > 1e-3


def test_the_claims_about_the_formulas_hold_and_can_fail(monkeypatch):
    result = Result()
    judge_formulas(result)
    assert [claim.holds for claim in result.claims] == [True] * 2 and all(claim.exact for claim in result.claims)
    monkeypatch.setattr(variant_paths, "LARS", lambda params, lr, momentum, eps: SGD(params, lr=0.01))
    monkeypatch.setattr(variant_paths, "LAMB", lambda params, bias_correction=True, **options: SGD(params, lr=0.01))
    again = Result()
    judge_formulas(again)
    assert [claim.holds for claim in again.claims] == [False] * 2


# ---- the experiment -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(on_digits):
    return on_digits("lars-lamb-novograd", images=512, side=28, seen=4096, small=16, large=256, seeds=2)


def test_the_exact_claims_hold_on_other_data_and_few_seeds(result, tmp_path):
    assert result, [claim for claim in result.claims if claim.exact and not claim.holds]
    assert (len(result.claims), sum(claim.exact for claim in result.claims)) == (6, 3)
    assert "digits stand in" in result.notes[0]
    again = load_result(result.save(tmp_path))
    assert again.rows(LargeBatchRun) == result.rows(LargeBatchRun) and again.figure() is not None


def test_all_runs_have_seen_as_many_images(result):
    runs = result.rows(LargeBatchRun)
    assert [(row.optimizer, row.batch) for row in runs] == [
        ("SGD", 16),
        *((name, 256) for name in ("SGD", "LARS", "LAMB", "NovoGrad")),
    ]
    assert {row.batch * row.steps for row in runs} == {4096} and runs[1].rate == pytest.approx(0.005 * 16)


def test_the_trust_ratios_are_those_of_the_formula(result):
    first = next(row for row in result.rows(LayerRatio) if row.optimizer == "LARS")
    data = load("digits")
    assert len(result.arrays["LARS"]) == 16 and len(result.arrays["LARS"][0]) == 2 and len(result.arrays["LARS"][0][0]) == 4
    x = data.train_x[:512].flatten(1)
    x, ratios, norms = (x - x.mean()) / x.std(), [], []
    for seed in (FIRST_SEED, FIRST_SEED + 1):
        net = ordinary_net(64, (100, 100, 100), seed)
        chosen = torch.randperm(512, generator=torch.Generator().manual_seed(seed * 1_000_003))[:256]
        F.cross_entropy(net(x[chosen]), data.train_y[chosen]).backward()
        weight = net[0].weight
        norms.append(weight.norm().item())
        ratios.append(0.02 * norms[-1] / weight.grad.norm().item())
    assert result.arrays["LARS"][0][0][0] == pytest.approx(ratios[0], rel=1e-4)
    assert first.weight_norm == pytest.approx(min(norms), rel=1e-5), "torch's median of two is the smaller"


def test_the_state_is_counted(result):
    sizes = {row.optimizer: (row.copies, row.numbers) for row in result.rows(StateSize)}
    assert sizes == {"SGD": (1, 0), "LARS": (1, 1), "LAMB": (2, 2), "NovoGrad": (1, 1), "Adam": (2, 1)}


def judged(**changes):
    """Which claims about accuracies hold where all of them would, with the first seed of some rules changed."""
    found = {SMALL: [0.95] * 4, "SGD": [0.85] * 4, "LARS": [0.94] * 4, "LAMB": [0.93] * 4, "NovoGrad": [0.92] * 4}
    for name, accuracy in changes.items():
        found[name] = [accuracy, *found[name][1:]]
    result = Result()
    judge(result, found, Params(large=1024))
    return [claim.holds for claim in result.claims]


@pytest.mark.parametrize(
    "change, fail",
    [({}, []), ({"SGD": 0.945}, [0, 1]), ({"LARS": 0.84}, [1]), ({"LAMB": 0.84}, [1]), ({"NovoGrad": 0.89}, [1])],
)
def test_one_seed_is_enough_to_make_a_claim_fail(change, fail):
    assert judged(**change) == [number not in fail for number in range(2)]


def test_the_papers_lars_moves_zeros_skips_what_has_no_gradient_and_calls_a_closure():
    zero, unused, still = (torch.zeros(3, requires_grad=True) for _ in range(3))
    zero.grad, still.grad = torch.ones(3), torch.zeros(3)
    assert PaperLARS([zero, unused, still], lr=1.0).step(lambda: 5.0) == 5.0
    assert (zero < 0).all() and not unused.any() and torch.equal(still, torch.zeros(3))
    assert "r = η w" in repr(PaperLARS([zero]).explain())
