"""The experiments of notebook 04, one per module."""
