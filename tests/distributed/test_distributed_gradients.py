"""The ring, buckets, the link, and OverlappingDDP."""

import copy
from functools import partial

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from hpml_lab.core.experiment import Params, Result, Table
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import RankError, launch
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.timeline import Span
from hpml_lab.distributed.experiments import gradient_aggregation as module
from hpml_lab.distributed.experiments.gradient_aggregation import figure as pictures
from hpml_lab.distributed.experiments.gradient_aggregation import on_ranks as runs
from hpml_lab.distributed.lessons.buckets import MIB, GradientBucket, Link, assign_buckets, last_arrival
from hpml_lab.distributed.lessons.ddp import OverlappingDDP
from hpml_lab.distributed.lessons.ring import gather_and_broadcast, ring_all_reduce, ring_schedule, ring_states
from hpml_lab.distributed.views.ring_stepper import ring_picture, ring_stepper

LONG = 600.0  # seconds


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_ring_in_one_process_sums_and_sends_what_its_formula_says(ranks):
    payloads = [torch.randint(0, 100, (7,)) for _ in range(ranks)]  # not divisible: chunks of two sizes
    states = list(ring_states(payloads))
    assert len(states) == 1 + 2 * (ranks - 1) == 1 + len(ring_schedule(ranks))
    for chunks in states[-1]:
        assert torch.equal(torch.cat(chunks), sum(payloads))
    middle = states[ranks - 1]  # after reduce-scatter rank r has the whole sum of chunk r + 1
    for rank in range(ranks):
        own = (rank + 1) % ranks
        assert torch.equal(middle[rank][own], sum(payloads).tensor_split(ranks)[own])


def test_in_each_step_of_the_ring_ranks_send_different_chunks_that_they_received_before():
    for ranks in (2, 3, 4, 7):
        schedule = ring_schedule(ranks)
        for before, after in zip(schedule, schedule[1:], strict=False):
            assert sorted(after.sends) == list(range(ranks))
            assert all(after.sends[(rank + 1) % ranks] == before.sends[rank] for rank in range(ranks)), "passed on"


def all_shapes():
    """On each rank: the ring for sizes that do not divide, and a tensor smaller than the ranks."""
    rank, found = dist.get_rank(), {}
    for size in (1, 2, 5, 12):
        tensor = torch.arange(float(size)) * (rank + 1)
        sent = ring_all_reduce(tensor)
        found[size] = (tensor.tolist(), sent)
    matrix = torch.full((2, 3), float(rank))
    ring_all_reduce(matrix)
    found["matrix"] = matrix.tolist()
    tensor = torch.full((4,), float(rank))
    found["by way of rank 0"] = gather_and_broadcast(tensor), tensor.tolist()
    return found


