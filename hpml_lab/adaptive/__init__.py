"""Notebook 05: optimizers that adapt the learning rate of each parameter."""
