"""speculative-decoding: the large net's own tokens and distribution from a small net's proposals, and when that pays."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.decoding.experiments.cached_step import cached_step
from hpml_lab.decoding.experiments.speculative_decoding.outcomes import (
    SPECIAL,
    after_one_proposal,
    counted_tokens_a_pass,
    own_texts,
    small_pair,
    speculated_texts,
)
from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize, KVCache, decode
from hpml_lab.decoding.lessons.python_text import python_text, trained_decoder
from hpml_lab.decoding.lessons.speculation_cost import speculation_gain, tokens_a_pass
from hpml_lab.decoding.lessons.speculative import Speculation, speculate

# The target has `layers` layers of `heads` heads of 16 numbers, the draft one layer. With steps of 1,024 tokens.
QUICK = dict(layers=6, heads=4, steps=100, draft_heads=2, draft_steps=150, texts=3, new=48, ks=[1, 2, 4, 8], samples=7)
FULL = dict(
    layers=8, heads=8, steps=1500, draft_heads=4, draft_steps=1500, texts=8, new=64, ks=[1, 2, 3, 4, 6, 8, 12], samples=11
)
LENGTH, PROMPT = 128, 32  # the longest sequence, and a prompt, in tokens
SHARES = (0.5, 0.7, 0.8, 0.9)  # of accepted proposals, for the curves of the formula
ALONE = "alone"
GREEDY, SAMPLED = "greedy", "sampled"


@dataclass
class SpeculatedTexts(Row):
    """All texts, decoded in one way with k proposals a pass."""

    way: str = column("way")
    k: int = column("k")
    passes: int = column("passes of the large net")
    accepted: float = column("proposals accepted", "%")
    tokens: float = column("tokens a pass")
    formula: float = column("by the formula, for what each pass proposes")


@dataclass
class SpeculationTime(Row):
    """Greedy decoding of one text, timed in turns with the large net alone."""

    k: int = column("k")
    formula: float = column("gain by the formula")
    gain: float = column("gain measured")
    low: float
    high: float
    interval: str = column("interval")
    verdict: str = column("verdict")


def draw(result: Result):
    """Left: tokens that each pass of the large net gives with k proposals, measured (markers) and by the formula with the mean
    share a of accepted ones (dashed). Right: times as fast as the large net alone, measured (diamonds, with intervals), and by
    the formula for several a, where a pass of the draft costs c passes. Look for the k after which a curve falls again."""
    figure = style.new_figure(11, 4.2)
    left, right = figure.subplots(1, 2)
    ks = sorted({row.k for row in result.rows(SpeculatedTexts)})
    for way, color, marker in ((GREEDY, style.BLUE, "o"), (SAMPLED, style.ORANGE, "s")):
        rows = [row for row in result.rows(SpeculatedTexts) if row.way == way]
        a = sum(row.accepted for row in rows) / len(rows) / 100
        left.plot(ks, [row.tokens for row in rows], marker, color=color, label=f"{way}, measured")
        left.plot(ks, [tokens_a_pass(a, k) for k in ks], "--", color=color, label=f"formula, a = {a:.2f}")
    left.plot(ks, [k + 1 for k in ks], ":", color=style.GREY, label="all accepted: k + 1")
    left.set(xlabel="k, tokens proposed for a pass", ylabel="tokens a pass", ylim=(0, 1.1 + ks[-1]))
    left.legend()
    c, every = result.arrays["c"], range(1, ks[-1] + 1)
    for a, line in zip(SHARES, style.LINES, strict=False):
        gains = [speculation_gain(a, k, c) for k in every]
        right.plot(every, gains, linestyle=line, color=style.GREY, linewidth=1.5)
        right.annotate(f"a = {a:g}", (every[-1], gains[-1]), xytext=(4, 0), textcoords="offset points", va="center")
    times = result.rows(SpeculationTime)
    ends = [[row.gain - row.low for row in times], [row.high - row.gain for row in times]]
    right.errorbar(
        [row.k for row in times], [row.gain for row in times], ends, fmt="D", color=style.BLUE, label="measured, greedy"
    )
    right.axhline(1, color=style.INK, linewidth=1)
    right.set(xlabel="k, tokens proposed for a pass", ylabel="times as fast as the large net alone", xlim=(0.5, ks[-1] + 1.5))
    right.set_title(f"c = {c:.2f}")
    right.legend(loc="lower left")
    return figure


# ---- the two nets ---------------------------------------------------------------------------------------------------------


def texts_of(number: int) -> list[Tensor]:
    """Prompts (1, 32) from places of the text that lie apart."""
    text = python_text()
    return [text[start : start + PROMPT][None] for start in (len(text) // (number + 1) * (i + 1) for i in range(number))]


def counted_row(way: str, k: int, found: Sequence[Speculation]) -> SpeculatedTexts:
    """What several texts together needed. Of the proposals those count that were looked at: up to the first rejection."""
    pairs = [pair for each in found for pair in zip(each.proposed, each.accepted, strict=True)]
    accepted = sum(taken for _, taken in pairs)
    a = accepted / (accepted + sum(taken < proposed for proposed, taken in pairs))
    expected = sum(tokens_a_pass(a, proposed) for proposed, _ in pairs) / len(pairs)  # the last pass of a text proposes less
    return SpeculatedTexts(way, k, len(pairs), 100 * a, (accepted + len(pairs)) / len(pairs), expected)


@torch.no_grad()
def rounding(target: Decoder, tokens: Tensor, prompt: int) -> tuple[float, float]:
    """For a text (1, n): the least lead of the best score over the second, and how far a pass for each token moves scores."""
    whole, cache = target(tokens), KVCache(target.size, 1, tokens.shape[1], like=target.scores.weight)
    steps = torch.cat([target(tokens[:, i : i + 1], cache) for i in range(tokens.shape[1])], 1)
    best = whole[0, prompt - 1 : -1].topk(2).values
    return (best[:, 0] - best[:, 1]).min().item(), (whole - steps).abs().max().item()


@torch.no_grad()
def pairs_of(target: Decoder, draft: Decoder, prompts: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """(p, q) in float64: the two nets' own behind each token of the prompts, each pair the other way round, and the special."""
    own = [pair for tokens in prompts for pair in zip(*(net(tokens)[0].softmax(-1) for net in (target, draft)), strict=True)]
    special = [tuple(own[0][0].new_tensor(each) for each in pair) for pair in SPECIAL.values()]
    return [*own, *((q, p) for p, q in own), *((p, p) for p, _ in own), *special]


