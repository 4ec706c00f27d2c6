"""The experiments of notebook 10, one module each."""
