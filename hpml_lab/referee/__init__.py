"""Copies of an untouched training script in turns: what a change gains, and whether the training is still the same."""