def test_the_ring_on_ranks_and_the_way_over_rank_0_sum_any_size():
    found = launch(all_shapes, ranks=3, deadline_seconds=LONG)
    for report in found:
        assert report["matrix"] == [[3.0] * 3] * 2
        for size in (1, 2, 5, 12):
            assert report[size][0] == [6.0 * value for value in range(size)]
    assert [report[12][1] for report in found] == [4 * 12 * 4 // 3] * 3
    assert sum(report[5][1] for report in found) == 4 * 2 * 2 * 5, "N·2(N−1)/N payloads in all, also with uneven chunks"
    bytes_sent, sums = zip(*(report["by way of rank 0"] for report in found), strict=True)
    assert bytes_sent == (2 * 16, 16, 16) and sums == ([3.0] * 4,) * 3


def test_buckets_are_closed_at_their_size_and_keep_types_apart():
    def parameters(*sizes, dtype=torch.float32):
        return [torch.zeros(size * MIB // 4, dtype=dtype) for size in sizes]

    assert assign_buckets(parameters(1, 1, 1, 1, 1), 2) == [[4, 3], [2, 1], [0]]
    assert assign_buckets(parameters(1, 5, 1), 2) == [[2, 1], [0]]
    assert assign_buckets(parameters(1, 1), 0) == [[1], [0]]
    assert assign_buckets([], 1) == []
    mixed = parameters(1) + parameters(1, dtype=torch.float16) + parameters(1, 1)
    assert assign_buckets(mixed, 2) == [[3, 2], [1], [0]]


def test_the_last_bucket_arrives_when_it_was_ready_and_the_link_was_free():
    assert last_arrival([1.0, 2.0, 3.0], [0.5, 0.5, 0.5]) == 3.5
    assert last_arrival([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]) == 7.0
    assert last_arrival([1.0, 9.0], [2.0, 1.0]) == 10.0
    assert (
        pictures.modelled_gain(1e-9, 0.5, 4)
        < 1.05
        < pictures.modelled_gain(1.0, 0.5, 4)
        > 1.05
        > pictures.modelled_gain(1e3, 0.5, 4)
    )


def test_a_bucket_holds_gradients_as_views_and_knows_which_are_missing():
    used, unused = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(4))
    bucket = GradientBucket([used, unused])
    (used * 3).sum().backward()
    bucket.collect(0.5)
    assert used.grad is bucket.views[0] and used.grad.shape == (2, 3)
    assert bucket.buffer.tolist() == [1.5] * 6 + [0.0] * 4 + [0.5, 0.0]
    bucket.hand_out()
    assert unused.grad is None
    bucket.buffer[-1] = 0.5  # another rank had a gradient for it
    bucket.hand_out()
    assert unused.grad is bucket.views[1]


def small_net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def synchronized(net, x, steps=1, clear=True):
    for _ in range(steps):
        if clear:
            net.zero_grad()
        net(x).square().sum().backward()
        net.finish_gradient_synchronization()
    return [parameter.grad.clone() for parameter in net.parameters()]


def ddp_cases():
    """On each rank, in one launch: several ways to use OverlappingDDP. Returns {case: whether it is right}."""
    rank, ranks, found = dist.get_rank(), dist.get_world_size(), {}
    torch.manual_seed(rank)
    net = OverlappingDDP(small_net().double(), bucket_mb=1e-5)
    shares = [torch.full((2, 3), 1.0 + other).double() for other in range(ranks)]
    plain = small_net().double()
    plain.load_state_dict(net.module.state_dict())
    (sum(plain(x).square().sum() for x in shares) / ranks).backward()
    mean = [parameter.grad for parameter in plain.parameters()]

    def right(gradients, factor=1.0):
        return all(torch.allclose(a, factor * b, rtol=1e-12, atol=1e-14) for a, b in zip(gradients, mean, strict=True))

    x = shares[rank]
    found["several buckets"] = len(net.buckets) > 2
    found["one step"] = right(synchronized(net, x))
    found["the same again"] = right(synchronized(net, x, steps=3))
    found["accumulated over steps"] = right(synchronized(net, x, steps=2, clear=False), 3.0)
    net.zero_grad(set_to_none=False)
    found["cleared with zeros"] = right(synchronized(net, x, clear=False))
    net.zero_grad()
    with_input = x.clone().requires_grad_()
    net(with_input).square().sum().backward()
    found["under way before finish"] = len(net._under_way) == len(net.buckets)
    try:
        net(x).square().sum().backward()
    except LabError as error:
        found["two backward passes"] = "finish_gradient_synchronization" in str(error)
    net.finish_gradient_synchronization()
    found["usable after the error"] = right(synchronized(net, x))
    net.zero_grad()
    net.finish_gradient_synchronization()
    found["nothing to synchronize"] = all(parameter.grad is None for parameter in net.parameters())

    sent = []

    def counted(tensor):
        sent.append(tensor.nbytes)
        return dist.all_reduce(tensor, async_op=True)

    tied = nn.Linear(3, 3).double()
    both = OverlappingDDP(nn.Sequential(tied, nn.ReLU(), tied), all_reduce=counted)
    both(x).sum().backward()
    both.finish_gradient_synchronization()
    found["a tied parameter is sent once"] = sent == [8 * (9 + 3 + 2)]

    norm = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    norm[1].running_mean.fill_(float(rank))
    norm = OverlappingDDP(norm.to(memory_format=torch.contiguous_format))
    found["buffers of rank 0"] = not norm.module[1].running_mean.any()
    transposed = nn.Linear(3, 4)
    transposed.weight = nn.Parameter(torch.full((3, 4), float(rank)).t())
    transposed = OverlappingDDP(transposed)
    found["a transposed parameter"] = not transposed.module.weight.any()
    transposed(torch.ones(1, 3)).sum().backward()
    transposed.finish_gradient_synchronization()
    found["and its gradient"] = torch.equal(transposed.module.weight.grad, torch.ones(4, 3))
    return found


@pytest.mark.parametrize("ranks", [1, 2])
def test_overlapping_ddp_averages_however_it_is_used(ranks):
    for found in launch(ddp_cases, ranks=ranks, deadline_seconds=LONG):
        assert [case for case, holds in found.items() if not holds] == []
        assert "two backward passes" in found


def different_networks():
    OverlappingDDP(nn.Linear(3, 2 + dist.get_rank()))


def test_different_networks_on_the_ranks_are_an_error_that_names_the_parameter():
    with pytest.raises(RankError, match="Rank 1 has other parameters or buffers than rank 0, from weight on"):
        launch(different_networks, ranks=2, deadline_seconds=LONG)


def other_dtype():
    OverlappingDDP(nn.Linear(3, 2).to(torch.float64 if dist.get_rank() else torch.float32))


def other_buffer():
    net = nn.Linear(3, 2)
    net.register_buffer("table", torch.ones(1 + dist.get_rank()))
    OverlappingDDP(net)


def lazy():
    OverlappingDDP(nn.LazyLinear(2))


def without_numbers():
    OverlappingDDP(nn.Linear(3, 2, device="meta"))


def expanded():
    net = nn.Linear(3, 2)
    net.register_buffer("mask", torch.ones(1).expand(4))
    OverlappingDDP(net)


def other_layout():
    net = nn.Conv2d(2, 3, 3)
    OverlappingDDP(net.to(memory_format=torch.channels_last) if dist.get_rank() else net)


def all_frozen():
    OverlappingDDP(nn.Linear(3, 2).requires_grad_(False))


def outside_a_group():
    dist.destroy_process_group()
    OverlappingDDP(nn.Linear(3, 2))


@pytest.mark.parametrize(
    "function, text",
    [
        (other_dtype, "Rank 1 has other parameters or buffers than rank 0, from weight on"),
        (other_buffer, "Rank 1 has other parameters or buffers than rank 0, from table on"),
        (lazy, "weight has no shape yet. Give the network an input first"),
        (without_numbers, "weight has no numbers: it is on the device meta"),
        (expanded, r"mask is expanded: some of its elements share memory. Use .clone\(\) where it is made"),
        (other_layout, "Rank 1 has other parameters or buffers than rank 0, from weight on"),
        (all_frozen, "No parameter of the network requires a gradient. Use it as it is"),
        (outside_a_group, "There is no process group. Call this on ranks"),
    ],
)
def test_networks_whose_gradients_cannot_be_averaged_are_refused(function, text):
    with pytest.raises(RankError, match=text):
        launch(function, deadline_seconds=LONG)


def twice_through(use_reentrant):
    """One layer twice, checkpointed: its two gradients come one after the other, or, in the old way, each in its own pass."""
    stem, layer = nn.Linear(3, 3), nn.Linear(3, 3)
    ddp = OverlappingDDP(nn.ModuleList([stem, layer]))
    x = stem(torch.ones(1, 3))
    checkpoint(layer, checkpoint(layer, x, use_reentrant=use_reentrant), use_reentrant=use_reentrant).sum().backward()
    ddp.finish_gradient_synchronization()
    return layer.weight.grad.isfinite().all().item()


def test_a_layer_that_is_used_twice_is_checkpointed_in_the_new_way():
    assert launch(twice_through, False, deadline_seconds=LONG) == [True, True]
    with pytest.raises(RankError, match="A parameter got a second gradient .* give checkpoint use_reentrant=False"):
        launch(twice_through, True, deadline_seconds=LONG)


FUSED = {
    "AdamW": partial(torch.optim.AdamW, lr=0.01, fused=True),
    "SGD": partial(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True),
}


def fused_channels_last(name):
    """On each rank: the weights after three steps on its share, and, computed alone, those on the whole batch."""
    rank, ranks, found = dist.get_rank(), dist.get_world_size(), []
    for on_all_ranks in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 5)).double()
        net = net.to(memory_format=torch.channels_last)
        model = OverlappingDDP(net) if on_all_ranks else net
        optimizer = FUSED[name](model.parameters())
        x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
        x = x[rank::ranks] if on_all_ranks else x
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            if on_all_ranks:
                model.finish_gradient_synchronization()
            optimizer.step()
        found.append([parameter.detach().clone() for parameter in net.parameters()])
    return found


