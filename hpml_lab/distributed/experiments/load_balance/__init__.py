"""Ranks wait for the slowest: what a late rank costs, and what batches of sentences of similar length gain and cost."""

import itertools
from statistics import median

from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.timing.timeline import Span, rows
from hpml_lab.distributed.experiments.load_balance.figure import COMPUTES, WAITS, LateRank, OrderCost, draw
from hpml_lab.distributed.experiments.load_balance.on_ranks import Moments, on_rank
from hpml_lab.core.system.placement import crowded, placement
from hpml_lab.core.system.launcher import launch
from hpml_lab.distributed.lessons.sentence_batches import (
    DEALT,
    ORDERS,
    OWN,
    RANDOM,
    TOGETHER,
    PlanCost,
    design_effect,
    epochs,
    expected_longest,
    plan_cost,
    position_correlation,
    sentence_lengths,
)

QUICK = dict(
    ranks=2, delays=(0.0, 0.01, 0.02, 0.04), base=0.005, late_steps=8, timed=256, width=32, rounds=SAMPLES, planned=4096
)
FULL = dict(
    ranks=8, delays=(0.0, 0.01, 0.02, 0.04, 0.08), base=0.01, late_steps=30, timed=4096, width=256, rounds=9, planned=65536
)
BATCH, POOL, EPOCHS = 16, 8, 6
MANY = (1, 2, 4, 8, 16, 32, 64, 128)  # ranks
POOLS = (1, 2, 4, 8, 16, 32)
AGAIN = "random again"
TIMED = (RANDOM, OWN, TOGETHER)


# ---- measuring -------------------------------------------------------------------------------------------------------------


def late_row(delay: float, by_rank: list[list[Moments]]) -> LateRank:
    """Medians over the steps: the wait of the ranks that are in time, and what the formula says of it."""
    waits, formula = [], []
    for step in zip(*by_rank, strict=True):
        last = max(enter for _, enter, _ in step)
        waits += [leave - enter for _, enter, leave in step[:-1]]
        formula += [last - enter for _, enter, _ in step[:-1]]
    own = [leave - enter for _, enter, leave in by_rank[-1]]
    return LateRank(1e3 * delay, *(1e3 * median(seconds) for seconds in (waits, formula, own)))


def fastest_round(by_rank: list[dict], order: str) -> list[list[Moments]]:
    """The moments of each rank in the round that other programs disturbed least."""
    rounds = list(zip(*(found["runs"][order] for found in by_rank), strict=True))
    return list(min(rounds, key=lambda ranks: ranks[0][-1][2] - ranks[0][0][0]))


def timeline(by_rank: list[list[Moments]], steps: int = 8) -> list[dict]:
    spans = []
    for rank, moments in enumerate(by_rank):
        for start, enter, leave in moments[:steps]:
            spans += [Span(f"rank {rank}", COMPUTES, start, enter), Span(f"rank {rank}", WAITS, enter, leave)]
    return rows(spans)


def seconds_per_word(rounds: list[list[Moments]], words: int) -> list[float]:
    return [(steps[-1][2] - steps[0][0]) / words for steps in rounds]


# ---- the experiment --------------------------------------------------------------------------------------------------------


@experiment("load-balance", lecture="L4", notebook="13_distributed", draw=draw, quick=QUICK, full=FULL, uses=("two-gpus",))
def load_balance(params: Params) -> Result:
    """Ranks wait for the slowest; length buckets shorten the wait and the padding, and cost randomness."""
    where = placement(params.ranks, params.device, all_gpus=params.size == "full")
    ranks = where.ranks
    lengths = sentence_lengths(params.timed)
    runs = {order: next(epochs(order, lengths, ranks, BATCH, POOL)) for order in TIMED}
    arguments = (
        params.delays,
        params.base,
        params.late_steps,
        {**runs, AGAIN: runs[RANDOM]},
        lengths,
        params.width,
        params.rounds,
    )
    by_rank = launch(on_rank, where.device, *arguments, ranks=ranks, device=where.device, deadline_seconds=1800)
    late = [late_row(delay, [found["late"][delay] for found in by_rank]) for delay in params.delays]
    gains = _gains(runs, lengths, by_rank[0]["runs"])

    many = sentence_lengths(params.planned, seed=1)
    costs, plans = _planned(many, ranks)
    orders = [
        OrderCost(
            order,
            *(100 * part / cost.total for part in (cost.useful, cost.padding, cost.waiting)),
            predicted=cost.speed / costs[RANDOM].speed,
            **(gains[order].columns if order in gains else {}),
            design_effect=design_effect(plans[order], many),
            positions=position_correlation(plans[order]),
        )
        for order, cost in costs.items()
    ]
    by_order = {row.order: row for row in orders}

    result = Result(
        [
            Table("One rank is late", late),
            Table("An epoch in each order; a measured speed-up is the median over pairs of runs", orders),
        ]
    )
    result.arrays["timelines"] = {order: timeline(fastest_round(by_rank, order)) for order in (RANDOM, TOGETHER)}
    result.arrays["many"] = _by_ranks(many)
    result.arrays["pools"] = _by_pool(many, ranks)
    result.key_figure("time lost waiting, random batches", by_order[RANDOM].waiting, "%")
    result.key_figure("time lost waiting, buckets over all ranks", by_order[TOGETHER].waiting, "%")
    result.key_figure("padding, random batches", by_order[RANDOM].padding, "%")
    result.key_figure("padding, buckets over all ranks", by_order[TOGETHER].padding, "%")
    result.key_figure("buckets over all ranks, predicted", by_order[TOGETHER].predicted, "times the words per second")
    result.key_figure("buckets over all ranks, measured", gains[TOGETHER].ratio, "times the words per second")
    result.key_figure("design effect of buckets over all ranks", by_order[TOGETHER].design_effect)
    _claim_orders(result, late[-1], plans, many, ranks, by_order)
    gain = gains[TOGETHER]
    result.measured("Buckets over all ranks train more words per second than random batches", gain.faster, str(gain))
    result.notes += [where.note] * bool(where.note) + crowded(where.ranks) * (where.device == "cpu")
    return result


