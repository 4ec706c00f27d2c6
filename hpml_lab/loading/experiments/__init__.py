"""The experiments of notebook 08, one module each."""
