"""Gradient descent: its learning rate, momentum, Nesterov's look-ahead, and saddles and local minima (notebook 04).

Experiments, in the order of the notebook, and further figures of their results:
    gd_variants          batch, mini-batch and stochastic descent; noise_and_cost
    learning_rate        the boundary 2/λmax, and schedules; schedules_under_noise
    momentum             fewer steps, where it converges, two ways to write it; momentum_paths, two_forms
    nesterov             look ahead first, then correct; nesterov_convergence
    saddle_and_minima    many starts and every optimizer; paths_on_surfaces, rastrigin_ends, saddle_escapes, lowest_losses
Softmax regression with its gradient by hand:
    real_data            pixels and one-hot labels of the digits or MNIST
    softmax_loss, softmax_gradient, softmax_minimum   J, ∇J, and the point where ∇J = 0
    curvature_along, largest_eigenvalue               the Hessian times a direction, and its λmax by power iteration
Finding a boundary:
    bisect               the learning rate from which on something diverges
From hpml_lab.landscape and hpml_lab.optim:
    SURFACES, quadratic, path, run_grid, torch_equivalent, FORMULAS
    update_matrix, spectral_radius, largest_stable_rate, best_settings
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.gd_variants": ["gd_variants", "noise_and_cost"],
        "experiments.learning_rate": ["learning_rate", "schedules_under_noise"],
        "experiments.momentum": ["momentum", "momentum_paths", "two_forms"],
        "experiments.nesterov": ["nesterov", "nesterov_convergence"],
        "experiments.saddle_and_minima": [
            "saddle_and_minima",
            "paths_on_surfaces",
            "rastrigin_ends",
            "saddle_escapes",
            "lowest_losses",
        ],
        "softmax": [
            "real_data",
            "softmax_loss",
            "softmax_gradient",
            "softmax_minimum",
            "curvature_along",
            "largest_eigenvalue",
        ],
        "boundary": ["bisect"],
        "hpml_lab.landscape.surfaces": ["SURFACES", "quadratic"],
        "hpml_lab.landscape.trajectories": ["path", "run_grid", "torch_equivalent"],
        "hpml_lab.landscape.stability": ["update_matrix", "spectral_radius", "largest_stable_rate", "best_settings"],
        "hpml_lab.optim.formulas": ["FORMULAS"],
    },
)