@pytest.mark.parametrize("name", FUSED)
def test_fused_optimizers_find_gradients_that_lie_as_their_parameters(name):
    for own, alone in launch(fused_channels_last, name, deadline_seconds=LONG):
        for mine, right in zip(own, alone, strict=True):
            torch.testing.assert_close(mine, right)


class Kinds(nn.Module):
    """Parameters and buffers of many kinds: a sparse embedding, complex, empty and unused ones; bool and 16-bit buffers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 3, sparse=True)
        self.wave = nn.Parameter(torch.randn(3, 2, dtype=torch.complex64))
        self.never = nn.Parameter(torch.ones(2, dtype=torch.complex64))
        self.empty = nn.Parameter(torch.empty(0))
        for name, dtype in {
            "mask": torch.bool,
            "counts": torch.int16,
            "brief": torch.bfloat16,
            "phase": torch.complex64,
        }.items():
            self.register_buffer(name, torch.ones(2).to(dtype))
        self.register_buffer("none", None)

    def forward(self, rows):
        return (self.table(rows).to(torch.complex64) @ self.wave).abs() + self.empty.sum()


def many_kinds():
    """On each rank: the parameters after two steps on its share, and, computed alone, those after two on the whole batch."""
    rank, ranks, found = dist.get_rank(), dist.get_world_size(), []
    for on_all_ranks in (True, False):
        torch.manual_seed(rank if on_all_ranks else 0)
        net = Kinds()
        if on_all_ranks:
            net.mask.fill_(rank == 1)
            net = OverlappingDDP(net, bucket_mb=1e-5)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        rows = torch.arange(6)[rank::ranks] if on_all_ranks else torch.arange(6)
        for _ in range(2):
            optimizer.zero_grad()
            net(rows).square().mean().backward(
                create_graph=on_all_ranks
            )  # no step may come to hold the graph of the one before
            if on_all_ranks:
                net.finish_gradient_synchronization()
            optimizer.step()
        found.append({name: value.detach().to_dense() for name, value in net.state_dict().items()})
    return found


def test_sparse_complex_empty_and_unused_parameters_train_as_in_one_process():
    for own, alone in launch(many_kinds, deadline_seconds=LONG):
        assert not own.pop("module.mask").any() and alone.pop("mask").all()
        for name, value in alone.items():
            torch.testing.assert_close(own[f"module.{name}"], value)


def change(net, how):
    match how:
        case "unfreeze":
            net[0].requires_grad_(True)
        case "add a layer":
            net.append(nn.Linear(2, 2))
        case "replace a layer":
            net[1] = nn.Linear(4, 2)
        case "replace a parameter":
            net[1].bias = nn.Parameter(torch.zeros(2))
        case "load by assignment":
            net.load_state_dict({name: value.clone() for name, value in net.state_dict().items()}, assign=True)
        case "convert":
            net.double()
        case "lay out":
            net[1].weight.data = net[1].weight.data.t().contiguous().t()
        case "freeze":
            net[1].bias.requires_grad_(False)
        case "load":
            net.load_state_dict(net.state_dict())


def changed_in_mid_run(how):
    net = nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, 2))
    ddp = OverlappingDDP(net)
    for x in (torch.ones(2, 3), torch.ones(2, 3)):
        ddp(x.to(net[0].weight.dtype)).sum().backward()
        ddp.finish_gradient_synchronization()
        change(net, how)


@pytest.mark.parametrize(
    "how, name",
    [
        ("unfreeze", "0.weight was unfrozen, added or replaced"),
        ("add a layer", "2.weight was unfrozen, added or replaced"),
        ("replace a layer", "1.weight was unfrozen, added or replaced"),
        ("replace a parameter", "1.bias was unfrozen, added or replaced"),
        ("load by assignment", "1.weight was unfrozen, added or replaced"),
        ("convert", "1.weight was converted or moved"),
        ("lay out", "1.weight was converted or moved"),
    ],
)
def test_a_parameter_whose_gradient_would_not_be_averaged_is_named(how, name):
    with pytest.raises(RankError, match=f"{name} after OverlappingDDP was made, and its gradient is not averaged"):
        launch(changed_in_mid_run, how, deadline_seconds=LONG)


@pytest.mark.parametrize("how", ["freeze", "load"])
def test_a_parameter_may_be_frozen_later_and_a_state_loaded(how):
    assert launch(changed_in_mid_run, how, deadline_seconds=LONG) == [None, None]


def slow_sums():
    """Two transfers asked for at once over a link that needs 0.2 s for each; and what the formula says."""
    ranks = dist.get_world_size()
    nbytes = 4 * 1000
    link = Link(2 * (ranks - 1) / ranks * nbytes / 0.15, latency_seconds=0.05 / (2 * (ranks - 1)))
    first, second = torch.ones(1000), torch.ones(1000)
    start = CLOCK()
    transfers = [link.all_reduce(first), link.all_reduce(second)]
    asked = CLOCK() - start
    for transfer in transfers:
        transfer.wait()
    return (
        link.seconds(nbytes),
        asked,
        CLOCK() - start,
        first[0].item(),
        second[0].item(),
        link.sent,
        [s.seconds for s in link.spans],
    )


def test_a_link_keeps_its_speed_and_its_order_and_the_sums_are_right():
    for seconds, _, total, first, second, sent, spans in launch(slow_sums, ranks=2, deadline_seconds=LONG):
        assert seconds == pytest.approx(0.2)
        assert total >= 0.4, "one after the other"
        assert (first, second) == (2.0, 2.0) and sent == [4000, 4000]
        assert len(spans) == 2 and min(spans) >= 0.2 - 1e-6


def test_the_stepper_shows_each_step_and_refuses_others():
    widget = ring_stepper(3)
    pictures = set()
    slider = widget.children[0]
    for step in range(slider.max + 1):
        slider.value = step
        pictures.add(widget.image.value)
    assert slider.max == 4 and len(pictures) == 5
    texts = [text.get_text() for text in ring_picture(3, 4).figure.axes[0].texts]
    for chunk in range(3):
        total = sum(1 + (3 * rank + 5 * chunk) % 9 for rank in range(3))
        assert texts.count(str(total)) >= 3, "every rank has the sum"
    for ranks, step in ((1, 0), (9, 0), (4, 7), (4, -1)):
        with pytest.raises(LabError):
            ring_stepper(ranks, step)


def test_every_way_to_synchronize_runs_on_ranks_and_sends_what_it_should():
    found = launch(runs.run_overlap, 8, 3, 2, (1, 2), 0.00025, (0,), 2, ranks=2, deadline_seconds=LONG)
    for report in found:
        messages = {(run.traffic, run.way): run.messages for run in report.runs}
        assert messages[1, runs.AFTER] == messages[1, runs.PLACEBO] == [4 * 3 * (64 + 8)]
        assert messages[1, runs.DDP] == [4 * (8 + 64)] * 3
        assert messages[1, runs.own(0)] == [4 * (8 + 1), 4 * (64 + 1)] * 3
        assert messages[2, runs.own(0.00025)] == [4 * (8 + 64 + 2)] * 3
        assert all(len(run.seconds) == 2 and min(run.seconds) > 0 and 0 <= run.hidden <= 1 for run in report.runs)
        assert all(run.hidden == 0 for run in report.runs if run.way == runs.AFTER)
    assert found[0].backward == found[1].backward, "the links have one speed on all ranks"


# ---- tied, frozen and unused parameters, and the buckets of torch's DDP -----------------------------------------------------


class AwkwardNet(nn.Module):
    """One weight is used by two layers, one layer is frozen, one is never used, and one only where `rare` is true."""

    def __init__(self, inputs: int, width: int = 16) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(inputs, width), nn.Linear(width, 10)
        self.tied, self.again, self.frozen, self.unused, self.rare = (nn.Linear(width, width) for _ in range(5))
        self.again.weight = self.tied.weight
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor, rare: bool) -> torch.Tensor:
        x = F.relu(self.again(F.relu(self.tied(F.relu(self.first(x))))))
        return self.head(self.frozen(x) + (self.rare(x) if rare else 0))


def train_awkward_net(steps=3):
    """Train it with torch's DDP, with OverlappingDDP and in one process on the whole batch; only rank 0 uses the rare layer.

    Returns the network at the start, the three trained ones, and the names of OverlappingDDP's layers without a gradient.
    """
    ranks, rank = dist.get_world_size(), dist.get_rank()
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(48, 12, generator=generator, dtype=torch.float64)
    labels = torch.randint(10, (48,), generator=generator)

    def fresh(seed):
        torch.manual_seed(seed)
        return AwkwardNet(12).double()

    start = fresh(0)
    # Every rank starts differently: both have to take rank 0's parameters.
    theirs = DistributedDataParallel(fresh(rank), find_unused_parameters=True)
    own, alone = OverlappingDDP(fresh(rank), bucket_mb=0.002), copy.deepcopy(start)
    nets = theirs, own, alone
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01) for net in nets]
    shares = list(zip(images.chunk(ranks), labels.chunk(ranks), strict=True))
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        x, y = shares[rank]
        for net in (theirs, own):
            F.cross_entropy(net(x, rare=rank == 0), y).backward()
        own.finish_gradient_synchronization()
        for number, (x, y) in enumerate(shares):
            (F.cross_entropy(alone(x, rare=number == 0), y) / ranks).backward()
        for optimizer in optimizers:
            optimizer.step()
    without = {name.split(".")[0] for name, parameter in own.module.named_parameters() if parameter.grad is None}
    states = [net.state_dict() for net in (start, theirs.module, own.module, alone)]
    return *states, without, own.module.tied.weight is own.module.again.weight


@pytest.mark.parametrize("ranks", [2, 3])
def test_tied_frozen_and_unused_parameters_train_as_in_one_process(ranks):
    found = launch(train_awkward_net, ranks=ranks, deadline_seconds=LONG)
    for start, theirs, own, alone, without, tied in found:
        assert without == {"frozen", "unused"} and tied
        for name, value in alone.items():
            assert torch.equal(own[name], found[0][2][name]), "all ranks are bitwise identical"
            for other in (theirs, own):
                assert torch.allclose(other[name], value, rtol=1e-12, atol=1e-14), name
            assert torch.equal(value, start[name]) == (name.split(".")[0] in ("frozen", "unused")), name


def buckets_of_ddp(net, x, bucket_mb):
    """The numbers of the parameters in each bucket of torch's DDP in its second step, as its communication hook sees them."""
    number = {id(parameter): number for number, parameter in enumerate(net.parameters())}
    ddp = DistributedDataParallel(net, bucket_cap_mb=bucket_mb)
    seen = []

    def look(_, bucket):
        seen.append([number[id(parameter)] for parameter in bucket.parameters()])
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp.register_comm_hook(None, look)
    for _ in range(2):
        seen.clear()
        ddp(x).sum().backward()
    return seen


