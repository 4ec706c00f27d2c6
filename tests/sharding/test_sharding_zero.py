"""zero.py, sharded_optimizer.py and fsdp.py: counted bytes, and the same weights as one process on the whole batch."""

import importlib.util
import math
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.core.system.device import Device
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import RankError, launch
from hpml_lab.core.system.placement import placement
from hpml_lab.sharding import zero_memory
from hpml_lab.sharding.experiments import zero_memory as experiments
from hpml_lab.sharding.experiments.zero_memory import on_ranks
from hpml_lab.sharding.experiments.zero_memory.on_ranks import COUNT, COUNTER, SHAPES
from hpml_lab.sharding.lessons import sharded_optimizer
from hpml_lab.sharding.lessons.fsdp import FullyShardedDataParallel
from hpml_lab.sharding.lessons.sharded_optimizer import ShardedOptimizer
from hpml_lab.sharding.lessons.zero import FLOAT32, MIXED, Footprint, footprint, storages, zero_formula
from hpml_lab.sharding.views import zero_sliders

BATCH, STEPS = 12, 3


class Mixed(nn.Module):
    """Layers of many kinds: tied, frozen, unused and own parameters, a buffer, layers that read another layer's weight."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.position = nn.Parameter(torch.randn(5, 6))  # a parameter of the root itself
        self.attention = nn.TransformerEncoderLayer(6, 2, 7, dropout=0.0, batch_first=True)
        self.recurrent = nn.LSTM(6, 6, batch_first=True)
        self.conv = nn.Conv1d(6, 6, 3, padding=1)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.unused = nn.Linear(6, 3)
        self.half_used = nn.Bilinear(6, 6, 6)
        self.head = nn.Linear(6, 11)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, tokens):
        x = self.attention(self.embedding(tokens) + self.position)
        x = self.recurrent(x)[0] + self.frozen(x)
        x = self.conv(x.transpose(1, 2)).transpose(1, 2) * self.scale
        return self.head(x + self.half_used.bias)


def tokens(dtype=None):
    x = torch.arange(BATCH * 5).view(BATCH, 5) * 7 % 11
    return x, x.roll(1, 0)


def seeded(kind=Mixed):
    torch.manual_seed(3)
    return kind().double()


def train(model, optimizer, own, finish=lambda: None, steps=STEPS):
    """Steps on `own` samples of each batch; the loss is the mean over them."""
    x, y = tokens()
    for step in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x.roll(step, 0)[own]).flatten(0, 1), y.roll(step, 0)[own].flatten()).backward()
        finish()
        optimizer.step()


def adam(params):
    return torch.optim.AdamW(params, lr=1e-2, eps=1e-3, weight_decay=0.1)


def one_process():
    net = seeded()
    train(net, adam(net.parameters()), slice(None))
    return net.state_dict()


def own_samples():
    share = BATCH // dist.get_world_size()
    return slice(dist.get_rank() * share, (dist.get_rank() + 1) * share)


def worst(got, right):
    return max((got[name].double() - right[name]).abs().max().item() for name in right)


def train_fsdp(right):
    if dist.get_rank():
        torch.manual_seed(99)
    net = seeded() if dist.get_rank() == 0 else Mixed().double()  # only rank 0 has the right start
    model = FullyShardedDataParallel(net)
    untouched = {name: part.detach().clone() for name, part in model.named_parameters() if "frozen" in name or "unused" in name}
    train(model, adam(model.parameters()), own_samples(), model.finish_gradient_synchronization)
    parts = dict(model.named_parameters())
    kept = all(torch.equal(parts[name], part) for name, part in untouched.items())
    none = sorted(name for name, part in parts.items() if part.grad is None)
    numbers = sum(part.numel() for part in parts.values())
    whole = model.gather_full_params()
    alive = sum(len(layer._whole) for layer in model.module.modules())
    return worst(whole | {"scale": net.scale}, right), kept, none, numbers, alive, len(model._reductions)


CUT = (nn.Linear, nn.Embedding)


def train_partly_sharded(right):
    """Only linear layers and embeddings are cut; rank 1 leaves one of the others out of its loss."""
    if dist.get_rank():
        torch.manual_seed(99)
    net = seeded() if dist.get_rank() == 0 else Mixed().double()
    whole = {name: p.numel() for name, p in net.named_parameters() if name in ("position", "conv.weight", "unused.weight")}
    model = FullyShardedDataParallel(net, modules=CUT)
    own = {name: p.numel() for name, p in model.module.named_parameters() if name in whole}
    train(model, adam(model.parameters()), own_samples(), model.finish_gradient_synchronization)
    gradients = {name: p.grad for name, p in model.module.named_parameters() if p.grad is not None}
    trained = model.gather_full_params() | {"scale": net.scale}
    model.zero_grad()
    parts = [net.conv.weight.sum(), net.position.sum()][: 2 - dist.get_rank()]
    sum(parts).backward()
    model.finish_gradient_synchronization()
    return worst(trained, right), whole, own, gradients, net.position.grad


@pytest.mark.parametrize("ranks", [1, 2])
def test_only_the_layers_that_it_is_told_are_cut_and_the_others_gradients_are_equal_on_all_ranks(ranks):
    found = launch(train_partly_sharded, one_process(), ranks=ranks)
    for error, whole, own, gradients, position in found:
        assert error < 1e-10
        assert own == {**whole, "unused.weight": whole["unused.weight"] // ranks}
        assert {"position", "conv.weight", "recurrent.weight_ih_l0"} <= set(gradients)
        for name in ("position", "conv.weight", "recurrent.weight_ih_l0"):
            assert torch.equal(gradients[name], found[0][3][name]), name
        assert "half_used.weight" not in gradients
        assert torch.equal(position, torch.full((5, 6), 1 / ranks).double()), "a rank that does not use it takes part"


def train_sharded(right):
    net = seeded()
    ddp = DistributedDataParallel(net, find_unused_parameters=True)
    decayed = [p for p in net.parameters() if p.ndim > 1]
    optimizer = ShardedOptimizer(decayed, torch.optim.AdamW, lr=1e-2, eps=1e-3, weight_decay=0.1)
    optimizer.add_param_group({"params": [p for p in net.parameters() if p.ndim < 2]})
    train(ddp, optimizer, own_samples())
    return worst(net.state_dict(), right)


@pytest.mark.parametrize("ranks", [2, 3])
def test_fully_sharded_equals_one_process(ranks):
    right = one_process()
    for error, kept, none, _, alive, pending in launch(train_fsdp, right, ranks=ranks):
        assert error < 1e-10
        assert kept
        assert none == [
            "module.frozen.bias",
            "module.frozen.weight",
            "module.half_used.weight",
            "module.unused.bias",
            "module.unused.weight",
        ]
        assert alive == pending == 0


@pytest.mark.parametrize("ranks", [2, 3])
def test_sharded_optimizer_equals_one_process(ranks):
    assert max(launch(train_sharded, one_process(), ranks=ranks)) < 1e-10


def details():
    """Many small checks in one launch: {what: whether it holds}."""
    found = {}
    # A whole state, saved and loaded: what one Adam would save, and training continues with the same numbers.
    net, plain = seeded(), seeded()
    sharded = ShardedOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2, eps=1e-3)
    adam_w = torch.optim.AdamW(plain.parameters(), lr=1e-2, eps=1e-3)
    schedules = [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) for optimizer in (sharded, adam_w)]
    for _ in range(2):  # the same batch on every rank: no DDP is needed
        for model, optimizer in ((net, sharded), (plain, adam_w)):
            train(model, optimizer, slice(None), steps=1)
        for schedule in schedules:
            schedule.step()
    found["a scheduler works"] = worst(net.state_dict(), plain.state_dict()) == 0
    saved = sharded.whole_state_dict()
    kept = adam_w.state_dict()["state"]
    found["whole state"] = saved["state"].keys() == kept.keys() and all(
        torch.equal(saved["state"][i][name], value) for i, state in kept.items() for name, value in state.items()
    )
    found["own state is a part"] = 0 < len(sharded.state_dict()["state"]) < len(kept)
    again = ShardedOptimizer(net.parameters(), torch.optim.AdamW, lr=9.0)
    again.load_state_dict(saved)
    for model, optimizer in ((net, again), (plain, adam_w)):
        train(model, optimizer, slice(None), steps=1)
    found["training continues"] = worst(net.state_dict(), plain.state_dict()) == 0
    found["only the own share is loaded"] = all(again.owner[p] == dist.get_rank() for p in again.state)
    found["a closure is called"] = again.step(lambda: 7) == 7
    # Gradients of two backward passes add up, as with one process.
    model, plain = FullyShardedDataParallel(seeded()), seeded()
    for _ in range(2):
        for each in (model, plain):
            F.cross_entropy(each(tokens()[0]).flatten(0, 1), tokens()[1].flatten()).backward()
    model.finish_gradient_synchronization()
    layer = model.module.recurrent
    whole = layer._shards["weight_hh_l0"]
    parts = [torch.empty_like(whole.part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, whole.part.grad)
    gradient = torch.cat(parts)[: whole.shape.numel()].view(whole.shape)
    found["gradients accumulate"] = torch.allclose(gradient, plain.recurrent.weight_hh_l0.grad, rtol=1e-10)
    model.eval()
    with torch.no_grad():
        found["evaluation"] = torch.allclose(model(tokens()[0]), plain.eval()(tokens()[0]), rtol=1e-10)
    # 16 bits: the same numbers as torch's fully_shard on two ranks.
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    for part in (*nets[0], nets[0]):
        if list(part.parameters()):
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            fully_shard(part, mesh=init_device_mesh("cpu", (dist.get_world_size(),)), mp_policy=policy)
    own = FullyShardedDataParallel(nets[1], torch.bfloat16)
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(dist.get_rank()))
    losses = []
    for each in (nets[0], own):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = each(x).float().square().mean()
            loss.backward()
            own.finish_gradient_synchronization()
            optimizer.step()
        losses.append(loss.item())
    found["bf16 as fully_shard"] = losses[0] == losses[1]
    found["float32 parts"] = {part.dtype for part in own.parameters()} == {torch.float32}
    full = own.gather_full_params()
    theirs = {name: parameter.full_tensor() for name, parameter in nets[0].named_parameters()}
    found["bf16 weights"] = full.keys() == theirs.keys() and worst(full, {n: t.double() for n, t in theirs.items()}) < 1e-6
    return found


def test_the_details_of_both_classes():
    for found in launch(details, ranks=2):
        assert [name for name, holds in found.items() if not holds] == []


class Kinds(nn.Module):
    """A sparse embedding, a transposed, a complex and an empty parameter, and buffers that gloo cannot send as they are."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 3, sparse=True)
        self.wave = nn.Parameter(torch.randn(2, 3, dtype=torch.complex64).t())
        self.empty = nn.Parameter(torch.empty(0))
        self.register_buffer("mask", torch.ones(2, dtype=torch.bool))
        self.register_buffer("transposed", torch.zeros(2, 3).t())

    def forward(self, rows):
        return (self.table(rows).to(torch.complex64) @ self.wave).abs() + self.empty.sum()


