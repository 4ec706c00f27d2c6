"""disk-iops: requests a second and bandwidth of a disk by block size and queue depth, and what the page cache hides."""

from dataclasses import asdict, dataclass, field
from itertools import product
from math import log
from statistics import median

import numpy as np

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.ladder import gain_in_turns
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.errors import LabError
from hpml_lab.storage.tools import disk_benchmark
from hpml_lab.storage.experiments.disk_iops import fio
from hpml_lab.storage.tools.disk_benchmark import DiskJob, DiskRate, DiskSample
from hpml_lab.storage.experiments.disk_iops.page_cache import AGAIN, FIRST, PLACEBO, CacheRate, cache_rates
from hpml_lab.storage.tools.uncached_file import KIB, MIB, DiskFile, disk_file

NOTEBOOK = "09_storage"
MODES = ("random read", "random write", "sequential read", "sequential write")
OURS, FIO = "our threads", "fio"
NEAR = 0.25  # how far from fio's figure ours may be at queue depth 1
# In fewer turns with fio than an interval needs: each starts a program, and no speed-up is claimed.
QUICK = dict(
    mib=32, blocks=(4 * KIB, MIB), depths=(1, 4, 16), seconds=0.05, repeats=1, fio_seconds=0.1, pairs=SAMPLES, fio_turns=3
)
FULL = dict(
    mib=1024,
    blocks=(4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB),
    depths=(1, 2, 4, 8, 16, 32),
    seconds=0.5,
    repeats=3,
    fio_seconds=2.0,
    pairs=SAMPLES,
    fio_turns=7,
)


@dataclass
class GridCell(Row):
    """One mode, block size and queue depth."""

    mode: str = column("mode")
    block: int = column("block", "bytes")
    depth: int = column("queue depth")
    iops: float = column("IOPS")
    mb_per_s: float = column("bandwidth", "MB/s")
    p50: float = column("p50", "µs")
    p95: float = column("p95", "µs")
    p99: float = column("p99", "µs")


@dataclass
class DepthRate(Row):
    """Random reads of the smallest block at one queue depth, by our benchmark or by fio, in turns."""

    by: str = column("measured by")
    depth: int = column("queue depth")
    iops: float = column("IOPS")
    p50: float = column("p50", "µs")
    p95: float = column("p95", "µs")
    p99: float = column("p99", "µs")


@dataclass
class DiskRun:
    """All that was measured on the test file."""

    label: str
    in_memory: bool
    rates: list[DiskRate]
    measured_by: str
    samples: list[DiskSample]
    cache: list[CacheRate]
    compared: list[DepthRate] = field(default_factory=list)
    by_fio: SpeedUp | None = None  # at queue depth 1, our requests a second over fio's
    by_depth: SpeedUp | None = None  # requests a second with the most outstanding over one, by our benchmark
    by_block: SpeedUp | None = None  # bytes a second of the largest block over the smallest, with the most outstanding
    of_blocks: tuple[DiskSample, DiskSample] | None = None  # the smallest and the largest block of the turn with that ratio
    no_fio: str = ""  # why there is nothing of fio's


def grid_cells(result: Result) -> list[GridCell]:
    """All cells of the maps; the table has those of random reads alone."""
    return [GridCell(**cell) for cell in result.arrays.get("map", [])] or result.rows(GridCell)


def block_label(size: int) -> str:
    return f"{size // KIB} KiB" if size < MIB else f"{size // MIB} MiB"