def test_torchs_ddp_fills_its_buckets_by_the_same_rule():
    net = runs.deep_network(8, 3)
    [found, _] = launch(buckets_of_ddp, net, torch.ones(2, 8), 0.00025, ranks=2, deadline_seconds=LONG)
    assert found == assign_buckets(list(net.parameters()), 0.00025) == [[5, 4], [3, 2], [1, 0]]


# ---- the experiment's own conclusions, from reports that need no ranks -----------------------------------------------------


def rank_reports():
    """What healthy ranks report, as {number of ranks: reports}."""
    errors = {("float64", "even", "mean"): 1e-16, ("float32", "even", "mean"): 1e-7}
    errors |= {("float64", "uneven", "mean"): 0.4, ("float64", "uneven", "sum · N/G"): 1e-16}
    return {
        ranks: [
            runs.RankReport(
                integers={"DDP": True, "OverlappingDDP": True},
                errors={key: {"DDP": error, "OverlappingDDP": error} for key, error in errors.items()},
                predicted=0.4,
                prediction_error=1e-16,
                sent={"ring": 2 * (ranks - 1) / ranks, "by way of rank 0": ranks - 1 if rank == 0 else 1},
                sums_right=True,
            )
            for rank in range(ranks)
        ]
        for ranks in (2, 3, 4)
    }


