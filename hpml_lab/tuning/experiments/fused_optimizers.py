"""One Adam step as a for-loop, on lists of tensors (foreach), fused, and as one Triton kernel, against the memory limit."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hpml_lab.core.experiment.findings import Row, Table, column
from hpml_lab.core.experiment.fits import Fits
from hpml_lab.core.experiment.registry import Params, experiment
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.measure.counting import operators
from hpml_lab.core.measure.noise import SpeedUp, speed_up
from hpml_lab.core.measure.timing import copy_bandwidth, interleaved
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import grouped_bars, timed_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError
from hpml_lab.tuning.tools.triton_kernel import require_triton

QUICK = dict(tensors=60, side=64, large=1 << 20, steps=10, checked=(1040, 16, 7, 1), samples=9)
FULL = dict(tensors=400, side=64, large=100_000_000, steps=50, checked=(100_000, 1040, 16, 7, 1), samples=15)
LOOP, FOREACH, FUSED, TRITON = "for-loop", "foreach", "fused", "Triton kernel"
ADAM: dict[str, dict[str, bool]] = {LOOP: {"foreach": False}, FOREACH: {"foreach": True}, FUSED: {"fused": True}}
BYTES = 28  # per element: p, g, m, v are read and p, m, v are written, 4 bytes each
MakeOptimizer = Callable[[list[Tensor]], torch.optim.Optimizer]


@dataclass
class AdamStep(Row):
    """One Adam step with one implementation on one model."""

    model: str = column("model")
    implementation: str = column("implementation")
    calls: int = column("operator calls")
    limit_us: float = column("memory limit", "µs")
    time_us: float | None = column("time", "µs")
    limit_share: float | None = column("memory limit / time")
    gain: float | None = column("speed-up over the for-loop", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)


@dataclass
class AdamAgreement(Row):
    """How far p, m and v are from those of torch's fused Adam after several steps, in units of the float32 spacing."""

    implementation: str = column("implementation")
    parameter: float = column("p", "spacings")
    mean: float = column("m", "spacings")
    square: float = column("v", "spacings")


def parameters_with_gradients(sizes: list[int], device: torch.device, seed: int = 0) -> list[Tensor]:
    """Random parameters of the given sizes, each with a gradient."""
    generator = torch.Generator(device).manual_seed(seed)
    params = [torch.randn(n, device=device, generator=generator).requires_grad_() for n in sizes]
    for p in params:
        p.grad = torch.randn(p.shape, device=device, generator=generator)
    return params


def difference_in_spacings(a: Tensor, b: Tensor) -> float:
    """The largest difference in units of the float32 spacing at |b|, or at 1 % of the largest |b| where b is smaller."""
    magnitude = b.abs().maximum(b.abs().max() / 100)
    return ((a - b).abs() / (torch.nextafter(magnitude, torch.full_like(magnitude, torch.inf)) - magnitude)).max().item()


def state_after(make: MakeOptimizer, sizes: list[int], device: torch.device, steps: int) -> list[Tensor]:
    """p, m and v of all parameters after `steps` steps, each with new random gradients."""
    params = parameters_with_gradients(sizes, device, seed=1)
    optimizer, generator = make(params), torch.Generator(device).manual_seed(2)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, device=device, generator=generator)
        optimizer.step()
    state = [optimizer.state[p] for p in params]
    ends = ([p.detach() for p in params], [entry["exp_avg"] for entry in state], [entry["exp_avg_sq"] for entry in state])
    return [torch.cat(end) for end in ends]


def operator_calls(optimizer: torch.optim.Optimizer) -> int:
    """How many operators one step calls. The marks that torch sets for its profiler around a step do not count."""
    return len(operators(optimizer.step))


def launches_of(make: MakeOptimizer, tensors: int, device: torch.device) -> int:
    """The same for the Triton Adam: the step counter, plus one launch per tensor table, which torch does not see.

    Counted on tensors of one element, because the interpreter is slow.
    """
    optimizer = make(parameters_with_gradients([1] * tensors, device))
    optimizer.step()
    return sum(op.name == "_foreach_add_" for op in operators(optimizer.step)) + len(optimizer._tables)


def draw(result: Result):
    """One Adam step with each implementation. Left and middle: its time for a model of many small tensors and for one large
    tensor; a color means that it differs from the for-loop's by more than noise, and the dashed line is the time that memory
    bandwidth needs for 28 bytes per parameter. Right: operator calls."""
    rows = result.rows(AdamStep)
    models = {model: [row for row in rows if row.model == model] for model in dict.fromkeys(row.model for row in rows)}
    figure = style.new_figure(11, 3.6)
    *panels, calls = figure.subplots(1, 3)
    for axes, (model, steps) in zip(panels, models.items(), strict=True):
        timed = [row for row in steps if row.time_us is not None]
        columns = [row.implementation for row in timed], [row.time_us for row in timed], [row.verdict for row in timed]
        timed_bars(axes, *columns, limit=steps[0].limit_us)
        axes.set_title(model)
    panels[0].set_ylabel("implementation")
    panels[1].set_yticklabels([])
    names = [row.implementation for row in next(iter(models.values()))]
    grouped_bars(calls, names, {model: [row.calls for row in steps] for model, steps in models.items()}, labels="{:,g}")
    calls.set_xticks(range(len(names)), names, rotation=30, ha="right")
    calls.set_yscale("log")
    calls.set(ylabel="operator calls per step")
    calls.legend(fontsize=8)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", fontsize=8)
    return figure