def many_kinds(modules):
    """Parameters after two steps, of which the first leaves the embedding frozen: sharded, and alone on the whole batch."""
    rank, ranks, found = dist.get_rank(), dist.get_world_size(), []
    for on_all_ranks in (True, False):
        torch.manual_seed(rank if on_all_ranks else 0)
        net = Kinds()
        net.mask.fill_(rank == 1)
        model = FullyShardedDataParallel(net, modules=modules) if on_all_ranks else net
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows = torch.arange(6)[rank::ranks] if on_all_ranks else torch.arange(6)
        for step in range(2):
            dict(net.named_parameters())["table.weight"].requires_grad_(step == 1)
            optimizer.zero_grad()
            model(rows).square().mean().backward()
            if on_all_ranks:
                model.finish_gradient_synchronization()
            optimizer.step()
        found.append(model.gather_full_params() if on_all_ranks else dict(net.named_parameters()))
        found[-1]["mask"] = net.mask
    return [{name: value.detach().clone() for name, value in each.items()} for each in found]


@pytest.mark.parametrize("modules", [None, (nn.Linear,)])
def test_sparse_complex_and_empty_parameters_train_sharded_as_in_one_process(modules):
    for own, alone in launch(many_kinds, modules):
        assert not own.pop("mask").any() and alone.pop("mask") is not None
        for name, value in alone.items():
            torch.testing.assert_close(own[name], value)


