"""The experiments of notebook 06, one per file."""
