"""The exercises of notebook 05, one per module."""