def fused_with_whole_convolutions():
    """On each rank: the weights after three steps with whole convolutions, and, computed alone, those on the whole batch."""
    rank, ranks, found = dist.get_rank(), dist.get_world_size(), []
    for on_all_ranks in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5)).double().to(memory_format=torch.channels_last)
        model = FullyShardedDataParallel(net, modules=(nn.Linear,)) if on_all_ranks else net
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
        for _ in range(3):
            optimizer.zero_grad()
            model(x[rank::ranks] if on_all_ranks else x).square().mean().backward()
            if on_all_ranks:
                model.finish_gradient_synchronization()
            optimizer.step()
        found.append(model.gather_full_params() if on_all_ranks else dict(net.named_parameters()))
    return [{name: value.detach().clone() for name, value in each.items()} for each in found]


def test_a_fused_optimizer_finds_gradients_of_whole_layers_that_lie_as_they_do():
    for own, alone in launch(fused_with_whole_convolutions):
        for name, value in alone.items():
            torch.testing.assert_close(own[name], value)


def outside_of_forward(order):
    """On each rank: the norms that were logged and the weights in the end; sharded, and alone on the whole batch.

    order  what is read when: "l" a log without gradients, "f" the forward pass, "p" a penalty on the weights
    """
    rank, ranks, found = dist.get_rank(), dist.get_world_size(), []
    for on_all_ranks in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).double()
        model = FullyShardedDataParallel(net) if on_all_ranks else net
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        x = torch.randn(8, 6, dtype=torch.float64)
        norms = []

        def log(net=net, norms=norms):
            with torch.no_grad():
                norms.append(net[0].weight.norm().item())

        for _ in range(3):
            optimizer.zero_grad()
            losses = []
            for what in order:
                match what:
                    case "l":
                        log()
                    case "f":
                        losses.append(model(x[rank::ranks] if on_all_ranks else x).square().mean())
                    case "p":
                        losses.append(0.1 * net[0].weight.abs().mean())
            sum(losses).backward()
            if on_all_ranks:
                model.finish_gradient_synchronization()
            log()
            optimizer.step()
            log()
        weights = model.gather_full_params() if on_all_ranks else dict(net.named_parameters())
        found.append((norms, {name: value.detach().clone() for name, value in weights.items()}))
    return found


