"""which-mesh: how many data, tensor and pipeline ranks train a net that has to fit."""

from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import plain

NODE = 8
GB = 10**9
CASES = {
    f"{layers} layers of width {width:,}, {ranks} ranks of {memory // GB} GB": (layers, width, ranks, memory)
    for layers, width, ranks, memory in (
        (32, 4096, 64, 80 * GB),
        (32, 4096, 64, 24 * GB),
        (80, 8192, 128, 80 * GB),
        (80, 8192, 512, 40 * GB),
        (96, 12_288, 1024, 80 * GB),
        (24, 2048, 16, 80 * GB),
        (30, 4096, 48, 16 * GB),
        (18, 6144, 36, 24 * GB),
        (40, 5120, 96, 16 * GB),
        (126, 16_384, 4032, 80 * GB),
        (33, 6144, 96, 20 * GB),
        (32, 4100, 64, 16 * GB),
        (16, 4096, 8, 12 * 16 * 16 * 4096**2 // 4),  # exactly fits on four
    )
}


def right(layers: int, width: int, ranks: int, memory: int) -> tuple[int, int, int]:
    need = 16 * 12 * layers * width**2
    found = []
    for tensor in range(1, 8 + 1):
        for pipeline in range(1, ranks + 1):
            if ranks % (tensor * pipeline) or width % tensor or layers % pipeline:
                continue
            if need <= memory * tensor * pipeline:
                found.append((tensor * pipeline, pipeline, tensor))
    _, pipeline, tensor = min(found)
    return ranks // (tensor * pipeline), tensor, pipeline


RUBRIC = Rubric(
    right,
    """
16 * 12
    only-the-weights :: 2 * 12 :: A rank that trains keeps more than the 2 bytes of a weight: also its gradient, and the
        optimizer's state. That is 16 bytes a parameter.
    without-the-optimizer :: 4 * 12 :: Weights and gradients are 4 bytes a parameter. Adam keeps 12 more.
    one-matrix-a-layer :: 16 :: A layer has about 12 · width² parameters: 4 in attention and 8 in the products behind it.
8 + 1
    beyond-the-node :: ranks + 1 :: The tensor axis sums activations in each layer: its ranks have to be neighbors, at most 8.
    node-left-out :: 8 :: A node has 8 ranks, and all of them may share a layer.
or width % tensor
    width-does-not-divide :: or False :: Each tensor rank gets an equal slice of each weight: the axis must divide the width.
or layers % pipeline
    layers-do-not-divide :: or False :: Each stage gets equally many layers: the axis must divide them.
ranks % (tensor * pipeline)
    ranks-left-over :: False :: All ranks are to be used: data · tensor · pipeline must be their number.
need <= memory * tensor * pipeline
    must-be-larger :: need < memory * tensor * pipeline :: What fits exactly fits.
    tensor-only :: need <= memory * tensor or need <= memory * pipeline :: A rank keeps a tensor-th of the layers of its stage:
        the two axes divide the memory together.
min(found)
    most-divided :: max(found) :: You divide the net among as many ranks as you can. Each division sends more: as few as fit.
    pipeline-first :: min(found, key=lambda mesh: (mesh[0], mesh[2])) :: Of two meshes that divide the net equally often, the
        one with fewer stages has the smaller bubble.
    fewest-stages-first :: min(found, key=lambda mesh: mesh[1:]) :: First as many replicas as possible, then as few stages: you
        avoid stages although fewer ranks would hold the net.
ranks // (tensor * pipeline), tensor, pipeline
    other-order :: ranks // (tensor * pipeline), pipeline, tensor :: The order is data, tensor, pipeline.
    other-order :: tensor, pipeline, ranks // (tensor * pipeline) :: The order is data, tensor, pipeline.
    all-ranks-are-replicas :: ranks, tensor, pipeline :: The three axes multiply to the number of ranks.
""",
)


@exercise("which-mesh", notebook="23_model_parallel", takes="layers, width, ranks, memory", returns=(int, int, int))
def judge_which_mesh(answer: Callable[[int, int, int, int], Any]) -> None:
    """Most replicas whose ranks hold 16 · 12 · L · d² / (T · P) bytes; of these meshes the one with the fewest stages."""
    RUBRIC.expect(answer, CASES, but=("mixed",), explain=_explain)


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says which condition the mesh of the first wrong case does not meet."""
    for case, (layers, width, ranks, memory), got, wanted in judged:
        data, tensor, pipeline = map(plain, got)
        if (data, tensor, pipeline) == wanted:
            continue
        if min(data, tensor, pipeline) < 1 or data * tensor * pipeline != ranks:
            raise Mistake("not-all-ranks", f"For {case} your axes {data} · {tensor} · {pipeline} do not make {ranks} ranks.")
        if tensor > NODE:
            raise Mistake("beyond-the-node", f"For {case} your tensor axis has {tensor} ranks; a node has {NODE}.")
        if width % tensor or layers % pipeline:
            what = f"the width among {tensor} ranks" if width % tensor else f"the layers among {pipeline} stages"
            raise Mistake("does-not-divide", f"For {case} {what} cannot be divided equally.")
        kept = 16 * 12 * layers * width**2 / (tensor * pipeline)
        if kept > memory:
            hint = f"For {case} a rank of your mesh keeps {kept / GB:.4g} GB of parameters, gradients and state."
            raise Mistake("does-not-fit", hint)
        if data < wanted[0]:
            hint = f"For {case} you have {data} replicas. The net fits with more of them: divide it less."
            raise Mistake("too-few-replicas", hint)
        hint = f"For {case} you have {pipeline} stages. As many replicas are possible with fewer."
        raise Mistake("too-many-stages", hint)