def draw_disk_iops(result: Result):
    """Four maps, random or sequential, read or write: requests a second by block size and queue depth, with the bandwidth in
    MB/s below in each cell. Up a column, blocks are larger, and requests fall; to the right, more requests are outstanding."""
    figure = style.new_figure(9.0, 6.6)
    cells = grid_cells(result)
    blocks, depths = sorted({cell.block for cell in cells}), sorted({cell.depth for cell in cells})
    least, most = (pick(cell.iops for cell in cells) for pick in (min, max))
    for axes, mode in zip(figure.subplots(2, 2).flat, MODES, strict=True):
        by_key = {(cell.block, cell.depth): cell for cell in cells if cell.mode == mode}
        iops = np.array([[by_key[block, depth].iops for depth in depths] for block in blocks])
        axes.imshow(np.log10(iops), vmin=np.log10(least), vmax=np.log10(most), aspect="auto", origin="lower")
        for (i, block), (j, depth) in product(enumerate(blocks), enumerate(depths)):
            cell = by_key[block, depth]
            ink = "white" if iops[i, j] < (least * most) ** 0.5 else "black"
            text = f"{cell.iops:,.0f}\n{cell.mb_per_s:,.0f}"
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color=ink)
        axes.set_xticks(range(len(depths)), depths)
        axes.set_yticks(range(len(blocks)), [block_label(block) for block in blocks])
        axes.set(xlabel="queue depth (requests outstanding)", ylabel="block size", title=f"{mode}: requests a second, MB/s")
        axes.grid(False)
    return figure


@picture
def disk_against_fio(result: Result):
    """Random reads of the smallest block by queue depth: requests a second of our Python threads and of fio, on the same file
    in turns. Without fio there is only our curve, from the maps."""
    figure = style.new_figure(7.0, 3.2)
    axes = figure.subplots()
    compared, cells = result.rows(DepthRate), grid_cells(result)
    smallest = min(cell.block for cell in cells)
    if not compared:
        alone = [cell for cell in cells if cell.mode == MODES[0] and cell.block == smallest]
        compared = [DepthRate(OURS, cell.depth, cell.iops, cell.p50, cell.p95, cell.p99) for cell in alone]
    for by, color, marker in ((OURS, style.BLUE, "o"), (FIO, style.ORANGE, "s")):
        curve = [(row.depth, row.iops / 1e3) for row in compared if row.by == by]
        if curve:
            axes.plot(*zip(*curve, strict=True), color=color, marker=marker, label=by)
    depths = sorted({row.depth for row in compared})
    axes.set_xscale("log", base=2)
    axes.set_xticks(depths, depths)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="queue depth (requests outstanding)", ylabel="thousand requests a second")
    axes.set_title(f"{MODES[0]}, {block_label(smallest)}")
    axes.legend()
    return figure


@picture
def disk_page_cache(result: Result):
    """Bandwidth of reading and writing the same bytes in blocks of 1 MiB, past the page cache and through it: the second
    buffered read comes from memory, and a buffered write without fsync ends before the disk has anything."""
    figure = style.new_figure(7.0, 3.0)
    axes = figure.subplots()
    rows = result.rows(CacheRate)
    colors = [style.SKY if row.way.startswith("read") else style.GREEN for row in rows]
    horizontal_bars(axes, [row.way for row in rows], [row.mb_per_s for row in rows], labels="{:.0f}", color=colors)
    axes.set_xlabel("MB/s, blocks of 1 MiB")
    return figure


@experiment("disk-iops", lecture="L0", notebook=NOTEBOOK, draw=draw_disk_iops, quick=QUICK, full=FULL, uses=("fio",))
def disk_iops(params: Params) -> Result:
    """What this disk gives: requests a second and bandwidth by block size and queue depth, by fio if installed."""
    run = _measure(params)
    cells = [
        GridCell(rate.job.mode, rate.job.block, rate.job.depth, rate.iops, rate.bytes_per_s / 1e6, *_percentiles(rate))
        for rate in run.rates
    ]
    reads = [cell for cell in cells if cell.mode == MODES[0]]
    result = Result([Table(f"Random reads, measured by {run.measured_by}", reads)], arrays={"map": list(map(asdict, cells))})
    if run.compared:
        result.tables.append(Table(f"{MODES[0]}s of {block_label(params.blocks[0])}, ours and fio in turns", run.compared))
    shown = [row for row in run.cache if row.way != PLACEBO]
    result.tables.append(Table("The page cache, blocks of 1 MiB", shown))
    _compare(result, params, run)
    result.notes.append(f"The test file of {params.mib} MiB lay on {run.label}.")
    if run.no_fio:
        result.notes.append(f"All figures are of our own benchmark, with none of fio's to compare them with: {run.no_fio}")
    if run.in_memory:
        result.notes.append("This is memory, not a disk: set HPML_DISK to a folder on the disk that you mean.")
    return result


