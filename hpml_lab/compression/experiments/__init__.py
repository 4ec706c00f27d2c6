"""The experiments of notebook 16, one module each."""