def _gains(runs: dict, lengths: list[int], rounds: dict) -> dict[str, SpeedUp]:
    plans = runs | {AGAIN: runs[RANDOM]}
    seconds = {name: seconds_per_word(found, plan_cost(plans[name], lengths).useful) for name, found in rounds.items()}
    return {order: speed_up_of(seconds[RANDOM], seconds[order], seconds[AGAIN]) for order in TIMED if order != RANDOM}


def _planned(lengths: list[int], ranks: int) -> tuple[dict[str, PlanCost], dict[str, list]]:
    """The first epoch's cost and some epochs' plans, by order."""
    plans = {order: list(itertools.islice(epochs(order, lengths, ranks, BATCH, POOL), EPOCHS)) for order in ORDERS}
    return {order: plan_cost(found[0], lengths) for order, found in plans.items()}, plans


def _by_ranks(lengths: list[int]) -> dict[str, list]:
    """The share of the time in which a rank does not wait, for more and more ranks."""
    counts = [n for n in MANY if len(lengths) >= 8 * n * BATCH]
    of_batch = expected_longest(lengths, BATCH)
    found: dict[str, list] = {"ranks": counts, "formula": [of_batch / expected_longest(lengths, n * BATCH) for n in counts]}
    for order in TIMED:
        found[order] = [plan_cost(next(epochs(order, lengths, n, BATCH, POOL)), lengths).busy for n in counts]
    return found


def _by_pool(lengths: list[int], ranks: int) -> dict[str, list]:
    """What pools of more and more steps gain over random batches, and their design effect."""
    base = plan_cost(next(epochs(RANDOM, lengths, ranks, BATCH, POOL)), lengths).speed
    found: dict[str, list] = {"pool": list(POOLS), "gain": [], "design_effect": []}
    for pool in POOLS:
        plan = next(epochs(TOGETHER, lengths, ranks, BATCH, pool))
        found["gain"].append(plan_cost(plan, lengths).speed / base)
        found["design_effect"].append(design_effect([plan], lengths))
    return found


def _claim_orders(
    result: Result, latest: LateRank, plans: dict[str, list], lengths: list[int], ranks: int, rows_of: dict[str, OrderCost]
) -> None:
    seeds = "the seed"
    result.measured(
        "The others wait as long as one rank is late, to within a quarter",
        abs(latest.wait_ms - latest.late_ms) < latest.late_ms / 4,
        f"{latest.wait_ms:.1f} ms for {latest.late_ms:.0f} ms",
    )
    formula = expected_longest(lengths, BATCH) / expected_longest(lengths, ranks * BATCH)
    busy = 1 - rows_of[RANDOM].waiting / 100
    result.measured(
        "With random batches the ranks wait as the formula says, to within 3 %",
        abs(busy / formula - 1) < 0.03,
        f"not waiting for {100 * busy:.1f} % of the time, and {100 * formula:.1f} % by the formula",
        depends_on=seeds,
    )
    random, own, together = (rows_of[order] for order in TIMED)
    dealt, as_they_come = (plan_cost(plans[order][0], lengths) for order in (DEALT, RANDOM))
    result.claim(
        "Dealing the sentences of a step by length gains nothing: less waiting, but as much more padding, since a step takes as"
        " long as the longest sentence of all ranks",
        [sorted(sum(step, [])) for step in plans[DEALT][0]] == [sorted(sum(step, [])) for step in plans[RANDOM][0]]
        and dealt.waiting < as_they_come.waiting
        and dealt.total == as_they_come.total,
        f"{100 * dealt.waiting / dealt.total:.1f} % of the time instead of {100 * as_they_come.waiting / dealt.total:.1f} %",
    )
    result.measured(
        "With buckets of each rank there is less padding and more waiting; with buckets over all ranks there is less of both",
        own.padding < random.padding and own.waiting > random.waiting > together.waiting and together.padding < random.padding,
        "padding and waiting "
        + ", ".join(f"{row.order} {row.padding:.1f} % and {row.waiting:.1f} %" for row in (random, own, together)),
        depends_on=seeds,
    )
    result.measured(
        "But in buckets a step is no random sample of the sentences: its mean length varies far more than a random step's",
        abs(random.design_effect - 1) < 0.25 and together.design_effect > 4,
        f"design effect {random.design_effect:.2f}; in buckets {own.design_effect:.1f} and {together.design_effect:.1f}",
        depends_on=seeds,
    )
