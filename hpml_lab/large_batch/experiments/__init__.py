"""The experiments of notebook 15, one module each."""