def _measure(params: Params) -> DiskRun:
    """Our random reads in turns with fio's, then the grid by fio; without fio, the grid by our own benchmark."""
    jobs = [DiskJob(*mode.split(), block, depth) for mode, block, depth in product(MODES, params.blocks, params.depths)]
    with disk_file(size=params.mib * MIB) as file:
        run = DiskRun(file.label, file.in_memory, [], FIO, [], [])
        _gains(run, params, file)  # before fio overwrites the tags
        own = list(run.samples)
        try:
            known = _against_fio(run, params, file)  # before all writes: what they left it may keep a virtual disk busy
            _grid_by_fio(run, params, file, jobs, known)
        except LabError as error:  # none here, too old, or not allowed
            run.no_fio, run.measured_by, run.compared, run.by_fio = str(error), OURS, [], None
            new = [job for job in jobs if job not in {sample.job for sample in own}]
            run.samples = own + [
                sample
                for samples in disk_benchmark.grid(file, new, params.seconds, params.repeats).values()
                for sample in samples
            ]
            run.rates = [DiskRate.of([sample for sample in run.samples if sample.job == job]) for job in jobs]
        run.cache = cache_rates(file, min(params.mib, 64) * MIB, turns=params.pairs)
    return run


def _gains(run: DiskRun, params: Params, file: DiskFile) -> None:
    """Random reads by our benchmark, in turns: the most requests outstanding compared with one, and large blocks with small."""
    small, large, first, last = params.blocks[0], params.blocks[-1], params.depths[0], params.depths[-1]
    one, many, whole = (DiskJob("random", "read", *size) for size in ((small, first), (small, last), (large, last)))
    jobs = (one, many, whole, one, many)  # the last two are the placebos
    turns = [[disk_benchmark.run_job(file, job, params.seconds) for job in jobs] for _ in range(params.pairs)]
    run.samples += [sample for turn in turns for sample in turn]
    request = [[1 / sample.iops for sample in samples] for samples in zip(*turns, strict=True)]
    byte = [[1 / sample.bytes_per_s for sample in samples] for samples in zip(*turns, strict=True)]
    run.by_depth, run.by_block = speed_up_of(request[0], request[1], request[3]), speed_up_of(byte[1], byte[2], byte[4])
    pairs = [(turn[half], turn[2]) for turn in turns for half in (1, 4)]
    run.of_blocks = min(pairs, key=lambda pair: abs(log(pair[1].bytes_per_s / pair[0].bytes_per_s / run.by_block.ratio)))


def _against_fio(run: DiskRun, params: Params, file: DiskFile) -> dict[DiskJob, DiskRate]:
    """Our random reads and fio's by queue depth, in turns, and fio's seconds of a request over ours at queue depth 1.

    There fio has one run more, A B A B … A: each is the placebo of the one before. Returns fio's rates.
    """
    jobs = [DiskJob("random", "read", params.blocks[0], depth) for depth in params.depths]
    theirs, ours = [], []
    for _ in range(params.fio_turns):
        theirs.append(fio.run(file, jobs, params.fio_seconds))  # first: where it is missing, nothing is measured in vain
        ours.append([disk_benchmark.run_job(file, job, params.fio_seconds) for job in jobs])
    single = [rates[0] for rates in theirs] + fio.run(file, jobs[:1], params.fio_seconds)
    run.by_fio = gain_in_turns(*([1 / rate.iops for rate in rates] for rates in (single, [turn[0] for turn in ours])))
    run.samples += [sample for turn in ours for sample in turn]
    known = {}
    for job, rates, samples in zip(jobs, zip(*theirs, strict=True), zip(*ours, strict=True), strict=True):
        known[job] = _median_rate(rates)
        for by, rate in ((OURS, DiskRate.of(samples)), (FIO, known[job])):
            run.compared.append(DepthRate(by, job.depth, rate.iops, *_percentiles(rate)))
    return known


