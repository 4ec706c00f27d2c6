"""The experiments of notebook 16, one module or folder each."""