QUICK = Params(size="quick", **module.QUICK)


def link_runs(seconds):
    """A report in which a step over a link takes seconds(traffic, way), without noise."""
    nbytes = sum(each.nbytes for each in runs.deep_network(QUICK.width, QUICK.depth).parameters())
    found = []
    for traffic in QUICK.traffics:
        further = [runs.own(size) for size in QUICK.further_mb] if traffic == 1 else []
        for way in (runs.AFTER, runs.PLACEBO, runs.DDP, runs.own(QUICK.bucket_mb), *further):
            own = way.startswith("Overlapping")
            spans = [
                Span("compute", "forward", 5.0, 5.1),
                Span("compute", "backward", 5.1, 5.4),
                Span("link", "bucket 0", 5.2, 5.5),
            ]
            times = [seconds(traffic, way)] * 5
            hidden = 0.8 if traffic <= 1 else 0.1
            found.append(runs.LinkRun(traffic, way, times, spans, [nbytes + 64 * own], hidden, 100.0))
    return runs.OverlapReport(0.1, 0.3, found)


def by_theory(traffic, way):
    if way in (runs.AFTER, runs.PLACEBO, runs.own(8)):
        return 1.0 + traffic
    return (1.0 + traffic) / pictures.modelled_gain(traffic, 0.3, 4) * (1.2 if way == runs.own(0) else 1.0)


