"""How each optimizer is set for the large batch: its options and its peak rate.

Each peak rate is the best median of a coarse grid, on MNIST with the seeds 0 to 7; the experiment reports other seeds, from
FIRST_SEED on. SGD: 0.02, 0.04, 0.08, 0.12, 0.16, 0.32; the best is what linear scaling gives. LARS: 1, 2, 4. LAMB: 0.03,
0.06, 0.12. NovoGrad: 0.1, 0.3, 0.6, with β₂ of 0, 0.5, 0.9 and 0.98.
"""

from functools import partial

from hpml_lab.large_batch.batched import MakeOptimizer
from hpml_lab.optim import LAMB, LARS, SGD, NovoGrad, matrices_and_rest

SMALL_RATE = 0.005  # of SGD with momentum at the small batch
FIRST_SEED = 100
LAYERWISE = ("LARS", "LAMB", "NovoGrad")

# Biases have neither decay nor trust ratio.
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "SGD": partial(SGD, momentum=0.9),
    "LARS": lambda params: LARS(matrices_and_rest(params), momentum=0.9, trust_coeff=0.02),
    "LAMB": lambda params: LAMB(matrices_and_rest(params), weight_decay=0.0),
    "NovoGrad": partial(NovoGrad, betas=(0.9, 0.5)),
}
PEAK_RATES = {"LARS": 2.0, "LAMB": 0.06, "NovoGrad": 0.3}


def peak_rate(name: str, k: float) -> float:
    """The peak rate at k times the small batch."""
    return SMALL_RATE * k if name == "SGD" else PEAK_RATES[name]
