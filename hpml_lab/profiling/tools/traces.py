"""Torch's traces as lanes to draw, and named regions to find one's way in them."""

from collections.abc import Iterable
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.profiler import record_function

from hpml_lab.core.show import style
from hpml_lab.core.timing.timeline import gantt
from hpml_lab.profilers.trace_calls import GPU, nested, of_categories

COLORS = {
    "region": style.GREY,
    "convolution": style.BLUE,
    "normalization": style.GREEN,
    "activation": style.ORANGE,
    "pooling": style.PURPLE,
    "copying": style.RED,
    "other": style.SKY,
}
_KINDS = (
    ("copying", ("memcpy", "memset", "aten::cat", "copy")),
    ("normalization", ("norm", "bn_")),  # before convolutions: a GPU's batch norm is cuDNN's, too
    ("convolution", ("conv", "cudnn", "xmma", "winograd")),
    ("activation", ("relu", "clamp")),
    ("pooling", ("pool",)),
)


def operation_kind(event: dict[str, Any]) -> str:
    """What an event does, by its name, as the color of its bar: a key of COLORS."""
    if event["cat"] == "user_annotation":
        return "region"
    name = event["name"].lower()
    return next((kind for kind, words in _KINDS if any(word in name for word in words)), "other")


@contextmanager
def named_regions(layers: Iterable[tuple[str, nn.Module]]):
    """Within the `with` block each layer's forward pass is a region of its name in every trace (`record_function`)."""
    handles, open_regions = [], []

    def enter(name: str):
        def begin(*_: object) -> None:
            open_regions.append(record_function(name))
            open_regions[-1].__enter__()

        return begin

    def leave(*_: object) -> None:
        open_regions.pop().__exit__(None, None, None)

    try:
        for name, layer in layers:
            handles += [layer.register_forward_pre_hook(enter(name)), layer.register_forward_hook(leave)]
        yield
    finally:
        for handle in handles:
            handle.remove()


def lanes(events: Iterable[dict[str, Any]], shortest: float = 0.001, most: int = 1000) -> list[dict[str, Any]]:
    """Rows for core.timeline.gantt: regions, operators by depth and, where there is a GPU, its kernels and copies.

    shortest  calls below this share of the whole are left out: nobody would see them
    most      kernels and copies that are shown, the longest: each is short, but together they fill the lane
    """
    events = list(events)
    calls, gpu = nested(e for e in events if e.get("cat") in ("cpu_op", "user_annotation")), of_categories(events, GPU)
    if not calls:
        return []
    start = min(e["ts"] for e in (*calls, *gpu))
    whole = max(e["ts"] + e["dur"] for e in (*calls, *gpu)) - start
    rows = []
    long_calls = [call for call in calls if call["dur"] >= shortest * whole]
    for event in (*long_calls, *sorted(gpu, key=lambda event: -event["dur"])[:most]):
        if event["cat"] in GPU:
            lane = "GPU: kernels" if event["cat"] == "kernel" else "GPU: copies"
        elif event["cat"] == "user_annotation":
            lane = "regions" if event["depth"] == 0 else "regions within"
        else:
            lane = ("operators", "called by them", "called by these")[min(2, len(event["around"]))]
        begin = (event["ts"] - start) / 1e6
        end = begin + event["dur"] / 1e6
        rows.append({"lane": lane, "what": operation_kind(event), "name": event["name"], "start": begin, "end": end})
    return rows


def draw_lanes(axes, rows: Iterable[dict[str, Any]]) -> None:
    """Draw the rows of `lanes`: a lane calls what lies below it. The longer regions are named."""
    rows = list(rows)
    drawn = {row["lane"] for row in rows}
    names = {lane: lane for lane in LANES if lane in drawn}
    gantt(axes, rows, COLORS, names)
    for lane, what in (("GPU: kernels", "kernels"), ("GPU: copies", "copies")):
        if lane in drawn:
            own = [row["end"] - row["start"] for row in rows if row["lane"] == lane]
            names[lane] = f"GPU: {len(own)} {what},\n{1e3 * sum(own):.2g} ms together"
    axes.set_yticks(range(len(names)), names.values())
    whole = axes.get_xlim()[1]
    for bar in axes.patches:
        if bar.get_width() < 0.01 * whole:  # too narrow for a white edge or a hatch; its own color keeps it in sight
            bar.set(hatch=None, linewidth=0.3, edgecolor=bar.get_facecolor())
    scale = whole / max(row["end"] for row in rows)
    shown = list(names)
    for row in rows:
        if row["what"] == "region" and row["end"] - row["start"] > 0.09 * whole / scale:
            middle = scale * (row["start"] + row["end"]) / 2
            axes.text(middle, shown.index(row["lane"]), row["name"], ha="center", va="center", color="white", fontsize=8)


LANES = ("regions", "regions within", "operators", "called by them", "called by these", "GPU: kernels", "GPU: copies")