def conclusions(reports, overlap):
    result = Result([Table("steps", pictures.steps_and_gains([overlap, overlap])[0])])
    steps, gains = pictures.steps_and_gains([overlap, overlap])
    module.claim_equality(result, reports)
    module.measure_overlap(result, [overlap, overlap], steps, gains, QUICK)
    return result


def failing(result):
    return [claim.text for claim in [*result.claims, *result.checks] if not claim.holds]


def test_healthy_ranks_fulfil_every_claim_and_both_figures_are_drawn():
    result = conclusions(rank_reports(), link_runs(by_theory))
    assert failing(result) == []
    assert len(module.draw(result).axes) == 4
    result.experiment = module.gradient_aggregation
    here, recorded = pictures.bucket_sizes(result).figure.axes
    dots = [line for line in here.lines if line.get_marker() == "o"]
    assert len(dots) == 1 + len(QUICK.further_mb) and recorded.get_title() == "recorded run"
    assert len(result.claims) == 6 and not result.checks


@pytest.mark.parametrize(
    "change, word",
    [
        (lambda report: report.integers.update(DDP=False), "the whole batch's"),
        (lambda report: report.errors["float64", "even", "mean"].update(DDP=1e-9), "the whole batch's"),
        (lambda report: setattr(report, "prediction_error", 1e-3), "mean of means"),
        (lambda report: report.errors["float64", "uneven", "sum · N/G"].update(OverlappingDDP=1e-3), "N/G times"),
        (lambda report: report.sent.update(ring=1.4), "On a ring"),
        (lambda report: setattr(report, "sums_right", False), "On a ring"),
    ],
)
def test_a_fault_of_one_rank_fails_its_claim(change, word):
    reports = rank_reports()
    change(reports[3][1])
    found = failing(conclusions(reports, link_runs(by_theory)))
    assert len(found) == 1 and word in found[0]


