"""The experiments of notebook 13, one module or folder each."""
