"""The experiments of notebook 11, one module each."""
