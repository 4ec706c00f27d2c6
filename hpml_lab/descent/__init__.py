"""Gradient descent: its learning rate, momentum, Nesterov's look-ahead, and saddles and local minima (notebook 04).

Experiments, in the order of the notebook, and further figures of their results:
    gd_variants          batch, mini-batch and stochastic descent; noise_and_cost
    learning_rate        the boundary 2/λmax, and schedules; schedules_under_noise
    momentum             fewer steps, where it converges, two ways to write it; momentum_paths, two_forms
    nesterov             look ahead first, then correct; nesterov_convergence
    saddle_and_minima    many starts, and how long a saddle holds; paths_on_surfaces, saddle_escapes
Softmax regression with its gradient by hand:
    real_data            pixels and one-hot labels of the digits or MNIST
    softmax_loss, softmax_gradient, softmax_minimum   J, ∇J, and the point where ∇J = 0
    largest_eigenvalue   the Hessian's λmax by power iteration
From hpml_lab.landscape and hpml_lab.optim:
    SURFACES, quadratic, path, run_grid, torch_equivalent, FORMULAS
    update_matrix, spectral_radius, best_settings
To play with:
    lab                  the optimizer lab
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.descent.experiments.gd_variants import gd_variants as gd_variants, noise_and_cost as noise_and_cost
    from hpml_lab.descent.experiments.learning_rate import (
        learning_rate as learning_rate,
        schedules_under_noise as schedules_under_noise,
    )
    from hpml_lab.descent.experiments.momentum import (
        momentum as momentum,
        momentum_paths as momentum_paths,
        two_forms as two_forms,
    )
    from hpml_lab.descent.experiments.nesterov import nesterov as nesterov, nesterov_convergence as nesterov_convergence
    from hpml_lab.descent.experiments.saddle_and_minima import (
        saddle_and_minima as saddle_and_minima,
        paths_on_surfaces as paths_on_surfaces,
        saddle_escapes as saddle_escapes,
    )
    from hpml_lab.descent.lessons.softmax_regression import (
        real_data as real_data,
        softmax_loss as softmax_loss,
        softmax_gradient as softmax_gradient,
        softmax_minimum as softmax_minimum,
        largest_eigenvalue as largest_eigenvalue,
    )
    from hpml_lab.landscape.optimizer_lab.widget import lab as lab
    from hpml_lab.landscape.surfaces import SURFACES as SURFACES, quadratic as quadratic
    from hpml_lab.landscape.trajectories import path as path, run_grid as run_grid, torch_equivalent as torch_equivalent
    from hpml_lab.landscape.stability import (
        update_matrix as update_matrix,
        spectral_radius as spectral_radius,
        best_settings as best_settings,
    )
    from hpml_lab.optim.formulas.by_name import FORMULAS as FORMULAS
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
