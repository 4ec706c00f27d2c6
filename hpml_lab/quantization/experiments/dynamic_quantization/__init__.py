"""Dynamic quantization: which layers the lecture's call changes, and what that gains in size and time.

Weights are stored in int8 once; activations are quantized at each call, with the range that they have then. Nothing has to be
calibrated or trained.
"""

import itertools

import torch
from matplotlib.axes import Axes
from torch import nn
from torch.nn import functional as F

from hpml_lab.quantization.experiments.dynamic_quantization.claims import JudgedPlace, judge_reach, judge_times, judge_torchao
from hpml_lab.quantization.experiments.dynamic_quantization.rows import (
    DTYPES,
    ChangedModel,
    LayerCost,
    LeNetAccuracy,
    RefusedModel,
    SeenWarning,
    TimedForward,
    cast,
    changed_model,
    encoder_in_evaluation,
    has_torchao,
    layer_cost,
    lectures_lines,
    runs_on,
    timed_forwards,
)
from hpml_lab.quantization.experiments.dynamic_quantization.forward_times import (
    TimedPlace,
    compiled_times,
    linear_times,
    model_times,
)
from hpml_lab.quantization.lessons.lenet import trained
from hpml_lab.quantization.tools.quantizers import (
    BF16,
    CONVOLUTIONS,
    FLOAT8,
    FLOAT8_DYNAMIC,
    FORMATS,
    FP32,
    INT4,
    INT4_PACKED,
    INT8,
    LEGACY,
    WEIGHT_ONLY,
    converted,
    legacy_dynamic,
    quantized_modules,
)
from hpml_lab.quantization.tools.sizes import sizes
from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.show import style
from hpml_lab.core.system.attempt import attempt, error_message_of
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.clock import SAMPLES

# A GPU needs larger layers before anything but the launches takes time.
QUICK = dict(samples=SAMPLES, mlp=1024, transformer=256, train_images=8000, steps=150, test_images=4000)
QUICK |= dict(widths=(256, 1024), batches=(1, 256), gpu_widths=(1024, 4096), gpu_batches=(1, 256))
FULL = dict(samples=SAMPLES, mlp=4096, transformer=1024, train_images=60_000, steps=938, test_images=10_000)
FULL |= dict(widths=(256, 1024, 4096), batches=(1, 16, 256), gpu_widths=(1024, 4096, 16_384), gpu_batches=(1, 256, 4096))
LOOK = dict(zip(FORMATS, zip((*style.CYCLE, style.INK), (*style.MARKERS, "*"), strict=True), strict=True))
LOOK |= {FP32: (style.INK, "*")}


# ---- models whose weights are nearly all in Linear layers: what dynamic quantization is made for ----------------------


def mlp(width: int, layers: int = 3) -> nn.Sequential:
    """Linear layers of width → width with ReLUs between them."""
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts[:-1]).eval()


