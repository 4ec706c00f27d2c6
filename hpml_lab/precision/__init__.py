"""Notebook 11: 16-bit numbers, the units that multiply them, and training with them."""
