"""The experiments of notebook 03, one per module."""