@pytest.mark.parametrize("order", ["fp", "pf", "flp", "lpf"])
def test_weights_that_are_read_outside_of_forward_are_those_of_now_and_have_gradients(order):
    for (norms, weights), (right_norms, right) in launch(outside_of_forward, order):
        assert norms == pytest.approx(right_norms, rel=1e-12)
        for name, value in right.items():
            torch.testing.assert_close(weights[name], value)


class Penalized(nn.Module):
    """In its forward it looks at a weight without gradients, then uses it; and it may fail."""

    def __init__(self):
        super().__init__()
        self.layer, self.fails = nn.Linear(3, 3), False

    def forward(self, x):
        with torch.no_grad():
            norm = self.layer.weight.norm()
        if self.fails:
            raise ValueError("in the middle")
        return x.sum() + self.layer.weight.sum() / norm


def interrupted_and_restored():
    net = Penalized()
    model = FullyShardedDataParallel(net)
    with mock.patch.object(torch.Tensor, "norm", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        model(torch.ones(3))
    with torch.no_grad():
        for part in model.parameters():
            part.fill_(2.0)  # as a snapshot does
    return model(torch.zeros(3)).item()


def test_after_an_interrupted_forward_the_weights_are_those_of_now():
    right = 18 / torch.full((3, 3), 2.0).norm().item()
    assert launch(interrupted_and_restored) == [pytest.approx(right)] * 2


def read_in_forward():
    torch.manual_seed(0)
    net = Penalized()
    model = FullyShardedDataParallel(net)
    net.fails = True
    with pytest.raises(ValueError, match="in the middle"):
        model(torch.ones(3))
    alive = sum(len(layer._whole) for layer in net.modules())
    net.fails = False
    model(torch.ones(3)).backward()
    model.finish_gradient_synchronization()
    return alive, net.layer._shards["weight"].part.grad is not None


def test_a_weight_that_a_forward_reads_twice_has_its_gradient_and_one_that_fails_keeps_nothing():
    assert launch(read_in_forward) == [(0, True)] * 2


def overflow_on_one_rank(on_all_ranks):
    """Three steps, of which the second overflows in the last row, rank 1's part: the weights, and the scale."""
    torch.manual_seed(0)
    net = nn.Linear(4, 4, bias=False)
    model = FullyShardedDataParallel(net) if on_all_ranks else net
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = (ShardedGradScaler if on_all_ranks else torch.amp.GradScaler)("cpu", init_scale=2.0**10, growth_interval=1)
    for step in range(3):
        optimizer.zero_grad()
        outputs = model(torch.ones(2, 4)) * torch.tensor([1.0, 1.0, 1.0, 1e38 if step == 1 else 1.0])
        scaler.scale(outputs.sum()).backward()
        if on_all_ranks:
            model.finish_gradient_synchronization()
        scaler.step(optimizer)
        scaler.update()
    return (model.gather_full_params()["weight"] if on_all_ranks else net.weight.detach()), scaler.get_scale()


def test_the_scaler_that_is_advised_skips_a_step_on_all_ranks_where_one_has_an_overflow():
    assert "ShardedGradScaler" in FullyShardedDataParallel.__doc__
    right, right_scale = overflow_on_one_rank(False)
    for weights, scale in launch(overflow_on_one_rank, True):
        torch.testing.assert_close(weights, right)
        assert scale == right_scale


def changed_in_mid_run(how):
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model = FullyShardedDataParallel(net)
    model(torch.ones(2, 3)).sum().backward()
    match how:
        case "add":
            net.append(nn.Linear(2, 2))
        case "replace":
            net[1].bias = nn.Parameter(torch.zeros(2))
        case "convert":
            net.double()
    model(torch.ones(2, 3))


@pytest.mark.parametrize("how, name", [("add", "2.weight"), ("replace", "1.bias"), ("convert", "0.weight")])
def test_a_parameter_that_the_parts_do_not_know_is_named(how, name):
    with pytest.raises(RankError, match=f"{name} was added, replaced or converted after FullyShardedDataParallel was made"):
        launch(changed_in_mid_run, how)


def different_networks():
    FullyShardedDataParallel(nn.Linear(3, 2 + dist.get_rank()))


def scripted():
    FullyShardedDataParallel(torch.jit.script(nn.Linear(3, 2)))


def different_parameters():
    ShardedOptimizer([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2 + dist.get_rank()))], torch.optim.SGD)


