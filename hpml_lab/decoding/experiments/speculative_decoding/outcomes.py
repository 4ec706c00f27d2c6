"""Every way that speculative decoding can go, with its probability: distributions by summation, without sampling."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize
from hpml_lab.decoding.lessons.speculative import Draw, acceptance, residual, speculate, verify

Text = tuple[int, ...]
# Pairs of p and q in which something special happens.
SPECIAL = {
    "p = q": ([0.5, 0.25, 0.25], [0.5, 0.25, 0.25]),
    "no token in common": ([0.0, 0.75, 0.25, 0.0], [0.5, 0.0, 0.0, 0.5]),
    "q is 0 where p is not": ([0.25, 0.5, 0.25], [0.0, 0.5, 0.5]),
    "p is 0 where q is not": ([0.0, 0.5, 0.5], [0.25, 0.5, 0.25]),
    "greedy, the same token": ([0.0, 1.0], [0.0, 1.0]),
    "greedy, another token": ([0.0, 1.0], [1.0, 0.0]),
}


def outcomes(run: Callable[[Draw], Any]) -> Iterator[tuple[Any, float]]:
    """(what `run(draw)` returns, its probability) for each sequence of draws that is possible; `run` is called anew for each.

    What it draws is planned; where the plan ends, the first possible token is drawn, and one plan is made for each other.
    """
    plans: list[list[int]] = [[]]
    while plans:
        plan, probabilities = plans.pop(), []

        def draw(of: Tensor, plan: list[int] = plan, probabilities: list[float] = probabilities) -> int:
            number = len(probabilities)
            if number == len(plan):
                first, *others = of.nonzero().flatten().tolist()
                plans.extend([*plan, other] for other in others)
                plan.append(first)
            probabilities.append(of[plan[number]].item())
            return plan[number]

        yield run(draw), math.prod(probabilities)


def after_one_proposal(p: Tensor, q: Tensor) -> Tensor:
    """The distribution (V,) of the token that one proposal ends in: proposed and accepted, or drawn after any rejection."""
    accepted = q * acceptance(p, q)
    return accepted + (q - accepted).sum() * residual(p, q)


def speculated_texts(target: Decoder, draft: Decoder, prompt: Tensor, new: int, k: int) -> dict[Text, float]:
    """The probability of each text of `new` tokens behind the prompt (1, n), over all ways that `speculate` can take."""
    found: dict[Text, float] = defaultdict(float)
    ways = outcomes(lambda draw: speculate(target, draft, prompt, new, k, lambda scores: scores.softmax(-1), draw))
    for speculation, probability in ways:
        found[tuple(speculation.tokens[0, prompt.shape[1] :].tolist())] += probability
    return dict(found)


@torch.no_grad()
def own_texts(target: Decoder, prompt: Tensor, new: int) -> dict[Text, float]:
    """The probability that the target alone gives to each text of `new` tokens behind the prompt, without a cache."""
    found = {}
    for text in itertools.product(range(target.size.vocabulary), repeat=new):
        tokens = torch.cat([prompt, prompt.new_tensor([text])], 1)
        p = target(tokens)[0, prompt.shape[1] - 1 : -1].softmax(-1)
        found[text] = math.prod(p[i, token].item() for i, token in enumerate(text))
    return found


def small_pair() -> tuple[Decoder, Decoder]:
    """Two nets with a vocabulary of three tokens and random weights in float64, whose probabilities are far apart."""
    nets = []
    with torch.random.fork_rng(devices=[]):
        for seed in (0, 1):
            torch.manual_seed(seed)
            net = Decoder(DecoderSize(layers=1, heads=1, kv_heads=1, head_dim=4, vocabulary=3, length=8)).double().eval()
            net.scores.weight.data *= 3
            nets.append(net.requires_grad_(False))
    return nets[0], nets[1]


def counted_tokens_a_pass(a: float, k: int) -> float:
    """The mean number of tokens of a pass in which each proposal is accepted with probability a, over all its outcomes."""
    p, q = (torch.tensor(each, dtype=torch.float64) for each in ([a / 2, a / 2, 1 - a], [0.5, 0.5, 0.0]))

    def one_pass(draw: Draw) -> int:
        return len(verify(p.expand(k + 1, -1), [q] * k, [draw(q) for _ in range(k)], draw))

    return sum(tokens * probability for tokens, probability in outcomes(one_pass))
