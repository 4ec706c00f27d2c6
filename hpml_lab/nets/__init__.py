"""Room of notebook 03: networks, their losses, and the first training loops."""
