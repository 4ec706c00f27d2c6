"""An engine of the field next to our server: the same models in ONNX Runtime, the same traffic, and what each answer costs.

ONNX Runtime runs the models; LitServe serves them over HTTP with a process for the model. Both are optional: where one is not
installed, its rows say so.
"""

import importlib.util
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from hpml_lab.core.show.numbers import number
from hpml_lab.serving.experiments.serving_engines.rows import (
    LIT_ALONE,
    LIT_BATCHED,
    ORT,
    SERVERS,
    TORCH,
    EngineTraffic,
    curve,
    rows_of,
)
from hpml_lab.serving.tools.onnx_models import OnnxEquality, compare_onnx, export_onnx
from hpml_lab.serving.experiments.slice_stages import INPUT_SHAPE, slice_pair
from hpml_lab.serving.tools.onnx_session import CPU, CUDA, OnnxSession, choose_provider
from hpml_lab.serving.experiments.serving_engines.load_test import (
    LITSERVE,
    Load,
    Route,
    Served,
    engines,
    in_process,
    left_behind,
    over_http,
    ready,
    serve_in_turns,
)
from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.core.timing.clock import SAMPLES, interleaved
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.device import Device
from hpml_lab.core.system.errors import LabError

QUICK = dict(
    calm=(100, 20),  # requests a second, and requests in a turn
    busy=(400, 240),
    turns=2,
    limit=16,
    window_seconds=0.002,
    samples=SAMPLES,
)
FULL = QUICK | dict(calm=(100, 500), busy=(400, 2000), turns=5)
INPUTS = 16
TOLERANCE = 1e-5  # of the largest output


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Latency from the moment a request was due, left at a calm load, right at a busy one: the circle is the median, the
    diamond the 99th percentile of all turns, and the small marks are those of each turn. Compare rows in pairs: torch and ONNX
    Runtime; our server in this process and LitServe over HTTP; LitServe with and without batching."""
    figure = style.new_figure(9.5, 3.9)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    rows = result.rows(EngineTraffic)
    for axes, load in zip(panels, dict.fromkeys(row.load for row in rows), strict=True):
        for y, row in enumerate(row for row in rows if row.load == load):
            if row.p50_ms is None:
                axes.text(
                    0.03,
                    y,
                    textwrap.fill(row.note, 42),
                    transform=axes.get_yaxis_transform(),
                    va="center",
                    fontsize=8,
                    color=style.GREY,
                )
                continue
            axes.plot([row.p50_ms, row.p99_ms], [y, y], color=style.GREY, linewidth=1.5, zorder=1)
            axes.plot(row.turns_p50_ms, [y + 0.22] * len(row.turns_p50_ms), "|", color=style.BLUE, markersize=6)
            axes.plot(row.turns_p99_ms, [y + 0.22] * len(row.turns_p99_ms), "|", color=style.RED, markersize=6)
            axes.plot(row.p50_ms, y, "o", color=style.BLUE, markersize=8, label="median" if y == 0 else None)
            axes.plot(row.p99_ms, y, "D", color=style.RED, markersize=7, label="99th percentile" if y == 0 else None)
            if row.failed:
                axes.annotate(
                    f"{row.failed} failed", (row.p99_ms, y), (0, 9), textcoords="offset points", ha="right", fontsize=8
                )
        rate = next(row.rate for row in rows if row.load == load)
        axes.set(xscale="log", xlabel="latency (ms)", title=f"{load}: {rate:g} requests a second")
        style.label_log_axis(axes.xaxis)
        axes.grid(visible=False, axis="y")
        axes.set_axisbelow(True)
    names = list(dict.fromkeys(row.engine for row in rows))
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylabel("server")
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    panels[0].legend(fontsize=8, loc="upper right")
    return figure


@picture
def busy_latency_over_time(result: Result):
    """The first requests of a turn, at most 400, at the busy load: latency over the moment each was due. A server that keeps up
    stays flat; one that does not lets its queue grow, and every further request waits longer: its percentiles then say mostly
    how long the traffic lasted."""
    figure = style.new_figure(8.5, 4.0)
    axes = figure.subplots()
    for name, color, line in zip(SERVERS, style.CYCLE, style.LINES, strict=False):
        if name in result.arrays["busy"]:
            due, latency = result.arrays["busy"][name]
            axes.plot(due, latency, color=color, linestyle=line, label=name, linewidth=1.6)
    axes.set(yscale="log", xlabel="moment at which a request was due (s)", ylabel="latency (ms)")
    style.label_log_axis(axes.yaxis)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


def torch_server(model: nn.Module, device: Device) -> Callable[[np.ndarray], np.ndarray]:
    """The model on `device` as (n, ...) -> (n, ...) of NumPy, as the servers call it."""
    model = model.to(device.torch)

    def run(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.from_numpy(x).to(device.torch)).cpu().numpy()

    return run


def judge_runtime(result: Result, gains: Mapping[int, SpeedUp], provider: str) -> None:
    """Add how long the exported model takes."""
    for batch, gain in gains.items():
        what = "one slice" if batch == 1 else f"{batch} slices"
        result.measured(f"ONNX Runtime ({provider}) computes {what} faster than torch in eager mode", gain.faster, str(gain))
        result.key_figure(f"ONNX Runtime next to torch, {what}", gain.ratio, "speed-up")


def judge_traffic(result: Result, served: Mapping[tuple[str, str], Served], calm: str, busy: str) -> None:
    """Add what the servers answered, and when."""
    rows = {(row.engine, row.load): row for row in result.rows(EngineTraffic) if row.p50_ms is not None}
    differences = [difference for found in served.values() for difference in found.differences]
    exported = [row.difference for row in result.rows(OnnxEquality)]
    result.claim(
        f"All answers equal torch's for the same request to {TOLERANCE:g} of the largest output, alone or in a batch, with one "
        "ONNX file for all batch sizes",
        bool(differences) and max([*differences, *exported]) <= TOLERANCE,
        f"{len(differences):,} answers, largest difference {max([*differences, *exported], default=0):.1e}",
    )

    if (LIT_ALONE, calm) in rows and (ORT, calm) in rows:
        slow, quick = rows[LIT_ALONE, calm], rows[ORT, calm]
        measured = f"{number(slow.p50_ms, 3)} and {number(quick.p50_ms, 3)} ms, {len(slow.turns_p50_ms)} turns"
        if quick.failed:  # the slowest of its requests are missing in its percentiles
            measured += f"; {quick.failed} requests failed"
        result.measured(
            "Calm: LitServe's median answer takes longer than that of a function in this process, in every turn",
            not quick.failed and all(x > y for x, y in zip(slow.turns_p50_ms, quick.turns_p50_ms, strict=False)),
            measured,
        )
    for (name, load), row in rows.items():
        if load == busy:
            result.key_figure(f"{name}, busy, p50", row.p50_ms, "ms")
            result.key_figure(f"{name}, busy, p99", row.p99_ms, "ms")


def time_both(run: Callable, session: OnnxSession, inputs: np.ndarray, samples: int) -> dict[int, SpeedUp]:
    """{batch: how many times as fast ONNX Runtime is}, each from NumPy to NumPy."""
    gains = {}
    for batch in (1, len(inputs)):
        works = {"torch": partial(run, inputs[:batch]), "onnx": partial(session, inputs[:batch])}
        gains[batch] = speed_up(interleaved(works, samples=samples, placebo="torch"), "torch", "onnx")
    return gains


def programs(path: Path, provider: str, params: Params) -> tuple[dict, dict[str, str]]:
    """The engines to start, and why others are left out."""
    settings = {"model": str(path), "provider": provider, "limit": params.limit}
    found: dict[str, tuple[str, dict]] = {}
    faults: dict[str, str] = {}
    for name, limit in ((LIT_ALONE, 1), (LIT_BATCHED, params.limit)):
        if importlib.util.find_spec("litserve") is None:
            faults[name] = "litserve is not installed. pip install litserve"
        else:
            more = {"limit": limit, "window_seconds": params.window_seconds, "timeout_seconds": 30}
            found[name] = (LITSERVE, settings | more)
    return found, faults


@experiment(
    "serving-engines",
    lecture="own",
    notebook="20_serving",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("onnxruntime", "litserve", "cuda"),
)
def serving_engines(params: Params) -> Result:
    """An existing engine next to our server: ONNX Runtime for the models, LitServe under the same traffic."""
    model, result = slice_pair(), Result()
    inputs = np.random.default_rng(0).random((INPUTS, *INPUT_SHAPE), dtype=np.float32)
    with torch.inference_mode():
        expected = model(torch.from_numpy(inputs)).numpy()
    loads = [Load("calm", *params.calm), Load("busy", *params.busy)]
    started, faults = [], {}
    with tempfile.TemporaryDirectory(prefix="hpml-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        routes: dict[str, Route] = {}
        try:
            begin = time.perf_counter()
            provider = choose_provider(params.device.is_cuda)
            file = export_onnx(model, INPUT_SHAPE)
            result.key_figure("export of both models of a slice", time.perf_counter() - begin, "s")
            path = Path(folder) / "slice_pair.onnx"
            path.write_bytes(file)
            session = OnnxSession(file, provider)
        except LabError as error:
            faults = {name: f"ONNX Runtime: {error}" for name in SERVERS[1:]}
        else:
            wanted, faults = programs(path, provider, params)
            running = stack.enter_context(engines(wanted))
            started = list(running.values())
            equalities = compare_onnx(
                "detector and segmenter of a slice", model, file, INPUT_SHAPE, (1, 3, INPUTS), provider
            )  # meanwhile the engines start
            running, late = ready(running)
            faults |= late
            for engine in started:
                engine.pause()
        run = torch_server(model, params.device)
        if not faults.get(ORT):
            result.tables.append(Table("The same outputs from torch and from ONNX Runtime", equalities))
            judge_runtime(result, time_both(run, session, inputs, params.samples), session.provider)
            routes[ORT] = stack.enter_context(in_process(session, inputs, params.limit))
            for name, engine in running.items():
                engine.resume()
                routes[name] = stack.enter_context(over_http(engine, inputs))
        routes = {TORCH: stack.enter_context(in_process(run, inputs, params.limit)), **routes}
        served, broken = serve_in_turns(routes, loads, expected, turns=params.turns)
    faults |= broken
    result.tables.insert(0, Table("Latency from the moment due", rows_of(served, faults, loads)))
    judge_traffic(result, served, *(load.name for load in loads))
    if started:
        left = left_behind(started)
        result.check("No process, port or file of an engine is left", not left, ", ".join(left))
    result.arrays["busy"] = {
        name: curve(served[name, loads[1].name]) for name in SERVERS if (name, loads[1].name) in served and name not in faults
    }
    result.notes += notes(faults, params.device, served, loads[1])
    return result


def notes(faults: Mapping[str, str], device: Device, served: Mapping[tuple[str, str], Served], busy: Load) -> list[str]:
    """What was not run, or not as a reader might think."""
    names: dict[str, list[str]] = {}
    for name, fault in faults.items():
        names.setdefault(fault.removeprefix(f"{name}, "), []).append(name)
    said = [f"{'; '.join(who)}: {fault}" for fault, who in names.items()]
    if device.is_cuda and ORT not in faults and choose_provider(True) == CPU:
        said.append(f"This build of ONNX Runtime has no {CUDA}: its rows are the CPU's. pip install onnxruntime-gpu")
    count = sum(len(turn) for turn in served[TORCH, busy.name].turns)
    if count < 1000:
        said.append(
            f"The 99th percentile of {count} requests is among its {max(1, count // 100) + 1} slowest: at full there are more."
        )
    return said
