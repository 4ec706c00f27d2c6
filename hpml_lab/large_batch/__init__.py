"""Large batches: why they train worse without care, and what helps (notebook 13).

Experiments, in the order of the notebook:
    large_batch_gap      the same images in fewer, larger batches: what is lost, and what rules for the rate recover
    lars_lamb_novograd   LARS, LAMB and NovoGrad: trust ratios, state, and a batch of 1,024 recovered
    lr_finder_one_cycle  choose a rate by a range test, and one-cycle against constant rates
Further figures:
    large_batch_losses   the loss of the largest batch, step by step
    why_linear           k small steps against one step of k times the rate
    one_cycle_gains      one-cycle against the best constant rate, seed by seed
    explore_smoothing    a slider: what the smoothing of a range test does to the choice
Tools:
    BatchedTrainings   one small net trained from several seeds at once, each seed with an optimizer of its own
    images             the images that it is trained on
    warmed_up          a learning rate that climbs to its peak first
    growing_rates      the rates of a range test; smoothed and choose read rates from its losses (RateChoice)
    one_cycle          the factor of the rate in one-cycle, and one_cycle_momentum (of optim)
    FORMS              the forms that papers and libraries call LARS, LAMB and NovoGrad; PaperLARS is one of them
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.large_batch_gap": ["large_batch_gap", "large_batch_losses"],
        "experiments.lars_lamb_novograd": ["lars_lamb_novograd"],
        "experiments.lr_finder_one_cycle": ["lr_finder_one_cycle", "one_cycle_gains"],
        "small_steps": ["why_linear"],
        "range_slider": ["explore_smoothing"],
        "batched": ["BatchedTrainings", "images", "warmed_up"],
        "range_test": ["RateChoice", "choose", "growing_rates", "smoothed"],
        "hpml_lab.optim.schedules": ["one_cycle", "one_cycle_momentum"],
        "forms": ["FORMS", "PaperLARS"],
    },
)
