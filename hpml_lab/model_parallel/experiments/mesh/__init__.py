"""mesh: data × tensor × pipeline ranks train a net: what each axis sends, who is fastest, and what 4,096 ranks would do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import stacked_bars
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.placement import crowded
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.distributed import Interconnect, fit_link
from hpml_lab.model_parallel.experiments.mesh.on_ranks import (
    ALONE,
    FULLY_SHARDED,
    Axes,
    BlockNet,
    MeshOnRank,
    RankOfMeshes,
    train_on_meshes,
)
from hpml_lab.model_parallel.experiments.one_process import BOUND, NUMBER
from hpml_lab.model_parallel.lessons.mesh_cost import (
    NUMBER_BYTES,
    STATE_BYTES,
    RankMesh,
    ReplicaBatch,
    TransformerShape,
    data_bytes,
    flops_of_rank,
    kept_bytes_of_rank,
    mesh_seconds,
    pipeline_bytes,
    ranks_until_bound,
    share_of_peak,
    state_bytes,
    tensor_bytes,
)
from hpml_lab.model_parallel.lessons.mesh_step import AXES
from hpml_lab.model_parallel.tools.large_mesh import BATCH, INFINIBAND, MEMORY, NETS, NODE, NVLINK, PEAK, TOKENS, inside_link

# Meshes as data, tensor, pipeline. Both nets of a size compute as much: a sixteenth of the tokens for four times the width.
QUICK = dict(
    ranks=4,
    meshes=((4, 1, 1), (2, 2, 1), (1, 4, 1), (2, 1, 2)),
    sharded=(2, 2, 1),
    layers=2,
    heads=8,
    narrow=(72, 64, 8),  # width, sequences, tokens of each
    wide=(288, 8, 4),
    micro_batches=2,
    sizes=(256 << 10, 1 << 20, 4 << 20),  # bytes of all-reduces
    samples=9,
)
FULL = dict(
    ranks=8,
    meshes=((8, 1, 1), (4, 2, 1), (2, 4, 1), (1, 8, 1), (2, 2, 2)),
    sharded=(4, 2, 1),
    layers=4,
    heads=8,
    narrow=(96, 128, 32),
    wide=(384, 16, 16),
    micro_batches=4,
    sizes=(1 << 20, 4 << 20, 16 << 20),
    samples=9,
)
NARROW, WIDE = "narrow, many tokens", "wide, few tokens"
STATE = 4 * NUMBER  # bytes of a parameter here: weight, gradient, and two moments of Adam
LARGE_NETS = ("6.4 billion", "64 billion")
POWERS = tuple(8 << power for power in range(10))  # ranks: 8 to 4,096
SHOWN = (64, 512, 4096)
WIDTH = 8192  # of the layer whose tensor axis is asked about
FAMILIES = {"replicas only": (1, 1), "8 tensor ranks": (8, 1), "8 tensor ranks, 16 stages": (8, 16), "64 tensor ranks": (64, 1)}


@dataclass
class MeshStep(Row):
    """A step of a net on this machine's ranks. Bytes are means over the ranks."""

    net: str = column("net")
    mesh: str = column("data × tensor × pipeline")
    gradients: float = column("gradients", "relative difference from one process")
    data_kb: float = column("a rank sends along data", "kB")
    pipeline_kb: float = column("pipeline", "kB")
    tensor_kb: float = column("tensor", "kB")
    formula_kb: float | None = column("all, by formula", "kB")
    kept_kb: float = column("it keeps", "kB")
    step_ms: float | None = column("fastest step", "ms")
    predicted_ms: float | None = column("predicted", "ms")


@dataclass
class BestMesh(Row):
    """Of the meshes of some GPUs that hold a large net the one that computes at the largest share of the peak."""

    net: str = column("parameters")
    ranks: int = column("GPUs")
    mesh: str = column("data × tensor × pipeline")
    share: float = column("of the peak", "%")
    kept_gb: float = column("a GPU keeps", "GB")


