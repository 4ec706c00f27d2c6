"""batch-invariance: what a row shares its batch with changes its last bits, and in a fixed order of summation it does not."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import timed_bars
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.decoding.experiments.cached_step import cached_step, scores_behind
from hpml_lab.decoding.lessons.decoder import Decoder, DecoderSize, decode
from hpml_lab.decoding.lessons.fixed_order import FixedOrder, fixed_product
from hpml_lab.decoding.lessons.python_text import python_text, trained_decoder
from hpml_lab.decoding.lessons.speculative import speculate

# The net is the large one of speculative-decoding, so that one kernel trains it once.
QUICK = dict(layers=6, heads=4, steps=100, new=12, long=64, samples=7)
FULL = dict(layers=8, heads=8, steps=1500, new=32, long=96, samples=11)
LENGTH, PROMPT, AT_ONCE, BATCH, MOST = 128, 16, 12, 8, 16  # of a prompt's tokens 12 are read in one pass and 4 one by one
BATCHES = range(1, MOST + 1)
INNER, OUTER = 256, 64  # of the product alone
LIBRARY, ALGORITHMS, PADDED, SINGLE, FIXED = (
    "library",
    "deterministic algorithms",
    "always 16 rows",
    "each row alone",
    "fixed order",
)
PRECISIONS = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
NEAR = 1e-4
TIES = [1e-7 * step for step in range(-8, 9)]  # leads of one token over another, in parts of its score


@dataclass
class BatchBits(Row):
    """Row 0 of a product, or of a decoder's scores, in batches of 1 to 16 rows, compared with row 0 alone."""

    what: str = column("what")
    precision: str = column("precision")
    order: str = column("order of summation")
    changed: int = column("batches of 2 to 16 that change row 0")
    first: int | None = column("the smallest of them")
    largest: float = column("largest change", "of the largest number")
    shares: list[float]


@dataclass
class PartedTexts(Row):
    """Greedy texts of a batch of 8, compared with those of each prompt alone."""

    precision: str = column("precision")
    order: str = column("order of summation")
    tokens: int = column("tokens of each text")
    parted: int = column("of 8 texts in a batch part from those alone")
    first: int | None = column("at the earliest with token")
    lead: float = column("least lead of the best score over the second")


@dataclass
class NearTie(Row):
    """Nets in which two tokens have nearly the same score behind prompt 0: whether its batch decides which one wins."""

    order: str = column("order of summation")
    nets: int = column("nets with a near tie")
    decided: int = column("in which some batch of 2 to 16 takes the other token")


@dataclass
class InvariantStep(Row):
    """A step of decoding for 8 prompts with a cache, timed in turns with the library's."""

    way: str = column("way")
    changed: int = column("batches of 2 to 16 that change row 0")
    step_ms: float = column("a step for 8 prompts", "ms")
    gain: float | None = column("gain", default=None)
    interval: str | None = column("interval", default=None)
    verdict: str | None = column("verdict", default=None)


