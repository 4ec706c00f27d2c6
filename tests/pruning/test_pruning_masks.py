"""Pruning: masks equal torch's, counts are the lecture's, masks are kept or lost as claimed, and mistakes are distinguished."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from hpml_lab import pruning
from hpml_lab.core.experiment import Result, Table
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.judge.exercises import check
from hpml_lab.core.system.errors import LabError
from hpml_lab.pruning.exercises import keep_the_mask
from hpml_lab.pruning.experiments.pruning.accuracies import (
    DENSE,
    GLOBAL,
    ITERATIVE,
    LAYER,
    LONGER,
    ONE_SHOT,
    RANDOM,
    SparseAccuracy,
    compare_accuracies,
    median_range,
)
from hpml_lab.pruning.experiments.pruning.kept_masks import (
    BEFORE,
    DECAY,
    GRADIENTS,
    HOOKS,
    MOMENTUM,
    ONCE,
    KeptMask,
    compare_masks,
    still_zero,
)
from hpml_lab.pruning.experiments.pruning.lecture_examples import CHANNELS, STACKED, PrunedExample, PrunedLayer
from hpml_lab.pruning.experiments.pruning.lecture_examples import RANDOM as RANDOM_30
from hpml_lab.pruning.experiments.pruning.pruned_files import PrunedFile
from hpml_lab.pruning.lessons import masks
from hpml_lab.quantization import LeNet


@pytest.fixture
def net():
    torch.manual_seed(3)
    return LeNet()


# ---- masks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [0.0, 0.3, 0.99, 5])
def test_the_random_mask_draws_what_torch_draws(net, amount):
    own = copy.deepcopy(net.conv2).weight
    torch.manual_seed(1)
    prune.random_unstructured(net.conv2, "weight", amount)
    torch.manual_seed(1)
    assert torch.equal(masks.random_mask(own, amount), net.conv2.weight_mask.bool())


def test_an_amount_is_a_share_of_what_an_earlier_mask_left(net):
    weight, keep, layer = net.fc3.weight.detach().clone(), None, net.fc3
    for amount in (0.5, 100, 0.1):
        prune.l1_unstructured(layer, "weight", amount)
        keep = masks.l1_mask(weight, amount, keep)
        assert torch.equal(keep, layer.weight_mask.bool())
    assert int((~keep).sum()) == 420 + 100 + 32


@pytest.mark.parametrize("dim, n", [(0, 2), (1, 1), (-1, 2), (0, float("inf"))])
def test_channels_are_torchs_by_any_norm_and_stacked_on_single_weights(net, dim, n):
    weight, layer = net.conv2.weight.detach().clone(), net.conv2
    prune.l1_unstructured(layer, "weight", 0.4)
    earlier = layer.weight_mask.bool()
    for amount in (0.34, 1):
        prune.ln_structured(layer, "weight", amount, n=n, dim=dim)
        earlier = masks.channel_mask(weight, amount, n, dim, earlier)
        assert torch.equal(earlier, layer.weight_mask.bool())


def test_global_masks_are_torchs_also_a_second_time(net):
    weights, keep = {name: w.detach().clone() for name, w in masks.weights_of(net).items()}, None
    pairs = [(net.get_submodule(name.removesuffix(".weight")), "weight") for name in weights]
    for _ in range(2):
        keep = masks.global_masks(weights, 0.2, keep=keep)
        prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=0.2)
        assert all(torch.equal(keep[name], layer.weight_mask.bool()) for name, (layer, _) in zip(keep, pairs, strict=True))
    assert sum(masks.zeros(masks.weights_of(net)).values()) == 21_542


def test_masks_are_applied_in_place_to_the_parameters_that_they_name(net):
    bias = net.conv1.bias.detach().clone()
    found = masks.global_masks(masks.weights_of(net), 0.5)
    masks.apply_masks(net, found | {"fc1.bias": torch.zeros(120, dtype=torch.bool)})
    assert sum(masks.zeros(masks.weights_of(net)).values()) == round(0.5 * 59_838)
    assert not net.fc1.bias.any() and torch.equal(net.conv1.bias, bias) and net.fc1.weight.requires_grad
    assert list(masks.weights_of(nn.Linear(2, 3))) == ["weight"]


@pytest.mark.parametrize(
    "work, message",
    [
        (lambda net: masks.l1_mask(net.conv1.weight, 1.5), "out of range.*0 to 1, as a share"),
        (lambda net: masks.l1_mask(net.conv1.weight, -0.1), "out of range"),
        (lambda net: masks.random_mask(net.conv1.weight, 55), "out of range.*0 to 54"),
        (lambda net: masks.random_mask(net.conv1.weight, "half"), "not a number"),
        (lambda net: masks.l1_mask(net.conv1.weight, float("nan")), "not a number"),
        (lambda net: masks.l1_mask(net.conv1.weight, True), "not a number"),
        (lambda net: masks.l1_mask(net.conv1.weight, 1.0), "prune all 54 weights"),
        (lambda net: masks.channel_mask(net.conv1.weight, 0.95), "prune all 6 channels"),
        (lambda net: masks.channel_mask(net.conv1.bias, 1), "1 dimensions has no channels"),
        (lambda net: masks.channel_mask(net.conv1.weight, 1, dim=4), "no channels along dim = 4"),
        (lambda net: masks.global_masks({}, 0.2), "no weights to prune"),
        (lambda net: masks.l1_mask(net.conv1.weight * torch.inf, 0.2), "NaN or infinite"),
        (lambda net: masks.l1_mask(net.conv1.weight, 0.2, torch.ones(6)), "does not fit"),
        (lambda net: masks.apply_masks(net, {"conv3.weight": torch.ones(1)}), "no parameter 'conv3.weight'.*conv1.weight"),
        (lambda net: masks.apply_masks(net, {"conv1.weight": torch.ones(54)}), "has the shape"),
        (lambda net: masks.apply_masks(nn.Linear(2, 2, bias=False), {"bias": torch.ones(2)}), "no parameter 'bias'"),
    ],
)
def test_bad_input_is_named(net, work, message):
    with pytest.raises(LabError, match=message):
        work(net)


@pytest.mark.parametrize("compute", [prune.identity, nn.utils.parametrizations.weight_norm], ids=["masks", "weight_norm"])
def test_masks_of_a_weight_that_is_computed_are_refused_with_what_to_do(net, compute):
    compute(net.conv2, "weight")
    with pytest.raises(LabError, match="weight of conv2, a .*Conv2d, is computed from other tensors") as raised:
        masks.apply_masks(net, masks.global_masks(masks.weights_of(net), 0.2))
    assert raised.value.fix.startswith("Make it permanent first") and "prune.remove" in raised.value.fix


# ---- the experiment -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(on_digits):
    return on_digits("pruning", images=300, steps=20, test=60, sparsities=(0.5, 0.8), tune_steps=3, batch=32, seeds=2)


def test_the_exact_claims_hold_on_digits_too_and_the_result_is_read_again(result, tmp_path):
    assert result and sum(claim.exact for claim in result.claims) == 3
    assert "digits stand in" in result.notes[0]
    again = load_result(result.save(tmp_path))
    assert again.rows() == result.rows() and again.rows(KeptMask) == result.rows(KeptMask)
    for made in (again, result):
        assert len(made.figure().axes) == 2
        assert pruning.accuracy_by_sparsity(made).figure.axes and pruning.lost_masks(made).figure.axes


def test_the_examples_have_the_lectures_counts(result):
    assert [(row.elements, row.zeros, row.equal) for row in result.rows(PrunedExample)] == [
        (54, 16, True),
        (6, 3, True),
        (54, result.here("zeros of conv1, at random and then channels"), True),
        (54, 27, True),
    ]
    drawn = {name: torch.as_tensor(tensors["weight"]) for name, tensors in result.arrays["conv1"].items()}
    whole = {name: (weight == 0).flatten(1).all(1) for name, weight in drawn.items()}
    assert whole[CHANNELS].sum() == whole[STACKED].sum() == 3
    left = int((drawn[RANDOM_30][~whole[STACKED]] == 0).sum())
    assert result.here("zeros of conv1, at random and then channels") == 27 + left, "the random zeros of channels that stay"
    layers = result.rows(PrunedLayer)
    assert max(layers, key=lambda row: row.fresh_share).layer == "fc1"
    assert [row.weights for row in layers] == [54, 864, 48_000, 10_080, 840]
    expected = sum(row.weights * row.expected / 100 for row in layers)
    assert expected == pytest.approx(0.2 * 59_838), "the shares that are expected are those of one threshold"
    assert all(abs(row.fresh_share - row.expected) < 6 for row in layers)


def test_what_a_file_holds(result):
    dense, masked, removed, sparse = result.rows(PrunedFile)
    assert (dense.tensor_bytes, masked.tensor_bytes) == (4 * 60_074, 4 * (60_074 + 59_838))
    assert removed.tensor_bytes == dense.tensor_bytes and masked.hooks == 5 and removed.hooks == 0
    assert removed.file_kb > 0.99 * dense.file_kb, "zeros save file only where it is compressed"
    assert masked.names == "bias, weight_orig, weight_mask" and dense.parameters == masked.parameters == 60_074
    assert sparse.compressed_kb < removed.compressed_kb < dense.compressed_kb < masked.compressed_kb


def test_all_ways_are_tuned_and_the_control_has_as_many_steps_as_iterative_pruning(result):
    rows = result.rows(SparseAccuracy)
    plan = [(DENSE, 0, 3), *((way, s, 3) for way in ONE_SHOT for s in (50, 80)), (ITERATIVE, 50, 3), (ITERATIVE, 80, 6)]
    assert [(row.way, row.sparsity, row.steps) for row in rows] == [*plan, (LONGER, 80, 6)]
    assert {len(row.after_by_seed) for row in rows} == {2}
    assert all(row.before == median_range(row.before_by_seed) for row in rows)
    at_once = {row.way: row for row in rows if row.sparsity == 50}
    assert at_once[ITERATIVE].before_by_seed == at_once[GLOBAL].before_by_seed, "its first round prunes the same net"


def judged(**changes):
    """The claims about accuracies that would all hold, with some changed in one of two seeds."""
    found = {"dense_0": [97, 97], "random_50": [30, 30], "random_80": [10, 10], "layer_50": [95, 95], "layer_80": [60, 60]}
    found |= {"global_50": [96, 96], "global_80": [96, 96], "iterative_50": [96, 96], "iterative_80": [96, 96]}
    found |= {"longer_80": [96, 96]}
    names = {"dense": DENSE, "random": RANDOM, "layer": LAYER, "global": GLOBAL, "iterative": ITERATIVE, "longer": LONGER}
    rows = []
    for key, values in found.items():
        before = [changes.get(f"{key}_before", values[0]), values[1]]
        after = [changes.get(key, values[0]), values[1]]
        rows.append(SparseAccuracy(names[key.split("_")[0]], float(key.split("_")[1]), "", 1, "", before, after))
    made = Result([Table("accuracy", rows)])
    compare_accuracies(made)
    return [claim.holds for claim in made.claims]


@pytest.mark.parametrize(
    "change, fails",
    [({}, None), ({"random_50_before": 96}, 0), ({"random_80": 97}, 0), ({"dense_0": 98.5}, 1), ({"longer_80": 95}, 2)],
)  # fmt: skip
def test_one_seed_is_enough_to_make_a_claim_fail(change, fails):
    assert judged(**change) == [number != fails for number in range(3)]


def test_a_claim_about_masks_fails_if_its_way_behaves_otherwise(result):
    rows = copy.deepcopy(result.rows(KeptMask))
    lost = {row.way: row.lost for row in rows}
    assert min(lost[ONCE], lost[BEFORE], lost[MOMENTUM]) > 0 == lost[GRADIENTS] == lost[DECAY]
    hooked = next(row for row in rows if row.way == HOOKS)
    assert hooked.stored_moved > 0, "weight decay moves what is stored"
    hooked.lost = 1.0
    made = Result([Table("masks", rows)])
    compare_masks(made)
    assert [claim.holds for claim in made.claims] == [False]


# ---- the exercises --------------------------------------------------------------------------------------------------


def test_messages_show_the_first_place_that_differs():
    from_one_layer = check("pruned-share", lambda net: 0.5 * any(bool((x == 0).any()) for x in net.state_dict().values()))
    assert "5 of 18, 24 of 80, 30 of 40 zeros, which is 59 / 138; yours is 0.5" in from_one_layer.message

    def masks_one(net, masks, optimizer, batches):
        keep_the_mask.right(net, dict(list(masks.items())[:1]), optimizer, batches)

    assert "9 pruned weights were not 0 in the pass of step 0" in check("keep-the-mask", masks_one).message


def test_pruned_weights_that_are_still_0_are_counted_by_their_reason():
    mask = torch.tensor([[True, True, False], [True, False, False], [True, True, False]])
    before = torch.ones(3, 3)
    after = before * mask
    after[0] += torch.tensor([1.0, 1.0, 0.0])  # the unit that learns; its third input is always 0
    after[2] += torch.tensor([1.0, 1.0, 0.0])
    found = still_zero({"w": before}, {"w": after}, {"w": mask})
    assert found == {"dead_unit": 2, "zero_input": 2}


def test_a_weight_that_two_layers_share_is_listed_and_pruned_once():
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    net[2].weight = net[0].weight
    weights = masks.weights_of(net)
    assert [*weights] == ["0.weight", "4.weight"]
    masks.apply_masks(net, masks.global_masks(weights, 0.5))
    assert sum(masks.zeros(weights).values()) == (64 + 32) // 2


def test_a_head_that_is_tied_to_an_embedding_is_masked_under_its_name():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.words.weight

    net = Language()
    [(name, weight)] = masks.weights_of(net).items()
    masks.apply_masks(net, {name: torch.zeros_like(weight, dtype=torch.bool)})
    assert not net.words.weight.any()
