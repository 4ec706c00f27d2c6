"""Surfaces over two parameters, whole grids of optimizer trajectories on them, and the theory of where they converge.

Surfaces:
    Surface, SURFACES, quadratic   a function with its gradient; seven of them by name; the bowl of any condition number
Trajectories:
    path                           one trajectory on plain floats
    run_grid, Grid                 a whole grid of settings or starts as one batched program
    torch_equivalent               the optimizer class that has the same rule
    RULES_WITH_CLASS               the names of the rules that have one
Theory on quadratics:
    update_matrix, spectral_radius, largest_stable_rate   one step as a matrix, its convergence rate, where it diverges
    best_settings, BestSetting     the fastest settings of each rule, and their source
    stability_map, StabilityMap    convergence rates measured over learning rate and momentum
The optimizer lab:
    lab                            paths, steps and maps that follow the hand, in a notebook
    lab_module                     the same page as a JavaScript module, for a site without a kernel
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.landscape.surfaces import SURFACES as SURFACES, Surface as Surface, quadratic as quadratic
    from hpml_lab.landscape.trajectories import (
        path as path,
        run_grid as run_grid,
        Grid as Grid,
        torch_equivalent as torch_equivalent,
        RULES_WITH_CLASS as RULES_WITH_CLASS,
    )
    from hpml_lab.landscape.stability import (
        update_matrix as update_matrix,
        spectral_radius as spectral_radius,
        largest_stable_rate as largest_stable_rate,
        best_settings as best_settings,
        BestSetting as BestSetting,
        stability_map as stability_map,
        StabilityMap as StabilityMap,
    )
    from hpml_lab.landscape.optimizer_lab.module import lab_module as lab_module
    from hpml_lab.landscape.optimizer_lab.widget import lab as lab
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
