"""The experiments of notebook 19, one module each."""
