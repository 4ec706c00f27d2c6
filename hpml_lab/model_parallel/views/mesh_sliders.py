"""Sliders over a mesh of ranks: what each axis sends, what a rank keeps, and the share of its peak that it computes at."""

from hpml_lab.core.show.formula_figure import Bars, Choice, FormulaFigure
from hpml_lab.model_parallel.lessons.mesh_cost import (
    RankMesh,
    ReplicaBatch,
    TransformerShape,
    data_bytes,
    flops_of_rank,
    kept_bytes_of_rank,
    mesh_seconds,
    pipeline_bytes,
    stage_seconds,
    state_bytes,
    tensor_bytes,
)
from hpml_lab.model_parallel.tools.large_mesh import BATCH, INFINIBAND, MEMORY, PEAK, TOKENS, inside_link

LAYERS = {str(number): number for number in (8, 24, 32, 80, 128)}
WIDTHS = {f"{1024 * number:,}": 1024 * number for number in (2, 4, 8, 16)}
POWERS = {f"{2**power:,}": 2**power for power in range(10)}
AXES = ("tensor axis", "pipeline axis", "data axis")
ALT = (
    "Left: GB that a rank sends along each of the three axes in a step. Middle: GB that a rank keeps, state and activations, "
    "next to the memory of a GPU. Right: how a rank spends a step: computing, and waiting for the others."
)


def sent_gigabytes(axis: int, layers: int, width: int, data: int, tensor: int, pipeline: int) -> float:
    """What a rank sends in a step along an axis, by its number in AXES."""
    net = TransformerShape(layers=layers, width=width, tokens=TOKENS)
    mesh, batch = RankMesh(data=data, tensor=tensor, pipeline=pipeline), ReplicaBatch(micro_batches=BATCH / data, sequences=1)
    along = tensor_bytes(net, mesh, batch) if axis == 0 else pipeline_bytes(net, mesh, batch)
    return (data_bytes(net, mesh) if axis == 2 else along) / 1e9


def kept_gigabytes(part: int, layers: int, width: int, data: int, tensor: int, pipeline: int) -> float:
    """What a rank keeps: state on every replica, state fully sharded, and activations."""
    net = TransformerShape(layers=layers, width=width, tokens=TOKENS)
    mesh, batch = RankMesh(data=data, tensor=tensor, pipeline=pipeline), ReplicaBatch(micro_batches=BATCH / data, sequences=1)
    state = state_bytes(net, mesh, False) if part == 0 else state_bytes(net, mesh, True)
    return (kept_bytes_of_rank(net, mesh, batch) if part == 2 else state) / 1e9


def spent_percent(part: int, layers: int, width: int, data: int, tensor: int, pipeline: int) -> float:
    """% of a step: computing, the tensor axis, waiting in the pipeline, and the rest: messages and gradients."""
    net = TransformerShape(layers=layers, width=width, tokens=TOKENS)
    mesh, batch = RankMesh(data=data, tensor=tensor, pipeline=pipeline), ReplicaBatch(micro_batches=BATCH / data, sequences=1)
    step = mesh_seconds(net, mesh, batch, PEAK, inside_link(tensor), INFINIBAND)
    computing = flops_of_rank(net, mesh, batch) / PEAK
    stage = stage_seconds(net, mesh, batch, PEAK, inside_link(tensor))
    bubble = stage * (pipeline - 1) / batch.micro_batches
    first = computing if part == 0 else stage - computing
    return 100 * (first if part < 2 else (bubble if part == 2 else step - stage - bubble)) / step


def mesh_sliders() -> FormulaFigure:
    """Bars for each axis, what is kept, and the time of a step, over the layers, the width and the ranks of each axis."""
    choices = [
        Choice("layers", LAYERS, "80"),
        Choice("width", WIDTHS, "8,192"),
        Choice("data", POWERS, "16"),
        Choice("tensor", POWERS, "8"),
        Choice("pipeline", POWERS, "4"),
    ]
    kept = ("state, on each replica", "state, fully sharded", "activations")
    spent = ("computing", "tensor axis", "bubble", "messages, gradients")
    panels = [
        Bars(AXES, sent_gigabytes, "GB that a rank sends in a step", "GB", ends=(0.01, 1e4), log=True),
        Bars(kept, kept_gigabytes, "GB that a rank keeps", "GB", ends=(0.01, 1e5), log=True, limits=MEMORY),
        Bars(spent, spent_percent, "% of a step", "%", ends=(0, 100)),
    ]
    return FormulaFigure("model_parallel.mesh_sliders", ALT, choices, panels)
