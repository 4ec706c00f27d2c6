"""Surfaces over two parameters, whole grids of optimizer trajectories on them, and the theory of where they converge."""

from hpml_lab.landscape.surfaces import SURFACES, Surface, quadratic
from hpml_lab.landscape.trajectories import TWINS, Grid, path, run_grid, twin

__all__ = ["SURFACES", "TWINS", "Grid", "Surface", "path", "quadratic", "run_grid", "twin"]
