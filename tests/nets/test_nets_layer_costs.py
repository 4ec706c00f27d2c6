"""Costs by layer agree with counts by hand, with what autograd keeps of a real run, and with how far a gradient reaches."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.counting import saved_tensors
from hpml_lab.nets.experiments import layer_table as module
from hpml_lab.nets.experiments.layer_table import NetCosts
from hpml_lab.nets.lessons.layer_costs import BETWEEN, layer_costs

SMALL = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 10))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 5, padding=2)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return F.relu(torch.cat([self.narrow(x), self.wide(x)], 1)) * self.scale.sum()


def test_a_small_net_as_counted_by_hand():
    conv, relu, pool, flatten, linear, between = layer_costs(SMALL, torch.zeros(1, 1, 8, 8))
    assert [row.name for row in (conv, relu, pool, flatten, linear, between)] == ["0", "1", "2", "3", "4", BETWEEN]
    assert [conv.parameters, linear.parameters] == [8 * 9 + 8, 8 * 16 * 10 + 10]
    assert [conv.flops, linear.flops] == [64 * 8 * 9 * 2, 8 * 16 * 10 * 2]
    assert [conv.values, pool.values, linear.values] == [8 * 64, 8 * 16, 10]
    assert [conv.kept, relu.kept, pool.kept] == [0, 4 * 8 * 64, 8 * 8 * 16], "the input is there anyway; a pool keeps places"
    assert linear.kept == 4 * 8 * 16, "its input"
    assert [conv.field, relu.field, pool.field, linear.field] == ["3 × 3", "3 × 3", "4 × 4", ""]
    assert (between.parameters, between.flops, between.kept) == (0, 0, 0)


def test_what_forward_does_itself_is_in_the_last_row():
    narrow, wide, between = layer_costs(Residual(), torch.zeros(1, 2, 9, 9))
    assert between.parameters == 3
    assert between.kept > 0
    assert (narrow.field, wide.field) == ("1 × 1", "5 × 5")


def test_shared_parameters_count_once_and_each_call_is_a_row():
    shared = nn.Linear(4, 4)
    first, second, _ = layer_costs(nn.Sequential(shared, shared), torch.zeros(2, 4))
    assert (first.parameters, second.parameters) == (20, 0)
    assert first.flops == second.flops == 2 * 2 * 4 * 4


def test_tied_weights_count_once():
    words, head = nn.Embedding(50, 4), nn.Linear(4, 50, bias=False)
    head.weight = words.weight
    first, second, between = layer_costs(nn.Sequential(words, head), torch.zeros(2, 3, dtype=torch.long))
    assert (first.parameters, second.parameters, between.parameters) == (200, 0, 0)


def test_layers_that_compute_with_what_their_children_hold_have_a_row():
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    rows = layer_costs(nn.Sequential(normed), torch.zeros(2, 4))
    assert rows[0].flops == 2 * 2 * 4 * 4 and rows[-1].parameters == 0
    attention, *_, between = layer_costs(encoder, torch.zeros(2, 5, 8))
    assert (attention.kind, attention.parameters) == ("MultiheadAttention", 4 * 8 * 8 + 4 * 8)
    assert attention.flops > 0 and between.parameters == 0


def test_several_inputs_and_tensors_that_forward_makes():
    class Added(nn.Module):
        def forward(self, x, scale, more=None):
            return scale * (x + torch.arange(x.shape[1])) + torch.randn(x.shape)

    row, _ = layer_costs(Added(), (torch.zeros(2, 3), 2.0))
    assert (row.kind, row.output) == ("Added", "(2, 3)")


def test_where_the_number_of_axes_changes_no_field_is_claimed():
    class AsPictures(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3)

        def forward(self, x):
            return self.conv(x.unsqueeze(1))

    conv, _ = layer_costs(AsPictures(), torch.zeros(4, 9, 9))
    assert (conv.field, conv.flops) == ("", 2 * 4 * 2 * 49 * 9)


def test_what_has_met_a_value_that_is_not_followed_is_not_followed():
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    assert all(row.field == "" for row in layer_costs(encoder, torch.zeros(2, 5, 8))), "after attention a token has seen all"


def test_the_net_stays_as_it_is():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout())
    torch.manual_seed(3)
    state, drawn = {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()
    layer_costs(net, torch.ones(4, 1, 5, 5))
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert net.training and all(not layer._forward_hooks and not layer._forward_pre_hooks for layer in net.modules())


def test_a_net_that_reads_values_is_named():
    class Reads(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(LabError, match=r"Reads did not run without numbers: .*must not read values"):
        layer_costs(Reads(), torch.ones(2, 3))


def test_results_that_are_no_tensor_and_inputs_that_are_no_image():
    lstm, _ = layer_costs(nn.Sequential(nn.LSTM(4, 8, batch_first=True)), torch.zeros(2, 5, 4))
    assert lstm.output == "(2, 5, 8)" and lstm.formula is None
    words, linear, _ = layer_costs(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)), torch.zeros(2, 5, dtype=torch.long))
    assert (words.field, linear.flops) == ("", 2 * 2 * 5 * 2 * 4)


CONVOLUTIONS = {
    "in one dimension": (nn.Conv1d(4, 6, 3, stride=2), (2, 4, 17)),
    "in three": (nn.Conv3d(2, 3, (1, 2, 3)), (2, 2, 4, 5, 6)),
    "groups": (nn.Conv2d(8, 4, 3, groups=4, padding=1), (3, 8, 7, 7)),
    "dilated": (nn.Conv2d(2, 4, 3, dilation=2), (3, 2, 9, 8)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (3, 4, 5, 6)),
    "fully connected": (nn.Linear(7, 3), (2, 5, 7)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_the_formula_is_what_torch_counts(name):
    layer, shape = CONVOLUTIONS[name]
    row, _ = layer_costs(nn.Sequential(layer), torch.zeros(shape))
    assert row.formula == row.flops > 0


class Excited(nn.Module):
    """Each channel times a number that has seen the whole map."""

    def forward(self, x):
        return x * F.adaptive_avg_pool2d(x, 1)


SEEING = {
    "a mean of the whole map comes back": [nn.Conv2d(1, 2, 3, stride=2), Excited(), nn.Conv2d(2, 1, 3)],
    "two kernels": [nn.Conv2d(1, 2, 3), nn.Conv2d(2, 1, 5)],
    "a stride between": [nn.Conv2d(1, 2, 3, stride=2), nn.Conv2d(2, 1, 3)],
    "dilated": [nn.Conv2d(1, 2, 3, dilation=3, stride=2), nn.Conv2d(2, 1, 2)],
    "two sides": [nn.Conv2d(1, 2, (1, 7)), nn.Conv2d(2, 1, (3, 1), stride=(1, 2))],
    "pooled": [nn.Conv2d(1, 2, 3), nn.AvgPool2d(3, 2), nn.Conv2d(2, 1, 3)],
    "pooled over the parts": [nn.Conv2d(1, 1, 3), nn.AdaptiveAvgPool2d(5)],
    "pooled over uneven parts": [nn.AdaptiveAvgPool2d(9)],
    "enlarged": [nn.AvgPool2d(2), nn.Upsample(scale_factor=2), nn.Conv2d(1, 1, 3)],
    "in one dimension": [nn.Conv1d(1, 2, 3), nn.AvgPool1d(2), nn.Conv1d(2, 1, 3, stride=2)],
    "branches": [nn.Conv2d(1, 2, 3), Residual(), nn.Conv2d(4, 1, 3)],
}


@pytest.mark.parametrize("name", SEEING)
def test_the_receptive_field_is_as_far_as_a_gradient_reaches(name):
    layers = nn.Sequential(*SEEING[name]).double()
    for weight in layers.parameters():
        nn.init.ones_(weight)
    side = 37 if name == "pooled over the parts" else 42
    image = torch.ones(1, 1, *[side] * (1 if "one" in name else 2), dtype=torch.float64, requires_grad=True)
    y = layers(image)
    y[0, 0][tuple(n // 2 for n in y.shape[2:])].backward()
    places = image.grad[0, 0].nonzero()
    reached = tuple((places.amax(0) - places.amin(0) + 1).tolist())
    if "whole" in name:  # the formula does not know the border, beyond which there is nothing to reach
        assert reached == (41, 41)
        reached = (45, 45)
    assert [row for row in layer_costs(layers, image) if row.sees][-1].sees == reached


def test_a_transposed_kernel_sees_only_what_meets_it():
    up, _ = layer_costs(nn.Sequential(nn.ConvTranspose2d(1, 1, 4, stride=2)), torch.zeros(1, 1, 5, 5))
    assert up.field == "2 × 2"


@pytest.mark.parametrize(
    "net", [SMALL, nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), Residual())]
)
def test_bytes_are_those_of_a_real_run(net):
    x = torch.randn(3, 1, 8, 8)
    rows = layer_costs(net, x)
    with saved_tensors([*net.parameters(), *net.buffers(), x]) as saved:
        output = net(x)
    assert sum(row.kept for row in rows) == sum(saved.values()) > 0
    del output


# ---- the experiment --------------------------------------------------------------------------------------------------


@pytest.fixture
def result(ran):
    """What the notebook found in this run of the tests; run here where it did not."""
    return ran("layer-table")


def test_it_is_sound(result, sound):
    sound(result)


def test_the_five_nets_as_their_papers_have_them(result):
    found = {row.net: row for row in result.rows(NetCosts)}
    assert [row.layers for row in found.values()][:2] == [8, 19], "AlexNet has 8 layers, VGG-19 its 19"
    assert found["resnet18"].field == "435 × 435" and found["vgg19"].field == "252 × 252"
    assert found["resnet50"].parameters == 25_557_032
    for shares in result.arrays["shares"].values():
        for what in ("parameters", "flops", "kept"):
            assert sum(row[what] for row in shares) == pytest.approx(100)


def test_its_claims_can_fail(monkeypatch):
    monkeypatch.setattr(module, "published", lambda name: (1, 1.0))
    monkeypatch.setattr(module, "reach", lambda net, side: (1, 1))
    monkeypatch.setattr(module, "kept_by_a_run", lambda name, batch: (1, 2))
    again = module.layer_table("quick", device="cpu")
    assert [claim.holds for claim in again.claims] == [True, False, True, True, False, False]
