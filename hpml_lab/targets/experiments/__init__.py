"""The experiments of notebook 18, one module each."""
