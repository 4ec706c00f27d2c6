"""Inputs and targets: how categories enter a net, and how a distribution leaves it (notebook 18).

Experiments, in the order of the notebook:
    one_hot_vs_embedding   time, memory and equality of both by vocabulary; optimizers with dense and sparse gradients
    regression_targets     the squared error's mean that is no solution, and a mixture density network with the exact floors
    discretized_targets    a histogram as the target: which edges, how many bins, and how far from the floor
    conditional_densities  four distributions of a pixel given the pixels before it, and what a Gaussian makes of them
Further figures:
    dense_and_sparse_steps  time and memory of a training step with each optimizer
    way_of_an_unseen_row    how far optimizers move a row of the table after it was in the batch
    mixture_plateau         two initializations of the same mixture, step by step
    binned_densities        the skewed target's density from both kinds of bins, as images
    drawn_digits            images drawn pixel by pixel from nets that differ in their last layer only
    explore_density         a slider over x: the densities of three models next to the exact one
Tools:
    one_hot_bytes           the memory that one-hot vectors take
    cdf_edges, equal_edges  edges of bins; bin_of says which bin a target is in
    forward, skewed         Bishop's function, and the skewed target
    floors                  the least that is possible
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.targets.experiments.one_hot_vs_embedding import (
        one_hot_vs_embedding as one_hot_vs_embedding,
        dense_and_sparse_steps as dense_and_sparse_steps,
        way_of_an_unseen_row as way_of_an_unseen_row,
    )
    from hpml_lab.targets.lessons.one_hot import one_hot_bytes as one_hot_bytes
    from hpml_lab.targets.experiments.regression_targets import (
        regression_targets as regression_targets,
        mixture_plateau as mixture_plateau,
    )
    from hpml_lab.targets.experiments.discretized_targets import (
        discretized_targets as discretized_targets,
        binned_densities as binned_densities,
    )
    from hpml_lab.targets.experiments.conditional_densities import (
        conditional_densities as conditional_densities,
        drawn_digits as drawn_digits,
    )
    from hpml_lab.targets.views.density_slider import explore_density as explore_density
    from hpml_lab.targets.lessons.bins import cdf_edges as cdf_edges, equal_edges as equal_edges, bin_of as bin_of
    from hpml_lab.targets.lessons.inverse_problem import floors as floors, forward as forward, skewed as skewed
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