def lbfgs():
    ShardedOptimizer([nn.Parameter(torch.ones(2))], torch.optim.LBFGS)


@pytest.mark.parametrize(
    "function, text",
    [
        (different_networks, "Rank 1 has other parameters or buffers than rank 0, from weight on"),
        (scripted, "A scripted layer reads its parameters in C"),
        (different_parameters, "Rank 1 has other parameters or buffers than rank 0, from tensor 1 of a group on"),
        (lbfgs, "LBFGS searches along a line in all parameters"),
    ],
)
def test_what_ranks_cannot_share_is_refused(function, text):
    with pytest.raises(RankError, match=text):
        launch(function)


def frozen_since_its_gradient():
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
    optimizer = ShardedOptimizer(parameters, torch.optim.SGD, lr=0.5)
    for parameter in parameters:
        parameter.grad = torch.ones(2)
        parameter.requires_grad_(False)
    optimizer.step()
    return [parameter.tolist() for parameter in parameters]


def test_what_was_frozen_after_its_gradient_is_the_same_on_all_ranks():
    assert launch(frozen_since_its_gradient) == [[[0.5, 0.5]] * 2] * 2


@pytest.mark.parametrize(
    "stage, whole, ranks, bytes_each",
    [(0, MIXED, 64, 16), (1, MIXED, 4, 7), (2, MIXED, 7, 4), (3, MIXED, 64, 0.25), (2, FLOAT32, 4, 7)],
)
def test_the_formula(stage, whole, ranks, bytes_each):
    assert zero_formula(stage, ranks, whole).owned == bytes_each


@pytest.mark.parametrize("stage, ranks", [(4, 2), (-1, 2), (1, 0)])
def test_what_is_no_stage_or_number_of_ranks_is_an_error(stage, ranks):
    with pytest.raises(LabError):
        zero_formula(stage, ranks)


