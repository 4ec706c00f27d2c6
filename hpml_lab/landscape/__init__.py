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
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "surfaces": ["SURFACES", "Surface", "quadratic"],
        "trajectories": ["path", "run_grid", "Grid", "torch_equivalent", "RULES_WITH_CLASS"],
        "stability": [
            "update_matrix",
            "spectral_radius",
            "largest_stable_rate",
            "best_settings",
            "BestSetting",
            "stability_map",
            "StabilityMap",
        ],
    },
)
