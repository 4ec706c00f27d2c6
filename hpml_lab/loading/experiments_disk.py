"""The experiment of notebook 08 on disks: disk-iops."""

from itertools import product
from statistics import median
from typing import Any

import numpy as np

from hpml_lab.core import style
from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.result import Claim, Result
from hpml_lab.loading import disk, fio
from hpml_lab.loading.disk import KIB, MIB, Job, Point

NOTEBOOK = "08_loading"
MODES = ("random read", "random write", "sequential read", "sequential write")
JUDGED = "random read"  # what fio is asked for, at the smallest block
BESIDE = "ours, in turns with fio"
NEAR = 0.25  # how far from fio's figure ours may be at queue depth 1


def _block(size: int) -> str:
    return f"{size // KIB} KiB" if size < MIB else f"{size // MIB} MiB"


def draw_disk_iops(result: Result):
    """Four maps, random or sequential, read or write: requests a second by block size and queue depth, with the bandwidth in
    MB/s below in each cell. Right above: random reads of 4 KiB by queue depth, ours beside fio's. Right below: what the page
    cache does to reading and writing, as bandwidth."""
    figure = style.new_figure(13.0, 6.6)
    left, right = figure.subfigures(1, 2, width_ratios=(1.5, 1.0))
    points = [row for row in result.rows if row["by"] == "ours" and row["mode"] in MODES]
    blocks, depths = (sorted({row[name] for row in points}) for name in ("block, bytes", "queue depth"))
    least, top = (pick(row["IOPS"] for row in points) for pick in (min, max))
    for panel, mode in zip(left.subplots(2, 2).flat, MODES, strict=True):
        cells = {(row["block, bytes"], row["queue depth"]): row for row in points if row["mode"] == mode}
        iops = np.array([[cells[block, depth]["IOPS"] for depth in depths] for block in blocks])
        panel.imshow(np.log10(iops), vmin=np.log10(least), vmax=np.log10(top), aspect="auto", origin="lower")
        for (i, block), (j, depth) in product(enumerate(blocks), enumerate(depths)):
            cell = cells[block, depth]
            ink = "white" if iops[i, j] < (least * top) ** 0.5 else "black"
            text = f"{cell['IOPS']:,.0f}".replace(",", " ") + f"\n{cell['MB/s']:.0f} MB/s"
            panel.text(j, i, text, ha="center", va="center", fontsize=8, color=ink)
        panel.set_xticks(range(len(depths)), depths)
        panel.set_yticks(range(len(blocks)), [_block(block) for block in blocks])
        panel.set_xlabel("queue depth (requests outstanding)")
        panel.set_ylabel("block size")
        panel.set_title(f"{mode}: requests a second")
        panel.grid(False)
    above, below = right.subplots(2, 1)
    judged = [row for row in result.rows if row["mode"] == JUDGED and row["block, bytes"] == blocks[0]]
    for by, colour, marker in ((BESIDE, style.BLUE, "o"), ("fio", style.ORANGE, "s")):
        curve = [(row["queue depth"], row["IOPS"] / 1e3) for row in judged if row["by"] == by]
        if curve:
            above.plot(*zip(*curve, strict=True), color=colour, marker=marker, label=by)
    above.set_xscale("log", base=2)
    above.set_xticks(depths, depths)
    above.set_xlabel("queue depth (requests outstanding)")
    above.set_ylabel("thousand requests a second")
    above.set_ylim(bottom=0)
    above.set_title(f"{JUDGED}, {_block(blocks[0])}")
    above.legend()
    cache = result.arrays["page cache"]
    names = [row["way"].replace(f", {disk.BUFFERED}", ", past the cache") for row in cache]
    below.barh(names, [row["MB/s"] for row in cache], color=[style.SKY if "read" in name else style.GREEN for name in names])
    below.invert_yaxis()
    below.set_xlabel("MB/s, blocks of 1 MiB")
    below.set_title("The page cache")
    below.grid(axis="y", visible=False)
    below.set_axisbelow(True)
    return figure


