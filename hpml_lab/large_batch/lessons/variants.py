"""Which rule a paper or a library means by LARS, LAMB or NovoGrad: every variant as options of one class.

The names agree, the rules do not: a rate from a paper belongs to the variant of that paper.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from hpml_lab.optim import LAMB, LARS, NovoGrad
from hpml_lab.optim.machinery.base import zeros
from hpml_lab.optim.machinery.layerwise import LayerwiseOptimizer, norm, trust_ratio

Make = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


class PaperLARS(LayerwiseOptimizer):
    """LARS as its paper writes it: the rate is inside the velocity, so a new rate does not act on past gradients."""

    symbols = {"v": "momentum_buffer"}

    def __init__(
        self, params, lr=1.0, momentum=0.9, weight_decay=0.0, trust_coeff=0.001, *, maximize=False, differentiable=False
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        return {"momentum_buffer": zeros(theta)}

    def numbers(self, state, group, new):
        return {}

    @staticmethod
    def update(theta, g, v, *, lr, momentum, weight_decay, trust_coeff):
        """r is the trust ratio of the layer.

            w = ‖θ‖
            r = η w / (‖g‖ + λ w), or 1 where a norm is 0
            v = γ v + α r (g + λ θ)
            θ = θ − v
        You et al. 2017, Algorithm 1.
        """
        w = norm(theta)
        r = trust_ratio(w, norm(g), trust_coeff, weight_decay * w)
        v.mul_(momentum).add_(g.add(theta, alpha=weight_decay).mul(lr * r))
        theta.add_(v, alpha=-1)


DECAY = 0.05
lars = partial(LARS, lr=10.0, momentum=0.9, weight_decay=DECAY)  # α η = 0.01
lamb = partial(LAMB, lr=0.01, weight_decay=DECAY)
novograd = partial(NovoGrad, lr=0.01, weight_decay=DECAY)


@dataclass(frozen=True)
class OptimizerVariant:
    """What a paper or a library computes under this name, and how to get it here."""

    rule: str
    name: str
    meant_by: str
    here: str
    make: Make
    base: Make  # the class of this package with its defaults for these options


# Set by hand: a table of what is meant, by whom, and how it is called here; then the two classes that it is compared by.
VARIANTS: Sequence[OptimizerVariant] = (
    OptimizerVariant("LARS", "rate outside the velocity", "timm; Apex's LARC with clip=False", "LARS(…)", lars, lars),
    OptimizerVariant("LARS", "rate inside the velocity", "the paper (2017)", "large_batch.PaperLARS(…)",
            partial(PaperLARS, **lars.keywords), lars),
    OptimizerVariant("LARS", "nothing adapted where λ = 0", "timm", "always_adapt=False",
            partial(lars, weight_decay=0, always_adapt=False), partial(lars, weight_decay=0)),
    OptimizerVariant("LAMB", "bias correction", "the paper's version 1 (2019)", "LAMB(…)", lamb, lamb),
    OptimizerVariant("LAMB", "no bias correction", "the paper's version 3 (ICLR 2020)", "bias_correction=False",
            partial(lamb, bias_correction=False), lamb),
    OptimizerVariant("LAMB", "common norm of the gradients at most 1", "timm and Apex, by default", "max_grad_norm=1.0",
            partial(lamb, max_grad_norm=1.0), lamb),
    OptimizerVariant("LAMB", "gradients divided by their common norm", "NVLAMB (NVIDIA, 2019)", "pre_normalize=True",
            partial(lamb, pre_normalize=True), lamb),
    OptimizerVariant("LAMB", "nothing adapted where λ = 0", "timm; Apex without use_nvlamb", "always_adapt=False",
            partial(lamb, weight_decay=0, always_adapt=False), partial(lamb, weight_decay=0)),
    OptimizerVariant("LAMB", "decay outside the trust ratio", "pytorch_optimizer, by default", "decoupled_weight_decay=True",
            partial(lamb, decoupled_weight_decay=True), lamb),
    OptimizerVariant("NovoGrad", "m a sum, decay inside", "the paper (2019), timm", "NovoGrad(…)", novograd, novograd),
    OptimizerVariant("NovoGrad", "m an average", "Apex, by default", "grad_averaging=True",
            partial(novograd, grad_averaging=True), novograd),
)  # fmt: skip
