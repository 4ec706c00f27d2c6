"""The experiments of notebook 23, one module or folder each."""
