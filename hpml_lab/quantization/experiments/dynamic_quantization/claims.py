"""What dynamic-quantization claims."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpml_lab.core.experiment import Result
from hpml_lab.core.timing.noise import SpeedUp, interval
from hpml_lab.quantization.experiments.dynamic_quantization.forward_times import COMPILED
from hpml_lab.quantization.experiments.dynamic_quantization.rows import ChangedModel, TimedForward
from hpml_lab.quantization.tools.quantizers import CONVOLUTIONS, INT8, LEGACY


@dataclass(frozen=True)
class JudgedPlace:
    """What was timed in one place, such as "on the CPU": rows of a layer and of models, and the ms that int8 dynamic adds."""

    where: str
    base: str
    linear: Sequence[TimedForward]
    extra: Sequence[float]
    models: Sequence[TimedForward]


def judge_reach(result: Result, changed: Sequence[ChangedModel]) -> None:
    """Which layers change: counted, so it is the same on every machine."""
    call = changed[0]
    [reached] = [row for row in changed if row.format == CONVOLUTIONS]
    result.key_figure("layers of ResNet-18 that change", call.changed, f"of {call.linear + call.convolutions}")
    result.key_figure("ResNet-18's file", f"{call.file_mb / (1 + call.difference / 100):.2f} → {call.file_mb:.2f}", "MB")
    result.claim(
        "The lecture's call changes one of ResNet-18's 21 layers, fc; with torch's dynamic convolution in `mapping`, all 21",
        (call.linear, call.convolutions, call.changed, call.first) == (1, 20, 1, "fc") and reached.changed == 21,
    )
    encoders = [row for row in changed if row.model == "nn.TransformerEncoder"]
    result.claim(
        "In nn.TransformerEncoder the attention's projections stay float32, a third of all weights, whichever tool is used",
        all(3 * row.changed == 2 * row.linear and 0.3 < row.stayed / row.before < 0.4 for row in encoders),
    )


def judge_times(result: Result, models: Sequence[TimedForward], linear: Sequence[TimedForward]) -> None:
    """Where the lecture's call gains time, on the CPU. models: the rows of whole ones, ResNet-18 first."""
    call, *suited = [row for row in models if row.format == LEGACY]
    result.key_figure("ResNet-18 after the call", str(call.speed_up))
    for row in suited:
        result.key_figure(f"{row.model} after the call, batch {row.batch}", str(row.speed_up))
    for row in models:
        if row.format == CONVOLUTIONS:
            result.key_figure("ResNet-18, convolutions too: relative error of the output", round(100 * row.error), "%")
            result.key_figure("ResNet-18, convolutions too", str(row.speed_up))
    if legacy := _single(linear, LEGACY):
        row, large = legacy[-1]
        result.key_figure(f"one layer of width {row.width:,}, batch 1, {LEGACY}", str(large))
        result.measured(
            f"One Linear layer of width {row.width:,} is faster with legacy int8, at batch 1", large.faster, str(large)
        )


def judge_torchao(result: Result, places: Sequence[JudgedPlace]) -> None:
    """What torchao's int8 dynamic costs as it is, and gains where it is compiled like the format that it is compared with."""
    slow = []
    for place in places:
        if dynamic := _single(place.linear, INT8):
            row, gain = dynamic[0]
            low, high = interval(place.extra)
            slow.append((f"width {row.width:,} {place.where}", gain))
            label = f"torchao's int8 dynamic, extra time per small layer {place.where}"
            result.key_figure(label, f"{low:.3f} to {high:.3f}", "ms")
    if slow:
        result.measured(
            "Not compiled, torchao's int8 dynamic costs a small layer more time than it saves",
            all(gain.slower for _, gain in slow),
            "; ".join(f"{name}: {gain.slowdown_text}" for name, gain in slow),
        )
    for place in places:
        compiled = [row for row in place.models if row.format == INT8 + COMPILED]
        for row in compiled:
            label = f"{row.model} {place.where}, {INT8} and {place.base}, both compiled"
            result.key_figure(label, str(row.speed_up))
        if compiled:
            names = " and the ".join(f"{row.model}" for row in compiled)
            result.measured(
                f"Compiled, {INT8} makes the {names} faster than {place.base} {place.where}, batch {compiled[0].batch}",
                all(row.speed_up.faster for row in compiled),
                "; ".join(str(row.speed_up) for row in compiled),
            )


def _single(linear: Sequence[TimedForward], name: str) -> list[tuple[TimedForward, SpeedUp]]:
    """The rows of one format at batch 1."""
    return [(row, row.speed_up) for row in linear if row.batch == 1 and row.gain is not None and row.format == name]