def test_a_storage_counts_once_and_for_the_first_kind_that_has_it():
    net = nn.Linear(10, 10)
    optimizer = torch.optim.SGD(net.parameters(), momentum=0.9)
    net(torch.ones(1, 10)).sum().backward()
    optimizer.step()
    other = torch.zeros(1000)[5:6]  # a view keeps the whole storage
    views = [net.weight[0], net.weight.view(-1)]
    parameters, gradients = list(net.parameters()), [p.grad for p in net.parameters()]
    before = footprint(parameters, gradients, dict(optimizer.state), [other])
    assert (before.parameters, before.gradients, before.state) == (440, 440, 440)
    assert footprint([*parameters, *views], [None, *gradients], dict(optimizer.state), [other]).owned == before.owned
    assert footprint(parameters, gradients, dict(optimizer.state)).rest == before.rest + 4000
    assert Footprint(1, 2, 3, 4).total == 10 and (Footprint(1, 2, 3, 4) / 2).owned == 3
    assert sum(storages([other, {"a": (other, views)}]).values()) == 4000 + 400


def test_a_tensor_without_memory_is_not_counted():
    with FakeTensorMode():
        traced = torch.zeros(1000)
    kept = torch.zeros(10)
    assert storages([traced, kept]) == {kept.untyped_storage().data_ptr(): 40}


def bytes_by_rows(ranks):
    """What rank 0 keeps if tensors are cut between rows: ⌈rows/N⌉ of them; 16 bytes for each number, and the counters."""
    return sum(16 * math.ceil(rows / ranks) * numbers + COUNTER for rows, numbers in SHAPES)


def bytes_by_numbers(ranks):
    """The same if a tensor is cut as a flat list of numbers."""
    return sum(16 * math.ceil(rows * numbers / ranks) + COUNTER for rows, numbers in SHAPES)


def test_the_experiment_is_sound(sound, ran):
    result = ran("zero-memory")
    sound(result)
    for row in result.rows(experiments.OneOfMany):
        assert row.by_rows == bytes_by_rows(row.ranks) / COUNT and row.by_numbers == bytes_by_numbers(row.ranks) / COUNT
    ways = {row.way: row for row in result.rows(experiments.RankMemory)}
    drops, ours, waits = (ways[name].after_forward for name in (on_ranks.ZERO_3, on_ranks.OURS_3, on_ranks.WHOLE))
    assert waits - drops == pytest.approx(4, abs=1e-3) and ours == pytest.approx(drops, abs=1e-3), "kept until backward"
    for name in (on_ranks.ZERO_1, on_ranks.OURS_1):
        counters = 4 * 2 / (256 * 257)  # Adam's step counters, of a layer's weight and bias
        assert (ways[name].parameters, ways[name].gradients) == (4, 4)
        assert ways[name].state == pytest.approx((8 + counters) / 2), "the ranks' states together are one process's"
    rows = [row for row in result.rows(experiments.RankMemory) if not row.way.startswith("DeepSpeed")]
    assert [row.way for row in rows] == list(experiments.WAYS)
    twins = result.rows(experiments.Twins)
    assert [(row.own, row.torchs) for row in twins] == [(name, way.twin) for name, way in experiments.WAYS.items() if way.twin]
    assert all(row.own_total == pytest.approx(row.torchs_total, rel=1e-4) for row in twins)
    assert all(0 <= share <= 100 for row in twins for share in (row.own_hidden, row.torchs_hidden))
    assert [row.formula for row in result.rows(experiments.OneOfMany)] == [16 / n for n in experiments.QUICK["many"]]


def test_the_experiment_without_deepspeed(sound, monkeypatch):
    monkeypatch.setattr(experiments.importlib.util, "find_spec", lambda name: None)
    small = dict(ranks=2, width=16, depth=1, samples=2, many=(1, 256, 1024))
    result = replace(zero_memory, quick=small)("quick", device="cpu")
    sound(result)
    assert len(result.claims) == 5 and not result.checks
    assert "DeepSpeed is not installed" in result.notes[-1]
    assert [row.way for row in result.rows(experiments.RankMemory)] == list(experiments.WAYS)
    assert result.here("DeepSpeed 1, kept by each rank") is None


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_deepspeeds_stages_compute_the_same_and_their_tensors_are_found(tmp_path):
    # Four equal layers on two ranks: where the cut falls inside a tensor, DeepSpeed keeps its whole gradient.
    reports = launch(on_ranks.weigh_deepspeed, 64, 4, "cpu", tmp_path, ranks=2, deadline_seconds=600)
    count = 4 * 64 * 65
    for report in reports:
        full = [report[f"DeepSpeed {stage}"] for stage in (0, 1, 2, 3)]
        assert all(item.losses == pytest.approx(full[0].losses, rel=1e-4) for item in full)
        assert [item.before_update.parameters / count for item in full] == pytest.approx([4, 4, 4, 2], rel=0.01)
        assert [item.before_update.gradients / count for item in full] == pytest.approx([4, 2, 2, 2], rel=0.01)
        assert [item.before_update.state / count for item in full] == pytest.approx([8, 4, 4, 4], rel=0.01)