class AttentionBlock(nn.Module):
    """One block of a Transformer, (N, T, width) -> (N, T, width), all of whose projections are ordinary Linear layers.

    In nn.TransformerEncoderLayer the attention's projections are none: dynamic quantization does not see them.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def transformer(width: int, blocks: int = 2, heads: int = 4) -> nn.Sequential:
    """Blocks of attention and MLP."""
    return nn.Sequential(*(AttentionBlock(width, heads) for _ in range(blocks))).eval()


def torch_encoder(width: int, blocks: int = 2, heads: int = 4) -> nn.TransformerEncoder:
    """The same sizes with torch's own layers."""
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False).eval()


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: the bytes of each model's weights in percent of float32: what stays float, what becomes int8, and what is saved.
    Right: the speed-up of each format over the one that the axis names (float32 on the CPU, the 16 bits of a GPU), by width
    and batch of one Linear layer, not compiled, with intervals; in the gray boxes is nothing but noise. Look for the formats
    that are below 1."""
    timed = [row for row in result.rows(TimedForward) if row.width]
    where = list(dict.fromkeys(row.where for row in timed if row.gain))  # on a GPU without torchao there is the base alone
    figure = style.new_figure(4 + 6 * len(where), 4)
    share, *speeds = figure.subplots(1, 1 + len(where), width_ratios=(1, *[1.4] * len(where)))
    for axes, name in zip(speeds, where, strict=True):
        draw_speeds(axes, [row for row in timed if row.where == name])
        axes.set_title(f"One Linear layer {name}".strip())
    rows = [row for row in result.rows(ChangedModel) if row.format == LEGACY][::-1]
    for i, row in enumerate(rows):
        parts = [100 * part / row.before for part in (row.stayed, row.after - row.stayed, row.before - row.after)]
        looks = ({"color": style.GREY}, {"color": style.BLUE}, {"color": "none", "edgecolor": style.GREY, "hatch": "//"})
        for left, width, look, label in zip(
            itertools.accumulate([0, *parts]), parts, looks, ("stays float32", "int8", "saved"), strict=False
        ):
            share.barh(i, width, left=left, height=0.6, label=label if i == 0 else None, **look)
    share.set_yticks(range(len(rows)), [row.model.replace("nn.", "nn.\n") for row in rows])
    share.set(xlabel="% of the bytes in float32", title="What the call reaches", xlim=(0, 100))
    share.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.2), ncols=3, handlelength=1, columnspacing=1)
    share.grid(False, axis="y")
    share.set_axisbelow(True)
    return figure


def draw_speeds(speed: Axes, timed: list[TimedForward]) -> None:
    """The formats next to each other at each width and batch, with intervals, and the noise as gray boxes."""
    places = list(dict.fromkeys((row.width, row.batch) for row in timed))
    names = list(dict.fromkeys(row.format for row in timed if row.gain))
    base = next(row.format for row in timed if not row.gain)
    for x, place in enumerate(places):
        found = {row.format: row for row in timed if (row.width, row.batch) == place and row.gain}
        noise = 1 + max(row.noise for row in found.values())
        speed.fill_between((x - 0.45, x + 0.45), 1 / noise, noise, color=style.GREY, alpha=0.3, linewidth=0)
        for i, (name, row) in enumerate(found.items()):
            at, (color, marker) = x + 0.6 * ((i + 0.5) / len(names) - 0.5), LOOK[name]
            ends = [[row.gain - row.low], [row.high - row.gain]]
            speed.errorbar(at, row.gain, ends, fmt=marker, color=color, markersize=7, label=name if x == 0 else None)
    speed.axhline(1, color=style.INK, linewidth=1)
    speed.set_xticks(range(len(places)), [f"{batch:,}" for _, batch in places], fontsize=8)
    widths = [width for width, _ in places]
    for width in dict.fromkeys(widths):
        middle = widths.index(width) + (widths.count(width) - 1) / 2
        speed.text(middle, -0.1, f"width {width:,}", transform=speed.get_xaxis_transform(), ha="center", va="top", fontsize=9)
    speed.set(yscale="log", ylabel=f"speed-up over {base}")
    speed.set_xlabel("batch size, and below it the width of the layer", labelpad=20)
    style.label_log_axis(speed.yaxis)
    speed.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


# ---- measuring -------------------------------------------------------------------------------------------------------


def changed_models(
    resnet: nn.Module, call: nn.Module, lenet: nn.Module, models: dict[str, nn.Module], names: list[str]
) -> list[ChangedModel]:
    """What the lecture's call, and torchao, reach of each model."""
    rows = [changed_model("ResNet-18", LEGACY, resnet, call)]
    for label, model in {"ResNet-18": resnet, "LeNet": lenet, **models}.items():
        wanted = (LEGACY, INT8, WEIGHT_ONLY, INT4) if label == "MLP" else (LEGACY, INT8)
        for name in wanted[label == "ResNet-18" :]:
            if name in names:
                rows.append(changed_model(label, name, model, converted(model, name)))
    return rows


@torch.no_grad()
def lenet_accuracies(
    lenet: nn.Module, x: torch.Tensor, y: torch.Tensor, names: list[str]
) -> tuple[list[LeNetAccuracy], list[RefusedModel]]:
    """The accuracy of a trained LeNet in each format, and the formats that refuse it."""
    rows, refused, right = [], [], None
    for name in (FP32, *names):
        try:
            net = lenet if name == FP32 else converted(lenet, name)
        except LabError as error:
            refused.append(RefusedModel(f"{name}: LeNet", error_message_of(error.__cause__ or error)))
            continue
        classes = torch.cat([net(cast(part, name)).argmax(1) for part in x.split(1000)])
        right = classes if right is None else right
        percent, same = 100 * (classes == y).double().mean().item(), int((classes == right).sum())
        rows.append(LeNetAccuracy(name, len(quantized_modules(net)), percent, same, len(right), sizes(net).file_bytes / 1e3))
    return rows, refused


