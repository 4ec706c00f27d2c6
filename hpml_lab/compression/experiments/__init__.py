"""The experiments of notebook 14, one module each."""