def draw(result: Result):
    """Left: what a rank sends in a step, by axis; the crosses are the formula. Both nets compute as much: look at which mesh
    sends least for each. Right: the share of its peak at which a GPU computes, for 64 billion parameters and a batch of 1,024
    sequences, by published constants. Open marks do not fit into 80 GB; the dotted line is the best mesh that does."""
    figure = style.new_figure(11, 4.2)
    here, far = figure.subplots(1, 2, width_ratios=(1.15, 1))
    rows = result.rows(MeshStep)
    names = [f"{row.net.partition(',')[0]}: {row.mesh}" for row in rows]
    lengths = {f"{axis} axis": [getattr(row, f"{axis}_kb") for row in rows] for axis in AXES}
    stacked_bars(here, names, lengths, colors=(style.BLUE, style.GREEN, style.ORANGE))
    formula = [(row.formula_kb, number) for number, row in enumerate(rows) if row.formula_kb is not None]
    here.plot(*zip(*formula, strict=True), "x", color=style.INK, label="formula")
    here.set(xlabel="kB that a rank sends in a step", ylabel="data × tensor × pipeline", title="This machine's ranks, float64")
    here.xaxis.set_major_formatter("{x:,.0f}")
    here.legend(fontsize=8)
    net = NETS[LARGE_NETS[1]]
    for (family, (tensor, pipeline)), color, mark in zip(FAMILIES.items(), style.CYCLE, style.MARKERS, strict=False):
        meshes = [RankMesh(ranks // (tensor * pipeline), tensor, pipeline) for ranks in POWERS if ranks >= tensor * pipeline]
        meshes = [mesh for mesh in meshes if mesh.data <= BATCH]
        shares = [share_percent(net, mesh) for mesh in meshes]
        far.plot([mesh.ranks for mesh in meshes], shares, color=color, label=family)
        for mesh, share in zip(meshes, shares, strict=True):
            fill = color if fits(net, mesh) else "none"
            far.plot(mesh.ranks, share, mark, color=color, markerfacecolor=fill)
    best = [found for ranks in POWERS if (found := best_mesh(net, ranks)) is not None]
    far.plot(
        [mesh.ranks for mesh in best],
        [share_percent(net, mesh) for mesh in best],
        "x:",
        color=style.INK,
        label="best that fits",
    )
    far.set_xscale("log", base=2)
    far.set_xticks(POWERS[::2], [f"{ranks:,}" for ranks in POWERS[::2]])
    far.set(
        xlabel="GPUs: NVLink in nodes of 8, InfiniBand between",
        ylabel="% of the peak",
        ylim=(0, 100),
        title="64 billion parameters",
    )
    far.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 0.07))
    return figure


# ---- thousands of ranks, by formula --------------------------------------------------------------------------------------


