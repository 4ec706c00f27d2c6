"""Streams of gradients on which several experiments run optimizers and formulas."""