def draw(result: Result):
    """Left: the share of row 0's numbers whose bits are not those of row 0 alone, in batches of 1 to 16; an empty cell is
    bitwise the same. Right: a step of decoding for 8 prompts in each way. Look at which batch is the first to change the row
    in each precision, and at what the fixed order shows and costs."""
    figure = style.new_figure(12, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    rows = result.rows(BatchBits)
    for index, row in enumerate(rows):
        shares = {batch: share for batch, share in zip(BATCHES, row.shares, strict=True) if share}
        for batches, color in ((BATCHES, "none"), (shares, style.ORANGE)):
            left.broken_barh([(batch - 0.45, 0.9) for batch in batches], (index - 0.42, 0.84), fc=color, ec=style.GREY, lw=0.5)
        for batch, share in shares.items():
            left.text(batch, index, f"{100 * share:.0f}", fontsize=7, ha="center", va="center", color=style.DARK)
    names = [f"{row.what}, {row.precision}{', fixed order' * (row.order == FIXED)}" for row in rows]
    left.set_yticks(range(len(rows)), names)
    left.set(xlim=(0.5, MOST + 0.5), ylim=(len(rows) - 0.5, -0.5), xlabel="rows of the batch")
    left.set_title("numbers of row 0 with other bits, %")
    left.grid(False)
    steps = result.rows(InvariantStep)
    timed_bars(right, [row.way for row in steps], [row.step_ms for row in steps], [row.verdict for row in steps], unit="ms")
    right.set_title(f"a step for {BATCH} prompts")
    return figure


# ---- bits -----------------------------------------------------------------------------------------------------------------


def bits_row(what: str, precision: str, order: str, row_0: Callable[[int], Tensor]) -> BatchBits:
    """Compare row 0 of each batch, `row_0(rows)`, with that of a batch of one."""
    alone = row_0(1)
    found = [row_0(rows) for rows in BATCHES]
    shares = [(each != alone).double().mean().item() for each in found]
    changed = [rows for rows, share in zip(BATCHES, shares, strict=True) if share]
    moved = max((each.double() - alone.double()).abs().max().item() for each in found) / alone.double().abs().max().item()
    return BatchBits(what, precision, order, len(changed), min(changed, default=None), moved, shares)


def product_rows(device: torch.device) -> list[BatchBits]:
    """A product of 1 to 16 rows with a matrix, by the library and in a fixed order, in each precision."""
    generator, rows = torch.Generator().manual_seed(0), []
    x, weight = (torch.randn(n, INNER, generator=generator, dtype=torch.float64).to(device) for n in (MOST, OUTER))
    for order, product in ((LIBRARY, F.linear), (FIXED, fixed_product)):
        for precision, dtype in PRECISIONS.items():
            a, w = x.to(dtype), weight.to(dtype)
            rows.append(bits_row("product", precision, order, lambda n, a=a, w=w, product=product: product(a[:n], w)[0]))
    return rows


@contextlib.contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """torch.use_deterministic_algorithms for a block; what has no deterministic form only warns."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def score_rows(net: Decoder, prompts: Tensor) -> dict[str, BatchBits]:
    """{way: the scores of prompt 0}, in batches of 1 to 16 prompts."""

    def row_0(rows: int) -> Tensor:
        return scores_behind(net, prompts[:rows], AT_ONCE)[0]

    def padded(rows: int) -> Tensor:
        return scores_behind(net, torch.cat([prompts[:rows], prompts.flip(1)[rows:]]), AT_ONCE)[0]

    found = {LIBRARY: bits_row("decoder", "float32", LIBRARY, row_0)}
    with deterministic_algorithms():
        found[ALGORITHMS] = bits_row("decoder", "float32", LIBRARY, row_0)
    found[PADDED] = bits_row("decoder", "float32", LIBRARY, padded)
    with FixedOrder():
        found[FIXED] = bits_row("decoder", "float32", FIXED, row_0)
    return found


def parted_row(net: Decoder, prompts: Tensor, new: int, precision: str, order: str) -> PartedTexts:
    together = decode(net, prompts, new)
    alone = torch.cat([decode(net, prompts[i : i + 1], new) for i in range(len(prompts))])
    differ = (together != alone)[:, prompts.shape[1] :]
    firsts = [row.nonzero()[0].item() + 1 for row in differ if row.any()]
    with torch.no_grad():
        best, second = net(alone)[:, prompts.shape[1] - 1 : -1].float().topk(2).values.unbind(-1)
    return PartedTexts(precision, order, new, len(firsts), min(firsts, default=None), (best - second).min().item())


@torch.no_grad()
def near_ties(net: Decoder, prompts: Tensor, order: str) -> NearTie:
    """Add to the second-best token's weights what lifts its score behind prompt 0 to the best one, and a little less or more.

    With features h, weights w and scores s = w h, that is (s_best + tie |s_best| - s_second) h / |h|².
    """
    features: dict[int, Tensor] = {}
    for rows in BATCHES:
        hook = net.scores.register_forward_pre_hook(lambda _, inputs, rows=rows: features.update({rows: inputs[0]}))
        net(prompts[:rows], last_only=True)
        hook.remove()
    h = features[1][0, -1].double()
    (best, second), (_, token) = (net.scores.weight.double() @ h).topk(2)
    decided = 0
    for tie in TIES:
        weight = net.scores.weight.clone()
        weight[token] += (best + tie * best.abs() - second) * h / h.square().sum()
        decided += len({F.linear(x, weight)[0, -1].argmax().item() for x in features.values()}) > 1
    return NearTie(order, len(TIES), decided)


def first_layer(net: Decoder) -> Decoder:
    """The net without its other layers: a draft some of whose tokens are rejected."""
    draft = copy.deepcopy(net)
    draft.blocks, draft.size = draft.blocks[:1], replace(draft.size, layers=1)
    return draft


# ---- time -----------------------------------------------------------------------------------------------------------------


def step_works(net: Decoder) -> dict[str, Callable[[], object]]:
    """{way: a step of decoding for 8 prompts behind their cached tokens}."""

    together, one, most = (cached_step(net, 1, PROMPT - 1, rows) for rows in (BATCH, 1, MOST))

    def within(mode: Callable[[], contextlib.AbstractContextManager]) -> Callable[[], None]:
        def work() -> None:
            with mode():
                together()

        return work

    return {
        LIBRARY: together,
        ALGORITHMS: within(deterministic_algorithms),
        PADDED: most,
        SINGLE: lambda: [one() for _ in range(BATCH)],
        FIXED: within(FixedOrder),
    }


# ---- the experiment -------------------------------------------------------------------------------------------------------


@experiment("batch-invariance", lecture="own", notebook="22_decoding", draw=draw, quick=QUICK, full=FULL)
def batch_invariance(params: Params) -> Result:
    """The same prompt alone and in a batch: other bits from the library, the same in a fixed order of summation."""
    device = params.device.torch
    size = DecoderSize(params.layers, params.heads, params.heads // 2, length=LENGTH)
    net = copy.deepcopy(trained_decoder(size, params.steps)).to(device)
    text = python_text()
    starts = torch.arange(MOST) * (len(text) // (MOST + 1))
    prompts = text[starts[:, None] + torch.arange(PROMPT)].to(device)
    products, scores = product_rows(device), score_rows(net, prompts)

    nets = {name: copy.deepcopy(net).to(dtype) for name, dtype in PRECISIONS.items()}
    parted = [parted_row(each, prompts[:BATCH], params.long, name, LIBRARY) for name, each in nets.items()]
    library, ties = scores_behind(net, prompts[:1], PROMPT), [near_ties(net, prompts, LIBRARY)]
    with FixedOrder():
        ties.append(near_ties(net, prompts, FIXED))
        parted.append(parted_row(net, prompts[:BATCH], params.new, "float32", FIXED))
        fixed, *others = (scores_behind(net, prompts[:1], at_once) for at_once in (PROMPT, 5, 0))
        draft = first_layer(net)
        speculated = [speculate(net, draft, prompt, params.new, k=4) for prompt in prompts[:BATCH].split(1)]
        same_texts = torch.equal(decode(net, prompts[:BATCH], params.new), torch.cat([each.tokens for each in speculated]))

    works = step_works(net)
    times = interleaved(works, samples=params.samples, placebo=LIBRARY)
    gains = {way: speed_up(times, LIBRARY, way) for way in works if way != LIBRARY}
    changed = {way: row.changed for way, row in scores.items()} | {SINGLE: 0}
    timed = [
        InvariantStep(way, changed[way], 1e3 * times[way].seconds, **(gains[way].columns if way in gains else {}))
        for way in works
    ]

    bits = Table("Row 0 in a batch, compared with row 0 alone", [*products[:3], scores[LIBRARY], *products[3:], scores[FIXED]])
    near = Table("Near ties, made by hand", ties)
    result = Result([bits, Table("Greedy texts", parted), Table("What it costs", timed), near])
    product = next(row for row in products if row.precision == "float32")
    result.key_figure("batches of 2 to 16 that change row 0, float32 product", product.changed)
    result.key_figure("the smallest of them", product.first)
    result.key_figure(f"of {len(TIES)} near ties the batch decides", ties[0].decided)
    result.key_figure("times as long a step in a fixed order", 1 / gains[FIXED].ratio)
    moved = ((library - fixed).abs().max() / library.abs().max()).item()
    result.check(f"In a fixed order the scores are the library's to {NEAR:g}", moved < NEAR, f"{moved:.1g} of the largest")
    result.check("In a fixed order no batch decides a near tie", ties[1].decided == 0)
    result.claim(
        "In a fixed order of summation a row of a product is bitwise identical alone and in each batch of 2 to 16, in float64, "
        "float32 and bfloat16",
        not any(row.changed for row in products if row.order == FIXED),
    )
    result.claim(
        "So has every score of a decoder that adds in this order; and token by token with a cache it has those of the whole "
        "prompt in one pass",
        scores[FIXED].changed == 0 and all(torch.equal(each, fixed) for each in others),
    )
    result.claim(
        "Its greedy texts in float32 are the same tokens alone and in a batch of 8, by single passes and speculated with k = 4",
        same_texts and parted[-1].parted == 0,
        f"{sum(sum(each.accepted) for each in speculated)} of {sum(sum(each.proposed) for each in speculated)} tokens that the"
        " first layer proposes are accepted",
    )
    result.measured(
        "The library's float32 product gives row 0 other bits in some batch of 2 to 16 rows",
        product.changed > 0,
        f"in {product.changed} of 15, by {product.largest:.1g} of the largest number",
    )
    result.measured(
        "use_deterministic_algorithms does not help: the same batches change row 0 as without it, in the same numbers",
        scores[ALGORITHMS].shares == scores[LIBRARY].shares and scores[LIBRARY].changed > 0,
        f"{scores[ALGORITHMS].changed} of 15 batches with it, {scores[LIBRARY].changed} without",
    )
    slow = gains[FIXED]
    result.measured("As lines of Python the fixed order costs time: its step is slower", slow.slower, slow.slowdown_text)
    return result
