"""Large batches: why they train worse without care, and what helps (notebook 15).

Experiments, in the order of the notebook:
    large_batch_gap      the same images in fewer, larger batches: what is lost, and what rules for the rate recover
    lars_lamb_novograd   LARS, LAMB and NovoGrad: trust ratios, state, and a batch of 1,024 recovered
    lr_finder_one_cycle  choose a rate by a range test, and one-cycle against constant rates
    muon                 Muon: singular values near 1, on a matrix problem and in hidden layers, and what it costs
Further figures:
    large_batch_losses   the loss of the largest batch, step by step
    why_linear           k small steps against one step of k times the rate; small_steps, its numbers
    one_cycle_gains      one-cycle against the best constant rate, seed by seed
    newton_schulz_polynomials  what Newton–Schulz makes of a singular value, step by step
    hidden_layer_losses  test loss by rate, hidden layers by AdamW and by Muon
    lab                  the optimizer lab, in which LARS, LAMB and NovoGrad take both coordinates as one layer
    explore_smoothing    a slider: what the smoothing of a range test does to the choice
Tools:
    growing_rates      the rates of a range test; smoothed and choose read rates from its losses
    one_cycle          the factor of the rate in one-cycle, and one_cycle_momentum (of optim)
    VARIANTS           what papers and libraries call LARS, LAMB and NovoGrad; PaperLARS is one of them
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.large_batch.experiments.large_batch_gap import (
        large_batch_gap as large_batch_gap,
        large_batch_losses as large_batch_losses,
    )
    from hpml_lab.large_batch.experiments.lars_lamb_novograd import lars_lamb_novograd as lars_lamb_novograd
    from hpml_lab.large_batch.experiments.lr_finder_one_cycle import (
        lr_finder_one_cycle as lr_finder_one_cycle,
        one_cycle_gains as one_cycle_gains,
    )
    from hpml_lab.large_batch.experiments.muon import muon as muon
    from hpml_lab.large_batch.experiments.muon.figure import (
        hidden_layer_losses as hidden_layer_losses,
        newton_schulz_polynomials as newton_schulz_polynomials,
    )
    from hpml_lab.large_batch.experiments.large_batch_gap.small_steps import (
        small_steps as small_steps,
        why_linear as why_linear,
    )
    from hpml_lab.landscape.optimizer_lab.widget import lab as lab
    from hpml_lab.large_batch.views.range_slider import explore_smoothing as explore_smoothing
    from hpml_lab.large_batch.lessons.range_test import choose as choose, growing_rates as growing_rates, smoothed as smoothed
    from hpml_lab.optim.schedules import one_cycle as one_cycle, one_cycle_momentum as one_cycle_momentum
    from hpml_lab.large_batch.lessons.variants import VARIANTS as VARIANTS, PaperLARS as PaperLARS
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
