"""expert-parallel: experts on ranks, tokens by all-to-all, and a router that is trained with and without a loss for balance."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn import functional as F

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.system.launcher import launch
from hpml_lab.model_parallel.experiments.one_process import BOUND, NUMBER, relative_difference
from hpml_lab.model_parallel.lessons.expert_mixture import ExpertMixture, Routing, balance_loss, capacity_of, experts_of_rank
from hpml_lab.model_parallel.tools.communication import ALL_TO_ALL, Sending, Traffic

QUICK = dict(ranks=2, experts=8, tokens=256, width=16, hidden=32, steps=100)
FULL = dict(ranks=4, experts=16, tokens=512, width=32, hidden=64, steps=600)
K, FACTOR = 2, 1.25  # experts a token, capacity over that of an even load
COEFFICIENT = 0.05  # of the balance loss
CLUSTERS = 16  # of tokens; the n-th is drawn 1/n times as often as the first
BEFORE, WITHOUT, WITH = "before training", "trained without the loss", "trained with the loss"


@dataclass
class ExpertLoad(Row):
    """What an expert is given of a batch of all ranks."""

    router: str = column("router")
    expert: int = column("expert")
    rank: int = column("on rank")
    chosen: int = column("chosen by", "tokens")
    dropped: int = column("of them dropped", "tokens")


@dataclass
class RouterBalance(Row):
    """A router's choices for a batch of all ranks."""

    router: str = column("router")
    dropped: float = column("choices that are dropped", "%")
    expert: float = column("busiest expert", "times the mean")
    rank: float = column("busiest rank", "times the mean")
    balance: float = column("balance loss", "1 is even")
    error: float = column("squared error")


@dataclass
class ExpertsOnRank:
    """One forward and backward pass on a rank, compared with one process, and what it sends."""

    is_same: bool
    gradients: float
    sendings: list[Sending]
    is_placed: bool


@dataclass
class TrainedRouter:
    """A training on a rank: of a fixed batch the choices and those dropped, by expert; and how many each step has dropped."""

    chosen: Tensor
    dropped: Tensor
    balance: float
    error: float
    by_step: list[int]


# ---- on each rank ----------------------------------------------------------------------------------------------------------


def compare_on_rank(experts: int, tokens: int, width: int, hidden: int) -> ExpertsOnRank:
    """Tokens and weights are small integers, so that products and their sums are exact in whatever order they are added."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    whole = ExpertMixture(width, hidden, experts, K, FACTOR).double()
    for parameter in whole.parameters():
        parameter.data = torch.randint(-2, 3, parameter.shape).double()
    whole.router.weight.data /= 8
    x, gradient = (torch.randint(-3, 4, (ranks, tokens, width)).double() for _ in range(2))
    groups = [x[number].clone().requires_grad_() for number in range(ranks)]  # routed one by one, as each rank routes its own
    results = [whole(group) for group in groups]
    torch.autograd.backward([y for y, _, _ in results], list(gradient))
    part, own = experts_of_rank(whole), x[rank].clone().requires_grad_()
    part.zero_grad()
    with Traffic() as traffic:
        y, _, routing = part(own)
        y.backward(gradient[rank])
    dist.all_reduce(part.router.weight.grad)
    pairs = [(own.grad, groups[rank].grad), (part.router.weight.grad, whole.router.weight.grad)]
    pairs += [(getattr(part, name).grad, getattr(whole, name).grad.chunk(ranks)[rank]) for name in ("up", "down")]
    return ExpertsOnRank(
        is_same=torch.equal(y, results[rank][0]),
        gradients=max(relative_difference(*pair) for pair in pairs),
        sendings=traffic.sendings,
        is_placed=is_placed(routing, experts, capacity_of(tokens, experts, K, FACTOR)),
    )


def is_placed(routing: Routing, experts: int, capacity: int) -> bool:
    """Whether each expert has its first `capacity` tokens, on places 0, 1, 2 …, and no others."""
    for expert in range(experts):
        places = routing.places[routing.experts == expert].tolist()
        if places != [place if place < capacity else -1 for place in range(len(places))]:
            return False
    return True


def batch_of(step: int, tokens: int, width: int) -> tuple[Tensor, Tensor]:
    """This rank's tokens of a step, around centers of which some are frequent, and what is to be made of them."""
    fixed = torch.Generator().manual_seed(0)
    centers, maps = torch.randn(CLUSTERS, width, generator=fixed), torch.randn(CLUSTERS, width, width, generator=fixed)
    drawn = torch.Generator().manual_seed(1 + step * dist.get_world_size() + dist.get_rank())
    cluster = torch.multinomial(1 / torch.arange(1.0, CLUSTERS + 1), tokens, replacement=True, generator=drawn)
    x = centers[cluster] + 0.3 * torch.randn(tokens, width, generator=drawn)
    return x, torch.tanh((x[:, None] @ maps[cluster])[:, 0] / width**0.5)


