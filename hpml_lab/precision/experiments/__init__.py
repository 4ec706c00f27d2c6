"""The experiments of notebook 12, one module each."""
