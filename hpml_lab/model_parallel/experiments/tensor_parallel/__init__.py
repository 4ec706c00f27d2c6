"""tensor-parallel: a block's weights cut among ranks, by hand and by torch: one process's result, and what is sent for it."""

from dataclasses import dataclass

from matplotlib.patches import Patch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import stacked_bars
from hpml_lab.core.system.launcher import launch
from hpml_lab.model_parallel.experiments.one_process import BOUND, NUMBER
from hpml_lab.model_parallel.experiments.tensor_parallel.on_ranks import (
    HAND,
    HAND_SEQUENCE,
    LAYERS,
    LOSS_HAND,
    LOSS_TORCH,
    TORCH,
    TORCH_INPUT,
    TORCH_SEQUENCE,
    WAYS,
    BlockOnRank,
    LossOnRank,
    blocks_on_rank,
    losses_on_rank,
)
from hpml_lab.model_parallel.tools.communication import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, Sending

QUICK = dict(ranks=2, batch=2, length=64, width=128, heads=8, hidden=256, vocabulary=1024)
FULL = dict(ranks=4, batch=2, length=256, width=512, heads=16, hidden=1408, vocabulary=8192)
COLORS = {ALL_REDUCE: style.BLUE, ALL_GATHER: style.ORANGE, REDUCE_SCATTER: style.GREEN}


@dataclass
class BlockWay(Row):
    """A step of a block, forward and backward, on ranks."""

    way: str = column("way")
    output: float = column("output", "relative difference from one process")
    gradients: float = column("gradients", "relative difference from one process")
    of_mlp: int = column("collectives of the MLP")
    of_attention: int = column("of attention")
    sent_kb: float = column("a rank sends", "kB")
    weights_kb: float = column("it keeps weights", "kB")
    kept_kb: float | None = column("activations", "kB")


@dataclass
class VocabularyLoss(Row):
    """The loss of scores whose vocabulary is cut."""

    way: str = column("way")
    loss: float | None = column("loss", "relative difference from one process")
    gradient: float | None = column("gradient", "relative difference from one process")
    sent_kb: float = column("a rank sends", "kB")


def draw(result: Result):
    """Left: what a rank sends in a step of attention and MLP, one box for each collective in the order of time, as long as its
    bytes; the backward pass is hatched. Look for the boxes that only one way has: in each a gradient is summed on its own.
    Right: the weights and activations that a rank keeps for the backward pass."""
    figure = style.new_figure(11, 3.9)
    sent, kept = figure.subplots(1, 2, width_ratios=(1.7, 1))
    ways = result.arrays["sendings"]
    for row, passes in enumerate(ways.values()):
        left = 0.0
        for number, sendings in enumerate(passes):
            for kind, nbytes in sendings:
                look = dict(color=COLORS[kind], hatch="///" if number else None, edgecolor="white", linewidth=1.5)
                sent.barh(row, nbytes / 1e3, left=left, **look)
                left += nbytes / 1e3
    sent.set_yticks(range(len(ways)), list(ways))
    sent.invert_yaxis()
    sent.grid(axis="y", visible=False)
    sent.set_axisbelow(True)
    sent.set(xlabel=f"kB that each of {result.arrays['ranks']} ranks sends", title="Collectives of one step")
    looks = [Patch(color=color, label=kind) for kind, color in COLORS.items()]
    looks.append(Patch(facecolor=style.GREY, hatch="///", edgecolor="white", label="backward"))
    sent.legend(handles=looks, fontsize=8, loc="lower right")
    rows = [row for row in result.rows(BlockWay) if row.kept_kb is not None]
    parts = {"weights": [row.weights_kb for row in rows], "activations": [row.kept_kb for row in rows]}
    stacked_bars(kept, [row.way.replace(", ", ",\n") for row in rows], parts)
    kept.set(xlabel="kB", title="Kept on one rank")
    kept.legend(fontsize=8, loc="lower right")
    return figure


def block_row(way: str, steps: list[BlockOnRank]) -> BlockWay:
    """A way's row: the ranks' largest differences, and what the first of them sends and keeps."""
    return BlockWay(
        way=way,
        output=max(step.output for step in steps),
        gradients=max(step.gradients for step in steps),
        of_mlp=steps[0].collectives["mlp"],
        of_attention=steps[0].collectives["attention"],
        sent_kb=sum(sending.sent for sending in (*steps[0].forward, *steps[0].backward)) / 1e3,
        weights_kb=steps[0].weights / 1e3,
        kept_kb=None if steps[0].kept is None else steps[0].kept / 1e3,
    )


def loss_row(way: str, found: list[LossOnRank]) -> VocabularyLoss:
    losses, gradients, sendings = zip(*found, strict=True)
    return VocabularyLoss(way, max(losses), max(gradients), sum(sending.sent for sending in sendings[0]) / 1e3)


