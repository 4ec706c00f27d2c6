"""Model parallelism: ranks that divide layers, sequences and experts (notebook 23).

Experiments, in the order of the notebook:
    tensor_parallel   weights cut by columns and rows: what is sent, and what one process would compute
    context_parallel  attention of a sequence that is cut among ranks, on a ring, and the order in which no rank waits
    expert_parallel   experts on ranks, tokens by all-to-all, and a router that learns to share the work
Tools:
    Traffic           counts the collectives of your own code, and the bytes that a rank sends by them
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.model_parallel.experiments.tensor_parallel import tensor_parallel as tensor_parallel
    from hpml_lab.model_parallel.experiments.context_parallel import context_parallel as context_parallel
    from hpml_lab.model_parallel.experiments.expert_parallel import expert_parallel as expert_parallel
    from hpml_lab.model_parallel.tools.communication import Traffic as Traffic
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
