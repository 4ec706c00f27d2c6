"""Inputs and targets: how categories enter a net, and how a distribution leaves it (notebook 15).

Experiments, in the order of the notebook:
    one_hot_vs_embedding  time, memory and equality of both by vocabulary; optimizers with dense and sparse gradients
    regression_targets    the squared error's mean that is no solution, and a mixture density network with the exact floors
    discretized_targets   a histogram as the target: which edges, how many bins, and how far from the floor
Further figures:
    dense_and_sparse_steps  time and memory of a training step with each optimizer
    way_of_an_unseen_row    how far optimizers move a row of the table after it was in the batch
    mixture_plateau         two initializations of the same mixture, step by step
    binned_densities        the skewed target's density from both kinds of bins, as images
    explore_density         a slider over x: the densities of three models next to the exact one
Tools:
    one_hot_rows            rows of a weight by one-hot vectors, guarded: check_ids, and one_hot_bytes against free_bytes
    mixture, start_apart    weights, means and widths from a net's outputs, and an initialization that works
    cdf_edges, equal_edges  edges of bins; widened, and bin_of says which bin a target is in
    forward, skewed         Bishop's function, and the skewed target
    exact, floors           the exact solution at points x, and the least that is possible
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.one_hot_vs_embedding": ["one_hot_vs_embedding", "dense_and_sparse_steps", "way_of_an_unseen_row"],
        "one_hot": ["check_ids", "free_bytes", "one_hot_bytes", "one_hot_rows"],
        "experiments.regression_targets": ["regression_targets", "mixture_plateau"],
        "experiments.discretized_targets": ["discretized_targets", "binned_densities"],
        "density_slider": ["explore_density"],
        "mdn": ["mixture", "start_apart"],
        "bins": ["cdf_edges", "equal_edges", "widened", "bin_of"],
        "inverse_problem": ["forward", "skewed", "exact", "floors"],
    },
)