@experiment("tensor-parallel", lecture="L2 L3", notebook="23_model_parallel", draw=draw, quick=QUICK, full=FULL)
def tensor_parallel(params: Params) -> Result:
    """A block cut by columns and rows among ranks: one process's output and gradients, with two all-reduces a layer."""
    ranks, shape = params.ranks, (params.batch, params.length)
    block_sizes = (*shape, params.width, params.heads, params.hidden)
    reports = launch(blocks_on_rank, *block_sizes, ranks=ranks, deadline_seconds=600)
    losses = launch(losses_on_rank, *shape, params.vocabulary, ranks=ranks, deadline_seconds=600)
    blocks, whole_kept = reports[0]
    tokens = params.batch * params.length
    pass_bytes = 2 * (ranks - 1) * tokens * params.width * NUMBER // ranks  # an all-reduce of what is between the layers
    word_bytes = 2 * (ranks - 1) * tokens * NUMBER // ranks  # of one number for each token
    gathered_bytes = (ranks - 1) * tokens * params.vocabulary * NUMBER // ranks
    weights = NUMBER * params.width * (4 * params.width + 3 * params.hidden)

    rows = {way: block_row(way, [report[way] for report, _ in reports]) for way in WAYS}
    alone = BlockWay("one process", 0, 0, 0, 0, 0, weights / 1e3, whole_kept / 1e3)
    scored = [loss_row(way, [found[way] for found in losses]) for way in (LOSS_HAND, LOSS_TORCH)]
    result = Result(
        [
            Table(f"One step of attention and MLP on {ranks} ranks, in float64", [alone, *rows.values()]),
            Table(
                f"The loss, {params.vocabulary:,} words in {ranks} parts",
                [*scored, VocabularyLoss("scores gathered, by the formula", None, None, gathered_bytes / 1e3)],
            ),
        ]
    )
    result.arrays["ranks"] = ranks
    result.arrays["sendings"] = {
        way: [[[one.kind, one.sent] for one in part] for part in (blocks[way].forward, blocks[way].backward)] for way in WAYS
    }
    for way in (HAND, TORCH):
        result.key_figure(f"collectives of the MLP, {way}", rows[way].of_mlp)
    result.key_figure("sent in a step of a block, by hand", rows[HAND].sent_kb, unit="kB")
    result.key_figure("gathered scores over vocabulary-parallel loss, bytes", gathered_bytes / (3 * word_bytes), unit="times")
    result.key_figure("activations kept, by hand", rows[HAND].kept_kb, unit="kB")
    result.key_figure("activations kept, sequence parallel", rows[HAND_SEQUENCE].kept_kb, unit="kB")

    far = max(max(row.output, row.gradients) for row in rows.values())
    result.claim(
        "Cut by columns and rows, attention and MLP give the output and all gradients of one process, by hand and by "
        "parallelize_module, with and without sequence parallelism, to 1e-12 in float64",
        far < BOUND,
        f"at most {far:.1g}",
    )
    result.claim(
        "Forward, parallelize_module is bitwise what is written by hand, with and without sequence parallelism, in float64 and "
        "in float32: it makes the same products of the same slices, and adds up the ranks' parts alike",
        all(report[way].is_by_hand for report, _ in reports for way in (TORCH, TORCH_INPUT, TORCH_SEQUENCE)),
    )
    sendings = {
        HAND: len(LAYERS) * [Sending(ALL_REDUCE, pass_bytes)],
        HAND_SEQUENCE: len(LAYERS) * [Sending(ALL_GATHER, pass_bytes // 2), Sending(REDUCE_SCATTER, pass_bytes // 2)],
    }
    result.claim(
        "By hand a layer needs two all-reduces of B · N · d numbers, one forward and one backward; with sequence parallelism "
        "two all-gathers and two reduce-scatters, which send as many bytes",
        all(found[way].forward == found[way].backward == sent for found, _ in reports for way, sent in sendings.items())
        and rows[HAND].of_mlp == rows[HAND].of_attention == 2,
        f"{rows[HAND].sent_kb:g} kB for two layers",
    )
    result.measured(
        "parallelize_module sums the gradient of the input for each product that reads it: 3 collectives for the MLP, 4 for "
        "attention; with PrepareModuleInput they are those written by hand",
        (rows[TORCH].of_mlp, rows[TORCH].of_attention) == (3, 4)
        and (blocks[TORCH_INPUT].forward, blocks[TORCH_INPUT].backward) == (blocks[HAND].forward, blocks[HAND].backward),
        ", ".join(f"{rows[way].of_mlp} and {rows[way].of_attention}" for way in (TORCH, TORCH_INPUT)),
        depends_on="torch's version",
    )
    result.claim(
        "Each rank keeps one n-th of the layers' weights; with sequence parallelism it keeps fewer activations, too",
        all(report[HAND].weights * ranks == weights for report, _ in reports)
        and all(report[HAND_SEQUENCE].kept < report[HAND].kept < whole_kept for report, _ in reports),
        f"activations {rows[HAND].kept_kb:,.0f} and {rows[HAND_SEQUENCE].kept_kb:,.0f} kB of {alone.kept_kb:,.0f}",
    )
    far = max(max(row.loss, row.gradient) for row in scored)
    result.claim(
        "Scores cut by the vocabulary give the loss and the gradient of one process, to 1e-12, and three numbers a token are "
        "all-reduced for it",
        far < BOUND and all(found[LOSS_HAND][2] == 3 * [Sending(ALL_REDUCE, word_bytes)] for found in losses),
        f"at most {far:.1g}; {3 * word_bytes / 1e3:g} kB instead of {gathered_bytes / 1e3:,.0f}",
    )
    return result
