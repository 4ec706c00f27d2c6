"""What dynamic-quantization claims."""

from collections.abc import Sequence

from hpml_lab.core.experiment.result import Result
from hpml_lab.core.measure.noise import CLAIMED, SpeedUp, interval
from hpml_lab.quantization.experiments.dynamic_quantization.rows import ChangedModel, LayerCost, LeNetAccuracy, TimedForward
from hpml_lab.quantization.experiments.dynamic_quantization.times import COMPILED
from hpml_lab.quantization.tools.quantizers import CONVOLUTIONS, INT4, INT8, LEGACY, WEIGHT_ONLY

FC_WEIGHTS = 1000 * 512  # of ResNet-18's last layer


def judge_reach(result: Result, changed: Sequence[ChangedModel], costs: Sequence[LayerCost]) -> None:
    """Which layers change, and what that saves: counted, so it is the same on every machine."""
    call = changed[0]
    result.key_figure("layers of ResNet-18 that change", call.changed, f"of {call.linear + call.convolutions}")
    result.key_figure("ResNet-18's file", f"{call.file_mb / (1 + call.difference / 100):.2f} → {call.file_mb:.2f}", "MB")
    result.claim(
        "The lecture's call raises nothing and changes one of ResNet-18's 21 layers, fc: all 20 convolutions stay float32",
        (call.linear, call.convolutions, call.changed, call.first) == (1, 20, 1, "fc"),
    )
    result.check(
        "That saves 3 bytes for each of fc's 512,000 weights, less a few bytes for scales: the file becomes 3.3 % smaller",
        0 <= 3 * FC_WEIGHTS - (call.before - call.after) <= 64 and round(call.difference, 1) == -3.3,
        f"{call.before - call.after:,} bytes of tensors, {call.difference:.2f} % of the file",
    )
    models = {(row.model, row.format): row for row in changed}
    suited = [models[label, LEGACY] for label in ("MLP", "Transformer")]
    result.check(
        "In an MLP and a Transformer made of Linear layers it changes every layer: about a quarter of the bytes is left",
        all(row.changed == row.linear and 0.25 <= row.after / row.before < 0.3 for row in suited),
    )
    encoders = [row for row in changed if row.model == "nn.TransformerEncoder"]
    result.claim(
        "In nn.TransformerEncoder the attention's projections stay float32, a third of all weights, whichever tool is used",
        all(3 * row.changed == 2 * row.linear and 0.3 < row.stayed / row.before < 0.4 for row in encoders),
    )
    cost = {row.format: row for row in costs}
    if INT8 not in cost:
        return
    result.check(
        "torchao's quantize_ changes the same layer of ResNet-18",
        (models["ResNet-18", INT8].changed, models["ResNet-18", INT8].first) == (1, "fc"),
    )
    result.check(
        "torchao's 4-bit weights take no less memory than its int8 weights: only their values need fewer bits",
        cost[INT4].stored >= cost[INT8].stored and cost[INT4].needed < 0.7 * cost[INT8].needed,
        f"{cost[INT4].stored:.2f} bits stored and {cost[INT4].needed:.2f} needed, compared with {cost[INT8].stored:.2f}",
    )
    result.check(
        "Not compiled, int8 weight-only makes a float copy of the whole weight at each call; the legacy layer makes none",
        cost[WEIGHT_ONLY].copies >= 1 and cost[LEGACY].copies == 0,
    )
    result.check(
        "Not compiled, a layer of torchao's int8 dynamic calls at least ten operators, where the legacy layer calls one",
        cost[INT8].operators >= 10 and cost[LEGACY].operators == 1,
        f"{cost[INT8].operators} operators",
    )


def judge_convolutions(result: Result, changed: Sequence[ChangedModel], models: Sequence[TimedForward]) -> None:
    """What torch's dynamic convolution, named in the mapping, makes of ResNet-18."""
    [reached] = [row for row in changed if row.format == CONVOLUTIONS]
    [timed] = [row for row in models if row.format == CONVOLUTIONS]
    result.claim(
        "With torch's dynamic convolution in `mapping` the same call changes all 21 layers",
        reached.changed == reached.linear + reached.convolutions == 21,
    )
    result.key_figure("ResNet-18, convolutions too: relative error of the output", round(100 * timed.error), "%")
    result.key_figure("ResNet-18, convolutions too", str(timed.speed_up))