def gpu_bytes(params: Params) -> float:
    """The memory of a GPU at its peak: p, g, m and v of four optimizers, and as much for what a step computes in between."""
    return 5 * 16 * params.large


@experiment(
    "fused-optimizers",
    lecture="L4",
    notebook="11_tuning",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("cuda",),
    fits=Fits(gpu_bytes, scale="large", least=10_000_000),
)
def fused_optimizers(params: Params) -> Result:
    """Adam as a for-loop, on lists of tensors, fused, and in one Triton kernel, against the memory limit."""
    device, notes = params.device.torch, []
    makers: dict[str, MakeOptimizer] = {
        name: lambda tensors, options=options: torch.optim.Adam(tensors, lr=1e-3, **options) for name, options in ADAM.items()
    }
    try:
        from hpml_lab.tuning.lessons.triton_adam import TritonAdam

        require_triton(device)
        makers[TRITON] = lambda tensors: TritonAdam(tensors, lr=1e-3)
    except LabError as error:
        notes.append(str(error))

    ends = {name: state_after(make, list(params.checked), device, params.steps) for name, make in makers.items()}
    agreement = {name: AdamAgreement(name, *map(difference_in_spacings, end, ends[FUSED])) for name, end in ends.items()}
    fused_parameters = ends[FUSED][0]
    relative = max(((end[0] - fused_parameters).abs().max() / fused_parameters.abs().max()).item() for end in ends.values())

    many, single = f"{params.tensors} tensors of {params.side}×{params.side}", f"1 tensor of {params.large / 1e6:.3g} M"
    gb_per_s, gpu = copy_bandwidth(device).gb_per_s, device if params.device.is_cuda else None
    steps: dict[tuple[str, str], AdamStep] = {}
    gains: dict[tuple[str, str], SpeedUp] = {}
    for model, sizes in {many: [params.side**2] * params.tensors, single: [params.large]}.items():
        optimizers = {name: make(parameters_with_gradients(sizes, device)) for name, make in makers.items()}
        limit_us = BYTES * sum(sizes) / gb_per_s / 1e3
        timed = {name: optimizer.step for name, optimizer in optimizers.items() if name != TRITON or params.device.is_cuda}
        times = interleaved(timed, samples=params.samples, placebo=LOOP, gpu=gpu)
        gains |= {(model, name): speed_up(times, LOOP, name) for name in timed if name != LOOP}
        for name, optimizer in optimizers.items():
            time_us = times[name].seconds * 1e6 if name in times else None
            steps[model, name] = AdamStep(
                model=model,
                implementation=name,
                calls=launches_of(makers[name], len(sizes), device) if name == TRITON else operator_calls(optimizer),
                limit_us=limit_us,
                time_us=time_us,
                limit_share=limit_us / time_us if time_us else None,
                **(gains[model, name].columns if (model, name) in gains else {}),
            )
        if TRITON in timed:  # of the large tensor, which comes last
            best = {name: timed[name] for name in (FUSED, TRITON)}
            own_kernel = speed_up(interleaved(best, samples=params.samples, placebo=FUSED, gpu=gpu), FUSED, TRITON)
        del optimizers, timed, optimizer  # the large model's memory

    result = Result(
        [Table("One Adam step", list(steps.values())), Table("Difference from torch's fused Adam", list(agreement.values()))],
        notes=notes,
    )
    result.key_figure("many tensors, fused over the for-loop", gains[many, FUSED].ratio, unit="times")
    result.key_figure("many tensors, foreach over the for-loop", str(gains[many, FOREACH]))
    result.key_figure("one tensor, fused over the for-loop", str(gains[single, FUSED]))
    result.key_figure("many tensors, operator calls of the for-loop", steps[many, LOOP].calls)

    result.claim(
        "The for-loop calls as many operators for each tensor as for a single one; foreach and fused as many for all",
        steps[many, LOOP].calls == params.tensors * steps[single, LOOP].calls
        and all(steps[many, name].calls == steps[single, name].calls for name in (FOREACH, FUSED)),
        f"{steps[single, LOOP].calls} per tensor; foreach {steps[many, FOREACH].calls}, fused {steps[many, FUSED].calls}",
    )
    triton = agreement.get(TRITON, AdamAgreement(TRITON, 0, 0, 0))
    result.claim(
        "The Triton kernel, where there is Triton, computes p, m and v within 4 spacings of torch's fused Adam",
        max(triton.parameter, triton.mean, triton.square) <= 4,
        f"{triton.parameter:.2g}, {triton.mean:.2g}, {triton.square:.2g}" if TRITON in agreement else "no Triton",
    )
    result.claim(
        "All implementations compute the same parameters, within 2e-6 of the largest", relative < 2e-6, f"{relative:.1e}"
    )
    fused = gains[many, FUSED]
    result.measured("fused is faster than the for-loop for many small tensors", fused.faster, str(fused))
    if (single, TRITON) in gains:
        share = steps[single, TRITON].limit_share
        result.measured("The Triton kernel reaches 85 % of the copy bandwidth", share >= 0.85, f"{share:.0%}")
        result.measured("On one large tensor it is not slower than fused", not own_kernel.slower, str(own_kernel))
    if device.type != "cuda":
        what = "the Triton kernel was checked in the interpreter and not timed"
        result.notes.append(NO_CUDA.format(what=what, slug="fused-optimizers"))
    return result