def _grid_by_fio(run: DiskRun, params: Params, file: DiskFile, jobs: list[DiskJob], known: dict[DiskJob, DiskRate]) -> None:
    """What fio has measured already stays: no two figures of one and the same."""
    new = [job for job in jobs if job not in known]
    rounds = [fio.run(file, new, params.seconds) for _ in range(params.repeats)]
    rates = known | {job: _median_rate(rates) for job, rates in zip(new, zip(*rounds, strict=True), strict=True)}
    run.rates = [rates[job] for job in jobs]


def _median_rate(rates: list[DiskRate] | tuple[DiskRate, ...]) -> DiskRate:
    return sorted(rates, key=lambda rate: rate.iops)[len(rates) // 2]


def _percentiles(rate: DiskRate) -> tuple[float, float, float]:
    """In µs."""
    return rate.p50 * 1e6, rate.p95 * 1e6, rate.p99 * 1e6


def _compare(result: Result, params: Params, run: DiskRun) -> None:
    """Add the key figures and the claims."""
    first, last, small = params.depths[0], params.depths[-1], params.blocks[0]
    by_job = {rate.job: rate for rate in run.rates}
    single = by_job[DiskJob("random", "read", small, first)]
    counted = [*run.samples, *run.rates]
    worst = max(abs(count.bytes_per_s / (count.iops * count.job.block) - 1) for count in counted)
    result.key_figure("bandwidth over IOPS × block size", 1.0 + worst, lecture="1")
    result.key_figure("IOPS with many requests outstanding over one", run.by_depth.ratio, "ratio", lecture="above 1")
    result.key_figure(f"random reads of {block_label(small)}, depth 1", single.iops, "IOPS")
    result.key_figure("highest bandwidth", max(rate.bytes_per_s for rate in run.rates) / 1e6, "MB/s")
    result.claim(
        "Bandwidth is IOPS × block size, from separate counts of requests and of bytes",
        all(count.bytes == count.requests * count.job.block for count in counted) and worst < 1e-2,
        f"largest difference of the rates {worst:.0e}, {len(counted)} runs",
    )
    checked, misplaced = (sum(getattr(sample, name) for sample in run.samples) for name in ("checked", "misplaced"))
    result.check("Every block that was looked at has the tag of its place", checked > misplaced == 0, f"{checked} blocks")
    result.measured(
        f"More outstanding requests give more IOPS (random reads of {block_label(small)})",
        run.by_depth.faster,
        f"{OURS}, depth {last} over {first}: {run.by_depth}",
    )
    many, large = run.of_blocks
    result.measured(
        "Large blocks give more bandwidth than small ones, at fewer requests a second",
        run.by_block.faster and large.iops < many.iops,
        f"{OURS}, bandwidth: {run.by_block}; {many.iops:.0f} requests a second and {large.iops:.0f}",
    )
    law = [rate.in_flight / rate.job.depth for rate in run.rates]
    result.measured(
        "Little's law: IOPS × mean latency is the queue depth, within a quarter, in most runs",
        median(abs(share - 1) for share in law) < 0.25,
        f"median {median(law):.2f} of the depth",
    )
    by_way = {row.way: row.samples for row in run.cache}
    cached = speed_up_of(by_way[FIRST], by_way[AGAIN], by_way[PLACEBO])
    result.measured("The second buffered read is faster than the first: it comes from memory", cached.faster, str(cached))
    if run.by_fio:
        result.measured(
            "At queue depth 1, our benchmark is within a quarter of fio's figure",
            abs(run.by_fio.ratio - 1) <= NEAR,
            f"{run.by_fio.ratio:.2f} of fio's ({run.by_fio.interval})",
        )