@pytest.mark.parametrize("gpus, some, even", [(0, 3, 3), (1, 3, 3), (2, 2, 2), (3, 3, 2), (6, 3, 2)])
def test_ranks_on_gpus_can_be_a_power_of_two(monkeypatch, gpus, some, even):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    params = SimpleNamespace(device=SimpleNamespace(is_cuda=gpus > 0), ranks=3, size="quick")
    for placed, ranks in (
        (placement(params.ranks, params.device, all_gpus=params.size == "full"), some),
        (placement(params.ranks, params.device, all_gpus=params.size == "full", power_of_two=True), even),
    ):
        assert (placed.ranks, placed.device) == (ranks, "cuda" if gpus > 1 else "cpu")


def test_times_in_bfloat16_on_gpus_that_emulate_it_are_said_to_mean_nothing(monkeypatch):
    turing = Device(torch.device("cuda:0"), "", torch.float16, "compute capability 7.5 has none for bfloat16")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "bf16 rows say nothing here" in experiments.emulated(turing, "cuda")
    assert "7.5" in experiments.emulated(turing, "cuda")
    assert experiments.emulated(turing, "cpu") == "", "ranks on the CPU do not use the GPU"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert experiments.emulated(turing, "cuda") == ""


def event(name, start, end, tid=1, cat="cpu_op"):
    return {"name": name, "ts": start, "dur": end - start, "tid": tid, "cat": cat}


def test_communication_is_hidden_where_the_rank_computes_meanwhile():
    gloo = [event("gloo:all_reduce", 0, 10, tid=2, cat="user_annotation"), event("aten::copy_", 0, 10, tid=2)]
    assert on_ranks.share_behind_compute([]) == on_ranks.share_behind_compute([event("aten::mm", 0, 10)]) == 0
    assert on_ranks.share_behind_compute(gloo) == 0
    # a wait is no operator, and an operator inside another counts once
    work = [event("aten::mm", 6, 9), event("aten::linear", 5, 20), event("c10d::allreduce_", 0, 4)]
    assert on_ranks.share_behind_compute([*gloo, *work]) == pytest.approx(0.5)
    kernels = [event("ncclDevKernel_AllGather", 0, 8, cat="kernel"), event("sm90_gemm", 6, 20, cat="kernel")]
    assert on_ranks.share_behind_compute([*kernels, *gloo, *work]) == pytest.approx(0.25)


def test_the_sliders_show_the_formula():
    sliders = zero_sliders.zero_sliders()
    shown = [value for [value] in sliders.values(sliders.panels[0])]
    assert shown == pytest.approx([120, 31.40625, 16.640625, 1.875])
    assert shown == pytest.approx([7.5 * zero_formula(stage, 64, MIXED).owned for stage in range(4)])
    assert [value for [value] in sliders.values(sliders.panels[0], ranks="8,192")][3] == pytest.approx(120 / 8192)
    with pytest.raises(LabError, match="'8 billion' is not offered for parameters"):
        zero_sliders.zero_sliders("8 billion")


def test_frozen_tensors_are_shared_out_too(monkeypatch):
    """They may be thawed later, and then have a state."""
    monkeypatch.setattr(sharded_optimizer, "dist", SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: 4))
    monkeypatch.setattr(sharded_optimizer, "check_same_on_all_ranks", lambda tensors: None)
    backbone = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8))).requires_grad_(False)
    optimizer = ShardedOptimizer([*backbone.parameters(), *nn.Linear(64, 10).parameters()], torch.optim.Adam)
    backbone.requires_grad_(True)
    shares = [sum(p.numel() for p, owner in optimizer.owner.items() if owner == rank) for rank in range(4)]
    assert max(shares) < 0.3 * sum(shares)