def train_on_rank(coefficient: float, experts: int, tokens: int, width: int, hidden: int, steps: int) -> TrainedRouter:
    """Experts and router learn on all ranks; the balance loss counts `coefficient`."""
    torch.manual_seed(0)
    net = experts_of_rank(ExpertMixture(width, hidden, experts, K, FACTOR))
    optimizer, by_step, ranks = torch.optim.Adam(net.parameters(), lr=5e-3), [], dist.get_world_size()
    for step in range(steps):
        x, target = batch_of(1 + step, tokens, width)
        y, balance, routing = net(x)
        optimizer.zero_grad()
        ((F.mse_loss(y, target) + coefficient * balance) / ranks).backward()  # an expert has heard from the tokens of all ranks
        dist.all_reduce(net.router.weight.grad)
        optimizer.step()
        by_step.append(int((routing.places < 0).sum()))
    x, target = batch_of(0, tokens, width)
    with torch.no_grad():
        y, balance, routing = net(x)
    chosen, kept = (
        torch.bincount(given, minlength=experts) for given in (routing.experts.flatten(), routing.experts[routing.places >= 0])
    )
    return TrainedRouter(chosen, chosen - kept, balance.item(), F.mse_loss(y, target).item(), by_step)


# ---- drawing ---------------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: how many tokens of a batch choose each expert, for a router before training and after it; a color is a rank, the
    hatched tokens are dropped, the dashed line is an even load. Look for experts that drop tokens while others are half empty.
    Right: the share of all choices that is dropped, by step of training."""
    ranks, steps = result.arrays["ranks"], result.arrays["dropped"]
    figure = style.new_figure(11, 3.9)
    loads, curves = figure.subplots(1, 2, width_ratios=(1.9, 1))
    rows, names = result.rows(ExpertLoad), [row.router for row in result.rows(RouterBalance)]
    experts = len(rows) // len(names)
    for position, row in enumerate(rows):
        at, color = position + 1.5 * (position // experts), style.CYCLE[row.rank % len(style.CYCLE)]
        kept = row.chosen - row.dropped
        label = f"rank {row.rank}" if position < experts and row.expert % (experts // ranks) == 0 else None
        loads.bar(at, kept, 0.9, color=color, label=label)
        look = dict(facecolor="none", edgecolor=color, hatch="////", linewidth=0)
        loads.bar(at, row.dropped, 0.9, bottom=kept, label="dropped" if position == experts - 1 else None, **look)
    loads.axhline(sum(row.chosen for row in rows) / len(rows), color=style.INK, linestyle="--", linewidth=1)
    loads.set_xticks([number * (experts + 1.5) + (experts - 1) / 2 for number in range(len(names))], names)
    loads.set(xlabel="experts of a router", ylabel="tokens that choose an expert")
    loads.grid(axis="x", visible=False)
    loads.set_axisbelow(True)
    loads.legend(fontsize=8, ncols=ranks + 1)
    for (name, values), color, line in zip(steps.items(), (style.ORANGE, style.BLUE), style.LINES, strict=False):
        curves.plot(range(len(values)), values, line, color=color, linewidth=1, label=name)
    curves.set(xlabel="step", ylabel="choices that are dropped, %", ylim=(0, None))
    curves.legend(fontsize=8)
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------------


@experiment("expert-parallel", lecture="L3", notebook="23_model_parallel", draw=draw, quick=QUICK, full=FULL)
def expert_parallel(params: Params) -> Result:
    """Experts divided among ranks: one process's outputs, two all-to-alls a pass, and a router that learns to share work."""
    ranks, experts, tokens = params.ranks, params.experts, params.tokens
    sizes, on = (experts, tokens, params.width, params.hidden), dict(ranks=ranks, deadline_seconds=600)
    compared = launch(compare_on_rank, *sizes, **on)
    trained = {
        BEFORE: launch(train_on_rank, 0.0, *sizes, 0, **on),
        WITHOUT: launch(train_on_rank, 0.0, *sizes, params.steps, **on),
        WITH: launch(train_on_rank, COEFFICIENT, *sizes, params.steps, **on),
    }
    capacity = capacity_of(tokens, experts, K, FACTOR)
    sent = (ranks - 1) * experts * capacity * params.width * NUMBER // ranks  # by an all-to-all
    loads, balances = [], {}
    for router, found in trained.items():
        chosen, dropped = (sum(getattr(one, name) for one in found) for name in ("chosen", "dropped"))
        loads += [
            ExpertLoad(router, expert, expert * ranks // experts, int(chosen[expert]), int(dropped[expert]))
            for expert in range(experts)
        ]
        balances[router] = RouterBalance(
            router=router,
            dropped=100 * int(dropped.sum()) / (K * tokens * ranks),
            expert=(chosen.max() * experts / chosen.sum()).item(),
            rank=(chosen.view(ranks, -1).sum(1).max() * ranks / chosen.sum()).item(),
            balance=sum(one.balance for one in found) / ranks,
            error=sum(one.error for one in found) / ranks,
        )
    result = Result(
        [
            Table(f"Routers: {K} of {experts} experts for each of {ranks * tokens:,} tokens", list(balances.values())),
            Table(f"Experts, each with {capacity} places for every rank's tokens", loads),
        ]
    )
    result.arrays["ranks"] = ranks
    result.arrays["dropped"] = {
        router: [
            100 * sum(counts) / (K * tokens * ranks) for counts in zip(*(one.by_step for one in trained[router]), strict=True)
        ]
        for router in (WITHOUT, WITH)
    }
    for router, row in balances.items():
        result.key_figure(f"choices dropped, {router}", row.dropped, unit="%")
    for router, row in balances.items():
        result.key_figure(f"busiest expert, {router}", row.expert, unit="times the mean")
    result.key_figure("a rank sends in a step", 4 * sent / 1e3, unit="kB")
    add_claims(result, compared, balances, 4 * [Sending(ALL_TO_ALL, sent)], experts)
    return result


def add_claims(
    result: Result, compared: list[ExpertsOnRank], balances: dict[str, RouterBalance], sendings: list[Sending], experts: int
) -> None:
    far = max(one.gradients for one in compared)
    result.claim(
        "Experts on ranks give bitwise the outputs of one process that routes each rank's tokens for themselves, and its "
        "gradients to 1e-12 in float64",
        all(one.is_same for one in compared) and far < BOUND,
        f"gradients at most {far:.1g} apart",
    )
    result.claim(
        "A pass takes two all-to-alls, forward and backward, in each of which a rank sends (n − 1)/n · E · C · d numbers, "
        "however uneven the load is",
        all(one.sendings == sendings for one in compared),
        f"{sum(sending.sent for sending in sendings) / 1e3:g} kB a step",
    )
    result.claim(
        "An expert keeps the first C tokens of each rank that choose it, each on a place of its own, and drops all later ones",
        all(one.is_placed for one in compared),
    )
    even, alone = (
        40.0 * F.one_hot(numbers, experts).double() for numbers in (torch.arange(8 * experts) % experts, torch.zeros(64).long())
    )
    ends = [balance_loss(scores, scores.topk(1).indices).item() for scores in (even, alone)]
    result.claim(
        "The balance loss is 1 where all experts are chosen alike, and E where one has all tokens",
        abs(ends[0] - 1) < BOUND and abs(ends[1] - experts) < BOUND * experts,
        f"{ends[0]:g} and {ends[1]:g} of {experts} experts",
    )
    before, without, balanced = (balances[router] for router in (BEFORE, WITHOUT, WITH))
    result.measured(
        "With the loss fewer choices are dropped than before training and than without it, and the busiest expert has less",
        balanced.dropped < min(before.dropped, without.dropped) and balanced.expert < min(before.expert, without.expert),
        f"{balanced.dropped:.1f} % dropped, not {without.dropped:.1f} %; busiest expert {balanced.expert:.2f} times the mean, "
        f"not {without.expert:.2f}",
        depends_on="the seed",
    )
