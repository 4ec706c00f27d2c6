"""A mixture of experts: a router sends each token to k of E small MLPs, and ranks divide the experts.

    p = softmax(x R)                               the router's probabilities of E experts
    y = Σ_e w_e expert_e(x), e of the k largest    w_e = p_e over the sum of the k; a token costs k experts, not E

Rank r has T tokens of its own and E/n experts, from r · E/n on. An all-to-all takes tokens to their experts' ranks, a second
one brings the results back; backward the same two in reverse. An expert takes at most C = ⌈c · k · T / E⌉ tokens of each rank,
so that all messages have one shape (E, C, d), with zeros where a place is free. A token that finds no place is *dropped*: this
expert adds nothing to it, and only the connection around the layer carries it on. A rank sends 2 (n − 1)/n · E · C · d numbers
forward, and as many backward.

Nothing makes a router use all experts alike, so tokens are dropped while places are free. A loss is added:

    L = E · Σ_e f_e P_e     f_e: share of the choices that fall on e, dropped ones included; P_e: mean probability

It is 1 if both are even and E/k if all tokens choose the same. f counts and has no gradient: P lowers where f is large.
Sources: GShard 2020 (capacity, all-to-all); Switch Transformer 2021, section 2.2 (the loss); Mixtral 2024 (the weights).
"""

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.model_parallel.lessons.column_and_row import Adjoint


class Routing(NamedTuple):
    """For each of T tokens and k choices (T, k): the expert, its weight, and the place there; −1 if the token is dropped."""

    experts: Tensor
    weights: Tensor
    places: Tensor


def capacity_of(tokens: int, experts: int, k: int, factor: float) -> int:
    """⌈c · k · T / E⌉ places of an expert for a rank's tokens."""
    return math.ceil(factor * k * tokens / experts)


def route(scores: Tensor, k: int, capacity: int) -> Routing:
    """The routing of tokens with the router's scores (T, E), token by token: first come, first served."""
    weights, experts = scores.softmax(-1).topk(k, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    chosen = F.one_hot(experts.flatten(), scores.shape[-1])  # (T · k, E)
    places = ((chosen.cumsum(0) - 1) * chosen).sum(-1).view_as(experts)
    return Routing(experts, weights, torch.where(places < capacity, places, -1))


def balance_loss(scores: Tensor, experts: Tensor) -> Tensor:
    """E · Σ f_e P_e for the router's scores (T, E) and its choices (T, k)."""
    count = scores.shape[-1]
    shares = torch.bincount(experts.flatten(), minlength=count).to(scores.dtype) / experts.numel()
    return count * (shares * scores.softmax(-1).mean(0)).sum()


def exchanged(x: Tensor) -> Tensor:
    """Part s of n on rank r becomes part r on rank s: its own inverse, and so its own derivative."""
    received = torch.empty_like(x, memory_format=torch.contiguous_format)
    dist.all_to_all_single(received, x.contiguous())
    return received


class ExpertMixture(nn.Module):
    """All E experts on one process, or with `experts_of_rank` a rank's share of them; x has the shape (T, d)."""

    def __init__(self, width: int, hidden: int, experts: int, k: int, factor: float) -> None:
        super().__init__()
        self.k, self.factor = k, factor
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Routing]:
        """What the experts make of this rank's tokens, the balance loss, and who went where."""
        scores = self.router(x)
        experts, ranks = scores.shape[-1], scores.shape[-1] // len(self.up)
        capacity = capacity_of(len(x), experts, self.k, self.factor)
        routing = route(scores, self.k, capacity)
        kept = routing.places >= 0
        place = routing.experts[kept], routing.places[kept]
        sent = x.new_zeros(experts, capacity, x.shape[-1]).index_put(place, x[kept.nonzero()[:, 0]])
        tokens = Adjoint.apply(sent, exchanged, exchanged) if ranks > 1 else sent
        tokens = tokens.view(ranks, len(self.up), *sent.shape[1:])  # from each rank, for each of this rank's experts
        tokens = (F.relu(tokens @ self.up) @ self.down).view_as(sent)
        results = Adjoint.apply(tokens, exchanged, exchanged) if ranks > 1 else tokens
        chosen = results[routing.experts, routing.places.clamp(0)]  # (T, k, d)
        y = (chosen * (routing.weights * kept)[..., None]).sum(1)
        return y, balance_loss(scores, routing.experts), routing


def experts_of_rank(whole: ExpertMixture) -> ExpertMixture:
    """This rank's share of the experts, and the whole router. Raises LabError where they do not divide."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if len(whole.up) % ranks:
        raise LabError(f"{len(whole.up)} experts do not divide among {ranks} ranks.", f"Use a multiple of {ranks} experts.")
    part = copy.deepcopy(whole)
    part.up, part.down = (nn.Parameter(weight.detach().chunk(ranks)[rank].clone()) for weight in (whole.up, whole.down))
    return part
