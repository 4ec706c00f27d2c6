"""Steps of Adam, SGD and LAMB as a for-loop, on lists of tensors (foreach), fused, and in Triton, against the memory limit."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from hpml_lab.core.experiment import Fits, Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import grouped_bars, timed_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import SAMPLES, copy_bandwidth, interleaved
from hpml_lab.core.timing.counting import operators
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.optim import LAMB
from hpml_lab.tuning.tools.triton_kernel import require_triton

QUICK = dict(tensors=60, side=64, large=1 << 20, steps=10, checked=(1040, 16, 7, 1), samples=SAMPLES)
FULL = dict(tensors=400, side=64, large=100_000_000, steps=50, checked=(100_000, 1040, 16, 7, 1), samples=15)
LOOP, FOREACH, FUSED, TRITON = "for-loop", "foreach", "fused", "Triton kernel"
ADAM: dict[str, dict[str, bool]] = {LOOP: {"foreach": False}, FOREACH: {"foreach": True}, FUSED: {"fused": True}}
# Bytes per element, 4 for each number that is read or written. Adam reads p, g, m, v and writes p, m, v; SGD with momentum b
# reads p, g, b and writes p, b. LAMB's two kernels write and read the direction as well.
BYTES, SGD_BYTES, LAMB_BYTES = 28, 20, 40
MakeOptimizer = Callable[[list[Tensor]], torch.optim.Optimizer]


@dataclass
class AdamStep(Row):
    """One step with one implementation on one model: of Adam, unless the model names another rule."""

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


def state_after(
    make: MakeOptimizer, sizes: list[int], device: torch.device, steps: int, names: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
) -> list[Tensor]:
    """p of all parameters, and the named parts of the state, after `steps` steps, each with new random gradients."""
    params = parameters_with_gradients(sizes, device, seed=1)
    optimizer, generator = make(params), torch.Generator(device).manual_seed(2)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, device=device, generator=generator)
        optimizer.step()
    states = [[optimizer.state[p][name] for p in params] for name in names]
    return [torch.cat(end) for end in ([p.detach() for p in params], *states)]


def calls_of(make: MakeOptimizer, tensors: int, device: torch.device) -> int:
    """How many operators one step calls, and how many kernels in Triton it launches, which torch does not see.

    Counted on tensors of one element, because the interpreter is slow. It copies tensors, which does not count.
    """
    optimizer = make(parameters_with_gradients([1] * tensors, device))
    optimizer.step()  # makes the state
    launched = len(getattr(optimizer, "_tables", ())) * getattr(optimizer, "launches", 0)
    return launched + sum(op.name != "copy_" or not launched for op in operators(optimizer.step))


def ways_of(rule: str) -> dict[str, MakeOptimizer]:
    """How a rule can be run here. torch has no LAMB, and we no SGD in Triton. Raises LabError for LAMB without Triton."""
    if rule == "SGD":
        return {name: partial(torch.optim.SGD, lr=0.01, momentum=0.9, **options) for name, options in ADAM.items()}
    from hpml_lab.tuning.tools.triton_lamb import TritonLAMB

    return {LOOP: LAMB, TRITON: TritonLAMB}


def draw(result: Result):
    """One step with each implementation. Bars: its time for Adam, on many small tensors and on one large one, and for other
    rules on the small ones; a color means that it differs from the for-loop's by more than noise, and the dashed line is the
    time that memory bandwidth needs. Last panel: operator calls of Adam."""
    rows = result.rows(AdamStep)
    models = {model: [row for row in rows if row.model == model] for model in dict.fromkeys(row.model for row in rows)}
    timed = {model: [row for row in steps if row.time_us is not None] for model, steps in models.items()}
    timed = {model: steps for model, steps in timed.items() if len(steps) > 1}  # a bar alone compares nothing
    columns = 2 if len(timed) == 3 else 3
    lines = -(-(len(timed) + 1) // columns)
    figure = style.new_figure(11, 3.4 * lines)
    *panels, calls = figure.subplots(lines, columns).flat
    for axes in panels[len(timed) :]:
        axes.set_axis_off()
    for axes, (model, steps) in zip(panels, timed.items(), strict=False):
        names, times, verdicts = zip(*((row.implementation, row.time_us, row.verdict) for row in steps), strict=True)
        timed_bars(axes, names, times, verdicts, limit=steps[0].limit_us)
        axes.set_title(model)
    panels[0].set_ylabel("implementation")
    panels[1].set_yticklabels([])
    adam = dict(list(models.items())[:2])
    names = [row.implementation for row in next(iter(adam.values()))]
    grouped_bars(calls, names, {model: [row.calls for row in steps] for model, steps in adam.items()}, labels="{:,g}")
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
    """Adam, SGD and LAMB as a for-loop, on lists of tensors, fused, and in Triton, against the memory limit."""
    device, notes = params.device.torch, []
    adam: dict[str, MakeOptimizer] = {name: partial(torch.optim.Adam, lr=1e-3, **options) for name, options in ADAM.items()}
    rules = {"SGD": ways_of("SGD")}
    try:
        from hpml_lab.tuning.lessons.triton_adam import TritonAdam

        require_triton(device)
        adam[TRITON], rules["LAMB"] = partial(TritonAdam, lr=1e-3), ways_of("LAMB")
    except LabError as error:
        notes.append(str(error))

    checked = list(params.checked)
    ends = {name: state_after(make, checked, device, params.steps) for name, make in adam.items()}
    agreement = {name: AdamAgreement(name, *map(difference_in_spacings, end, ends[FUSED])) for name, end in ends.items()}
    reached = [[end[0] for end in ends.values()]]  # p, of all implementations of each rule
    reached += [[state_after(make, checked, device, params.steps, ())[0] for make in ways.values()] for ways in rules.values()]
    relative = max(((p - own[0]).abs().max() / own[0].abs().max()).item() for own in reached for p in own)

    small, large = [params.side**2] * params.tensors, [params.large]
    many, single = f"{params.tensors} tensors of {params.side}×{params.side}", f"1 tensor of {params.large / 1e6:.3g} M"
    models = {many: (small, BYTES, adam), single: (large, BYTES, adam)}
    models |= {f"{rule}, {many}": (small, {"SGD": SGD_BYTES, "LAMB": LAMB_BYTES}[rule], rules[rule]) for rule in rules}
    gb_per_s, gpu = copy_bandwidth(device).gb_per_s, device if params.device.is_cuda else None
    steps: dict[tuple[str, str], AdamStep] = {}
    gains: dict[tuple[str, str], SpeedUp] = {}
    alike = []  # whether a way calls as many operators as it should
    for model, (sizes, nbytes, makers) in models.items():
        optimizers = {name: make(parameters_with_gradients(sizes, device)) for name, make in makers.items()}
        limit_us = nbytes * sum(sizes) / gb_per_s / 1e3
        timed = {name: optimizer.step for name, optimizer in optimizers.items() if name != TRITON or params.device.is_cuda}
        times = interleaved(timed, samples=params.samples, placebo=LOOP, gpu=gpu)
        gains |= {(model, name): speed_up(times, LOOP, name) for name in timed if name != LOOP}
        for name, make in makers.items():
            time_us = times[name].seconds * 1e6 if name in times else None
            steps[model, name] = AdamStep(
                model=model,
                implementation=name,
                calls=calls_of(make, len(sizes), device),
                limit_us=limit_us,
                time_us=time_us,
                limit_share=limit_us / time_us if time_us else None,
                **(gains[model, name].columns if (model, name) in gains else {}),
            )
            alike.append(steps[model, name].calls == calls_of(make, 1, device) * (len(sizes) if name == LOOP else 1))
        if TRITON in timed and model == single:
            best = {name: timed[name] for name in (FUSED, TRITON)}
            own_kernel = speed_up(interleaved(best, samples=params.samples, placebo=FUSED, gpu=gpu), FUSED, TRITON)
        del optimizers, timed  # the large model's memory

    result = Result(
        [Table("One step", list(steps.values())), Table("Difference from torch's fused Adam", list(agreement.values()))],
        notes=notes,
    )
    result.key_figure("many tensors, fused over the for-loop", gains[many, FUSED].ratio, unit="times")
    result.key_figure("many tensors, foreach over the for-loop", str(gains[many, FOREACH]))
    result.key_figure("one tensor, fused over the for-loop", str(gains[single, FUSED]))
    result.key_figure("many tensors, operator calls of the for-loop", steps[many, LOOP].calls)
    called = [f"{name} {row.calls}" for (model, name), row in steps.items() if model == many]
    result.claim(
        "For Adam, SGD and LAMB the for-loop calls as many operators for each tensor as for one; other ways as many for all",
        all(alike),
        f"Adam, {many}: {', '.join(called)}",
    )
    # Without fused multiply-add each rounds once more: a step parts them by 6 roundings of the largest v, 5.4 of m, 2 of p.
    pairs = zip(ends.get(TRITON, []), ends[FUSED], strict=False)
    apart = [((a - b).abs().max() / (b.abs().max() * params.steps * 2**-24)).item() for a, b in pairs]
    result.claim(
        "The Triton kernel, where there is Triton, computes torch's fused Adam, p, m and v to 8 roundings a step",
        max(apart, default=0) <= 8,
        ", ".join(f"{roundings:.2g}" for roundings in apart) or "no Triton",
    )
    result.claim(
        "All implementations of a rule compute the same parameters, within 2e-6 of the largest",
        relative < 2e-6,
        f"{relative:.1e}",
    )
    fused, sgd = gains[many, FUSED], gains[f"SGD, {many}", FUSED]
    text = "fused is faster than the for-loop for many small tensors, for Adam and for SGD"
    result.measured(text, fused.faster and sgd.faster, f"{fused}; SGD {sgd}")
    if (single, TRITON) in gains:
        share, lamb = steps[single, TRITON].limit_share, gains[f"LAMB, {many}", TRITON]
        result.measured(
            "On one large tensor our Adam reaches 85 % of the copy bandwidth, and is not slower than fused",
            share >= 0.85 and not own_kernel.slower,
            f"{share:.0%}; {own_kernel}",
        )
        result.measured("LAMB in two kernels is faster than its for-loop", lamb.faster, str(lamb))
    if device.type != "cuda":
        what = "the kernels in Triton were checked in the interpreter and not timed"
        result.notes.append(NO_CUDA.format(what=what, slug="fused-optimizers"))
    return result