# ---- the experiment -------------------------------------------------------------------------------------------------------


@experiment("speculative-decoding", lecture="own", notebook="22_decoding", draw=draw, quick=QUICK, full=FULL)
def speculative_decoding(params: Params) -> Result:
    """A small net proposes, the large one checks all proposals in one pass: its own tokens and distribution in fewer passes."""
    device = params.device.torch
    sizes = [DecoderSize(params.layers, params.heads, params.heads // 2, length=LENGTH)]
    sizes += [DecoderSize(1, params.draft_heads, params.draft_heads // 2, length=LENGTH)]
    trained = [trained_decoder(size, steps) for size, steps in zip(sizes, (params.steps, params.draft_steps), strict=True)]
    target, draft = (copy.deepcopy(net).to(device) for net in trained)
    exact, exact_draft = (copy.deepcopy(net).double().to(device) for net in trained)
    prompts = [prompt.to(device) for prompt in texts_of(params.texts)]
    generator = torch.Generator(device).manual_seed(0)

    def chosen(probabilities: Tensor) -> int:
        return int(torch.multinomial(probabilities, 1, generator=generator))

    def sampled(prompt: Tensor, k: int) -> Speculation:
        return speculate(target, draft, prompt, params.new, k, lambda scores: scores.softmax(-1), chosen)

    alone = [decode(exact, prompt, params.new) for prompt in prompts]
    greedy = {k: [speculate(exact, exact_draft, prompt, params.new, k) for prompt in prompts] for k in params.ks}
    rows = [counted_row(GREEDY, k, found) for k, found in greedy.items()]
    rows += [counted_row(SAMPLED, k, [sampled(prompt, k) for prompt in prompts]) for k in params.ks]

    works = {ALONE: lambda: decode(target, prompts[0], params.new)}
    works |= {str(k): lambda k=k: speculate(target, draft, prompts[0], params.new, k) for k in params.ks}
    times = interleaved(works, samples=params.samples, placebo=ALONE)
    passes = {"target": cached_step(target, 1, PROMPT), "draft": cached_step(draft, 1, PROMPT)}
    passes = interleaved(
        passes | {"check": cached_step(target, params.ks[-1] + 1, PROMPT, last_only=False)}, samples=params.samples
    )
    c = passes["draft"].seconds / passes["target"].seconds
    gains = {k: speed_up(times, ALONE, str(k)) for k in params.ks}
    timed = [
        SpeculationTime(k, speculation_gain(row.accepted / 100, k, c), low=found.low, high=found.high, **found.columns)
        for (k, found), row in zip(gains.items(), rows, strict=False)
    ]

    result = Result([Table(f"{params.texts} texts of {params.new} tokens", rows), Table("One text, greedy, in float32", timed)])
    result.arrays["c"] = c
    shown = next(row for row in rows if row.k == 4)
    result.key_figure("tokens a pass, greedy, k = 4", shown.tokens)
    result.key_figure("proposals accepted, greedy, k = 4", shown.accepted, unit="%")
    result.key_figure("a pass of the draft, in passes of the large net", c)
    result.key_figure(
        f"a pass over {params.ks[-1] + 1} tokens, in passes over one", passes["check"].seconds / passes["target"].seconds
    )
    best = max(gains, key=lambda k: gains[k].ratio)
    result.key_figure("times as fast as the large net alone, best k", gains[best].ratio)

    same = all(torch.equal(each.tokens, own) for found in greedy.values() for each, own in zip(found, alone, strict=True))
    leads, moves = zip(*(rounding(exact, tokens, PROMPT) for tokens in alone), strict=True)
    result.claim(
        "Greedy: for every k the tokens are those of the large net alone, in float64",
        same,
        f"the best score leads by at least {min(leads):.1g}, and rounding moves scores by at most {max(moves):.0e}",
    )
    add_distribution_claims(result, pairs_of(exact, exact_draft, prompts))
    far = max(abs(row.tokens / row.formula - 1) for row in rows)
    result.measured(
        "Trained nets: tokens a pass are within 20 % of that formula with their mean acceptance, though a varies along a text",
        far < 0.2,
        f"at most {100 * far:.2g} % away",
        depends_on="what the nets have learned",
    )
    formula = next(row.formula for row in timed if row.k == best)
    result.measured(
        "It pays here: with the best k greedy decoding is faster than by the large net alone",
        gains[best].faster,
        f"k = {best}: {gains[best]}; by the formula {formula:.2g}×",
    )
    return result


def add_distribution_claims(result: Result, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    off = max((after_one_proposal(p, q) - p).abs().max().item() for p, q in pairs)
    result.claim(
        "Accepted with min(1, p/q), or else drawn from (p − q)₊, a token has the distribution p: summed over all outcomes, to "
        "1e-14, also where p = q, where they have no token in common, and where one of them is 0",
        off <= 1e-14,
        f"{len(pairs)} pairs, at most {off:.1g}",
    )
    target, draft = small_pair()
    prompt, found = torch.tensor([[0, 2]]), []
    for new, k in ((3, 1), (3, 2)):
        own, speculated = own_texts(target, prompt, new), speculated_texts(target, draft, prompt, new, k)
        found.append(max(abs(speculated.get(text, 0.0) - probability) for text, probability in own.items()))
    result.claim(
        "So have whole texts: over all ways that the loop with its two caches can take, each text of three tokens has the "
        "probability that the large net gives it, to 1e-12",
        max(found) <= 1e-12,
        f"a vocabulary of 3, k = 1 and 2: at most {max(found):.1g}",
    )
    far = max(abs(counted_tokens_a_pass(a, k) - tokens_a_pass(a, k)) for a in (0, 0.5, 0.75, 0.875, 1) for k in range(5))
    result.claim(
        "If each proposal is accepted with probability a, a pass gives (1 − aᵏ⁺¹)/(1 − a) tokens: counted over all outcomes, "
        "to 1e-12",
        far <= 1e-12,
    )
