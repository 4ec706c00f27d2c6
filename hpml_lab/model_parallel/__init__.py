"""Model parallelism: ranks that divide layers, sequences and experts (notebook 23).

Experiments, in the order of the notebook:
    tensor_parallel   weights cut by columns and rows: what is sent, and what one process would compute
    context_parallel  attention of a sequence that is cut among ranks, on a ring, and the order in which no rank waits
    expert_parallel   experts on ranks, tokens by all-to-all, and a router that learns to share the work
    mesh              data × tensor × pipeline ranks: bytes and memory by formula, which product for which net, 4,096 ranks
Tools:
    Traffic           counts the collectives of your own code, and the bytes that a rank sends by them
For the notebook:
    mesh_sliders      bytes, memory and share of the peak, with sliders over layers, width and the ranks of each axis
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.model_parallel.experiments.tensor_parallel import tensor_parallel as tensor_parallel
    from hpml_lab.model_parallel.experiments.context_parallel import context_parallel as context_parallel
    from hpml_lab.model_parallel.experiments.expert_parallel import expert_parallel as expert_parallel
    from hpml_lab.model_parallel.experiments.mesh import mesh as mesh
    from hpml_lab.model_parallel.tools.communication import Traffic as Traffic
    from hpml_lab.model_parallel.views.mesh_sliders import mesh_sliders as mesh_sliders
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