@experiment(
    "disk-iops",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_disk_iops,
    quick=dict(mib=64, blocks=(4 * KIB, 64 * KIB, MIB), depths=(1, 4, 16), seconds=0.06, repeats=1, fio_seconds=0.25, pairs=3),
    full=dict(
        mib=1024,
        blocks=(4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB),
        depths=(1, 2, 4, 8, 16, 32),
        seconds=0.5,
        repeats=3,
        fio_seconds=2.0,
        pairs=5,
    ),
    lecture_says={"bandwidth over IOPS × block size": "1", "IOPS with requests outstanding over one": "above 1"},
    uses=("fio",),
)
def disk_iops(size: Size) -> Result:
    """What this disk gives: requests a second and bandwidth by block size and queue depth, judged by fio."""
    jobs = [Job(*mode.split(), block, depth) for mode, block, depth in product(MODES, size.blocks, size.depths)]
    with disk.disk_file(size=size.mib * MIB) as file:
        path, label, memory = file.path, file.label, file.in_memory
        # fio first: a virtual disk may still be busy with what the writes of the grid have left it.
        judged, ratios, unjudged = _beside_fio(size, file)
        samples = disk.grid(file, jobs, size.seconds, size.repeats)
        cache = disk.page_cache(file, min(size.mib, 64) * MIB, turns=3 if size.name == "quick" else 7)
    points = {job: Point.of(taken) for job, taken in samples.items()}
    rows = [_row("ours", job, point) for job, point in points.items()] + judged

    every = [one for taken in samples.values() for one in taken]
    identity = max(abs(one.bytes_per_s / (one.iops * one.job.block) - 1) for one in every)
    first, last = size.depths[0], size.depths[-1]
    small = size.blocks[0]
    at = {depth: points[Job("random", "read", small, depth)] for depth in size.depths}
    large = points[Job("random", "read", size.blocks[-1], last)]
    law = [point.in_flight / job.depth for job, point in points.items()]
    by_way = {row["way"]: row["MB/s"] for row in cache}
    claims = [
        Claim(
            "bandwidth = IOPS × block size, from separate counts of calls and of bytes",
            identity < 1e-9,
            f"largest relative difference {identity:.0e}, {len(every)} runs",
        ),
        Claim(
            "every block that was read carries the tag of its place, and so does every block that was read back after writing",
            all(one.misplaced == 0 and one.checked > 0 for one in every),
            f"{sum(one.checked for one in every)} blocks",
        ),
        Claim("the test file is gone afterwards", not path.exists()),
        Claim(
            f"more outstanding requests give more IOPS (random reads of {_block(small)})",
            at[last].iops > 1.2 * at[first].iops,
            f"{at[first].iops:.0f} at depth {first}, {at[last].iops:.0f} at {last}",
            exact=False,
        ),
        Claim(
            "large blocks give more bandwidth than small ones, at fewer requests a second",
            large.bytes_per_s > at[last].bytes_per_s and large.iops < at[last].iops,
            f"{at[last].bytes_per_s / 1e6:.0f} and {large.bytes_per_s / 1e6:.0f} MB/s",
            exact=False,
        ),
        Claim(
            "Little's law: IOPS × mean latency is the queue depth, to a quarter, in most runs",
            median(abs(one - 1) for one in law) < 0.25,
            f"median {median(law):.2f} of the depth",
            exact=False,
        ),
        Claim(
            "the second buffered read is faster than the first: it comes from memory",
            by_way["read, buffered, again"] > by_way["read, buffered, first time"],
            f"{by_way['read, buffered, again'] / by_way['read, buffered, first time']:.1f}×",
            exact=False,
        ),
    ]
    notes = [f"The test file of {size.mib} MiB lay on {label}."]
    if judged:
        claims.append(
            Claim(
                "at queue depth 1 our benchmark is within a quarter of fio's figure",
                abs(median(ratios) - 1) <= NEAR,
                f"{median(ratios):.2f} of fio's, {len(ratios)} pairs in turns, {min(ratios):.2f} to {max(ratios):.2f}",
                exact=False,
            )
        )
    else:
        notes.append(f"Our figures have no judge here: {unjudged}")
    if memory:
        notes.append("This is memory, not a disk: set HPML_DISK to a folder on the disk that you mean.")
    quantities: dict[str, Any] = {
        "bandwidth over IOPS × block size": 1.0 + identity,
        "IOPS with requests outstanding over one": at[last].iops / at[first].iops,
        f"random reads of {_block(small)}, depth 1, IOPS": at[first].iops,
        "most bandwidth, MB/s": max(point.bytes_per_s for point in points.values()) / 1e6,
    }
    return Result(rows, claims, quantities, notes, {"page cache": cache})


def _row(by: str, job: Job, point: Point | fio.FioReport) -> dict[str, Any]:
    return {
        "by": by,
        "mode": job.mode,
        "block, bytes": job.block,
        "queue depth": job.depth,
        "IOPS": point.iops,
        "MB/s": point.bytes_per_s / 1e6,
        "p50, µs": point.p50 * 1e6,
        "p95, µs": point.p95 * 1e6,
        "p99, µs": point.p99 * 1e6,
    }


def _beside_fio(size: Size, file: disk.DiskFile) -> tuple[list[dict[str, Any]], list[float], str]:
    """Our rows and fio's by queue depth, in turns, and the ratios ours / fio at queue depth 1; or why there are none."""
    rows, ratios = [], []
    for depth in size.depths:
        job = Job("random", "read", size.blocks[0], depth)
        ours, reports = [], []
        for _ in range(size.pairs if depth == 1 else 1):
            ours.append(disk.sample(file, job, size.fio_seconds))
            try:
                reports.append(fio.run(file, job, size.fio_seconds))
            except LabError as error:  # none here, too old, or not allowed
                return [], [], str(error)
        if depth == 1:
            ratios = [one.iops / report.iops for one, report in zip(ours, reports, strict=True)]
        rows.append(_row(BESIDE, job, Point.of(ours)))
        rows.append(_row("fio", job, sorted(reports, key=lambda one: one.iops)[len(reports) // 2]))
    return rows, ratios, ""