def test_gains_that_are_wrong_fail_their_claims():
    slower = failing(conclusions(rank_reports(), link_runs(lambda traffic, way: 1.0 + (way != runs.AFTER))))
    assert any(text.startswith("Overlap pays") for text in slower)
    assert any(text.startswith("Over a slow link") for text in slower)


def test_a_slower_step_and_a_smaller_hidden_share_than_those_of_torchs_ddp_are_reported():
    own = runs.own(QUICK.bucket_mb)
    overlap = link_runs(lambda traffic, way: by_theory(traffic, way) * (1.1 if way == own else 1.0))
    for run in overlap.runs:
        run.hidden = 0.5 if run.way == own else run.hidden
    result = conclusions(rank_reports(), overlap)
    assert result.here("OverlappingDDP, compared with torch's DDP").startswith("0.909× (slower")
    assert result.here("transfer hidden, balanced link") == 50
    assert result.here("transfer hidden by torch's DDP, balanced link") == 80


def test_what_is_said_about_overlap_survives_steps_whose_compute_varies_by_a_tenth():
    """The link takes equally long each time; what varies is the compute, by 10 % (one standard deviation) from step to step."""
    generator = torch.Generator().manual_seed(0)
    forward, backward = 0.5, 1.0

    def seconds(traffic, way):
        buckets = {runs.own(QUICK.bucket_mb): 4, runs.DDP: 4, runs.own(0): 16, runs.own(0.0625): 8, runs.own(0.25): 2}
        overlapped = pictures.modelled_gain(traffic, forward, buckets.get(way, 1))
        return (forward + backward + traffic + runs.MESSAGE) / overlapped

    held = []
    for _ in range(20):
        overlap = link_runs(seconds)
        for run in overlap.runs:
            varied = 0.1 * (forward + backward) * torch.randn(QUICK.samples, generator=generator)
            run.seconds = [run.seconds[0] + change for change in varied.tolist()]
        found = failing(conclusions(rank_reports(), overlap))
        held.append(not any(text.startswith(("Overlap pays", "Over a slow", "Over a fast")) for text in found))
    assert sum(held) >= 18