def batch_on(mesh: RankMesh) -> ReplicaBatch:
    return ReplicaBatch(micro_batches=BATCH // mesh.data, sequences=1)


def share_percent(net: TransformerShape, mesh: RankMesh) -> float:
    return 100 * share_of_peak(net, mesh, batch_on(mesh), PEAK, inside_link(mesh.tensor), INFINIBAND)


def kept_gb(net: TransformerShape, mesh: RankMesh) -> float:
    """State on each replica, and activations."""
    return (state_bytes(net, mesh, False) + kept_bytes_of_rank(net, mesh, batch_on(mesh))) / 1e9


def fits(net: TransformerShape, mesh: RankMesh) -> bool:
    return kept_gb(net, mesh) <= MEMORY["H100"]


def best_mesh(net: TransformerShape, ranks: int) -> RankMesh | None:
    """The fitting mesh of powers of two with the largest share of the peak, or None; the tensor axis stays in a node."""
    powers = [1 << power for power in range(ranks.bit_length())]
    meshes = [
        RankMesh(ranks // (tensor * pipeline), tensor, pipeline)
        for tensor in powers
        for pipeline in powers
        if tensor <= NODE and net.layers % pipeline == 0 and 1 <= ranks // (tensor * pipeline) <= BATCH
    ]
    return max((mesh for mesh in meshes if fits(net, mesh)), key=lambda mesh: share_percent(net, mesh), default=None)


# ---- this machine's ranks ------------------------------------------------------------------------------------------------


def product(mesh: RankMesh) -> str:
    return f"{mesh.data} × {mesh.tensor} × {mesh.pipeline}"


def sent_by_formula(net: TransformerShape, mesh: RankMesh, batch: ReplicaBatch) -> list[float]:
    """Bytes by axis, the mean over the ranks: the first and the last stage of a pipeline send half of what the others do."""
    inner = (mesh.pipeline - 1) / mesh.pipeline
    sent = data_bytes(net, mesh), inner * pipeline_bytes(net, mesh, batch), tensor_bytes(net, mesh, batch)
    return [NUMBER / NUMBER_BYTES * nbytes for nbytes in sent]  # the formulas are of 16 bits


def seconds_of(reports: list[RankOfMeshes], name) -> list[float]:
    """Of each turn: it takes as long as its slowest rank. The fastest is set against the formulas, which know no noise."""
    return [max(turn) for turn in zip(*(report.seconds[name] for report in reports), strict=True)]


def gains_of_named(predicted: Mapping[str, float], seconds: Mapping[str, Sequence[float]]) -> dict[str, SpeedUp]:
    """{"named over other": how many times as fast the mesh is that the formula names}, for all others in its order."""
    named, *others = sorted(predicted, key=predicted.__getitem__)
    return {f"{named} over {other}": speed_up_of(seconds[other], seconds[named]) for other in others}


def is_named_well(gains: Mapping[str, SpeedUp]) -> bool:
    """Whether the named mesh is faster than the last, and slower than none, beyond noise."""
    return [*gains.values()][-1].faster and not any(gain.slower for gain in gains.values())


class OnMesh:
    """A net's steps on one mesh, from all ranks, and its formulas."""

    def __init__(self, net: BlockNet, axes: Axes, reports: list[RankOfMeshes], micro_batches: int, way: str | None = None):
        self.net, self.mesh, self.reports, self.key = net, RankMesh(*axes), reports, (net.name, way or axes)
        self.steps: list[MeshOnRank] = [report.steps[self.key] for report in reports]
        self.shape = TransformerShape(net.layers, net.width, net.tokens)
        count = micro_batches if self.mesh.pipeline > 1 else 1
        self.batch = ReplicaBatch(count, net.batch // (self.mesh.data * count))
        self.formula = sent_by_formula(self.shape, self.mesh, self.batch)
        self.sent = [sum(sent) / len(reports) for sent in zip(*(step.sent for step in self.steps), strict=True)]
        self.is_sharded = way == FULLY_SHARDED
        self.kept = STATE / STATE_BYTES * state_bytes(self.shape, self.mesh, self.is_sharded)

    @property
    def difference(self) -> float:
        """Of the loss and all gradients on all ranks the largest relative difference from one process."""
        wanted = self.reports[0].losses[self.net.name]
        loss = abs(sum(step.loss for step in self.steps) - wanted) / wanted
        return max(loss, *(step.gradients for step in self.steps))

    @property
    def keeps_as_formula(self) -> bool:
        return all(step.kept == self.kept for step in self.steps)

    def seconds(self) -> list[float]:
        return seconds_of(self.reports, self.key)

    def predicted_seconds(self, link: Interconnect) -> float:
        """A step by the formula, where a rank computes as fast as when all compute an equal share alone."""
        ranks = self.mesh.ranks
        share = ReplicaBatch(1, self.net.batch // ranks)
        peak = flops_of_rank(self.shape, RankMesh(ranks, 1, 1), share) / min(seconds_of(self.reports, (self.net.name, ALONE)))
        link = Interconnect("16 bits", link.latency, link.bandwidth * NUMBER_BYTES / NUMBER)  # as many numbers a second
        return mesh_seconds(self.shape, self.mesh, self.batch, peak, link, link)

    def row(self, link: Interconnect) -> MeshStep:
        """As a row; torch's own way has no formula and is not timed."""
        name = product(self.mesh) + (", fully_shard" if self.is_sharded else "")
        sent = [nbytes / 1e3 for nbytes in self.sent]
        found = MeshStep(self.net.name, name, self.difference, *sent, None, self.steps[0].kept / 1e3, None, None)
        if not self.is_sharded:
            found.formula_kb = sum(self.formula) / 1e3
            found.step_ms, found.predicted_ms = 1e3 * min(self.seconds()), 1e3 * self.predicted_seconds(link)
        return found


@experiment("mesh", lecture="L2 L3", notebook="23_model_parallel", draw=draw, quick=QUICK, full=FULL)
def mesh(params: Params) -> Result:
    """Data, tensor and pipeline axes together: one process's gradients, bytes by formula, and which product for which net."""
    nets = [
        BlockNet(name, params.layers, width, params.heads, batch, tokens)
        for name, (width, batch, tokens) in ((NARROW, params.narrow), (WIDE, params.wide))
    ]
    meshes, sharded = [tuple(axes) for axes in params.meshes], tuple(params.sharded)
    arguments = nets, meshes, sharded, params.micro_batches, params.sizes, params.samples
    reports = launch(train_on_meshes, *arguments, ranks=params.ranks, deadline_seconds=600)
    sums = [min(seconds_of(reports, size)) for size in params.sizes]
    link = fit_link(params.ranks, params.sizes, sums, smallest=min(params.sizes))
    by_net = {net.name: [OnMesh(net, axes, reports, params.micro_batches) for axes in meshes] for net in nets}
    by_hand = [trial for trials in by_net.values() for trial in trials]
    by_torch = [OnMesh(net, sharded, reports, params.micro_batches, FULLY_SHARDED) for net in nets]
    best = {(name, ranks): best_mesh(NETS[name], ranks) for name in LARGE_NETS for ranks in SHOWN}
    result = Result(
        [
            Table(
                f"A step of {params.layers} layers on {params.ranks} ranks",
                [trial.row(link) for net in nets for trial in (*by_net[net.name], by_torch[nets.index(net)])],
            ),
            Table(
                f"By formula: H100s, a batch of {BATCH:,} sequences of {TOKENS:,} tokens",
                [
                    BestMesh(name, ranks, product(found), share_percent(NETS[name], found), kept_gb(NETS[name], found))
                    for (name, ranks), found in best.items()
                ],
            ),
        ]
    )
    free = Interconnect("no latency", 0.0, NVLINK.bandwidth)
    for label, wire in (("bytes alone", free), ("with latency", NVLINK), ("over InfiniBand", INFINIBAND)):
        ranks = ranks_until_bound(WIDTH, TOKENS, PEAK, wire)
        result.key_figure(f"a layer of width {WIDTH:,} waits as long as it computes, {label}: from", ranks, "ranks")
    result.key_figure("latency found", 1e6 * link.latency, "µs")
    result.key_figure("bandwidth found", link.bandwidth / 1e9, "GB/s")

    far = max(trial.difference for trial in (*by_hand, *by_torch))
    result.claim(
        "On every mesh, by hand and with fully_shard and parallelize_module, the loss and all gradients are those of one "
        "process, to 1e-12 in float64",
        far < BOUND,
        f"at most {far:.1g}",
    )
    result.claim(
        "By hand every byte is in the formulas: what the ranks send along each axis, and what each keeps of weights, gradients "
        "and Adam's moments, a (T · P)-th",
        all(trial.sent == trial.formula and trial.keeps_as_formula for trial in by_hand),
    )
    result.measured(
        "With fully_shard a rank keeps a D-th of that, and sends along the data axis 1.5 times as much: weights are gathered "
        "twice, gradients reduced once",
        all(trial.keeps_as_formula and 2 * trial.sent[0] == 3 * trial.formula[0] for trial in by_torch),
        ", ".join(f"{trial.steps[0].kept / 1e3:,.0f} kB and {trial.sent[0] / trial.formula[0]:g} times" for trial in by_torch),
        depends_on="torch's version",
    )
    flat = {name: [trial for trial in trials if trial.mesh.pipeline == 1] for name, trials in by_net.items()}
    fewest = {name: product(min(trials, key=lambda trial: sum(trial.sent)).mesh) for name, trials in flat.items()}
    for name, found in fewest.items():
        result.key_figure(f"fewest bytes without stages, {name}", found)
    result.claim(
        "Of two nets that compute as much, without stages the narrow one with many tokens sends least with replicas only, the "
        "wide one with few tokens with a tensor axis only",
        list(fewest.values()) == [f"{params.ranks} × 1 × 1", f"1 × {params.ranks} × 1"],
        "; ".join(
            f"{name}: " + ", ".join(f"{product(trial.mesh)} {sum(trial.sent) / 1e3:,.0f} kB" for trial in trials)
            for name, trials in flat.items()
        ),
    )
    gains = {}
    for name, trials in flat.items():
        predicted = {product(trial.mesh): trial.predicted_seconds(link) for trial in trials}
        gains[name] = gains_of_named(predicted, {product(trial.mesh): trial.seconds() for trial in trials})
    result.measured(  # with stages, ranks that share a core leave it to others while they wait: no bubble
        "For each net the formula, with this machine's computing and link, names a mesh that none of these beats beyond noise, "
        "and that is faster than the last by the formula",
        all(map(is_named_well, gains.values())),
        "; ".join(f"{name}: " + ", ".join(f"{pair} {gain}" for pair, gain in found.items()) for name, found in gains.items()),
    )
    large = {name: best[name, SHOWN[-1]] for name in LARGE_NETS}
    beyond = share_percent(NETS[LARGE_NETS[1]], RankMesh(SHOWN[-1] // 64, 64, 1))
    result.claim(
        "On 4,096 GPUs the best mesh has three axes, for 6.4 and for 64 billion parameters; with a tensor axis of 64, beyond "
        "the node, less than 2 % of the peak is left",
        all(min(one.data, one.tensor, one.pipeline) > 1 for one in large.values()) and beyond < 2,
        "; ".join(f"{product(one)}: {share_percent(NETS[name], one):.0f} %" for name, one in large.items()),
    )
    result.notes += crowded(params.ranks)
    return result
