"""The experiments of notebook 09, one module each."""
