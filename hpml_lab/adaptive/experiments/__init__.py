"""The experiments of notebook 05, one per file."""
