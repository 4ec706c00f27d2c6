"""SyncBatchNorm on ranks, and its parts in one process."""

import copy

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn.utils import prune

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import RankError, launch
from hpml_lab.distributed.lessons.batch_norm import SyncBatchNorm, convert_batch_norm, merge_moments, moments

SHARES = (5, 0, 3)  # a rank without samples takes part


def batch_of(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(8, 3, 2, 2, generator=generator, dtype=torch.float64) + torch.arange(8).view(-1, 1, 1, 1)).to(dtype)


def trained(norm, x, scale):
    """Output, gradients and buffers after two steps in training mode, and the output in evaluation."""
    x = x.clone().requires_grad_()
    found = {}
    for _ in range(2):
        y = norm(x)
        (scale * y.pow(3).sum()).backward()
    norm.eval()
    found |= {
        "y": y.detach(),
        "x.grad": x.grad,
        "eval": norm(x).detach(),
        **{k: v.clone() for k, v in norm.state_dict().items()},
    }
    return found | {f"{name}.grad": parameter.grad for name, parameter in norm.named_parameters()}


OPTIONS = [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}]


def on_rank(device="cpu"):
    found = []
    rank = dist.get_rank()
    for options in OPTIONS:
        norm = convert_batch_norm(nn.BatchNorm2d(3, **options).double()).to(device)
        part = batch_of().split(SHARES)[rank].to(device)
        values = trained(norm, part, 1.0)
        if dist.is_initialized():  # the gradient of a shared parameter is the sum over the ranks
            for name in [name for name in values if name.endswith(".grad") and name != "x.grad"]:
                dist.all_reduce(values[name])
        found.append({name: value.cpu() for name, value in values.items()})
    half = convert_batch_norm(nn.BatchNorm1d(4)).to(device)
    x = (1000 + torch.randn(64, 4, generator=torch.Generator().manual_seed(rank))).bfloat16().to(device)
    found.append({"half": half(x).dtype, "variance": half.running_var.cpu()})
    wrong = SyncBatchNorm(2)
    with pytest.raises(LabError, match="2 channels"):
        wrong(torch.ones(4, 3))
    return found


@pytest.fixture(scope="module")
def by_rank():
    return launch(on_rank, ranks=len(SHARES))


@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_ranks_with_any_shares_do_what_one_process_does_with_the_whole_batch(by_rank, number):
    whole = trained(nn.BatchNorm2d(3, **OPTIONS[number]).double(), batch_of(), 1.0)
    for name, right in whole.items():
        ranks = [found[number][name] for found in by_rank]
        if name == "eval" and not OPTIONS[number].get("track_running_stats", True):
            continue  # without running statistics each rank evaluates with its own batch
        if name in ("y", "x.grad", "eval"):
            ranks = [torch.cat(ranks)]
        for found in ranks:
            torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


def test_sixteen_bit_inputs_are_summed_in_float32(by_rank):
    for found in by_rank:
        assert found[-1]["half"] == torch.bfloat16 and found[-1]["variance"].dtype == torch.float32
        assert torch.equal(found[-1]["variance"], by_rank[0][-1]["variance"])


def test_moments_of_any_parts_merge_to_those_of_the_whole():
    x = batch_of().flatten(2)
    for sizes in ((8,), (1, 7), (2, 3, 0, 3)):
        counts, means, squares = zip(*map(moments, x.split(sizes)), strict=True)
        n, mean, m2 = merge_moments(torch.tensor(counts)[:, None], torch.stack(means), torch.stack(squares))
        assert n == x.numel() / 3
        torch.testing.assert_close(mean, x.mean((0, 2)))
        torch.testing.assert_close(m2 / n, x.var((0, 2), correction=0))