def time_on_gpu(
    result: Result, params: Params, models: dict[str, nn.Module], offered: list[str]
) -> tuple[JudgedPlace, list[RefusedModel]]:
    """Time torchao's formats on the GPU in place of its own 16 bits, and add the tables; returns what does not run, too."""
    dtype = params.device.dtype
    base = next(name for name, found in DTYPES.items() if found == dtype)
    found, refused = runs_on(params.device.torch, dtype, [name for name in offered if name != BF16])
    names = [name for name in (INT8, WEIGHT_ONLY, FLOAT8_DYNAMIC, INT4_PACKED) if name in found]
    place = TimedPlace("on the GPU", params.device.torch, base, names, params.samples)
    linear, extra = linear_times(place, params.gpu_widths, params.gpu_batches)
    rows = params.gpu_batches[-1]  # so many that the launches do not count
    shapes = {"MLP": (rows, params.mlp), "Transformer": (max(1, rows // 64), 64, params.transformer)}
    whole, more = model_times(place, {label: (models[label], shape) for label, shape in shapes.items()}, compiled=True)
    result.tables += [
        Table("Forward pass in evaluation mode, on the GPU, launched from Python", whole),
        Table("One Linear layer, on the GPU, launched from Python", linear),
    ]
    return JudgedPlace("on the GPU", base, linear, extra, whole), refused + more


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment(
    "dynamic-quantization",
    lecture="L2",
    notebook="16_quantization",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("mnist", "cuda", "compiler", "torchao"),
)
def dynamic_quantization(params: Params) -> Result:
    """The lecture's call changes one layer of ResNet-18; on models of Linear layers it pays."""
    missing = has_torchao()
    offered = [name for name in FORMATS if not missing or name in (LEGACY, BF16)]
    cpu = torch.device("cpu")
    here, refused = runs_on(cpu, torch.float32, offered)
    warnings: list[SeenWarning]
    resnet, call, warnings = lectures_lines()
    lenet, data = trained(params.train_images, params.steps)
    models = {"MLP": mlp(params.mlp), "Transformer": transformer(params.transformer)}
    encoder = torch_encoder(params.transformer)
    changed = changed_models(resnet, call, lenet, models | {"nn.TransformerEncoder": encoder}, here)
    costs: list[LayerCost] = [layer_cost(name, 256) for name in (FP32, *here)]
    test = data.test_x[: params.test_images], data.test_y[: params.test_images]
    accuracies, more = lenet_accuracies(lenet, *test, [name for name in here if name != FLOAT8])
    refused += [RefusedModel("torch.gint8", attempt(lambda: torch.gint8)), *more]
    refused.append(encoder_in_evaluation(encoder, LEGACY, params.transformer))
    with collect_warnings():
        reached = legacy_dynamic(resnet, {nn.Conv2d, nn.Linear}, convolutions=True)
    changed.insert(1, changed_model("ResNet-18", CONVOLUTIONS, resnet, reached))
    nets = {FP32: resnet, LEGACY: call, CONVOLUTIONS: reached} | ({} if missing else {INT8: converted(resnet, INT8)})
    whole, _ = timed_forwards("ResNet-18", nets, torch.randn(1, 3, 224, 224), params.samples)
    names = [name for name in (LEGACY, INT8, WEIGHT_ONLY, BF16) if name in here]
    place = TimedPlace("on the CPU", cpu, FP32, names, params.samples)
    linear, extra = linear_times(place, params.widths, params.batches)
    shapes = {"MLP": (16, params.mlp), "Transformer": (1, 64, params.transformer)}
    whole += model_times(place, {label: (models[label], shape) for label, shape in shapes.items()})[0]
    fast, more = compiled_times(place, "MLP", models["MLP"], shapes["MLP"])
    whole, refused = whole + fast, refused + more

    result = Result(
        [
            Table("What was changed, and what it takes", changed),
            Table("Forward pass in evaluation mode, on the CPU, 1 thread", whole),
            Table("One Linear layer, on the CPU, 1 thread", linear),
            Table("One Linear layer of 256 → 256, on the CPU", costs),
            Table(f"LeNet, trained on {data.name}", accuracies),
            Table("What raises here", refused),
            Table("Warnings of the lecture's lines", warnings),
        ],
        notes=[*data.notes],
    )
    judge_reach(result, changed)
    judge_times(result, whole, linear)
    places = [JudgedPlace("on the CPU", FP32, linear, extra, fast)]
    if params.device.is_cuda:
        place, more = time_on_gpu(result, params, models, offered)
        places.append(place)
        refused.extend(more)
    judge_torchao(result, places)
    if missing:
        result.notes.append(f"The rows of torchao are missing. {missing}")
    if not params.device.is_cuda:
        result.notes.append(NO_CUDA.format(what="int4 and float8 arithmetic need one", slug="dynamic-quantization"))
    return result
