"""The experiments of notebook 05, one per file.

Next to them, what several of them use:
    gradient_streams  streams of gradients, and optimizers and formulas applied along them
"""