def test_converting_keeps_parameters_buffers_and_mode():
    net = nn.Sequential(
        nn.Conv1d(1, 4, 1), nn.BatchNorm1d(4, eps=0.1, momentum=0.3), nn.Sequential(nn.BatchNorm1d(4, affine=False))
    )
    net.eval()
    old, names = list(net.parameters()), list(net.state_dict())
    made = convert_batch_norm(net)
    assert made is net and list(made.state_dict()) == names and all(a is b for a, b in zip(made.parameters(), old, strict=True))
    assert isinstance(made[1], SyncBatchNorm) and isinstance(made[2][0], SyncBatchNorm) and made[2][0].weight is None
    assert (made[1].eps, made[1].momentum, made[1].training) == (0.1, 0.3, False)


def test_without_ranks_it_is_plain_batch_norm():
    plain, x = nn.BatchNorm2d(3).double(), batch_of()
    sync = convert_batch_norm(copy.deepcopy(plain))
    for a, b in zip(trained(plain, x, 1.0).values(), trained(sync, x, 1.0).values(), strict=True):
        assert torch.equal(a, b)


def normalize(shares, dtype=torch.float32):
    return SyncBatchNorm(3)(torch.ones(shares[dist.get_rank()], 3, dtype=dtype)).isfinite().all().item()


def test_too_few_values_on_all_ranks_together_are_an_error_and_two_are_enough():
    assert launch(normalize, (1, 1)) == [True, True] == launch(normalize, (0, 2))
    for shares in ((1, 0), (0, 0)):
        with pytest.raises(RankError, match=rf"All ranks together have {sum(shares)} values per channel"):
            launch(normalize, shares)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_numbers_that_are_no_floats_are_refused(dtype):
    with pytest.raises(RankError, match=f"SyncBatchNorm normalizes floating-point numbers, not {dtype}"):
        launch(normalize, (4, 4), dtype)


def test_a_layer_under_two_names_is_converted_under_both_and_a_lazy_one_is_refused():
    norm = nn.BatchNorm1d(3)
    made = convert_batch_norm(nn.ModuleDict({"first": norm, "again": norm}))
    assert all(isinstance(layer, SyncBatchNorm) for layer in made.values()) and made["first"].weight is made["again"].weight
    with pytest.raises(LabError, match="A lazy batch norm has no number of channels yet"):
        convert_batch_norm(nn.Sequential(nn.LazyBatchNorm1d()))


@pytest.mark.cuda
def test_on_a_gpu_several_ranks_do_the_same_and_so_does_torchs(by_rank):
    """Two ranks can share a GPU over gloo, which copies through the host; NCCL would need a GPU for each."""
    found = launch(on_gpu, ranks=2, method="spawn")
    for ours, torchs in found:
        for name, right in torchs.items():
            torch.testing.assert_close(ours[name], right, rtol=1e-9, atol=1e-9)


def on_gpu():
    x = batch_of().split((5, 3))[dist.get_rank()].cuda()
    make = (convert_batch_norm, nn.SyncBatchNorm.convert_sync_batchnorm)
    return [
        {name: value.cpu() for name, value in trained(convert(nn.BatchNorm2d(3).double().cuda()), x, 1.0).items()}
        for convert in make
    ]


class NormAct(nn.BatchNorm2d):
    """As timm's BatchNormAct2d: its activation is in it."""

    def forward(self, x):
        return super().forward(x).relu()


def parametrized(norm):
    nn.utils.parametrize.register_parametrization(norm, "weight", nn.Softplus())


@pytest.mark.parametrize("change", [parametrized, lambda norm: prune.random_unstructured(norm, "weight", 0.4)])
def test_a_batch_norm_whose_weight_is_computed_from_others_is_refused(change):
    net = nn.Sequential(nn.BatchNorm2d(3))
    change(net[0])
    with pytest.raises(LabError, match="The weight of a .*BatchNorm2d is pruned or parametrized. Convert the network first"):
        convert_batch_norm(net)


def test_a_batch_norm_that_does_more_is_refused():
    with pytest.raises(LabError, match="NormAct does more than normalize"):
        convert_batch_norm(nn.Sequential(nn.Conv2d(1, 2, 3), NormAct(2)))
