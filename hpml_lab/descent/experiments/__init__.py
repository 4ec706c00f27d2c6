"""The experiments of notebook 04, one per module.

Next to them, what several of them use:
    path_measures  how paths on a surface are compared: length, turns, distance from each other
    rate_maps      maps of convergence rates over α and γ
"""