def judge_compiled(result: Result, models: Sequence[TimedForward], base: str, where: str) -> None:
    """Whether torchao's int8 dynamic gains time where both are compiled. models: rows compared with the compiled base."""
    for row in models:
        if row.format == INT8 + COMPILED:
            result.key_figure(f"{row.model} {where}, {INT8} and {base}, both compiled", str(row.speed_up))
            text = (
                f"{where[0].upper()}{where[1:]}, compiled, {INT8} makes the {row.model} faster than {base}, batch {row.batch}"
            )
            result.measured(text, row.speed_up.faster, str(row.speed_up))


def judge_times(
    result: Result, models: Sequence[TimedForward], linear: Sequence[TimedForward], extra: Sequence[float], base: str
) -> None:
    """Where it gains time on the CPU, where the lecture's call works. models: the rows of whole ones, ResNet-18 first."""
    call, *suited = [row for row in models if row.format == LEGACY]
    result.key_figure("ResNet-18 after the call", str(call.speed_up))
    for row in suited:
        result.key_figure(f"{row.model} after the call, batch {row.batch}", str(row.speed_up))
    result.measured(
        "ResNet-18 takes as long after the lecture's call as before", call.speed_up.verdict not in CLAIMED, str(call.speed_up)
    )
    if legacy := _single(linear, LEGACY):
        row, large = legacy[-1]
        result.key_figure(f"one layer of width {row.width:,}, batch 1, {LEGACY}", str(large))
        result.measured(
            f"One Linear layer of width {row.width:,} is faster with legacy int8, at batch 1", large.faster, str(large)
        )
    _judge_not_compiled(result, linear, extra, base, "on the CPU")


def judge_gpu(
    result: Result, models: Sequence[TimedForward], linear: Sequence[TimedForward], extra: Sequence[float], base: str
) -> None:
    """Where torchao's formats gain time on a GPU: compiled, if anywhere. models: rows compared with the compiled base."""
    _judge_not_compiled(result, linear, extra, base, "on the GPU")
    judge_compiled(result, models, base, "on the GPU")


def _single(linear: Sequence[TimedForward], name: str) -> list[tuple[TimedForward, SpeedUp]]:
    """The rows of one format at batch 1."""
    return [(row, row.speed_up) for row in linear if row.batch == 1 and row.gain is not None and row.format == name]


def _judge_not_compiled(result: Result, linear: Sequence[TimedForward], extra: Sequence[float], base: str, where: str) -> None:
    """What torchao's layers cost as they are. extra: ms that int8 dynamic takes beyond the base on the smallest, by turn."""
    if slow := _single(linear, WEIGHT_ONLY):
        result.measured(
            f"Not compiled, int8 weight-only is slower than {base} at batch 1 {where}, at every width",
            all(gain.slower for _, gain in slow),
            "; ".join(f"width {row.width:,}: {gain.slowdown_text}" for row, gain in slow),
        )
    if dynamic := _single(linear, INT8):
        row, gain = dynamic[0]
        low, high = interval(extra)
        result.key_figure(f"torchao's int8 dynamic, extra time per small layer {where}", f"{low:.3f} to {high:.3f}", "ms")
        result.measured(
            f"Not compiled, torchao's int8 dynamic costs a layer of width {row.width:,} {where} more time than it saves",
            gain.slower,
            gain.slowdown_text,
        )


def judge_accuracy(result: Result, accuracies: Sequence[LeNetAccuracy], costs: Sequence[LayerCost]) -> None:
    """What is lost: hardly anything at 8 bits."""
    full, *others = accuracies
    worst = max(others, key=lambda row: abs(row.accuracy - full.accuracy))
    result.measured(
        "No 8- or 16-bit format changes LeNet's accuracy by more than 0.3 points",
        abs(worst.accuracy - full.accuracy) <= 0.3,
        f"at most {worst.accuracy - full.accuracy:+.2f} points, {worst.format}",
        depends_on="the training",
    )
