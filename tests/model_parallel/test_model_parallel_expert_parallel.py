"""expert_mixture.py and expert-parallel: routing by hand, experts on ranks, and a router that is balanced."""

import pytest
import torch
from torch import distributed as dist

from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.rank_errors import RankError
from hpml_lab.model_parallel.exercises.route_tokens import CASES, right
from hpml_lab.model_parallel.experiments.expert_parallel import (
    BEFORE,
    WITH,
    ExpertLoad,
    RouterBalance,
    batch_of,
    compare_on_rank,
    is_placed,
)
from hpml_lab.model_parallel.lessons.expert_mixture import (
    ExpertMixture,
    Routing,
    balance_loss,
    capacity_of,
    exchanged,
    experts_of_rank,
    route,
)

SCORES = torch.tensor([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0], [2.0, 3.0, 1.0], [3.0, 2.0, 1.0]])


def test_capacity_is_that_of_an_even_load_times_the_factor_rounded_up():
    assert capacity_of(8, 4, 2, 1.0) == 4 and capacity_of(256, 8, 2, 1.25) == 80 and capacity_of(7, 4, 1, 1.0) == 2


def test_tokens_are_served_in_order_and_dropped_where_an_expert_is_full():
    routing = route(SCORES, 2, 2)
    assert routing.experts.tolist() == [[0, 1], [0, 2], [1, 0], [0, 1]]
    assert routing.places.tolist() == [[0, 0], [1, 0], [1, -1], [-1, -1]]
    share = 1 / (1 + torch.exp(torch.tensor(-1.0)))  # e³ over e³ + e²
    assert torch.allclose(routing.weights, torch.stack([share, 1 - share]).expand(4, 2))


def test_a_place_given_twice_or_left_free_is_noticed():
    routing = route(SCORES, 2, 2)
    assert is_placed(routing, 3, 2)
    for places in ([[0, 0], [1, 0], [1, -1], [1, -1]], [[0, 0], [-1, 0], [1, -1], [-1, -1]]):
        assert not is_placed(Routing(routing.experts, routing.weights, torch.tensor(places)), 3, 2)


def test_the_balance_loss_is_the_switch_transformers_and_has_the_gradient_of_the_mean_probability():
    scores = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    experts = scores.topk(1).indices
    probabilities = scores.softmax(-1)
    loss = balance_loss(scores, experts)
    assert loss.item() == pytest.approx(2 * (2 / 3 * probabilities[:, 0].mean() + 1 / 3 * probabilities[:, 1].mean()).item())
    [gradient] = torch.autograd.grad(loss, scores)
    p, q = probabilities.detach().unbind(1)
    assert torch.allclose(gradient[:, 0], 2 * (2 / 3 - 1 / 3) * p * q / 3)  # dP₀ = p q ds₀ / T


@pytest.mark.parametrize("k", [1, 2])
def test_the_balance_loss_ends_at_the_experts_over_the_choices_of_a_token(k):
    scores = torch.tensor([40.0] * k + [0.0] * (8 - k), dtype=torch.float64).repeat(16, 1)
    assert balance_loss(scores, scores.topk(k).indices).item() == pytest.approx(8 / k)


def one_by_one(net, x):
    """The mixture by its definition, token by token, with the routing that the net gives."""
    y, _, routing = net(x)
    wanted = torch.zeros_like(y)
    for token in range(len(x)):
        for expert, weight, place in zip(*(part[token] for part in routing), strict=True):
            if place >= 0:
                wanted[token] += weight * (torch.relu(x[token] @ net.up[expert]) @ net.down[expert])
    return y, wanted, routing


def test_a_mixture_is_the_weighted_sum_of_the_experts_that_have_a_place():
    torch.manual_seed(0)
    net, x = ExpertMixture(6, 5, 4, 2, 1.0).double(), torch.randn(16, 6, dtype=torch.float64)
    y, wanted, routing = one_by_one(net, x)
    assert (routing.places < 0).any() and torch.allclose(y, wanted, atol=1e-13)
    y, wanted, routing = one_by_one(ExpertMixture(6, 5, 4, 2, 4.0).double(), x)
    assert (routing.places >= 0).all() and torch.allclose(y, wanted, atol=1e-13)


def exchange_on_rank():
    own = 10 * dist.get_rank() + torch.arange(3)
    there = exchanged(own)
    return there.tolist(), exchanged(there).tolist() == own.tolist()


def test_an_all_to_all_is_a_transpose_and_its_own_inverse():
    assert launch(exchange_on_rank, ranks=3) == [([rank, 10 + rank, 20 + rank], True) for rank in range(3)]


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_give_bitwise_one_processs_outputs(ranks):
    for found in launch(compare_on_rank, 6, 40, 8, 12, ranks=ranks):
        assert found.is_same and found.gradients < 1e-12 and found.is_placed
        places = capacity_of(40, 6, 2, 1.25)
        assert [one.sent for one in found.sendings] == (4 * [2 * 6 * places * 8 * 8 // 3] if ranks == 3 else [])


def test_experts_that_do_not_divide_are_refused():
    with pytest.raises(RankError, match="4 experts do not divide among 3 ranks. Use a multiple of 3 experts"):
        launch(experts_of_rank, ExpertMixture(2, 2, 4, 1, 1.0), ranks=3)


def batches_on_rank():
    return [batch_of(step, 8, 4) for step in (0, 1)]


def test_ranks_and_steps_have_other_tokens_of_the_same_task():
    found = [batch for batches in launch(batches_on_rank) for batch in batches]
    assert len({tuple(x.flatten().tolist()) for x, _ in found}) == 4
    again = [batch for batches in launch(batches_on_rank) for batch in batches]
    assert all(torch.equal(x, other) and torch.equal(y, goal) for (x, y), (other, goal) in zip(found, again, strict=True))


def test_the_experiment_is_sound(sound, ran):
    result = ran("expert-parallel")
    sound(result)
    sizes, balances = result.experiment.quick, {row.router: row for row in result.rows(RouterBalance)}
    loads = result.rows(ExpertLoad)
    assert len(loads) == 3 * sizes["experts"]
    for router, row in balances.items():
        own = [load for load in loads if load.router == router]
        assert sum(load.chosen for load in own) == 2 * sizes["tokens"] * sizes["ranks"]
        share = 100 * sum(load.dropped for load in own) / (2 * sizes["tokens"] * sizes["ranks"])
        assert row.dropped == pytest.approx(share) and 1 <= row.rank <= sizes["ranks"]
    assert balances[WITH].dropped < balances[BEFORE].dropped
    assert all(len(curve) == sizes["steps"] for curve in result.arrays["dropped"].values())


def test_the_exercises_places_are_each_given_once_and_first_choices_come_first():
    for scores, k, capacity in CASES.values():
        experts, weights, places = right(scores, k, capacity)
        assert torch.allclose(weights.sum(1), torch.ones(len(scores), dtype=weights.dtype))
        for expert in range(scores.shape[1]):
            queue = [
                places[token, choice].item()
                for choice in range(k)
                for token in range(len(scores))
                if experts[token, choice] == expert
            ]
            assert queue == [number if number < capacity else -1 for number in range(len(queue))]
